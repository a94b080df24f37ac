// fiber.h: many blocks on one worker thread. A fiber that waits says for which counter; the
// worker looks at the counters of its fibers in turn and switches straight to one that can go on.
#pragma once

#include "context.h"

struct hccc_worker;

struct hccc_fiber {
  hccc_context context;
  hccc_patience* waiting;  // null: has not begun to wait
  hccc_fiber* next;        // the ring of unfinished fibers of this worker
  hccc_fiber* previous;
  hccc_worker* worker;
  unsigned long long since;  // the worker's switch count when it began to wait
  bool expired;  // its deadline has passed, unless there are news
  bool looks;    // is to look around although its counter has not arrived
  void (*run)(void* launch, int index);
  void* launch;
  int index;
};

struct hccc_worker {
  hccc_context home;  // the thread's own stack
  hccc_fiber* running;
  unsigned fibers;
  hccc_idler idler;
  unsigned long long switches;
  unsigned long long idle_since;  // 0: not idle
  unsigned long long looked;      // when one of its fibers was last told to look around
  bool aborted;
};

static thread_local hccc_worker* hccc_this_worker;

static inline bool hccc_can_run(const hccc_fiber* f) {
  return !f->waiting || f->expired || f->looks || hccc_wait_over(*f->waiting);
}

// The fiber whose deadline passed: one that waits for data rather than for other blocks, and of
// those the one that waits longest, is most likely the one with the missing counterpart.
static inline hccc_fiber* hccc_expired_fiber(hccc_fiber* ring, unsigned long long idle) {
  hccc_fiber* worst = nullptr;
  hccc_fiber* f = ring;
  do {
    if (f->waiting && idle > f->waiting->limit && (!worst || f->since < worst->since)) worst = f;
    f = f->next;
  } while (f != ring);
  return worst;
}

// A whole round without progress.
static inline void hccc_idle_round(hccc_worker* w, hccc_fiber* ring) {
  if (hccc_idle(w->idler) || w->idler.idle % 64 == 1) {
    const unsigned long long now = hccc_clock();
    if (!w->idle_since) w->idle_since = w->looked = now;
    if (ring->waiting && hccc_wait_aborted(*ring->waiting)) w->aborted = true;
    hccc_fiber* late = hccc_expired_fiber(ring, now - w->idle_since);
    if (late) late->expired = true;
    // One fiber at a time, and each of them once in a period.
    if (ring->waiting && now - w->looked > ring->waiting->period / w->fibers) {
      ring->looks = true;
      w->looked = now;
    }
    if (!w->aborted && !late && !ring->looks) hccc_nap(now - w->idle_since);
  }
}

// The next fiber of the ring that can go on, looking at `first` first.
static inline hccc_fiber* hccc_next_fiber(hccc_worker* w, hccc_fiber* first) {
  for (hccc_fiber* f = first;;) {
    if (w->aborted || hccc_can_run(f)) return f;
    f = f->next;
    if (f == first) hccc_idle_round(w, first);
  }
}

// Looking around is no progress.
static inline void hccc_switch_fiber(hccc_worker* w, hccc_context* from, hccc_fiber* to) {
  w->running = to;
  if (!to->looks) {
    w->idler.idle = 0;
    w->idle_since = 0;
  }
  ++w->switches;
  if (from != &to->context) hccc_switch(from, &to->context);
}

// Called by a block whose counter has not arrived: returns when it has, or the launch is lost.
static inline hccc_verdict hccc_be_patient(hccc_patience& p) {
  hccc_worker* w = hccc_this_worker;
  hccc_fiber* self = w->running;
  self->waiting = &p;
  self->since = w->switches;
  hccc_switch_fiber(w, &self->context, hccc_next_fiber(w, self->next));
  self->waiting = nullptr;
  const bool looks = self->looks, expired = self->expired;
  self->looks = self->expired = false;
  if (expired) return HCCC_EXPIRED;
  if (w->aborted && hccc_wait_aborted(p)) return HCCC_GIVE_UP;
  return looks ? HCCC_LOOK : HCCC_KEEP_WAITING;
}

static inline void hccc_start_again(hccc_patience&) { hccc_this_worker->idle_since = 0; }

// A fiber's outermost frame. Never returns: the worker goes on with the others, then goes home.
static void hccc_fiber_main(void* argument) {
  hccc_fiber* self = static_cast<hccc_fiber*>(argument);
  hccc_worker* w = self->worker;
  self->run(self->launch, self->index);
  self->previous->next = self->next;
  self->next->previous = self->previous;
  if (self->next == self)
    hccc_switch(&self->context, &w->home);
  else
    hccc_switch_fiber(w, &self->context, hccc_next_fiber(w, self->next));
  __builtin_unreachable();
}

// Runs the n fibers of `fibers` to their ends on this thread.
static inline void hccc_run_fibers(hccc_fiber* fibers, int n, bool crowded) {
  hccc_worker worker{};
  worker.idler.crowded = crowded;
  worker.fibers = static_cast<unsigned>(n);
  for (int i = 0; i < n; ++i) {
    fibers[i].worker = &worker;
    fibers[i].next = &fibers[(i + 1) % n];
    fibers[i].previous = &fibers[(i + n - 1) % n];
  }
  hccc_this_worker = &worker;
  hccc_switch_fiber(&worker, &worker.home, &fibers[0]);
  hccc_this_worker = nullptr;
}
