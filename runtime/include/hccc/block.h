// block.h: a thread block's place, its counters, and how it waits.
#pragma once

constexpr hccc_shape hccc_this_shape = {HCCC_RANKS,   HCCC_SUB,   HCCC_LANES,  HCCC_BLOCKS, HCCC_FLAGS,
                                        HCCC_SCRATCH, HCCC_STAGE, HCCC_QUEUES, HCCC_SLOTS,  HCCC_GRAIN};

static_assert((HCCC_SLOTS & (HCCC_SLOTS - 1)) == 0, "slots of a queue must be a power of two");
static_assert(1LL * HCCC_BLOCKS * HCCC_LANES <= HCCC_MOST_BLOCKS, "too many thread blocks a rank");
static_assert(1LL * HCCC_SCRATCH + HCCC_STAGE <= 0x7fffffff, "too many scratch slots");

// One thread block of one launch.
struct hccc_block {
  const hccc_params* p;
  int rank, tb, lane;
  unsigned base;    // micro-batches done in earlier launches; counters wrap
  unsigned launch;  // this launch's number, from 1
  unsigned m0, m1;  // the window's micro-batches [m0, m1), counted in this launch
  bool stopped;     // a deadline passed somewhere: leave without touching anything
};

HCCC_FN unsigned* hccc_counter(const hccc_block& b, int rank, long long index) {
  return static_cast<unsigned*>(b.p->ranks[rank].flags) + index * (HCCC_FLAG_STRIDE / 4);
}

HCCC_FN unsigned* hccc_flag(const hccc_block& b, int rank, int flag) {
  return hccc_counter(b, rank, static_cast<long long>(b.lane) * HCCC_FLAGS + flag);
}

// Counters are compared around the wrap: they never are 2^31 apart.
HCCC_FN bool hccc_reached(unsigned have, unsigned want) {
  return static_cast<int>(have - want) >= 0;
}

HCCC_FN bool hccc_arrived(const unsigned* flag, unsigned want) {
  return hccc_reached(hccc_ld_relaxed(flag), want);
}

// What a fault report says about a wait besides the block's place.
struct hccc_cause {
  int kind;  // hccc_wait_kind
  int flag;
  int prim;  // -1 outside all primitives
  unsigned m;
};

// The first to come describes its wait. A claimed record also tells everybody else to leave.
HCCC_FN void hccc_report(const hccc_block& b, const unsigned* flag, unsigned want,
                         const hccc_cause& cause) {
  hccc_fault* f = b.p->fault;
  if (!hccc_claim(&f->claimed)) return;
  f->rank = b.rank;
  f->thread_block = b.tb;
  f->lane = b.lane;
  f->primitive = cause.prim;
  f->micro_batch = cause.m;
  f->flag = cause.flag;
  f->want = want;
  f->have = hccc_ld_relaxed(flag);
  f->kind = cause.kind;
}

// Waits in this thread until the counter reaches `want`. False: the launch is lost.
// Waits for whole blocks last longer than waits for data, so that the culprit reports first.
HCCC_FN bool hccc_wait(const hccc_block& b, const unsigned* flag, unsigned want,
                       const hccc_cause& cause) {
  if (!hccc_arrived(flag, want)) {
    const int patience = cause.kind <= HCCC_WAIT_CREDIT ? 1 : 2;
    hccc_patience wait{flag, want, &b.p->fault->claimed, b.p->timeout * patience, 0, 0};
    do {
      const hccc_verdict verdict = hccc_be_patient(wait);
      if (verdict == HCCC_EXPIRED) hccc_report(b, flag, want, cause);
      if (verdict != HCCC_KEEP_WAITING) return false;
    } while (!hccc_arrived(flag, want));
  }
  hccc_ld_acquire(flag);
  return true;
}

// The loop over windows. A window is executed primitive by primitive, a primitive micro-batch by
// micro-batch (ResCCL §3): window = all is task-level execution, window = 1 algorithm-level.
#define HCCC_WINDOWS(b) for (hccc_open_window(b, 0); hccc_in_window(b); hccc_open_window(b, b.m1))

HCCC_FN void hccc_open_window(hccc_block& b, unsigned first) {
  const unsigned left = b.p->batches - first;
  b.m0 = first;
  b.m1 = first + (left < b.p->window ? left : b.p->window);
}

HCCC_FN bool hccc_in_window(const hccc_block& b) { return b.m0 < b.p->batches && !b.stopped; }
