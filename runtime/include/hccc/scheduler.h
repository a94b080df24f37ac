// scheduler.h: how blocks wait on the host. A block is a fiber; a worker thread has many of them
// and resumes one whose counter has arrived. With HCCC_THREADS_AS_BLOCKS a block is an OS thread
// instead, as ThreadSanitizer requires.
#pragma once

#include <pthread.h>
#include <sched.h>

#include "backoff.h"
#include "host_wait.h"

#ifndef HCCC_THREADS_AS_BLOCKS
#if defined(__SANITIZE_THREAD__)
#define HCCC_THREADS_AS_BLOCKS 1
#else
#define HCCC_THREADS_AS_BLOCKS 0
#endif
#endif

// Counts the cores that this process may use.
static inline int hccc_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return 1;
}

#if HCCC_THREADS_AS_BLOCKS

static thread_local hccc_backoff hccc_this_thread;

static inline hccc_wait_state hccc_wait_once(hccc_pending_wait& wait) {
  if (!hccc_back_off(hccc_this_thread) && wait.spins++ % 64) return HCCC_WAITING;
  if (hccc_wait_aborted(wait)) return HCCC_LAUNCH_LOST;
  const unsigned long long now = hccc_clock();
  if (wait.start == 0) wait.start = wait.polled = now;
  if (now - wait.start > wait.limit) return HCCC_EXPIRED;
  hccc_sleep_for_part(now - wait.start);
  if (now - wait.polled <= wait.period) return HCCC_WAITING;
  wait.polled = now;
  return HCCC_LOOK;
}

static inline void hccc_rearm(hccc_pending_wait& wait) { wait.start = hccc_clock(); }

#else
#include "fiber.h"
#endif
