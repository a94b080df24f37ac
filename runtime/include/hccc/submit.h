// submit.h: submits a primitive's transfers to ranks that only the network reaches. One thread
// submits messages and puts, in order, then the flags that follow them.
#pragma once

#include "primitive.h"

struct hccc_window_offset {
  int window;
  long long at;  // bytes
};

// Finds micro-batch m of an operand in the windows of its rank, which need not be addressable.
HCCC_FN hccc_window_offset hccc_window_offset_of(const hccc_block& b, const hccc_operand& o,
                                                 unsigned m) {
  const long long batch = static_cast<long long>(m) * b.p->micro;
  const bool staged = o.buffer == HCCC_IN_STAGE && b.p->in_place;
  if (staged || o.buffer == HCCC_IN_SCRATCH) {
    const long long slot = staged ? HCCC_SCRATCH + o.slot : o.slot;
    const long long at = (slot * HCCC_CHANNELS + b.channel) * b.p->part + batch;
    return {HCCC_WINDOW_SCRATCH, at * static_cast<long long>(sizeof(hccc_T))};
  }
  const hccc_notice& notice = *hccc_notice_of(b, o.rank);
  const long long elements = hccc_user_offset(b, o) + batch;
  const long long at = elements * static_cast<long long>(sizeof(hccc_T));
  if (o.buffer == HCCC_OUTPUT) return {HCCC_WINDOW_USER + notice.output_window, notice.output + at};
  return {HCCC_WINDOW_USER + notice.input_window, notice.input + at};
}

// The network puts of a primitive: `from`, an operand of the own rank, goes to every `item`.
template <int n>
struct hccc_puts {
  hccc_operand from;
  hccc_operand item[n];
};

template <class... O>
HCCC_FN hccc_puts<sizeof...(O)> hccc_put(hccc_operand from, O... operand) {
  return {from, {operand...}};
}

[[maybe_unused]] HCCC_NOINLINE void hccc_submit_put(const hccc_block& b, const hccc_operand& from,
                                                    const hccc_operand& to, unsigned m,
                                                    unsigned n) {
  const hccc_window_offset source = hccc_window_offset_of(b, from, m);
  const hccc_window_offset target = hccc_window_offset_of(b, to, m);
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
  if (n) hccc_submit(b, t);
}

#if HCCC_QUEUES > 0

// Submits a message, from the own slot into the receiver's, and its number.
[[maybe_unused]] HCCC_NOINLINE void hccc_submit_message(const hccc_block& b, const hccc_operand& o,
                                                        unsigned m, unsigned n) {
  const unsigned message = hccc_message(b, o, m);
  const long long size = sizeof(hccc_T);
  const long long counter = hccc_flag_index(b, o.post_flag);
  hccc_transfer t = hccc_counter_transfer(b, o.post_rank, counter, message + 1);
  t.source_window = t.target_window = HCCC_WINDOW_SCRATCH;
  t.source = hccc_slot_at(b, HCCC_QUEUES + o.own, message) * size;
  t.target = hccc_slot_at(b, o.slot, message) * size;
  t.bytes = n * size;
  hccc_submit(b, t);
}

// Submits a credit: one more message was taken out of the queue.
[[maybe_unused]] HCCC_NOINLINE void hccc_submit_credit(const hccc_block& b, const hccc_operand& o,
                                                       unsigned m) {
  const unsigned taken = hccc_message(b, o, m) + 1;
  hccc_submit(b, hccc_counter_transfer(b, o.post_rank, hccc_flag_index(b, o.post_flag), taken));
}

template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_submit_queues(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p,
                                unsigned m, unsigned n) {
  HCCC_UNROLL(1)
  for (int d = 0; d < D; ++d)
    if (p.to.item[d].buffer == HCCC_IN_QUEUE && !hccc_reaches(b, p.to.item[d].post_rank))
      hccc_submit_message(b, p.to.item[d], m, n);
  HCCC_UNROLL(1)
  for (int k = 0; k < K; ++k)
    if (p.from.item[k].buffer == HCCC_IN_QUEUE && !hccc_reaches(b, p.from.item[k].post_rank))
      hccc_submit_credit(b, p.from.item[k], m);
}

#endif

// Submits, by one thread after its block has met: messages, credits, then flags of ranks that
// cannot be addressed.
template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_submit_all(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p,
                                unsigned m, unsigned n) {
  if (hccc_thread() != 0) return;
#if HCCC_QUEUES > 0
  hccc_submit_queues(b, p, m, n);
#else
  (void)n;
#endif
  HCCC_UNROLL(1)
  for (int i = 0; i < N; ++i) {
    const hccc_target& to = p.posts.item[i];
    const long long flag = hccc_flag_index(b, to.flag);
    if (!hccc_reaches(b, to.rank))
      hccc_submit(b, hccc_counter_transfer(b, to.rank, flag, b.base + m + 1));
  }
}

// Copies to destinations that can be addressed after all, by all threads.
template <int X>
HCCC_FN void hccc_put_directly(const hccc_block& b, const hccc_puts<X>& puts, unsigned m,
                               unsigned n) {
  hccc_barrier();
  HCCC_UNROLL(1)
  for (int x = 0; x < X; ++x) {
    if (!hccc_reaches(b, puts.item[x].rank)) continue;
    hccc_pointers<1, 1> pointers;
    pointers.set(0, hccc_place(b, puts.from, m));
    pointers.set(1, hccc_place(b, puts.item[x], m));
    pointers.offset = 0;
    hccc_reduce_copy<HCCC_COPY>(pointers, n);
  }
}

template <int X>
HCCC_FN void hccc_submit_puts(const hccc_block& b, const hccc_puts<X>& puts, unsigned m,
                              unsigned n) {
  if (hccc_thread() != 0) return;
  HCCC_UNROLL(1)
  for (int x = 0; x < X; ++x)
    if (!hccc_reaches(b, puts.item[x].rank)) hccc_submit_put(b, puts.from, puts.item[x], m, n);
}
