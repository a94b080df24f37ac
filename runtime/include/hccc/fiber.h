// fiber.h: many blocks on one worker thread. A waiting fiber names its counter; the worker polls
// the counters of its fibers in turn and switches straight to a fiber that can run.
#pragma once

#include "backoff.h"
#include "context.h"
#include "host_wait.h"

struct hccc_worker;

struct hccc_fiber {
  hccc_context context;
  hccc_pending_wait* waiting;  // null: not waiting
  hccc_fiber* next;            // the ring of unfinished fibers of this worker
  hccc_fiber* previous;
  hccc_worker* worker;
  unsigned long long since;  // the worker's switch count when the wait began
  bool expired;              // the deadline has passed, unless it is extended
  bool polls;                // runs to look at deadlines, although its counter has not arrived
  void (*run)(void* launch, int index);
  void* launch;
  int index;
};

struct hccc_worker {
  hccc_context thread;  // the thread's own stack
  hccc_fiber* running;
  unsigned fibers;
  hccc_backoff backoff;
  unsigned long long switches;
  unsigned long long idle_since;  // 0: not idle
  unsigned long long polled;      // when a fiber last ran to look at deadlines
  bool aborted;
};

static thread_local hccc_worker* hccc_this_worker;

static inline bool hccc_can_run(const hccc_fiber* f) {
  return !f->waiting || f->expired || f->polls || hccc_wait_over(*f->waiting);
}

// Finds the fiber that has waited longest of those whose deadlines have passed: most likely the one
// with the missing counterpart. Waits for data have earlier deadlines than those for other blocks.
static inline hccc_fiber* hccc_expired_fiber(hccc_fiber* ring, unsigned long long idle) {
  hccc_fiber* worst = nullptr;
  hccc_fiber* f = ring;
  do {
    if (f->waiting && idle > f->waiting->limit && (!worst || f->since < worst->since)) worst = f;
    f = f->next;
  } while (f != ring);
  return worst;
}

// Ends a round over all fibers in which none could run. The first look at the clock comes late: most
// waits of small calls are over before.
static inline void hccc_idle_round(hccc_worker* w, hccc_fiber* ring) {
  if (hccc_back_off(w->backoff) || w->backoff.idle % 64 == 32) {
    const unsigned long long now = hccc_clock();
    if (!w->idle_since) w->idle_since = w->polled = now;
    if (ring->waiting && hccc_wait_aborted(*ring->waiting)) w->aborted = true;
    hccc_fiber* expired = hccc_expired_fiber(ring, now - w->idle_since);
    if (expired) expired->expired = true;
    // One fiber looks at deadlines at a time, and each of them once in a period.
    if (ring->waiting && now - w->polled > ring->waiting->period / w->fibers) {
      ring->polls = true;
      w->polled = now;
    }
    if (!w->aborted && !expired && !ring->polls) hccc_sleep_for_part(now - w->idle_since);
  }
}

// Returns the next fiber of the ring that can run, beginning with `first`.
static inline hccc_fiber* hccc_next_fiber(hccc_worker* w, hccc_fiber* first) {
  for (hccc_fiber* f = first;;) {
    if (w->aborted || hccc_can_run(f)) return f;
    f = f->next;
    if (f == first) hccc_idle_round(w, first);
  }
}

// Switches to another fiber. Looking at deadlines is no progress.
static inline void hccc_switch_fiber(hccc_worker* w, hccc_context* from, hccc_fiber* to) {
  w->running = to;
  if (!to->polls) {
    w->backoff.idle = 0;
    w->idle_since = 0;
  }
  ++w->switches;
  if (from != &to->context) hccc_switch(from, &to->context);
}

// Suspends the fiber of a block whose counter has not arrived, until it has, or the wait must act.
static inline hccc_wait_state hccc_wait_once(hccc_pending_wait& wait) {
  hccc_worker* w = hccc_this_worker;
  hccc_fiber* self = w->running;
  self->waiting = &wait;
  self->since = w->switches;
  hccc_switch_fiber(w, &self->context, hccc_next_fiber(w, self->next));
  self->waiting = nullptr;
  const bool polls = self->polls, expired = self->expired;
  self->polls = self->expired = false;
  if (expired) return HCCC_EXPIRED;
  if (w->aborted && hccc_wait_aborted(wait)) return HCCC_LAUNCH_LOST;
  return polls ? HCCC_LOOK : HCCC_WAITING;
}

static inline void hccc_rearm(hccc_pending_wait&) { hccc_this_worker->idle_since = 0; }

// Is a fiber's outermost frame. Never returns: the worker runs the other fibers, then its thread.
static void hccc_fiber_main(void* argument) {
  hccc_fiber* self = static_cast<hccc_fiber*>(argument);
  hccc_worker* w = self->worker;
  self->run(self->launch, self->index);
  self->previous->next = self->next;
  self->next->previous = self->previous;
  if (self->next == self)
    hccc_switch(&self->context, &w->thread);
  else
    hccc_switch_fiber(w, &self->context, hccc_next_fiber(w, self->next));
  __builtin_unreachable();
}

// Runs the n fibers of `fibers` to their ends on this thread.
static inline void hccc_run_fibers(hccc_fiber* fibers, int n, bool oversubscribed) {
  hccc_worker worker{};
  worker.backoff.oversubscribed = oversubscribed;
  worker.fibers = static_cast<unsigned>(n);
  for (int i = 0; i < n; ++i) {
    fibers[i].worker = &worker;
    fibers[i].next = &fibers[(i + 1) % n];
    fibers[i].previous = &fibers[(i + n - 1) % n];
  }
  hccc_this_worker = &worker;
  hccc_switch_fiber(&worker, &worker.thread, &fibers[0]);
  hccc_this_worker = nullptr;
}

// Runs block 0 where it is the only one, on the thread's own stack: there is none to switch to.
static inline void hccc_run_alone(void (*run)(void*, int), void* launch, bool oversubscribed) {
  hccc_worker worker{};
  hccc_fiber fiber{};
  fiber.worker = &worker;
  fiber.next = fiber.previous = &fiber;
  worker.running = &fiber;
  worker.fibers = 1;
  worker.backoff.oversubscribed = oversubscribed;
  hccc_this_worker = &worker;
  run(launch, 0);
  hccc_this_worker = nullptr;
}
