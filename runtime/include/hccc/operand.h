// operand.h: where a primitive's data is, which flags it waits for and which it raises.
#pragma once

// This lane's part of one chunk; or a queue, whose first slot is `at`.
struct hccc_operand {
  hccc_T* at;
#if HCCC_QUEUES > 0
  bool queued;
  unsigned message;  // number of the first message of this turn in the window
  int wait_flag;     // in the own rank's memory
  int post_rank;
  int post_flag;
#endif
};

template <int n>
struct hccc_operands {
  hccc_operand item[n];
};

template <int n>
struct hccc_flags {
  int id[n ? n : 1];
};

// A flag to raise, at another rank or the own.
struct hccc_target {
  int rank, flag;
};

template <int n>
struct hccc_targets {
  hccc_target item[n ? n : 1];
};

template <class... I>
HCCC_FN hccc_flags<sizeof...(I)> hccc_waits(I... id) {
  return {{id...}};
}

template <class... O>
HCCC_FN hccc_operands<sizeof...(O)> hccc_from(O... operand) {
  return {{operand...}};
}

template <class... O>
HCCC_FN hccc_operands<sizeof...(O)> hccc_to(O... operand) {
  return {{operand...}};
}

HCCC_FN hccc_target hccc_post(int rank, int flag) { return {rank, flag}; }

template <class... P>
HCCC_FN hccc_targets<sizeof...(P)> hccc_posts(P... target) {
  return {{target...}};
}

HCCC_FN hccc_operand hccc_memory(void* buffer, long long elements) {
  hccc_operand o{};
  o.at = static_cast<hccc_T*>(buffer) + elements;
  return o;
}

// A user buffer is made of blocks of `count` elements, a block of SUB chunks.
HCCC_FN hccc_operand hccc_user(const hccc_block& b, void* buffer, int slot) {
  const long long chunk = HCCC_LANES * b.p->part;
  const long long block = slot / HCCC_SUB * b.p->count;
  return hccc_memory(buffer, block + slot % HCCC_SUB * chunk + b.lane * b.p->part);
}

HCCC_FN hccc_operand hccc_input(const hccc_block& b, int rank, int slot) {
  return hccc_user(b, b.p->ranks[rank].input, slot);
}

HCCC_FN hccc_operand hccc_output(const hccc_block& b, int rank, int slot) {
  return hccc_user(b, b.p->ranks[rank].output, slot);
}

HCCC_FN hccc_operand hccc_scratch(const hccc_block& b, int rank, int slot) {
  const long long parts = static_cast<long long>(slot) * HCCC_LANES + b.lane;
  return hccc_memory(b.p->ranks[rank].scratch, parts * b.p->part);
}

// The send buffer as it was at the start: itself out of place, a copy of it in place.
HCCC_FN hccc_operand hccc_stage(const hccc_block& b, int rank, int slot) {
  return b.p->in_place ? hccc_scratch(b, rank, HCCC_SCRATCH + slot) : hccc_input(b, rank, slot);
}

#if HCCC_QUEUES > 0

// A queue's slots lie at its receiver, where queues are numbered from 0. A micro-batch sends
// `length` messages through it; within a window each turn sends all its micro-batches.
HCCC_FN hccc_operand hccc_queue(const hccc_block& b, int receiver, int queue, int turn,
                                int length) {
  const long long chunks = static_cast<long long>(HCCC_SCRATCH + HCCC_STAGE) * HCCC_LANES;
  const long long slots = (static_cast<long long>(queue) * HCCC_LANES + b.lane) * HCCC_SLOTS;
  hccc_operand o =
      hccc_memory(b.p->ranks[receiver].scratch, chunks * b.p->part + slots * b.p->micro);
  o.queued = true;
  o.message = (b.base + b.m0) * length + turn * (b.m1 - b.m0);
  return o;
}

// A source: waits for the message, then gives its slot back to `src_rank`.
HCCC_FN hccc_operand hccc_recv(const hccc_block& b, int queue, int turn, int length, int data_flag,
                               int src_rank, int credit_flag) {
  hccc_operand o = hccc_queue(b, b.rank, queue, turn, length);
  o.wait_flag = data_flag;
  o.post_rank = src_rank;
  o.post_flag = credit_flag;
  return o;
}

// A destination: waits for a free slot, then tells `dst_rank` that the message is there.
HCCC_FN hccc_operand hccc_send(const hccc_block& b, int queue, int dst_rank, int turn, int length,
                               int data_flag, int credit_flag) {
  hccc_operand o = hccc_queue(b, dst_rank, queue, turn, length);
  o.wait_flag = credit_flag;
  o.post_rank = dst_rank;
  o.post_flag = data_flag;
  return o;
}

HCCC_FN unsigned hccc_message(const hccc_block& b, const hccc_operand& o, unsigned m) {
  return o.message + (m - b.m0);
}

#endif

// Where micro-batch m of an operand begins.
HCCC_FN hccc_T* hccc_place(const hccc_block& b, const hccc_operand& o, unsigned m) {
#if HCCC_QUEUES > 0
  if (o.queued) m = hccc_message(b, o, m) & (HCCC_SLOTS - 1);
#endif
  return o.at + static_cast<long long>(m) * b.p->micro;
}
