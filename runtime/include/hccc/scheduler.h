// scheduler.h: blocks on the host. A block is a fiber; a worker thread has many of them and
// resumes one whose counter has arrived. With HCCC_THREADS_AS_BLOCKS a block is an OS thread
// instead, which is what ThreadSanitizer understands.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>

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

static inline unsigned long long hccc_clock() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<unsigned long long>(t.tv_sec) * 1000000000ull + t.tv_nsec;
}

// Cores this process may use.
static inline int hccc_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return 1;
}

static inline void hccc_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// When nothing can go on: spin while every thread has a core, else let another one run. Whether it
// did, after which much time may have passed.
struct hccc_idler {
  bool crowded;
  unsigned idle;  // turns without progress
};

static inline bool hccc_idle(hccc_idler& idler) {
  const bool yields = idler.crowded || ++idler.idle >= 100;
  if (yields)
    sched_yield();
  else
    hccc_pause();
  return yields;
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
  if (now - p.looked <= p.period) return HCCC_KEEP_WAITING;
  p.looked = now;
  return HCCC_LOOK;
}

static inline void hccc_start_again(hccc_patience& p) { p.start = hccc_clock(); }

#else
#include "fiber.h"
#endif
