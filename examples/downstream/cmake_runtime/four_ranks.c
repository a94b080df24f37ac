/* Four ranks, here threads of one process, make a communicator, load a library of kernels and call
 * it, once and waiting, once in a stream. A job of several processes differs in hcccCommInitEnvironment
 * alone. */
#include <hccc_runtime.h>
#include <hcccrt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, COUNT = 100000 };

typedef struct rank_thread {
  pthread_t thread;
  hcccUniqueId id;
  int rank, wrong;
} rank_thread;

static void check(hcccResult_t result, hcccComm_t comm, const char *what) {
  if (result == hcccSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", what, hcccGetErrorString(result), hcccGetLastError(comm));
  exit(1);
}

static void check_device(hcccrtError_t error, const char *what) {
  if (error == hcccrtSuccess) return;
  fprintf(stderr, "%s: %s\n", what, hcccrtGetErrorString(error));
  exit(1);
}

/* The maximum of what all ranks have already; nothing changes. */
static void run_in_stream(float *data, hcccComm_t comm) {
  hcccrtStream_t stream = NULL;
  hcccResult_t state;
  check_device(hcccrtSetPlatform(hcccrtPlatformCPU), "hcccrtSetPlatform");
  check_device(hcccrtStreamCreate(&stream), "hcccrtStreamCreate");
  check(hcccAllReduce(data, data, COUNT, hcccFloat32, hcccMax, comm, stream), comm, "hcccAllReduce");
  check_device(hcccrtStreamSynchronize(stream), "hcccrtStreamSynchronize");
  check(hcccCommGetAsyncError(comm, &state), comm, "hcccCommGetAsyncError");
  check(state, comm, "hcccAllReduce in a stream");
  check_device(hcccrtStreamDestroy(stream), "hcccrtStreamDestroy");
}

static void *run(void *argument) {
  rank_thread *own = argument;
  hcccComm_t comm = NULL;
  float *data = NULL;
  check(hcccCommInitRank(&comm, RANKS, own->id, own->rank), NULL, "hcccCommInitRank");
  check(hcccCommLoad(comm, LIBRARY), comm, "hcccCommLoad");
  check(hcccMemAlloc((void **)&data, COUNT * sizeof(float)), NULL, "hcccMemAlloc");
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(own->rank + i % 1000);
  check(hcccAllReduce(data, data, COUNT, hcccFloat32, hcccSum, comm, NULL), comm, "hcccAllReduce");
  run_in_stream(data, comm);
  for (int i = 0; i < COUNT; ++i)
    own->wrong += data[i] != (float)(RANKS * (RANKS - 1) / 2 + RANKS * (i % 1000));
  check(hcccMemFree(data), NULL, "hcccMemFree");
  check(hcccCommDestroy(comm), NULL, "hcccCommDestroy");
  return NULL;
}

int main(void) {
  rank_thread ranks[RANKS];
  hcccUniqueId id;
  int wrong = 0;
  check(hcccGetUniqueId(&id), NULL, "hcccGetUniqueId");
  for (int r = 0; r < RANKS; ++r) {
    ranks[r].id = id;
    ranks[r].rank = r;
    ranks[r].wrong = 0;
    if (pthread_create(&ranks[r].thread, NULL, run, &ranks[r])) return 1;
  }
  for (int r = 0; r < RANKS; ++r) {
    pthread_join(ranks[r].thread, NULL);
    wrong += ranks[r].wrong;
  }
  printf("%d ranks, %d elements: %s\n", RANKS, COUNT, wrong ? "wrong" : "right");
  return wrong != 0;
}
