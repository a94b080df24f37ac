/* A library with NCCL's names that works on memory of the host, or of the stand-in for CUDA: ranks are
 * processes that share a segment, and calls return when they are done. STAND_IN_FAILS=k: the k-th
 * AllReduce fails. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS = 4, SLOT = 1 << 22, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6 };

typedef struct {
  _Atomic unsigned arrived, aborted;
  _Atomic unsigned full[RANKS][RANKS];
  char slots[RANKS][SLOT];
  char mail[RANKS][RANKS][SLOT]; /* from, to */
} Segment;

typedef struct Comm {
  Segment *at;
  char name[64];
  int n, rank;
  unsigned rounds, splits;
} Comm;

typedef struct { char of[128]; } Id;
typedef struct { Comm *comm; const void *send; void *receive; size_t bytes; int peer; } Message;

static _Thread_local Message noted[64];
static _Thread_local int n_noted, groups;
static char last_error[128];
static int n_all_reduces;

static Segment *open_segment(const char *name) {
  const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Segment))) return NULL;
  void *at = mmap(NULL, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? NULL : at;
}

static int barrier(Comm *c) {
  const unsigned all = ++c->rounds * (unsigned)c->n;
  atomic_fetch_add(&c->at->arrived, 1);
  while (atomic_load(&c->at->arrived) < all) {
    if (atomic_load(&c->at->aborted)) return REMOTE_ERROR;
    sched_yield();
  }
  return 0;
}

static size_t width(int type) {
  static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return widths[type];
}

#define REDUCE(T)                                                                                        \
  for (size_t i = 0; i < n; ++i) {                                                                       \
    T *to = (T *)into + i;                                                                               \
    const T one = ((const T *)from)[i];                                                                  \
    *to = (T)(op == 0 ? *to + one : op == 1 ? *to * one : op == 2 ? (*to > one ? *to : one) : (*to < one ? *to : one)); \
  }                                                                                                      \
  break;

static void reduce(void *into, const void *from, size_t n, int type, int op) {
  switch (type) {
    case 0: REDUCE(int8_t)
    case 1: REDUCE(uint8_t)
    case 2: REDUCE(int32_t)
    case 3: REDUCE(uint32_t)
    case 4: REDUCE(int64_t)
    case 5: REDUCE(uint64_t)
    case 6: REDUCE(_Float16)
    case 7: REDUCE(float)
    case 8: REDUCE(double)
  }
}

/* Returns where a buffer really is: memory of working_cuda.cpp may be apart. */
static void *real(const void *at) {
  static void *(*of)(const void *);
  static int looked;
  const char *file = getenv("HCCC_CUDA_LIBRARY");
  void *cuda = looked++ || !file ? NULL : dlopen(file, RTLD_NOW | RTLD_NOLOAD);
  if (cuda) of = (void *(*)(const void *))dlsym(cuda, "workingMemory");
  return of ? of(at) : (void *)at;
}

/* Tells `bytes` of each rank to all, then has `take` read them. */
static int tell(Comm *c, const void *send, size_t bytes) {
  if (bytes > SLOT) return INVALID_ARGUMENT;
  if (send && bytes) memcpy(c->at->slots[c->rank], real(send), bytes);
  return barrier(c);
}

int ncclGetVersion(int *version) {
  *version = 22803;
  return 0;
}
const char *ncclGetErrorString(int code) { return code == SYSTEM_ERROR ? "the stand-in failed" : "an error"; }
const char *ncclGetLastError(void *comm) {
  (void)comm;
  return last_error;
}

int ncclGetUniqueId(Id *id) {
  static _Atomic int made;
  memset(id, 0, sizeof *id);
  snprintf(id->of, sizeof id->of, "/hccc-stand-in-%d-%d", getpid(), atomic_fetch_add(&made, 1));
  return open_segment(id->of) ? 0 : SYSTEM_ERROR;
}

static int join(Comm **made, int n, const char *name, int rank) {
  Comm *c = calloc(1, sizeof *c);
  c->n = n, c->rank = rank, c->at = open_segment(name);
  snprintf(c->name, sizeof c->name, "%s", name);
  *made = c;
  if (n > RANKS || !c->at) return SYSTEM_ERROR;
  const int result = barrier(c);
  if (!rank) shm_unlink(name);
  return result;
}

int ncclCommInitRank(Comm **made, int n, Id id, int rank) { return join(made, n, id.of, rank); }

int ncclCommSplit(Comm *c, int color, int key, Comm **made, void *config) {
  (void)config;
  const int own[2] = {color, key};
  int before = 0, n = 0, result = tell(c, own, sizeof own);
  for (int r = 0; r < c->n; ++r) {
    const int *other = (const int *)c->at->slots[r];
    if (other[0] != color) continue;
    ++n;
    before += other[1] < key || (other[1] == key && r < c->rank);
  }
  if (!result) result = barrier(c);
  char name[64];
  snprintf(name, sizeof name, "%.40s-%u-%d", c->name, c->splits++, color);
  *made = NULL;
  return result || color < 0 ? result : join(made, n, name, before);
}

int ncclCommDestroy(Comm *c) {
  munmap(c->at, sizeof(Segment));
  free(c);
  return 0;
}
int ncclCommAbort(Comm *c) {
  atomic_store(&c->at->aborted, 1);
  return 0;
}
int ncclCommCount(Comm *c, int *n) {
  *n = c->n;
  return 0;
}
int ncclCommUserRank(Comm *c, int *rank) {
  *rank = c->rank;
  return 0;
}
int ncclCommGetAsyncError(Comm *c, int *error) {
  *error = atomic_load(&c->at->aborted) ? REMOTE_ERROR : 0;
  return 0;
}

/* Reduces elements from `first` on of all ranks. */
static int reduced(Comm *c, const void *send, void *receive, size_t all, size_t first, size_t n, int type, int op) {
  int result = tell(c, send, all * width(type));
  for (int r = 0; r < c->n && receive && !result; ++r) {
    const char *from = c->at->slots[r] + first * width(type);
    if (r) reduce(real(receive), from, n, type, op);
    else memcpy(real(receive), from, n * width(type));
  }
  return result ? result : barrier(c);
}

int ncclAllReduce(const void *send, void *receive, size_t n, int type, int op, Comm *c, void *stream) {
  (void)stream;
  const char *fails = getenv("STAND_IN_FAILS");
  if (fails && atoi(fails) == ++n_all_reduces) {
    snprintf(last_error, sizeof last_error, "as STAND_IN_FAILS asks");
    return SYSTEM_ERROR;
  }
  return reduced(c, send, receive, n, 0, n, type, op);
}
int ncclReduce(const void *send, void *receive, size_t n, int type, int op, int root, Comm *c, void *stream) {
  (void)stream;
  return reduced(c, send, c->rank == root ? receive : NULL, n, 0, n, type, op);
}
int ncclReduceScatter(const void *send, void *receive, size_t n, int type, int op, Comm *c, void *stream) {
  (void)stream;
  return reduced(c, send, receive, n * (size_t)c->n, n * (size_t)c->rank, n, type, op);
}
int ncclBroadcast(const void *send, void *receive, size_t n, int type, int root, Comm *c, void *stream) {
  (void)stream;
  const int result = tell(c, c->rank == root ? send : NULL, n * width(type));
  if (!result && n) memcpy(real(receive), c->at->slots[root], n * width(type));
  return result ? result : barrier(c);
}
int ncclAllGather(const void *send, void *receive, size_t n, int type, Comm *c, void *stream) {
  (void)stream;
  const size_t bytes = n * width(type);
  const int result = tell(c, send, bytes);
  for (int r = 0; r < c->n && !result && bytes; ++r) memcpy((char *)real(receive) + (size_t)r * bytes, c->at->slots[r], bytes);
  return result ? result : barrier(c);
}

int ncclGroupStart(void) {
  ++groups;
  return 0;
}

/* Puts what is sent where there is room, and takes what has come, until all is done. */
static int exchange(Message *all, int n) {
  for (int left = n; left;) {
    for (int k = 0; k < n; ++k) {
      Message *m = &all[k];
      if (!m->comm) continue;
      Segment *at = m->comm->at;
      const int from = m->send ? m->comm->rank : m->peer, to = m->send ? m->peer : m->comm->rank;
      if (atomic_load(&at->aborted)) return REMOTE_ERROR;
      if (atomic_load(&at->full[from][to]) != (m->send ? 0u : 1u)) continue;
      if (m->send) memcpy(at->mail[from][to], real(m->send), m->bytes);
      else memcpy(real(m->receive), at->mail[from][to], m->bytes);
      atomic_store(&at->full[from][to], m->send ? 1 : 0);
      m->comm = NULL, --left;
    }
    sched_yield();
  }
  return 0;
}

int ncclGroupEnd(void) {
  if (--groups) return 0;
  const int n = n_noted;
  n_noted = 0;
  return exchange(noted, n);
}

static int note(Comm *c, const void *send, void *receive, size_t bytes, int peer) {
  if (bytes > SLOT || n_noted == 64) return INVALID_ARGUMENT;
  noted[n_noted++] = (Message){c, send, receive, bytes, peer};
  return 0;
}
int ncclSend(const void *buffer, size_t n, int type, int peer, Comm *c, void *stream) {
  (void)stream;
  return note(c, buffer, NULL, n * width(type), peer);
}
int ncclRecv(void *buffer, size_t n, int type, int peer, Comm *c, void *stream) {
  (void)stream;
  return note(c, NULL, buffer, n * width(type), peer);
}
