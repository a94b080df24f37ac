/* client.c: a rank that loads jobs by hcccCommLoad and makes the calls that they do. Its arguments are the
 * tables: of an AllReduce, an AllGather, and a Broadcast from rank 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hccc_runtime.h"

enum { COUNT = 100003 };

static void check(hcccResult_t result, const char *what, hcccComm_t comm) {
  if (result == hcccSuccess) return;
  printf("%s: %s\n", what, hcccGetLastError(comm));
  exit(1);
}

static void equal(float found, float wanted, const char *what) {
  if (found == wanted) return;
  printf("%s: %g is not %g\n", what, found, wanted);
  exit(1);
}

int main(int n_tables, char **tables) {
  hcccComm_t comm = NULL;
  int rank = 0, n = 0;
  check(hcccCommInitEnvironment(&comm), "init", NULL);
  check(hcccCommUserRank(comm, &rank), "rank", comm);
  check(hcccCommCount(comm, &n), "count", comm);
  for (int i = 1; i < n_tables; ++i) {
    if (hcccCommLoad(comm, tables[i]) == hcccSuccess) continue;
    printf("%s\n", hcccGetLastError(comm));
    char all[64] = {0};
    hcccCommGatherBytes(comm, all, 1); /* no rank leaves before all have been told */
    exit(1);
  }
  hcccCan_t can = hcccCanNot;
  check(hcccCommCan(comm, "Broadcast", 1, hcccFloat32, hcccSum, &can), "can", comm);
  equal((float)can, (float)hcccCanNow, "what there is");
  float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y * (size_t)n);
  for (int i = 0; i < COUNT; ++i) x[i] = (float)(rank + i % 7);
  check(hcccAllReduce(x, y, COUNT, hcccFloat32, hcccSum, comm, NULL), "all_reduce", comm);
  for (int i = 0; i < COUNT; ++i) equal(y[i], (float)(n * (n - 1) / 2 + n * (i % 7)), "a sum");
  check(hcccAllReduce(x, x, COUNT, hcccFloat32, hcccAvg, comm, NULL), "all_reduce", comm);
  for (int i = 0; i < COUNT; ++i) equal(x[i], (float)(n - 1) / 2 + (float)(i % 7), "an average");
  for (int i = 0; i < COUNT; ++i) x[i] = (float)(1000 * rank + i % 11);
  check(hcccGroupStart(), "group", comm);
  check(hcccAllGather(x, y, COUNT, hcccFloat32, comm, NULL), "all_gather", comm);
  check(hcccBroadcast(x, x, COUNT, hcccFloat32, 1, comm, NULL), "broadcast", comm);
  check(hcccGroupEnd(), "group", comm);
  for (int i = 0; i < n * COUNT; ++i) equal(y[i], (float)(1000 * (i / COUNT) + i % COUNT % 11), "a block");
  for (int i = 0; i < COUNT; ++i) equal(x[i], (float)(1000 + i % 11), "the root's");
  const char *name = "";
  check(hcccCommLibrary(comm, &name), "library", comm);
  if (strcmp(name, "hetccl_broadcast")) return 3;
  if (hcccAllReduce(x, x, 1, hcccComplex64, hcccMax, comm, NULL) != hcccInvalidArgument) return 2;
  check(hcccCommDestroy(comm), "destroy", NULL);
  free(x), free(y);
  printf("right\n");
  return 0;
}
