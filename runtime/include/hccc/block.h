// block.h: a thread block's place, its counters, and how it waits.
#pragma once

constexpr hccc_shape hccc_this_shape = {HCCC_RANKS, HCCC_SUB,     HCCC_CHANNELS, HCCC_BLOCKS,
                                        HCCC_FLAGS, HCCC_SCRATCH, HCCC_STAGE,    HCCC_QUEUES,
                                        HCCC_SENDS, HCCC_SLOTS,   HCCC_GRAIN};

static_assert((HCCC_SLOTS & (HCCC_SLOTS - 1)) == 0, "slots of a queue must be a power of two");
static_assert(1LL * HCCC_BLOCKS * HCCC_CHANNELS <= HCCC_MOST_BLOCKS,
              "too many thread blocks a rank");
static_assert(1LL * HCCC_SCRATCH + HCCC_STAGE <= 0x7fffffff, "too many scratch slots");

// One thread block of one launch.
struct hccc_block {
  const hccc_params* p;
  const hccc_peer* peers;  // where the buffers of the ranks that it meets are; in its own flags
  const hccc_door* door;   // to the network; null without
  int rank, tb, channel;
  unsigned base;    // micro-batches done in earlier launches; counters wrap
  unsigned launch;  // this launch's number, from 1
  unsigned m0, m1;  // the window's micro-batches [m0, m1), counted in this launch
  bool stopped;     // a deadline passed somewhere: leave without touching anything
};

HCCC_FN unsigned* hccc_counter(const hccc_block& b, int rank, long long index) {
  char* flags = static_cast<char*>(b.p->ranks[rank].flags) + b.p->flags_at;
  return reinterpret_cast<unsigned*>(flags + index * HCCC_FLAG_STRIDE);
}

HCCC_FN long long hccc_flag_index(const hccc_block& b, int flag) {
  return static_cast<long long>(b.channel) * HCCC_FLAGS + flag;
}

HCCC_FN unsigned* hccc_flag(const hccc_block& b, int rank, int flag) {
  return hccc_counter(b, rank, hccc_flag_index(b, flag));
}

// What rank `from` says about its buffers, in the memory of `rank`; its own in its own memory too.
HCCC_FN hccc_notice* hccc_notice_from(const hccc_block& b, int rank, int from) {
  unsigned* line = hccc_counter(b, rank, hccc_ready_at(hccc_this_shape) + from);
  return reinterpret_cast<hccc_notice*>(line + HCCC_NOTICE_AT / 4);
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
// from: what the record must be, 0 or HCCC_LEAVE.
HCCC_FN void hccc_report(const hccc_block& b, unsigned have, unsigned want,
                         const hccc_cause& cause, unsigned from = 0) {
  hccc_fault* f = b.p->fault;
  if (!hccc_claim(&f->claimed, from)) return;
  f->rank = b.rank;
  f->thread_block = b.tb;
  f->channel = b.channel;
  f->primitive = cause.prim;
  f->micro_batch = cause.m;
  f->flag = cause.flag;
  f->want = want;
  f->have = have;
  f->kind = cause.kind;
}

// Whether the wait is one for a rank to start, rather than for what one that runs will do.
HCCC_FN bool hccc_joins(int kind) { return kind == HCCC_WAIT_READY || kind == HCCC_WAIT_GO; }

// How long: waits for whole blocks last longer than those for data, so that the culprit reports.
HCCC_FN unsigned long long hccc_limit(const hccc_block& b, int kind) {
  if (hccc_joins(kind)) {
    const unsigned long long limit = b.p->join_timeout;
    return kind == HCCC_WAIT_GO && limit < HCCC_FOR_EVER ? 2 * limit : limit;
  }
  const bool data = kind <= HCCC_WAIT_CREDIT || kind == HCCC_WAIT_PROXY;
  return data || b.p->timeout == HCCC_FOR_EVER ? b.p->timeout : 2 * b.p->timeout;
}

// How often to look for news, so that they cross all ranks in a quarter of a deadline.
HCCC_FN unsigned long long hccc_period(const hccc_block& b) {
  return b.p->timeout == HCCC_FOR_EVER ? HCCC_FOR_EVER : b.p->timeout / (4ull * HCCC_RANKS) + 1;
}

HCCC_NOINLINE unsigned hccc_look(hccc_block b, int kind);  // patience.h

// Waits in this thread until the counter reaches `want`. False: the launch is lost.
HCCC_FN bool hccc_wait(const hccc_block& b, const unsigned* flag, unsigned want,
                       const hccc_cause& cause) {
  if (!hccc_arrived(flag, want)) {
    hccc_patience wait{};
    wait.flag = flag, wait.want = want, wait.abort = &b.p->fault->claimed;
    wait.limit = hccc_limit(b, cause.kind), wait.period = hccc_period(b);
    unsigned news = 0;
    do {
      const hccc_verdict verdict = hccc_be_patient(wait);
      if (verdict == HCCC_KEEP_WAITING) continue;
      const bool leaves = verdict == HCCC_GIVE_UP;
      const unsigned heard = leaves ? news : hccc_look(b, cause.kind);
      if (heard != news && !hccc_joins(cause.kind)) {
        hccc_start_again(wait);
      } else if (verdict == HCCC_EXPIRED || leaves) {
        if (!leaves || cause.prim >= 0)
          hccc_report(b, hccc_ld_relaxed(flag), want, cause, leaves ? HCCC_LEAVE : 0);
        return false;
      }
      news = heard;
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
