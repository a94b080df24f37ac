/* Calls a library by name at sizes on both sides of its borders, in and out of place, many launches
 * of one communicator; it knows nothing of plans. Prints how many launches were right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "both.h"

enum { RANKS = 4, MOST = 50000, LAUNCHES = 60 };

static const int counts[] = {10001, 0, 2499, MOST, 2500, 1, 9999, 10000, 40000, 39999, 1000};

static void *zeroed(long long bytes) {
  void *memory = aligned_alloc(128, (size_t)(bytes / 128 + 1) * 128);
  return memory ? memset(memory, 0, (size_t)bytes) : NULL;
}

/* The most that any of the calls needs: what README says of scratch. */
static long long most_scratch(hccc_call call) {
  long long most = 0;
  size_t i;
  for (i = 0; i < 2 * sizeof counts / sizeof *counts; ++i) {
    long long need;
    call.count = counts[i / 2];
    call.in_place = i % 2;
    need = both_scratch_bytes(&call, sizeof(float));
    most = need > most ? need : most;
  }
  return most;
}

static int wrong(const hccc_local *local, int count, int launch, int in_place) {
  int found = 0, r, i;
  for (r = 0; r < RANKS; ++r)
    for (i = 0; i < count; ++i) {
      found += ((const float *)local[r].output)[i] != (float)(RANKS * (i % 7 + launch) + 6);
      if (!in_place) found += ((const float *)local[r].input)[i] != (float)(i % 7 + launch + r);
    }
  return found;
}

int main(void) {
  static const hccc_window everything = HCCC_ALL_MEMORY;
  hccc_rank ranks[RANKS] = { {0} };
  hccc_local local[RANKS] = { {0} };
  hccc_fault fault = {0};
  hccc_comm comm = HCCC_COMM_INIT;
  hccc_call call = HCCC_CALL_INIT;
  float *output[RANKS], *input[RANKS];
  int right = 0, taken = 0, launch, r, i;
  call.n_local = comm.n_ranks = RANKS;
  call.local = local;
  call.timeout_s = 20;
  comm.ranks = ranks;
  comm.fault = &fault;
  for (r = 0; r < RANKS; ++r) {
    ranks[r].flags = zeroed(both_flag_bytes());
    ranks[r].scratch = zeroed(most_scratch(call));
    ranks[r].windows = &everything;
    ranks[r].n_windows = 1;
    output[r] = zeroed(MOST * (long long)sizeof(float));
    input[r] = zeroed(MOST * (long long)sizeof(float));
  }
  for (launch = 0; launch < LAUNCHES; ++launch) {
    const int count = counts[launch % (int)(sizeof counts / sizeof *counts)];
    call.count = count;
    call.in_place = launch % 3 == 0;
    taken |= both_plan_of(&call, sizeof(float));
    for (r = 0; r < RANKS; ++r) {
      local[r].output = output[r];
      local[r].input = call.in_place ? output[r] : input[r];
      for (i = 0; i < count; ++i) ((float *)local[r].input)[i] = (float)(i % 7 + launch + r);
    }
    if (both_cpu(&comm, &call, "float32", "sum") == HCCC_OK)
      right += !wrong(local, count, launch, call.in_place);
  }
  printf("%d of %d, plans %d\n", right, LAUNCHES, taken);
  return both_cpu(&comm, NULL, "float32", "sum") != HCCC_BAD_ARGUMENT;
}
