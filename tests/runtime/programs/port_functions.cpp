// port_functions.cpp: what GPUs' ports compute, on the host: the wait of port_gpu.h by a clock of its own, and
// functions.h, the text of a port's functions, over the host's atomics and barriers.
#include <pthread.h>

#define HCCC_THREADS 256
#define HCCC_BLOCKS_PER_UNIT 1
#define HCCC_FN static inline
#define HCCC_SHARED
#define HCCC_SCOPE 0
#define __HIP_MEMORY_SCOPE_SYSTEM 0
#define __fmul_rn(a, b) ((a) * (b))
#define __dmul_rn(a, b) ((a) * (b))
#define atomicAdd(counter, n) __atomic_fetch_add(counter, n, __ATOMIC_SEQ_CST)
#define __hip_atomic_fetch_add(counter, n, order, scope) __atomic_fetch_add(counter, n, order)
#define __hip_atomic_compare_exchange_strong(word, expected, wanted, order, other, scope) \
  __atomic_compare_exchange_n(word, expected, wanted, false, order, other)

static unsigned long long now, step;
static int pauses;

static inline unsigned atomicCAS_system(unsigned* word, unsigned expected, unsigned wanted) {
  __atomic_compare_exchange_n(word, &expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

static inline unsigned long long hccc_clock() { return now += step; }
static inline void hccc_pause() { ++pauses; }
static inline unsigned hccc_ld_relaxed(const unsigned* flag) { return *flag; }

static thread_local int thread;
static pthread_barrier_t meeting;
static inline int hccc_thread() { return thread; }
static inline void hccc_barrier_shared() { pthread_barrier_wait(&meeting); }
static inline void hccc_barrier() { hccc_barrier_shared(); }
static inline bool __syncthreads_or(bool c) {
  static int votes;
  if (thread == 0) votes = 0;
  hccc_barrier();
  if (c) __atomic_store_n(&votes, 1, __ATOMIC_SEQ_CST);
  hccc_barrier();
  const bool any = votes;
  hccc_barrier();
  return any;
}

#include "functions.h"
#include "hccc/port_gpu.h"

// Waits for so many turns, which the clock is read `tick` apart in; from turn `lost` on the launch is.
extern "C" int wait_for(int turns, int lost, unsigned long long tick, unsigned long long limit,
                        unsigned long long period, int* states) {
  unsigned abort = 0;
  hccc_pending_wait wait{};
  wait.abort = &abort, wait.limit = limit, wait.period = period;
  now = 1000, step = tick, pauses = 0;
  for (int turn = 1; turn <= turns; ++turn) {
    abort = turn >= lost;
    states[turn - 1] = hccc_wait_once(wait);
  }
  return pauses;
}

extern "C" unsigned long long rearmed() {
  hccc_pending_wait wait{};
  now = 5000, step = 1;
  hccc_rearm(wait);
  return wait.start;
}

extern "C" float product(float a, float b) { return hccc_product(a, b); }
extern "C" double long_product(double a, double b) { return hccc_product(a, b); }

extern "C" unsigned counted(unsigned* counter) { return hccc_count(counter); }
extern "C" int claimed(unsigned* word, unsigned expected) { return hccc_claim(word, expected); }

struct vote {
  int index, vote, result;
  pthread_t thread;
};

static void* vote_main(void* argument) {
  struct vote* own = static_cast<struct vote*>(argument);
  thread = own->index;
  own->result = hccc_barrier_any(own->vote & 1) + 2 * hccc_barrier_any(own->vote & 2);
  return nullptr;
}

// Has n threads vote twice; bit k of each of the votes and results is the kth.
extern "C" void voted(int n, const int* votes, int* results) {
  struct vote each[16];
  pthread_barrier_init(&meeting, nullptr, n);
  for (int i = 0; i < n; ++i) {
    each[i] = {i, votes[i], 0, {}};
    pthread_create(&each[i].thread, nullptr, vote_main, &each[i]);
  }
  for (int i = 0; i < n; ++i) pthread_join(each[i].thread, nullptr), results[i] = each[i].result;
  pthread_barrier_destroy(&meeting);
}
