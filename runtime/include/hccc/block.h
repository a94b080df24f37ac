// block.h: a thread block's place, its counters, its window, and the report of a lost launch.
#pragma once

#include "defaults.h"
#include "layout.h"
#include "port.h"

constexpr hccc_shape hccc_this_shape = {HCCC_RANKS, HCCC_SUB,     HCCC_CHANNELS, HCCC_BLOCKS,
                                        HCCC_FLAGS, HCCC_SCRATCH, HCCC_STAGE,    HCCC_QUEUES,
                                        HCCC_SENDS, HCCC_SLOTS,   HCCC_GRAIN,
                                        HCCC_PACKETS, HCCC_LINES};

static_assert((HCCC_SLOTS & (HCCC_SLOTS - 1)) == 0, "slots of a queue must be a power of two");
static_assert(1LL * HCCC_BLOCKS * HCCC_CHANNELS <= HCCC_MOST_BLOCKS,
              "too many thread blocks a rank");
static_assert(1LL * HCCC_SCRATCH + HCCC_STAGE <= 0x7fffffff, "too many scratch slots");

#if HCCC_SHARES_PARAMS
// The launch's parameters, where primitives are functions of their own: these would load them by
// addresses of any kind.
static HCCC_SHARED hccc_params hccc_shared_params;
struct hccc_params_place {
  HCCC_METHOD const hccc_params* operator->() const { return &hccc_shared_params; }
};

HCCC_FN hccc_params_place hccc_place_params(const hccc_params& p) {
  static_assert(sizeof(p) % sizeof(unsigned) == 0, "parameters are copied by words");
  HCCC_UNROLL(1)
  for (unsigned i = hccc_thread(); i < sizeof(p) / sizeof(unsigned); i += hccc_threads)
    reinterpret_cast<unsigned*>(&hccc_shared_params)[i] = reinterpret_cast<const unsigned*>(&p)[i];
  hccc_barrier();
  return {};
}
#else
typedef const hccc_params* hccc_params_place;
HCCC_FN hccc_params_place hccc_place_params(const hccc_params& p) { return &p; }
#endif

// One thread block of one launch.
struct hccc_block {
  hccc_params_place p;
  const hccc_peer* peers;  // the buffers of the neighbours; in the flags of the own rank
  const hccc_proxy_ring* proxy_ring;  // null: no network
  int rank, tb, channel;
  unsigned base;    // micro-batches done in earlier launches; counters wrap
  unsigned launch;  // this launch's number, from 1
  unsigned m0, m1;  // the window's micro-batches [m0, m1), counted in this launch
  bool stopped;     // the launch is lost: leave without touching anything
  char* flags;      // of the own rank: no wait loads where its counter lies
#if HCCC_SWITCHED
  void *all_inputs, *all_outputs;  // multicast addresses of all ranks' buffers; null: there is none
#endif
#if HCCC_PACKETS > 0
  hccc_peer own;    // the buffers of the own rank: no others are touched
  unsigned long long begun;  // the time at which this launch began, where it has a deadline
  const hccc_rank* ranks;    // this and the next two: of the parameters, which lie farther away
  int count, part;           // elements, which are few
  long long slots_at;        // bytes from a rank's flags to the channel's packet slots of this parity
  char* slots;               // those of the own rank
#endif
};

// Returns the buffers of a rank.
HCCC_FN const hccc_peer& hccc_peer_of(const hccc_block& b, [[maybe_unused]] int rank) {
#if HCCC_PACKETS > 0
  return b.own;
#else
  return b.peers[rank];
#endif
}

// Returns a counter in a rank's flags.
HCCC_FN unsigned* hccc_counter_in(const hccc_block& b, void* flags, long long index) {
  return reinterpret_cast<unsigned*>(static_cast<char*>(flags) + b.p->flags_at + index * HCCC_FLAG_STRIDE);
}

HCCC_FN unsigned* hccc_counter(const hccc_block& b, int rank, long long index) {
  const hccc_rank* const table = &b.p->ranks[rank];
  HCCC_IS_GLOBAL(table);
  return hccc_counter_in(b, table->flags, index);
}

// Returns a counter of the own rank.
HCCC_FN unsigned* hccc_own(const hccc_block& b, long long index) {
  return reinterpret_cast<unsigned*>(b.flags + index * HCCC_FLAG_STRIDE);
}

HCCC_FN long long hccc_flag_index(const hccc_block& b, int flag) {
  return static_cast<long long>(b.channel) * HCCC_FLAGS + flag;
}

HCCC_FN unsigned* hccc_flag(const hccc_block& b, int rank, int flag) {
  return hccc_counter(b, rank, hccc_flag_index(b, flag));
}

// Returns the notice that comes with a counter.
HCCC_FN hccc_notice* hccc_notice_at(unsigned* counter) {
  return reinterpret_cast<hccc_notice*>(counter + HCCC_NOTICE_AT / 4);
}

// Returns where the own memory holds the notice of rank `from`; its own notice, too.
HCCC_FN hccc_notice* hccc_notice_of(const hccc_block& b, int from) {
  return hccc_notice_at(hccc_own(b, hccc_ready_at(hccc_this_shape) + from));
}

// The state of a block, in its line of the flags.
struct hccc_state {
  unsigned base, launch;  // of hccc_block, when the last launch ended
  unsigned lost;          // of a rank's first block: a launch was, and its fault was not reset
  unsigned long long begun;  // the time at which this launch began, where it has a deadline
};

HCCC_FN hccc_state* hccc_state_of(const hccc_block& b) {
  const int index = b.tb * HCCC_CHANNELS + b.channel;
  return reinterpret_cast<hccc_state*>(hccc_own(b, hccc_state_at(hccc_this_shape) + index));
}

// Notes that the launch begins, in one thread, before its block meets.
HCCC_FN void hccc_note_begin(const hccc_block& b) {
  if (b.p->deadline != HCCC_FOR_EVER && hccc_thread() == 0) hccc_state_of(b)->begun = hccc_clock();
}

// Returns whether the launch's deadline has passed.
HCCC_FN bool hccc_is_over(const hccc_block& b) {
#if HCCC_PACKETS > 0  // where threads do not meet before they wait
  const unsigned long long begun = b.begun;
#else
  const unsigned long long begun = hccc_state_of(b)->begun;
#endif
  return b.p->deadline != HCCC_FOR_EVER && hccc_clock() - begun > b.p->deadline;
}

// Compares counters around the wrap: they never are 2^31 apart.
HCCC_FN bool hccc_reached(unsigned have, unsigned want) {
  return static_cast<int>(have - want) >= 0;
}

// The bits of an epoch that its packets have, in the uppermost bits of a word.
constexpr unsigned hccc_epoch_shift = 32 - hccc_epoch_bits;
constexpr unsigned hccc_epoch_mask = 0xffffffffu >> hccc_epoch_shift;

HCCC_FN bool hccc_arrived(const unsigned* flag, unsigned want, bool exactly = false) {
  const unsigned have = hccc_poll(flag);
  return exactly ? have >> hccc_epoch_shift == want : hccc_reached(have, want);
}

// The fields of a fault record that depend on the wait.
struct hccc_cause {
  int kind;  // hccc_wait_kind
  int flag;
  int prim;  // -1 outside all primitives
  unsigned m;
};

// Claims the fault record, if its `claimed` is still `from` (0 or HCCC_ABORT_REQUEST), and
// describes the wait there. A claimed record makes every other block leave.
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

// Loops over windows. A window is executed primitive by primitive, a primitive micro-batch by
// micro-batch (ResCCL §3): window = all is task-level execution, window = 1 algorithm-level. Calls of
// packets have one.
#if HCCC_PACKETS > 0
#define HCCC_WINDOWS(b) if (hccc_open_window(b, 0), hccc_in_window(b))
#else
#define HCCC_WINDOWS(b) for (hccc_open_window(b, 0); hccc_in_window(b); hccc_open_window(b, b.m1))
#endif

HCCC_FN void hccc_open_window(hccc_block& b, unsigned first) {
  const unsigned left = b.p->batches - first;
  b.m0 = first;
  b.m1 = first + (left < b.p->window ? left : b.p->window);
}

HCCC_FN bool hccc_in_window(const hccc_block& b) { return b.m0 < b.p->batches && !b.stopped; }
