// primitive.h: a primitive, its conditions, its signals and the pointers to its operands.
#pragma once

#include "operand.h"
#include "span.h"
#include "wait.h"
#include HCCC_BODY

// Returns a field of entry i of a list. Where primitives are inlined on a GPU the list is in
// registers, which have no addresses: a chain of selects takes it.
template <class Entry, class Value, int n>
HCCC_FN Value hccc_pick(const Entry (&row)[n], int i, Value Entry::* field) {
  if constexpr (!hccc_port_parallel || !HCCC_INLINE) return row[i].*field;
  Value picked = row[0].*field;
  HCCC_UNROLL(n)
  for (int j = 1; j < n; ++j) {
    const Value other = row[j].*field;
    picked = i == j ? other : picked;
  }
  return picked;
}

// A counter of the own rank to wait for. kind HCCC_WAIT_NONE: nothing to wait for.
struct hccc_condition {
  int kind, flag;
  unsigned want;
};

// A counter of any rank to raise.
struct hccc_signal {
  bool raise;
  int rank, flag;
  unsigned value;
};

#if HCCC_QUEUES > 0

// Returns what a queue's end waits for: a source for its message, a destination until the last
// message of its slot was consumed.
template <int n>
HCCC_FN hccc_condition hccc_queue_condition(const hccc_block& b, const hccc_operand (&row)[n],
                                            int i, bool source, unsigned m) {
  const int flag = hccc_pick(row, i, &hccc_operand::wait_flag);
  const unsigned sent = hccc_pick(row, i, &hccc_operand::message) + (m - b.m0) + 1;
  if (hccc_pick(row, i, &hccc_operand::buffer) != HCCC_IN_QUEUE) return {HCCC_WAIT_NONE, 0, 0};
  if (source) return {HCCC_WAIT_MESSAGE, flag, sent};
  return {HCCC_WAIT_CREDIT, flag, sent - HCCC_SLOTS};
}

template <int n>
HCCC_FN hccc_signal hccc_queue_signal(const hccc_block& b, const hccc_operand (&row)[n], int i,
                                      unsigned m) {
  const bool queued = hccc_pick(row, i, &hccc_operand::buffer) == HCCC_IN_QUEUE;
  const unsigned sent = hccc_pick(row, i, &hccc_operand::message) + (m - b.m0) + 1;
  return {queued, hccc_pick(row, i, &hccc_operand::post_rank),
          hccc_pick(row, i, &hccc_operand::post_flag), sent};
}

#endif

// One primitive as the generated code states it. W waits, K sources, D destinations, N posts.
template <int mode, int W, int K, int D, int N>
struct hccc_primitive {
  static constexpr int queued = HCCC_QUEUES > 0 ? K + D : 0;
  static constexpr int conditions = W + queued;
  static constexpr int signals = N + queued;

  int prim;  // index in its thread block, for fault reports
  hccc_flags<W> waits;
  hccc_operands<K> from;
  hccc_operands<D> to;
  hccc_targets<N> posts;
};

template <int mode, int W, int K, int D, int N>
HCCC_FN hccc_condition hccc_condition_of(const hccc_block& b,
                                         const hccc_primitive<mode, W, K, D, N>& p, int i,
                                         unsigned m) {
#if HCCC_QUEUES > 0
  if (i >= W + K) return hccc_queue_condition(b, p.to.item, i - W - K, false, m);
  if (i >= W) return hccc_queue_condition(b, p.from.item, i - W, true, m);
#endif
  return {HCCC_WAIT_FLAG, hccc_pick(p.waits.item, i, &hccc_awaited::flag), b.base + m + 1};
}

template <int mode, int W, int K, int D, int N>
HCCC_FN hccc_signal hccc_signal_of(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p,
                                   int i, unsigned m) {
#if HCCC_QUEUES > 0
  if (i >= N + K) return hccc_queue_signal(b, p.to.item, i - N - K, m);
  if (i >= N) return hccc_queue_signal(b, p.from.item, i - N, m);
#endif
  return {true, hccc_pick(p.posts.item, i, &hccc_target::rank),
          hccc_pick(p.posts.item, i, &hccc_target::flag), b.base + m + 1};
}

// Waits, in thread i for condition i; then the block meets. False: the launch is lost.
template <class Primitive>
HCCC_FN bool hccc_await_conditions(const hccc_block& b, const Primitive& p, unsigned m) {
  if constexpr (Primitive::conditions == 0) {
    hccc_barrier();
    return true;
  }
  bool ok = true;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < Primitive::conditions; i += hccc_threads) {
    const hccc_condition wish = hccc_condition_of(b, p, i, m);
    if (!ok || wish.kind == HCCC_WAIT_NONE) continue;
    ok = hccc_wait(b, hccc_own(b, hccc_flag_index(b, wish.flag)), wish.want,
                   {wish.kind, wish.flag, p.prim, m});
  }
  return !hccc_barrier_any(!ok);
}

// Lets the block meet, then raises signal i in thread i. Where the network may be needed (`far`),
// flags of ranks that cannot be addressed are left to hccc_submit_all.
template <bool far, class Primitive>
HCCC_FN void hccc_raise_signals(const hccc_block& b, const Primitive& p, unsigned m) {
  hccc_barrier();
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < Primitive::signals; i += hccc_threads) {
    const hccc_signal signal = hccc_signal_of(b, p, i, m);
    if (signal.raise && (!far || hccc_reaches(b, signal.rank)))
      hccc_st_release(hccc_flag(b, signal.rank, signal.flag), signal.value);
  }
}

// Returns operand i of the sources and then the destinations, as far as its place depends on it.
template <int mode, int W, int K, int D, int N>
HCCC_FN hccc_operand hccc_pick_operand(const hccc_primitive<mode, W, K, D, N>& p, int i) {
  const bool source = i < K;
  const int at = source ? i : i - K;
  const auto pick = [&](auto field) {
    const auto of_source = hccc_pick(p.from.item, source ? at : 0, field);
    const auto of_destination = hccc_pick(p.to.item, source ? 0 : at, field);
    return source ? of_source : of_destination;
  };
  hccc_operand o{};
  o.buffer = pick(&hccc_operand::buffer);
  o.rank = pick(&hccc_operand::rank);
  o.slot = pick(&hccc_operand::slot);
#if HCCC_QUEUES > 0
  o.message = pick(&hccc_operand::message);
  o.own = pick(&hccc_operand::own);
#endif
  return o;
}

// Sets the pointers to micro-batch m of every operand. Each thread finds all that it keeps; of those
// in shared memory thread i finds the ith, all at the same time.
template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_set_pointers(hccc_pointers<K, D>& pointers, const hccc_block& b,
                               const hccc_primitive<mode, W, K, D, N>& p, unsigned m) {
  const auto set = [&](int i, const hccc_operand& o) {
    pointers.set(i, hccc_place(b, o, m));
    if constexpr (hccc_op::multiplies)
      if (i < K) pointers.set_scale(i, hccc_scale_of(b, o));
  };
  if constexpr (hccc_pointers<K, D>::few) {
    HCCC_UNROLL(K)
    for (int k = 0; k < K; ++k) set(k, p.from.item[k]);
    HCCC_UNROLL(D)
    for (int d = 0; d < D; ++d) set(K + d, p.to.item[d]);
  } else {
    HCCC_UNROLL(1)
    for (int i = hccc_thread(); i < K + D; i += hccc_threads) set(i, hccc_pick_operand(p, i));
  }
  pointers.offset = 0;
}

// Returns the length of the block of `sub`, which is a chunk of the collective if it is uneven.
HCCC_FN long long hccc_block_length(const hccc_block& b, [[maybe_unused]] int sub) {
#if HCCC_UNEVEN
  if (b.p->blocks) {
    const long long length = b.p->blocks[sub / HCCC_SUB];
    return length < 0 ? 0 : length < b.p->count ? length : b.p->count;
  }
#endif
  return b.p->count;
}

// Counts the elements in this channel's part of chunk `sub` of a block; the last parts may be
// empty.
HCCC_FN long long hccc_valid(const hccc_block& b, int sub) {
  const long long index = HCCC_UNEVEN ? sub % HCCC_SUB : sub;
  const long long first = (index * HCCC_CHANNELS + b.channel) * b.p->part;
  const long long left = hccc_block_length(b, sub) - first;
  return left < 0 ? 0 : left < b.p->part ? left : b.p->part;
}

#if HCCC_PACKETS > 0
// Returns the same for calls of packets, which are short.
HCCC_FN int hccc_valid_of(const hccc_block& b, int sub) {
  const int left = b.count - (sub * HCCC_CHANNELS + b.channel) * b.part;
  return left < 0 ? 0 : left < b.part ? left : b.part;
}
#endif

HCCC_FN unsigned hccc_batch_length(const hccc_block& b, long long valid, unsigned m) {
  const long long left = valid - static_cast<long long>(m) * b.p->micro;
  return left < 0 ? 0 : left < b.p->micro ? static_cast<unsigned>(left) : b.p->micro;
}

template <int mode>
HCCC_FN bool hccc_moves(const hccc_block& b) {
  if (mode & HCCC_IF_IN_PLACE) return b.p->in_place;
  return !(mode & HCCC_IF_OUT_OF_PLACE) || !b.p->in_place;
}
