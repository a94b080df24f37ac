// backoff.cpp: backoff.h, with a clock, a yield and a sleep that are the test's.
#include <sched.h>
#include <time.h>

namespace {

unsigned long long now = 1000000000000ull, yield_takes;  // nanoseconds
int sleeps;

int clock_of_test(clockid_t, timespec *t) {
  t->tv_sec = static_cast<time_t>(now / 1000000000u), t->tv_nsec = static_cast<long>(now % 1000000000u);
  return 0;
}

int yield_of_test() { return now += yield_takes, 0; }

int sleep_of_test(const timespec *, timespec *) { return ++sleeps, now += 60000, 0; }

}  // namespace

#define clock_gettime clock_of_test
#define sched_yield yield_of_test
#define nanosleep sleep_of_test
#include <hccc/backoff.h>

// Takes a turn without progress, the 101st, some ns after the last. yields: ns that a yield would take. Returns whether
// it slept.
extern "C" int turn(bool oversubscribed, unsigned long long after, unsigned long long yields) {
  hccc_backoff backoff = {oversubscribed, 100};
  const int before = sleeps;
  now += after, yield_takes = yields;
  hccc_back_off(backoff);
  return sleeps != before;
}
