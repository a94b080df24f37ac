// interpreter.h: what generated kernels replace: a kernel that reads its program from a table.
//
// A thread block copies its part of the op table from global to shared memory once. Then for each
// window and each op: load it, resolve its flags and pointers, choose the body by its kind
// (MSCCL's interpreter, and docs/kernel-protocol.md §10.3). Bodies, flags, barriers, launch bounds and
// the loop over micro-batches are those of hccc/primitive.h; nothing but the control differs.
//
// An op is a row of words:
//   kind, chunk, waits W, posts N, then K + D operands of hccc_operand_words each,
//   W flags of the own rank, N pairs (rank, flag)
// and an operand is buffer, rank, slot, or for a queue buffer, receiver, number, turn, length,
// flag to wait for, rank and flag to post. Included after hccc/device.h with HCCC_OP_WORDS, the
// words of the longest program, defined.
#pragma once

enum { HCCC_OP_KIND, HCCC_OP_CHUNK, HCCC_OP_WAITS, HCCC_OP_POSTS, HCCC_OP_OPERANDS };

constexpr int hccc_operand_words = HCCC_QUEUES > 0 ? 8 : 3;

// The ops of one thread block.
struct hccc_listing {
  const int* begin;
  const int* end;
};

// `start` has the first word of every thread block, rank by rank, and the end of the last.
#ifdef HCCC_SHARED
static HCCC_SHARED int hccc_shared_ops[HCCC_OP_WORDS];

HCCC_FN hccc_listing hccc_fetch(const hccc_block& b, const int* ops, const int* start) {
  const int* own = start + b.rank * HCCC_BLOCKS + b.tb;
  const int words = own[1] - own[0];
  for (int i = hccc_thread(); i < words; i += hccc_threads) hccc_shared_ops[i] = ops[own[0] + i];
  hccc_barrier();
  return {hccc_shared_ops, hccc_shared_ops + words};
}
#else  // a host has no shared memory: the cache serves
HCCC_FN hccc_listing hccc_fetch(const hccc_block& b, const int* ops, const int* start) {
  const int* own = start + b.rank * HCCC_BLOCKS + b.tb;
  return {ops + own[0], ops + own[1]};
}
#endif

// One op, of K sources and D destinations.
template <int k, int d>
struct hccc_op_view {
  static constexpr int K = k, D = d;
  static constexpr int queued = HCCC_QUEUES > 0 ? k + d : 0;
  const int* words;
  int prim;

  HCCC_METHOD int waits() const { return words[HCCC_OP_WAITS]; }
  HCCC_METHOD int posts() const { return words[HCCC_OP_POSTS]; }
  HCCC_METHOD const int* operand(int i) const {
    return words + HCCC_OP_OPERANDS + i * hccc_operand_words;
  }
  HCCC_METHOD int flag(int i) const { return operand(K + D)[i]; }
  HCCC_METHOD const int* post(int i) const { return operand(K + D) + waits() + 2 * i; }
  HCCC_METHOD const int* next() const { return post(posts()); }
};

HCCC_FN hccc_operand hccc_decode(const hccc_block& b, const int* w) {
#if HCCC_QUEUES > 0
  if (w[0] == HCCC_IN_QUEUE) {
    hccc_operand o = hccc_queue(b, w[1], w[2], w[3], w[4]);
    o.wait_flag = w[5];
    o.post_rank = w[6];
    o.post_flag = w[7];
    return o;
  }
#else
  (void)b;
#endif
  return hccc_chunk_at(static_cast<hccc_buffer>(w[0]), w[1], w[2]);
}

template <int K, int D>
HCCC_FN hccc_condition hccc_op_wish(const hccc_block& b, const hccc_op_view<K, D>& op, int i,
                               unsigned m) {
#if HCCC_QUEUES > 0
  if (const int j = i - op.waits(); j >= 0) {
    const hccc_operand o[1] = {hccc_decode(b, op.operand(j))};
    return hccc_queue_condition(b, o, 0, j < K, m);
  }
#endif
  return {HCCC_WAIT_FLAG, op.flag(i), b.base + m + 1};
}

template <int K, int D>
HCCC_FN hccc_signal hccc_op_signal(const hccc_block& b, const hccc_op_view<K, D>& op, int i,
                                   unsigned m) {
#if HCCC_QUEUES > 0
  if (const int j = i - op.posts(); j >= 0) {
    const hccc_operand o[1] = {hccc_decode(b, op.operand(j))};
    return hccc_queue_signal(b, o, 0, m);
  }
#endif
  return {true, op.post(i)[0], op.post(i)[1], b.base + m + 1};
}

// As hccc_await_conditions: thread i waits for flag i, then the block meets.
template <int K, int D>
HCCC_FN bool hccc_op_await(const hccc_block& b, const hccc_op_view<K, D>& op, unsigned m) {
  const int wishes = op.waits() + op.queued;
  if (wishes == 0) {
    hccc_barrier();
    return true;
  }
  bool ok = true;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < wishes; i += hccc_threads) {
    const hccc_condition wish = hccc_op_wish(b, op, i, m);
    if (!ok || wish.kind == HCCC_WAIT_NONE) continue;
    ok = hccc_wait(b, hccc_flag(b, b.rank, wish.flag), wish.want,
                   {wish.kind, wish.flag, op.prim, m});
  }
  return !hccc_barrier_any(!ok);
}

// As hccc_raise_signals: the block meets, then thread i raises flag i.
template <int K, int D>
HCCC_FN void hccc_op_announce(const hccc_block& b, const hccc_op_view<K, D>& op, unsigned m) {
  hccc_barrier();
  const int signals = op.posts() + op.queued;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < signals; i += hccc_threads) {
    const hccc_signal signal = hccc_op_signal(b, op, i, m);
    if (signal.raise) hccc_st_release(hccc_flag(b, signal.rank, signal.flag), signal.value);
  }
}

template <int K, int D>
HCCC_FN void hccc_op_places(hccc_pointers<K, D>& board, const hccc_block& b,
                            const hccc_op_view<K, D>& op, unsigned m) {
  const auto set = [&](int i) { board.set(i, hccc_place(b, hccc_decode(b, op.operand(i)), m)); };
  if constexpr (hccc_pointers<K, D>::few) {
    HCCC_UNROLL(K + D)
    for (int i = 0; i < K + D; ++i) set(i);
  } else {
    HCCC_UNROLL(1)
    for (int i = hccc_thread(); i < K + D; i += hccc_threads) set(i);
  }
  board.offset = 0;
}

// As hccc_execute.
template <int mode, int K, int D>
HCCC_FN void hccc_op_execute(hccc_block& b, const hccc_op_view<K, D>& op) {
  const long long valid = hccc_moves<mode>(b) ? hccc_valid(b, op.words[HCCC_OP_CHUNK]) : 0;
  hccc_pointers<K, D> board;
  hccc_op_places(board, b, op, b.m0);
  HCCC_UNROLL(1)
  for (unsigned m = b.m0; m < b.m1 && !b.stopped; ++m) {
    if (HCCC_QUEUES > 0) hccc_op_places(board, b, op, m);
    b.stopped = !hccc_op_await(b, op, m);
    if (b.stopped) break;
    hccc_reduce_copy<mode>(board, hccc_batch_length(b, valid, m));
    board.offset += b.p->micro;
    if (op.queued || op.posts() || !board.few) hccc_op_announce(b, op, m);
  }
}

template <int mode, int K, int D>
HCCC_NOINLINE void hccc_op_execute_body(hccc_block& b, const hccc_op_view<K, D>& op) {
  hccc_op_execute<mode>(b, op);
}

// One op over the micro-batches of the window; the next op. In or out of line as the generated
// kernel's bodies are.
template <int mode, int K, int D>
HCCC_FN const int* hccc_step(hccc_block& b, int prim, const int* words) {
  const hccc_op_view<K, D> op{words, prim};
  if constexpr (HCCC_INLINE && hccc_port_parallel)
    hccc_op_execute<mode>(b, op);
  else
    hccc_op_execute_body<mode>(b, op);
  return op.next();
}
