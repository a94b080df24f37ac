// far.h: what a primitive does about ranks that it reaches by network only. Messages and puts are
// handed to the proxy by one thread, in order, then the flags that say so.
#pragma once

// A place in a window.
struct hccc_spot {
  int window;
  long long at;  // bytes
};

// Micro-batch m of an operand in its rank's windows, whether or not that can be addressed.
HCCC_FN hccc_spot hccc_spot_of(const hccc_block& b, const hccc_operand& o, unsigned m) {
  const long long batch = static_cast<long long>(m) * b.p->micro;
  const bool staged = o.buffer == HCCC_IN_STAGE && b.p->in_place;
  if (staged || o.buffer == HCCC_IN_SCRATCH) {
    const long long slot = staged ? HCCC_SCRATCH + o.slot : o.slot;
    const long long at = (slot * HCCC_CHANNELS + b.channel) * b.p->part + batch;
    return {HCCC_WINDOW_SCRATCH, at * static_cast<long long>(sizeof(hccc_T))};
  }
  const hccc_notice& notice = *hccc_notice_from(b, b.rank, o.rank);
  const long long at = (hccc_user_offset(b, o.slot) + batch) * static_cast<long long>(sizeof(hccc_T));
  if (o.buffer == HCCC_OUTPUT) return {HCCC_WINDOW_USER + notice.output_window, notice.output + at};
  return {HCCC_WINDOW_USER + notice.input_window, notice.input + at};
}

// Destinations that a proxy puts a local value to: where it is, and where it goes.
template <int n>
struct hccc_puts {
  hccc_operand from;
  hccc_operand item[n];
};

template <class... O>
HCCC_FN hccc_puts<sizeof...(O)> hccc_put(hccc_operand from, O... operand) {
  return {from, {operand...}};
}

[[maybe_unused]] HCCC_NOINLINE void hccc_hand_over_put(const hccc_block& b,
                                                       const hccc_operand& from,
                                                       const hccc_operand& to, unsigned m,
                                                       unsigned n) {
  const hccc_spot source = hccc_spot_of(b, from, m), target = hccc_spot_of(b, to, m);
  hccc_transfer t{};
  t.peer = to.rank;
  t.source_window = source.window;
  t.source = source.at;
  t.target_window = target.window;
  t.target = target.at;
  t.bytes = static_cast<long long>(n) * static_cast<long long>(sizeof(hccc_T));
  t.counter = -1;
  t.tb = b.tb;
  t.channel = b.channel;
  if (n) hccc_hand_over(b, t);
}

#if HCCC_QUEUES > 0

// A message from the own slot into the receiver's, and its number.
[[maybe_unused]] HCCC_NOINLINE void hccc_hand_over_message(const hccc_block& b,
                                                           const hccc_operand& o, unsigned m,
                                                           unsigned n) {
  const unsigned message = hccc_message(b, o, m);
  const long long size = sizeof(hccc_T);
  const long long counter = hccc_flag_index(b, o.post_flag);
  hccc_transfer t = hccc_only_raise(b, o.post_rank, counter, message + 1);
  t.source_window = t.target_window = HCCC_WINDOW_SCRATCH;
  t.source = hccc_slot_at(b, HCCC_QUEUES + o.own, message) * size;
  t.target = hccc_slot_at(b, o.slot, message) * size;
  t.bytes = n * size;
  hccc_hand_over(b, t);
}

// How far the credits of a queue go: one more message was taken out of it.
[[maybe_unused]] HCCC_NOINLINE void hccc_hand_over_credit(const hccc_block& b,
                                                          const hccc_operand& o, unsigned m) {
  const unsigned taken = hccc_message(b, o, m) + 1;
  hccc_hand_over(b, hccc_only_raise(b, o.post_rank, hccc_flag_index(b, o.post_flag), taken));
}

template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_hand_over_queues(const hccc_block& b,
                                   const hccc_primitive<mode, W, K, D, N>& p, unsigned m,
                                   unsigned n) {
  HCCC_UNROLL(1)
  for (int d = 0; d < D; ++d)
    if (p.to.item[d].buffer == HCCC_IN_QUEUE && !hccc_reaches(b, p.to.item[d].post_rank))
      hccc_hand_over_message(b, p.to.item[d], m, n);
  HCCC_UNROLL(1)
  for (int k = 0; k < K; ++k)
    if (p.from.item[k].buffer == HCCC_IN_QUEUE && !hccc_reaches(b, p.from.item[k].post_rank))
      hccc_hand_over_credit(b, p.from.item[k], m);
}

#endif

// One thread: messages, credits, then flags of ranks that cannot be addressed. The block has met
// since it stored.
template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_hand_over_all(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p,
                                unsigned m, unsigned n) {
  if (hccc_thread() != 0) return;
#if HCCC_QUEUES > 0
  hccc_hand_over_queues(b, p, m, n);
#else
  (void)n;
#endif
  HCCC_UNROLL(1)
  for (int i = 0; i < N; ++i) {
    const hccc_target& to = p.posts.item[i];
    if (!hccc_reaches(b, to.rank))
      hccc_hand_over(b, hccc_only_raise(b, to.rank, hccc_flag_index(b, to.flag), b.base + m + 1));
  }
}

// Puts to ranks that can be addressed after all: by this block, from the local value.
template <int X>
HCCC_FN void hccc_put_near(const hccc_block& b, const hccc_puts<X>& puts, unsigned m, unsigned n) {
  hccc_barrier();
  HCCC_UNROLL(1)
  for (int x = 0; x < X; ++x) {
    if (!hccc_reaches(b, puts.item[x].rank)) continue;
    hccc_board<1, 1> board;
    board.set(0, hccc_place(b, puts.from, m));
    board.set(1, hccc_place(b, puts.item[x], m));
    board.offset = 0;
    hccc_reduce_copy<HCCC_COPY>(board, n);
  }
}

template <int X>
HCCC_FN void hccc_put_far(const hccc_block& b, const hccc_puts<X>& puts, unsigned m, unsigned n) {
  if (hccc_thread() != 0) return;
  HCCC_UNROLL(1)
  for (int x = 0; x < X; ++x)
    if (!hccc_reaches(b, puts.item[x].rank)) hccc_hand_over_put(b, puts.from, puts.item[x], m, n);
}

template <int mode, int W, int K, int D, int N, int X>
HCCC_NOINLINE void hccc_execute_putting(hccc_block& b, int sub,
                                        const hccc_primitive<mode, W, K, D, N>& p,
                                        const hccc_puts<X>& puts) {
  const long long valid = hccc_moves<mode>(b) ? hccc_valid(b, sub) : 0;
  hccc_board<K, D ? D : 1> board;
  HCCC_UNROLL(1)
  for (unsigned m = b.m0; m < b.m1 && !b.stopped; ++m) {
    if constexpr (D > 0) hccc_find_places(board, b, p, m);
    HCCC_TRACED(hccc_span span = hccc_begin_span(b, p.prim, m);)
    b.stopped = !hccc_await(b, p, m);
    if (b.stopped) break;
    HCCC_TRACED(span.ready();)
    const unsigned n = hccc_batch_length(b, valid, m);
    if constexpr (D > 0) hccc_reduce_copy<mode & ~HCCC_FAR>(board, n);
    hccc_put_near(b, puts, m, n);
    HCCC_TRACED(span.end(b);)
    hccc_announce<true>(b, p, m);
    hccc_put_far(b, puts, m, n);
    hccc_hand_over_all(b, p, m, n);
  }
}
