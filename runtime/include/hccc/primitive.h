// primitive.h: wait, reduceCopy, post, for every micro-batch of a window.
#pragma once

// A field of entry i of a list in registers: a chain of selects, because registers have no
// addresses.
template <class Entry, class Value, int n>
HCCC_FN Value hccc_pick(const Entry (&row)[n], int i, Value Entry::* field) {
  if constexpr (!hccc_port_parallel) return row[i].*field;
  Value picked = row[0].*field;
  HCCC_UNROLL(n)
  for (int j = 1; j < n; ++j) {
    const Value other = row[j].*field;
    picked = i == j ? other : picked;
  }
  return picked;
}

// A counter of the own rank to wait for, or one to raise. kind NONE: nothing to do.
struct hccc_wish {
  int kind, flag;
  unsigned want;
};

struct hccc_signal {
  bool raise;
  int rank, flag;
  unsigned value;
};

#if HCCC_QUEUES > 0

// A source waits for its message, a destination until its slot's last message was consumed.
template <int n>
HCCC_FN hccc_wish hccc_queue_wish(const hccc_block& b, const hccc_operand (&row)[n], int i,
                                  bool source, unsigned m) {
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
  static constexpr int wishes = W + queued;
  static constexpr int signals = N + queued;

  int prim;  // index in its thread block, for fault reports
  hccc_flags<W> waits;
  hccc_operands<K> from;
  hccc_operands<D> to;
  hccc_targets<N> posts;
};

template <int mode, int W, int K, int D, int N>
HCCC_FN hccc_wish hccc_wish_of(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p,
                               int i, unsigned m) {
#if HCCC_QUEUES > 0
  if (i >= W + K) return hccc_queue_wish(b, p.to.item, i - W - K, false, m);
  if (i >= W) return hccc_queue_wish(b, p.from.item, i - W, true, m);
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

// Thread i waits for flag i, then the block meets. False: the launch is lost.
template <class Primitive>
HCCC_FN bool hccc_await(const hccc_block& b, const Primitive& p, unsigned m) {
  if constexpr (Primitive::wishes == 0) {
    hccc_barrier();
    return true;
  }
  bool ok = true;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < Primitive::wishes; i += hccc_threads) {
    const hccc_wish wish = hccc_wish_of(b, p, i, m);
    if (!ok || wish.kind == HCCC_WAIT_NONE) continue;
    ok = hccc_wait(b, hccc_flag(b, b.rank, wish.flag), wish.want,
                   {wish.kind, wish.flag, p.prim, m});
  }
  return !hccc_barrier_any(!ok);
}

// The block meets, then thread i raises flag i. Where the network may be needed (`far`), flags of
// ranks that cannot be addressed are left to hccc_hand_over_all.
template <bool far, class Primitive>
HCCC_FN void hccc_announce(const hccc_block& b, const Primitive& p, unsigned m) {
  hccc_barrier();
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < Primitive::signals; i += hccc_threads) {
    const hccc_signal signal = hccc_signal_of(b, p, i, m);
    if (signal.raise && (!far || hccc_reaches(b, signal.rank)))
      hccc_st_release(hccc_flag(b, signal.rank, signal.flag), signal.value);
  }
}

// Sets the board to micro-batch m of every operand.
template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_find_places(hccc_board<K, D>& board, const hccc_block& b,
                              const hccc_primitive<mode, W, K, D, N>& p, unsigned m) {
  HCCC_UNROLL(K)
  for (int k = 0; k < K; ++k)
    if (board.sets(k)) board.set(k, hccc_place(b, p.from.item[k], m));
  HCCC_UNROLL(D)
  for (int d = 0; d < D; ++d)
    if (board.sets(K + d)) board.set(K + d, hccc_place(b, p.to.item[d], m));
  board.offset = 0;
}

// Valid elements of this channel's part of chunk `sub` of a block: the last parts may be empty.
HCCC_FN long long hccc_valid(const hccc_block& b, int sub) {
  const long long first = (static_cast<long long>(sub) * HCCC_CHANNELS + b.channel) * b.p->part;
  const long long left = b.p->count - first;
  return left < 0 ? 0 : left < b.p->part ? left : b.p->part;
}

HCCC_FN unsigned hccc_batch_length(const hccc_block& b, long long valid, unsigned m) {
  const long long left = valid - static_cast<long long>(m) * b.p->micro;
  return left < 0 ? 0 : left < b.p->micro ? static_cast<unsigned>(left) : b.p->micro;
}

template <int mode>
HCCC_FN bool hccc_moves(const hccc_block& b) {
  if (mode & HCCC_IF_IN_PLACE) return b.p->in_place;
  return !(mode & HCCC_IF_OUT_OF_PLACE) || !b.p->in_place;
}

#if HCCC_NETWORK
#include "far.h"
#endif

template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_execute(hccc_block& b, int sub, const hccc_primitive<mode, W, K, D, N>& p) {
  using primitive = hccc_primitive<mode, W, K, D, N>;
  static_assert(K >= 1 && D >= 1, "a primitive has a source and a destination");
  constexpr bool far = (mode & HCCC_FAR) != 0;
  const long long valid = hccc_moves<mode>(b) ? hccc_valid(b, sub) : 0;
  hccc_board<K, D> board;
  hccc_find_places(board, b, p, b.m0);
  HCCC_UNROLL(1)
  for (unsigned m = b.m0; m < b.m1 && !b.stopped; ++m) {
    if (HCCC_QUEUES > 0) hccc_find_places(board, b, p, m);
    HCCC_TRACED(hccc_span span = hccc_begin_span(b, p.prim, m);)
    b.stopped = !hccc_await(b, p, m);
    if (b.stopped) break;
    HCCC_TRACED(span.ready();)
    const unsigned n = hccc_batch_length(b, valid, m);
    hccc_reduce_copy<mode & ~HCCC_FAR>(board, n);
    HCCC_TRACED(span.end(b);)
    board.offset += b.p->micro;
    if constexpr (primitive::signals > 0 || !board.few) hccc_announce<far>(b, p, m);
#if HCCC_NETWORK
    if constexpr (far) hccc_hand_over_all(b, p, m, n);
#endif
  }
}

template <int mode, int W, int K, int D, int N>
HCCC_NOINLINE void hccc_execute_body(hccc_block& b, int sub,
                                     const hccc_primitive<mode, W, K, D, N>& p) {
  hccc_execute(b, sub, p);
}

// One primitive over the micro-batches of the window. `sub` is its chunk's index in its block.
template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_prim(hccc_block& b, int prim, int sub, const hccc_flags<W>& waits,
                       const hccc_operands<K>& from, const hccc_operands<D>& to,
                       const hccc_targets<N>& posts) {
  const hccc_primitive<mode, W, K, D, N> p{prim, waits, from, to, posts};
  if constexpr (HCCC_INLINE && hccc_port_parallel)
    hccc_execute(b, sub, p);
  else
    hccc_execute_body(b, sub, p);
}

#if HCCC_NETWORK

// The same where it also puts what it made, or its only source, to ranks of the network.
template <int mode, int W, int K, int D, int X, int N>
HCCC_FN void hccc_prim(hccc_block& b, int prim, int sub, const hccc_flags<W>& waits,
                       const hccc_operands<K>& from, const hccc_operands<D>& to,
                       const hccc_puts<X>& puts, const hccc_targets<N>& posts) {
  hccc_execute_putting(b, sub, hccc_primitive<mode, W, K, D, N>{prim, waits, from, to, posts}, puts);
}

#endif
