// scheduler.h: blocks on the host. A block is a fiber; a worker thread has many of them and
// resumes one whose counter has arrived. With HCCC_THREADS_AS_BLOCKS a block is an OS thread
// instead, which is what ThreadSanitizer understands.
#pragma once

#include <pthread.h>
#include <sched.h>

#include "idle.h"

#ifndef HCCC_THREADS_AS_BLOCKS
#if defined(__SANITIZE_THREAD__)
#define HCCC_THREADS_AS_BLOCKS 1
#else
#define HCCC_THREADS_AS_BLOCKS 0
#endif
#endif

// LOOK: a period has passed.
enum hccc_verdict { HCCC_KEEP_WAITING, HCCC_EXPIRED, HCCC_GIVE_UP, HCCC_LOOK };

// One wait in progress.
struct hccc_patience {
  const unsigned* flag;
  unsigned want;
  const unsigned* abort;
  unsigned long long limit, period;  // nanoseconds
  unsigned long long start, looked;
  unsigned spins;
};

// Cores this process may use.
static inline int hccc_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return 1;
}

static inline bool hccc_wait_over(const hccc_patience& p) {
  return static_cast<int>(__atomic_load_n(p.flag, __ATOMIC_RELAXED) - p.want) >= 0;
}

static inline bool hccc_wait_aborted(const hccc_patience& p) {
  return __atomic_load_n(p.abort, __ATOMIC_RELAXED) != 0;
}

#if HCCC_THREADS_AS_BLOCKS

static thread_local hccc_idler hccc_this_thread;

static inline hccc_verdict hccc_be_patient(hccc_patience& p) {
  if (!hccc_idle(hccc_this_thread) && p.spins++ % 64) return HCCC_KEEP_WAITING;
  if (hccc_wait_aborted(p)) return HCCC_GIVE_UP;
  const unsigned long long now = hccc_clock();
  if (p.start == 0) p.start = p.looked = now;
  if (now - p.start > p.limit) return HCCC_EXPIRED;
  hccc_nap(now - p.start);
  if (now - p.looked <= p.period) return HCCC_KEEP_WAITING;
  p.looked = now;
  return HCCC_LOOK;
}

static inline void hccc_start_again(hccc_patience& p) { p.start = hccc_clock(); }

#else
#include "fiber.h"
#endif
