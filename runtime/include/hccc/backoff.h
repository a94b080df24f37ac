// backoff.h: how a waiting thread spends its time: it spins, yields its core, or sleeps.
#pragma once

#include <sched.h>
#include <time.h>

static inline unsigned long long hccc_clock() {  // nanoseconds
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<unsigned long long>(t.tv_sec) * 1000000000ull + t.tv_nsec;
}

static inline void hccc_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct hccc_backoff {
  bool oversubscribed;  // more threads than cores
  unsigned idle;        // turns without progress
};

// Nanoseconds; a thread sleeps at its turns for the least at first, and for twice as long where it does so again
// before four times as long have passed.
constexpr unsigned long long hccc_long_turn = 500000, hccc_least_sleeping = 10000000, hccc_most_sleeping = 100000000;

// When this thread's sleeping or its last long turn ended, when its sleeping did, and how long that was; also in later
// launches.
static thread_local unsigned long long hccc_sleeps_until, hccc_slept_until, hccc_sleeping;

// Spends one turn without progress: spins where every thread has a core, else yields. Returns
// whether it yielded, after which much time may have passed. Where other threads keep the core for
// one long turn after another, this thread sleeps instead for a while: the scheduler wakes a sleeper
// in front of threads that compute, but lets a yielding thread wait behind them, milliseconds each
// time. A single long turn is no reason: a sleep takes as long as tens of yields. It is one where
// every thread has a core: who wakes is given that which is idle.
static inline bool hccc_back_off(hccc_backoff& backoff) {
  if (!backoff.oversubscribed && ++backoff.idle < 100) {
    hccc_pause();
    return false;
  }
  const unsigned long long before = hccc_clock();
  if (before < hccc_sleeps_until) {
    const timespec shortest = {0, 1};
    nanosleep(&shortest, nullptr);
    return true;
  }
  sched_yield();
  const unsigned long long after = hccc_clock();
  if (after - before > hccc_long_turn) {
    const bool again = before - hccc_sleeps_until < hccc_long_turn;
    hccc_sleeps_until = after;
    if (again || !backoff.oversubscribed) {
      const bool soon = hccc_sleeping && before - hccc_slept_until < 4 * hccc_sleeping;
      const unsigned long long twice = 2 * hccc_sleeping;
      hccc_sleeping = !soon ? hccc_least_sleeping : twice < hccc_most_sleeping ? twice : hccc_most_sleeping;
      hccc_sleeps_until = hccc_slept_until = after + hccc_sleeping;
    }
  }
  return true;
}

constexpr unsigned long long hccc_awake_time = 1000000;     // nanoseconds
constexpr unsigned long long hccc_longest_sleep = 1000000;  // nanoseconds

// Sleeps for a small part of a long wait: that delays the wait hardly more, and frees the core.
static inline void hccc_sleep_for_part(unsigned long long waited) {
  if (waited < hccc_awake_time) return;
  const unsigned long long part = waited / 64;
  const timespec t = {0, static_cast<long>(part < hccc_longest_sleep ? part : hccc_longest_sleep)};
  nanosleep(&t, nullptr);
}
