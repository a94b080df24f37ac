// idle.h: what a thread does that has to wait: it spins, lets others run, or sleeps.
#pragma once

#include <sched.h>
#include <time.h>

static inline unsigned long long hccc_clock() {
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

// When nothing can go on: spin while every thread has a core, else let another one run. Whether it
// did, after which much time may have passed. Where the other one kept the core for long, waits of
// this thread sleep for a while instead: who sleeps is woken in front of those that compute, who
// yields waits behind them, milliseconds each time.
struct hccc_idler {
  bool crowded;
  unsigned idle;  // turns without progress
};

constexpr unsigned long long hccc_long_turn = 500000, hccc_sleeps_for = 100000000;  // nanoseconds

static thread_local unsigned long long hccc_sleeps_until;  // also in launches to come

static inline bool hccc_idle(hccc_idler& idler) {
  if (!idler.crowded && ++idler.idle < 100) {
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
  if (after - before > hccc_long_turn) hccc_sleeps_until = after + hccc_sleeps_for;
  return true;
}

// What has waited for long may sleep, for a small part of the time that it has waited: who comes so
// late is hardly later for it, and others have the core.
constexpr unsigned long long hccc_wakeful = 1000000, hccc_longest_nap = 1000000;  // nanoseconds

static inline void hccc_nap(unsigned long long waited) {
  if (waited < hccc_wakeful) return;
  const unsigned long long nap = waited / 64;
  const timespec t = {0, static_cast<long>(nap < hccc_longest_nap ? nap : hccc_longest_nap)};
  nanosleep(&t, nullptr);
}
