/* Four ranks in one process add their buffers, and every element of every result is checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce.h"

enum { RANKS = 4, COUNT = 100000 };

/* Zeroed memory that begins where flags and scratch must; of 0 bytes, too. */
static void *zeroed(long long bytes) {
  const size_t size = ((size_t)bytes / 128 + 1) * 128;
  void *memory = aligned_alloc(128, size);
  if (!memory) {
    fputs("no memory\n", stderr);
    exit(1);
  }
  return memset(memory, 0, size);
}

static float element(int rank, int i) { return (float)((rank + 1) * (i % 1000)); }

static int wrong_elements(const hccc_local *local) {
  int wrong = 0;
  for (int r = 0; r < RANKS; ++r)
    for (int i = 0; i < COUNT; ++i) {
      float sum = 0;
      for (int from = 0; from < RANKS; ++from) sum += element(from, i);
      wrong += ((const float *)local[r].output)[i] != sum;
    }
  return wrong;
}

int main(void) {
  static const hccc_window everything = HCCC_ALL_MEMORY; /* ranks of one process share all of it */
  hccc_rank ranks[RANKS] = {{0}};
  hccc_local local[RANKS] = {{0}};
  hccc_fault fault = {0};
  hccc_comm comm = HCCC_COMM_INIT;
  hccc_call call = HCCC_CALL_INIT;
  comm.n_ranks = RANKS;
  comm.ranks = ranks;
  comm.fault = &fault;
  call.count = COUNT;
  call.n_local = RANKS;
  call.local = local;
  call.timeout_s = 30;
  for (int r = 0; r < RANKS; ++r) {
    ranks[r].flags = zeroed(allreduce_flag_bytes());
    ranks[r].scratch = zeroed(allreduce_scratch_bytes(&call, sizeof(float)));
    ranks[r].windows = &everything;
    ranks[r].n_windows = 1;
    local[r].input = zeroed(COUNT * (long long)sizeof(float));
    local[r].output = zeroed(COUNT * (long long)sizeof(float));
    for (int i = 0; i < COUNT; ++i) ((float *)local[r].input)[i] = element(r, i);
  }
  for (int launch = 0; launch < 3; ++launch) { /* flags go on from launch to launch */
    const int status = allreduce_cpu(&comm, &call, "float32", "sum");
    const int wrong = status == HCCC_OK ? wrong_elements(local) : 0;
    if (status != HCCC_OK || wrong) {
      fprintf(stderr, "status %d, %d elements are wrong\n", status, wrong);
      return 1;
    }
    for (int r = 0; r < RANKS; ++r) memset(local[r].output, 0, COUNT * sizeof(float));
  }
  printf("%d ranks, %d elements: right\n", RANKS, COUNT);
  for (int r = 0; r < RANKS; ++r) {
    free(ranks[r].flags);
    free(ranks[r].scratch);
    free(local[r].input);
    free(local[r].output);
  }
  return 0;
}
