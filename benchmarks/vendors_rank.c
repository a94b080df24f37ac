/* vendors_rank.c: one rank of `python -m benchmarks.vendors --part one`: AllReduces of one vendor's library, in turn by a
 * communicator that leaves all to it, by the library's table, and, of MPI, by its own functions.
 *
 * vendors_rank VENDOR TURNS SIZE...    rank 0 prints a line for each size: bytes, µs of each way, and the last way's
 *                                      time over the first's in the same turn; all but bytes medians
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hccc_runtime.h>
#include <hccc_vendor.h>

enum { WAYS = 3, MOST_TURNS = 200 };

/* Of MPI 5.0's ABI. */
#define COMM_WORLD ((void *)0x101)
#define FLOAT ((void *)0x210)
#define SUM ((void *)0x21)
typedef int AllReduce(const void *, void *, int64_t, void *, void *, void *, void **);
typedef int Test(void **, int *, void *);

static hcccComm_t comm;
static const hccc_vendor *table;
static hccc_vendor_comm *own;
static AllReduce *start;
static Test *test;

static void must(hcccResult_t result) {
  if (!result) return;
  fprintf(stderr, "%s; %s\n", hcccGetLastError(NULL), hccc_vendor_error());
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void call(int way, const float *send, float *receive, size_t count) {
  void *request;
  int done = 0;
  switch (way) {
    case 0: return must(hcccAllReduce(send, receive, count, hcccFloat32, hcccSum, comm, NULL));
    case 1: return must(table->all_reduce(send, receive, count, hcccFloat32, hcccSum, own, NULL));
    default:
      if (start(send, receive, (int64_t)count, FLOAT, SUM, COMM_WORLD, &request)) exit(1);
      while (!done)
        if (test(&request, &done, NULL)) exit(1);
  }
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(size_t bytes, int turns, int ways, int rank, int n) {
  const size_t count = bytes / 4;
  const int calls = bytes < (1 << 20) ? (int)((1 << 21) / (bytes + 2048)) : 2;
  static double took[WAYS][MOST_TURNS], ratio[MOST_TURNS];
  float *const send = malloc(bytes), *const receive = malloc(bytes);
  for (size_t i = 0; i < count; ++i) send[i] = 1;
  for (int turn = -1; turn < turns; ++turn) { /* the first is not counted */
    for (int k = 0; k < ways; ++k) {
      const int way = (turn + 1 + k) % ways;
      memset(receive, 0, bytes);
      const double begun = now();
      for (int i = 0; i < calls; ++i) call(way, send, receive, count);
      if (turn >= 0) took[way][turn] = (now() - begun) / calls;
      if (receive[0] != n || receive[count - 1] != n) exit(2);
    }
    if (turn >= 0) ratio[turn] = took[ways - 1][turn] / took[0][turn];
  }
  for (int way = 0; way < ways; ++way) qsort(took[way], (size_t)turns, sizeof(double), compare);
  qsort(ratio, (size_t)turns, sizeof(double), compare);
  if (!rank) {
    printf("%zu", bytes);
    for (int way = 0; way < ways; ++way) printf(" %.4f", took[way][turns / 2]);
    printf(" %.4f\n", ratio[turns / 2]);
    fflush(stdout);
  }
  free(send), free(receive);
}

int main(int argc, char **argv) {
  int n = 0, rank = 0;
  if (argc < 4) return 2;
  must(hcccCommInitEnvironment(&comm));
  must(hcccCommCount(comm, &n));
  must(hcccCommUserRank(comm, &rank));
  must(hccc_vendor_load(argv[1], NULL, &table));
  char *const ids = calloc((size_t)n, HCCC_VENDOR_ID_BYTES);
  if (!rank) must(table->unique_id(ids));
  must(hcccCommGatherBytes(comm, ids, HCCC_VENDOR_ID_BYTES));
  must(table->init_rank(&own, n, ids, rank, 60));
  void *const library = dlopen(table->library, RTLD_NOW | RTLD_NOLOAD);
  if (library) start = (AllReduce *)dlsym(library, "MPI_Iallreduce_c"), test = (Test *)dlsym(library, "MPI_Test");
  const int turns = atoi(argv[2]) < MOST_TURNS ? atoi(argv[2]) : MOST_TURNS;
  for (int i = 3; i < argc; ++i) measure((size_t)atol(argv[i]), turns, start && test ? WAYS : WAYS - 1, rank, n);
  _exit(0); /* MPI is never finalized */
}
