/* client.c: a program of NCCL's, compiled with its header or with ours.
 *
 *     client FILE N RANK   is rank RANK of N, which meet by an id in FILE
 *     client FILE N all    is all N ranks, in one thread
 */
#define _DEFAULT_SOURCE
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 1000
#define MOST 8

static ncclComm_t comms[MOST];
static int n, first, last; /* ranks of this process: first to last - 1 */
static float *in[MOST], *out[MOST];
static cudaStream_t none = NULL;

static void fail(const char *what, int line) {
  fprintf(stderr, "line %d: %s: %s\n", line, what, ncclGetLastError(NULL));
  exit(1);
}
#define CHECK(call)                                                    \
  do {                                                                 \
    const ncclResult_t result = (call);                                \
    if (result != ncclSuccess) fail(#call, __LINE__);                  \
  } while (0)
#define HOLDS(truth)                          \
  do {                                        \
    if (!(truth)) fail(#truth, __LINE__);     \
  } while (0)
/* Waits until a communicator has done what it does without blocking; returns what came of that. */
static ncclResult_t done(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  for (;; usleep(200)) {
    CHECK(ncclCommGetAsyncError(comm, &state));
    if (state != ncclInProgress) return state;
  }
}
/* Ends a group; where a communicator does not block that returns at once. */
static void end_group(void) {
  const ncclResult_t ended = ncclGroupEnd();
  if (ended != ncclInProgress) CHECK(ended);
  for (int r = first; r < last; ++r) CHECK(done(comms[r]));
}
/* Makes a call at every rank of this process, r. */
#define EACH(call)                                                 \
  do {                                                             \
    CHECK(ncclGroupStart());                                       \
    for (int r = first; r < last; ++r) CHECK(call);                \
    end_group();                                                   \
  } while (0)

static float value(int rank, int i) { return (float)(rank * 100 + i % 17); }
static float sum(int i) {
  float all = 0;
  for (int r = 0; r < n; ++r) all += value(r, i);
  return all;
}
static void fill(void) {
  for (int r = first; r < last; ++r)
    for (int i = 0; i < COUNT * n; ++i) in[r][i] = value(r, i), out[r][i] = -1;
}

static void reductions(void) {
  fill();
  EACH(ncclAllReduce(in[r], out[r], COUNT, ncclFloat32, ncclSum, comms[r], none));
  for (int r = first; r < last; ++r)
    for (int i = 0; i < COUNT; ++i) HOLDS(out[r][i] == sum(i));
  fill();
  EACH(ncclAllReduce(in[r], in[r], COUNT, ncclFloat32, ncclSum, comms[r], none));
  for (int r = first; r < last; ++r) HOLDS(in[r][COUNT - 1] == sum(COUNT - 1) && in[r][COUNT] == value(r, COUNT));
  fill();
  EACH(ncclReduce(in[r], out[r], COUNT, ncclFloat32, ncclSum, n - 1, comms[r], none));
  for (int r = first; r < last; ++r) HOLDS(out[r][20] == (r == n - 1 ? sum(20) : -1));
  fill();
  EACH(ncclReduceScatter(in[r], out[r], COUNT, ncclFloat32, ncclSum, comms[r], none));
  for (int r = first; r < last; ++r)
    for (int i = 0; i < COUNT; ++i) HOLDS(out[r][i] == sum(r * COUNT + i));
}

/* Each rank multiplies by one more than its number, all but the first from memory. */
static void multiples(void) {
  static float scalars[MOST];
  ncclRedOp_t ops[MOST];
  float wanted = 0;
  for (int r = 0; r < n; ++r) scalars[r] = (float)(r + 1), wanted += scalars[r] * value(r, 20);
  for (int r = first; r < last; ++r) {
    float immediate = scalars[r];
    void *at = r ? &scalars[r] : &immediate;
    const ncclScalarResidence_t where = r ? ncclScalarDevice : ncclScalarHostImmediate;
    CHECK(ncclRedOpCreatePreMulSum(&ops[r], at, ncclFloat32, where, comms[r]));
  }
  fill();
  CHECK(ncclGroupStart());
  for (int r = first; r < last; ++r) {
    CHECK(ncclAllReduce(in[r], out[r], COUNT, ncclFloat32, ops[r], comms[r], none));
    CHECK(ncclRedOpDestroy(ops[r], comms[r]));
  }
  end_group();
  for (int r = first; r < last; ++r) {
    HOLDS(out[r][20] == wanted);
    HOLDS(ncclRedOpDestroy(ops[r], comms[r]) == ncclInvalidArgument);
  }
}

static void moves(void) {
  fill();
  EACH(ncclBroadcast(in[r], out[r], COUNT, ncclFloat32, 1, comms[r], none));
  for (int r = first; r < last; ++r) HOLDS(out[r][3] == value(1, 3));
  EACH(ncclBcast(in[r], COUNT, ncclFloat32, 0, comms[r], none));
  for (int r = first; r < last; ++r) HOLDS(in[r][3] == value(0, 3));
  fill();
  EACH(ncclAllGather(in[r], out[r], COUNT, ncclFloat32, comms[r], none));
  for (int r = first; r < last; ++r)
    for (int b = 0; b < n; ++b) HOLDS(out[r][b * COUNT + 7] == value(b, 7));
  fill();
  EACH(ncclGather(in[r], out[r], COUNT, ncclFloat32, 0, comms[r], none));
  if (!first) HOLDS(out[0][COUNT + 7] == value(1, 7));
  EACH(ncclScatter(in[r], out[r], COUNT, ncclFloat32, 0, comms[r], none));
  for (int r = first; r < last; ++r) HOLDS(out[r][7] == value(0, r * COUNT + 7));
  EACH(ncclAlltoAll(in[r], out[r], COUNT, ncclFloat32, comms[r], none));
  for (int r = first; r < last; ++r)
    for (int b = 0; b < n; ++b) HOLDS(out[r][b * COUNT + 7] == value(b, r * COUNT + 7));
}

/* A ring, whose messages are fused by a group, and no stream but NCCL's default ones. */
static void messages(void) {
  fill();
  CHECK(ncclGroupStart());
  for (int r = first; r < last; ++r) {
    CHECK(ncclSend(in[r], COUNT, ncclFloat32, (r + 1) % n, comms[r], (cudaStream_t)1));
    CHECK(ncclRecv(out[r], COUNT, ncclFloat32, (r + n - 1) % n, comms[r], (cudaStream_t)1));
  }
  end_group();
  for (int r = first; r < last; ++r) HOLDS(out[r][9] == value((r + n - 1) % n, 9));
}

/* Halves: a rank's key turns their order round. The last rank is in none. */
static void splits(void) {
  ncclComm_t half[MOST];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EACH(ncclCommSplit(comms[r], r == n - 1 ? NCCL_SPLIT_NOCOLOR : r % 2, -r, &half[r], &config));
  for (int r = first; r < last; ++r) {
    if (r == n - 1) {
      HOLDS(half[r] == NULL);
      continue;
    }
    int count = 0, rank = -1;
    CHECK(ncclCommCount(half[r], &count));
    CHECK(ncclCommUserRank(half[r], &rank));
    const int members = (n - 1 - r % 2 + 1) / 2;
    HOLDS(count == members && rank == members - 1 - r / 2);
    CHECK(ncclCommDestroy(half[r]));
  }
  if (last - first > 1) return;
  ncclComm_t beside = NULL; /* another one of all, for a message meanwhile */
  CHECK(ncclGroupStart());
  CHECK(ncclCommSplit(comms[first], 0, first, &beside, &config));
  end_group();
  fill();
  /* Rank 1 comes when rank 0 knows that it need not wait; what is made of a communicator blocks as that does. */
  ncclComm_t own = comms[first], again = NULL;
  if (first == 1) CHECK(ncclRecv(out[1], 1, ncclFloat32, 0, beside, none));
  const ncclResult_t begun = ncclCommSplit(own, 0, first, &again, NULL);
  HOLDS(begun == (first % 2 ? ncclSuccess : ncclInProgress));
  if (!first) {
    int rank;
    ncclResult_t state;
    CHECK(ncclCommGetAsyncError(own, &state));
    HOLDS(state == ncclInProgress && ncclCommUserRank(again, &rank) == ncclInvalidArgument);
    HOLDS(ncclAllReduce(in[0], out[0], 1, ncclFloat32, ncclSum, own, none) == ncclInvalidArgument);
    CHECK(ncclSend(in[0], 1, ncclFloat32, 1, beside, none));
  }
  CHECK(done(own));
  CHECK(done(again));
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(in[first], out[first], COUNT, ncclFloat32, ncclSum, again, none));
  const ncclResult_t ended = ncclGroupEnd();
  HOLDS(ended == (first % 2 ? ncclSuccess : ncclInProgress));
  CHECK(done(again));
  for (int i = 0; i < COUNT; ++i) HOLDS(out[first][i] == sum(i));
  CHECK(ncclCommDestroy(again));
  CHECK(ncclCommDestroy(beside));
}

/* Ranks but the first make a communicator without it, which waits for nothing. */
static void shrinks(void) {
  int excluded[1] = {0};
  ncclComm_t rest = NULL;
  if (last - first > 1 || !first) return;
  CHECK(ncclCommShrink(comms[first], excluded, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
  int count = 0, rank = -1;
  CHECK(ncclCommCount(rest, &count));
  CHECK(ncclCommUserRank(rest, &rank));
  HOLDS(count == n - 1 && rank == first - 1);
  CHECK(ncclCommDestroy(rest));
}

/* Old ranks and one that is new make a communicator: here all are old but the last. */
static void grows(const char *file) {
  char own[4096];
  ncclUniqueId id;
  ncclComm_t fewer = NULL, all = NULL;
  if (last - first > 1) return;
  HOLDS(ncclCommSplit(comms[first], first == n - 1 ? NCCL_SPLIT_NOCOLOR : 0, first, &fewer, NULL) ==
        (first % 2 ? ncclSuccess : ncclInProgress));
  CHECK(done(comms[first]));
  snprintf(own, sizeof own, "%s.grown", file);
  if (first == 0) {
    CHECK(ncclCommGetUniqueId(fewer, &id));
    FILE *opened = fopen(own, "wb");
    HOLDS(opened && fwrite(&id, sizeof id, 1, opened) == 1 && !fclose(opened));
  }
  in[first][0] = 1; /* the last rank reads the id when the first has written it */
  CHECK(ncclAllReduce(in[first], in[first], 1, ncclFloat32, ncclSum, comms[first], none));
  if (first == n - 1) {
    FILE *opened = fopen(own, "rb");
    HOLDS(opened && fread(&id, sizeof id, 1, opened) == 1 && !fclose(opened));
  }
  CHECK(ncclCommGrow(fewer, n, first == 0 || !fewer ? &id : NULL, fewer ? -1 : n - 1, &all, NULL));
  int count = 0, rank = -1;
  CHECK(ncclCommCount(all, &count));
  CHECK(ncclCommUserRank(all, &rank));
  HOLDS(count == n && rank == first);
  CHECK(ncclCommDestroy(all));
  if (fewer) CHECK(ncclCommDestroy(fewer));
}

static void memory(void) {
  float *at[MOST];
  for (int r = first; r < last; ++r) {
    void *made = NULL, *handle = NULL, *again = NULL;
    ncclWindow_t window = NULL;
    CHECK(ncclMemAlloc(&made, COUNT * sizeof(float)));
    CHECK(ncclCommRegister(comms[r], made, COUNT * sizeof(float), &handle));
    CHECK(ncclCommWindowRegister(comms[r], made, COUNT * sizeof(float), &window, 0));
    CHECK(ncclWinGetUserPtr(comms[r], window, &again));
    HOLDS(again == made);
    CHECK(ncclCommWindowDeregister(comms[r], window));
    CHECK(ncclCommDeregister(comms[r], handle));
    HOLDS(ncclCommDeregister(comms[r], handle) == ncclInvalidArgument);
    at[r] = made;
    for (int i = 0; i < COUNT; ++i) at[r][i] = value(r, i);
  }
  EACH(ncclAllReduce(at[r], at[r], COUNT, ncclFloat32, ncclSum, comms[r], none));
  for (int r = first; r < last; ++r) {
    HOLDS(at[r][5] == sum(5));
    CHECK(ncclMemFree(at[r]));
  }
}

/* Calls that are refused, after which the communicator still works. */
static void refusals(void) {
  ncclComm_t comm = comms[first];
  ncclRedOp_t op = ncclSum;
  ncclResult_t async = ncclInternalError;
  float two = 2;
  int count = 0;
  HOLDS(ncclCommCount(NULL, &count) == ncclInvalidArgument);
  HOLDS(ncclAllReduce(in[first], out[first], 1, (ncclDataType_t)12, ncclSum, comm, none) == ncclInvalidArgument);
  HOLDS(strstr(ncclGetLastError(comm), "12 is no type"));
  HOLDS(ncclAllReduce(in[first], out[first], 1, ncclFloat32, (ncclRedOp_t)5, comm, none) == ncclInvalidArgument);
  HOLDS(strstr(ncclGetLastError(comm), "5 is no reduction"));
  HOLDS(ncclSend(in[first], 1, ncclFloat32, n, comm, none) == ncclInvalidArgument);
  HOLDS(ncclRedOpCreatePreMulSum(&op, &two, (ncclDataType_t)12, ncclScalarHostImmediate, comm) == ncclInvalidArgument);
  HOLDS(ncclRedOpDestroy((ncclRedOp_t)4711, comm) == ncclInvalidArgument);
  HOLDS(ncclGroupEnd() == ncclInvalidUsage);
  HOLDS(strstr(ncclGetLastError(NULL), "no group is open"));
  CHECK(ncclGroupStart());
  HOLDS(ncclBroadcast(in[first], out[first], 1, (ncclDataType_t)-1, 0, comm, none) == ncclInvalidArgument);
  HOLDS(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(ncclCommGetAsyncError(comm, &async));
  HOLDS(async == ncclSuccess);
}

static void join(const char *file) {
  ncclUniqueId id;
  char fresh[4096];
  snprintf(fresh, sizeof fresh, "%s.new", file);
  if (!first) {
    CHECK(ncclGetUniqueId(&id));
    FILE *opened = fopen(fresh, "wb");
    HOLDS(opened && fwrite(&id, sizeof id, 1, opened) == 1 && !fclose(opened));
  } else {
    FILE *opened;
    while (!(opened = fopen(file, "rb"))) usleep(5000);
    HOLDS(fread(&id, sizeof id, 1, opened) == 1 && !fclose(opened));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = first % 2;
  if (config.blocking) {
    CHECK(ncclCommInitRankConfig(&comms[first], n, id, first, &config));
    return;
  }
  HOLDS(ncclCommInitRankConfig(&comms[first], n, id, first, &config) == ncclInProgress);
  ncclResult_t state;
  int rank;
  if (!first) { /* rank 1 waits for this */
    CHECK(ncclCommGetAsyncError(comms[first], &state));
    HOLDS(state == ncclInProgress && ncclCommUserRank(comms[first], &rank) == ncclInvalidArgument);
    HOLDS(!rename(fresh, file));
  }
  do {
    usleep(1000);
    CHECK(ncclCommGetAsyncError(comms[first], &state));
  } while (state == ncclInProgress);
  HOLDS(state == ncclSuccess);
}

/* Begins a communicator that no other rank comes to, and aborts it; one whose rank makes no sense fails. */
static void aborts(void) {
  ncclUniqueId id;
  ncclComm_t lost;
  ncclResult_t state;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  CHECK(ncclGetUniqueId(&id));
  HOLDS(ncclCommInitRankConfig(&lost, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclCommAbort(lost));
  HOLDS(ncclCommInitRankConfig(&lost, 2, id, 2, &config) == ncclInProgress);
  do CHECK(ncclCommGetAsyncError(lost, &state));
  while (state == ncclInProgress);
  HOLDS(state == ncclInvalidArgument && strstr(ncclGetLastError(lost), "rank 2 of 2"));
  CHECK(ncclCommDestroy(lost));
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  n = atoi(argv[2]);
  const int all = !strcmp(argv[3], "all");
  first = all ? 0 : atoi(argv[3]);
  last = all ? n : first + 1;
  if (all) CHECK(ncclCommInitAll(comms, n, NULL));
  else join(argv[1]);
  for (int r = first; r < last; ++r) {
    int rank = -1;
    CHECK(ncclCommUserRank(comms[r], &rank));
    HOLDS(rank == r);
    in[r] = malloc(sizeof(float) * COUNT * (size_t)n);
    out[r] = malloc(sizeof(float) * COUNT * (size_t)n);
  }
  reductions();
  multiples();
  moves();
  messages();
  splits();
  refusals();
  memory();
  shrinks();
  grows(argv[1]);
  aborts();
  fill();
  EACH(ncclAllReduce(in[r], out[r], COUNT, ncclFloat32, ncclSum, comms[r], none));
  for (int r = first; r < last; ++r) {
    HOLDS(out[r][11] == sum(11));
    CHECK(ncclCommFinalize(comms[r]));
  }
  for (int r = first; r < last; ++r) CHECK(ncclCommDestroy(comms[r]));
  printf("right\n");
  return 0;
}
