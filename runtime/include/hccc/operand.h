// operand.h: a primitive's operands and flags, and where operands lie.
#pragma once

#include "proxy_ring.h"
#include "types.h"

enum hccc_buffer {
  HCCC_INPUT, HCCC_OUTPUT, HCCC_IN_SCRATCH, HCCC_IN_STAGE, HCCC_IN_QUEUE, HCCC_IN_PACKETS
};

// A chunk of a rank's buffer, in slots; or a queue at its receiver; or a packet slot of the rank that
// it is sent to, or, of a source, where the rank is the one that sends. Its address is computed where
// it is used, so that a long list of operands needs few registers.
struct hccc_operand {
  hccc_buffer buffer;
  int rank;
  int slot;
#if HCCC_QUEUES > 0
  unsigned message;  // number of the first message of this turn in the window
  int own;           // the number of a network queue that begins here; -1: another queue
  int wait_flag;     // in the own rank's memory
  int post_rank;
  int post_flag;
#endif
};

template <int n>
struct hccc_operands {
  hccc_operand item[n ? n : 1];
};

#if HCCC_PACKETS > 0

// An operand in a packet slot, of a type of its own: what a list has is known when it is compiled.
struct hccc_packet_operand : hccc_operand {};

HCCC_FN constexpr bool hccc_in_packets(const hccc_operand*) { return false; }
HCCC_FN constexpr bool hccc_in_packets(const hccc_packet_operand*) { return true; }

template <class... O>
struct hccc_listed : hccc_operands<sizeof...(O)> {
  static constexpr int length = sizeof...(O);
  // Returns whether operand i is in a packet slot; false past the last.
  HCCC_FN constexpr bool packets(int i) {
    constexpr bool all[] = {hccc_in_packets(static_cast<const O*>(nullptr))..., false};
    return all[i < length ? i : length];
  }
};

#endif

// A flag of the own rank to wait for.
struct hccc_awaited {
  int flag;
};

template <int n>
struct hccc_flags {
  hccc_awaited item[n ? n : 1];
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
  return {{hccc_awaited{id}...}};
}

#if HCCC_PACKETS > 0

template <class... O>
HCCC_FN hccc_listed<O...> hccc_from(O... operand) {
  return {{{operand...}}};
}

template <class... O>
HCCC_FN hccc_listed<O...> hccc_to(O... operand) {
  return {{{operand...}}};
}

#else

template <class... O>
HCCC_FN hccc_operands<sizeof...(O)> hccc_from(O... operand) {
  return {{operand...}};
}

template <class... O>
HCCC_FN hccc_operands<sizeof...(O)> hccc_to(O... operand) {
  return {{operand...}};
}

#endif

HCCC_FN hccc_target hccc_post(int rank, int flag) { return {rank, flag}; }

template <class... P>
HCCC_FN hccc_targets<sizeof...(P)> hccc_posts(P... target) {
  return {{target...}};
}

HCCC_FN hccc_operand hccc_chunk_at(hccc_buffer buffer, int rank, int slot) {
  hccc_operand o{};
  o.buffer = buffer;
  o.rank = rank;
  o.slot = slot;
  return o;
}

HCCC_FN hccc_operand hccc_input(const hccc_block&, int rank, int slot) {
  return hccc_chunk_at(HCCC_INPUT, rank, slot);
}

HCCC_FN hccc_operand hccc_output(const hccc_block&, int rank, int slot) {
  return hccc_chunk_at(HCCC_OUTPUT, rank, slot);
}

HCCC_FN hccc_operand hccc_scratch(const hccc_block&, int rank, int slot) {
  return hccc_chunk_at(HCCC_IN_SCRATCH, rank, slot);
}

// Describes the send buffer as it was at the start: itself out of place, a copy of it in place.
HCCC_FN hccc_operand hccc_stage(const hccc_block&, int rank, int slot) {
  return hccc_chunk_at(HCCC_IN_STAGE, rank, slot);
}

#if HCCC_PACKETS > 0

// Describes a source in a packet slot of the own rank, which `rank` fills.
HCCC_FN hccc_packet_operand hccc_packets_in(const hccc_block&, int rank, int slot) {
  return {hccc_chunk_at(HCCC_IN_PACKETS, rank, slot)};
}

// Describes a destination in a packet slot of `rank`.
HCCC_FN hccc_packet_operand hccc_packets_out(const hccc_block&, int rank, int slot) {
  return {hccc_chunk_at(HCCC_IN_PACKETS, rank, slot)};
}

#endif

#if HCCC_QUEUES > 0

// Describes a queue by its number at its receiver, where its slots lie. A micro-batch sends
// `length` messages through it; within a window each turn sends all its micro-batches.
HCCC_FN hccc_operand hccc_queue(const hccc_block& b, int receiver, int queue, int turn,
                                int length) {
  hccc_operand o = hccc_chunk_at(HCCC_IN_QUEUE, receiver, queue);
  o.own = -1;
  o.message = (b.base + b.m0) * length + turn * (b.m1 - b.m0);
  return o;
}

// Describes a source: it waits for the message, then returns the slot to `src_rank`.
HCCC_FN hccc_operand hccc_recv(const hccc_block& b, int queue, int turn, int length, int data_flag,
                               int src_rank, int credit_flag) {
  hccc_operand o = hccc_queue(b, b.rank, queue, turn, length);
  o.wait_flag = data_flag;
  o.post_rank = src_rank;
  o.post_flag = credit_flag;
  return o;
}

// Describes a destination: it waits for a free slot, then signals the message to `dst_rank`.
HCCC_FN hccc_operand hccc_send(const hccc_block& b, int queue, int dst_rank, int turn, int length,
                               int data_flag, int credit_flag) {
  hccc_operand o = hccc_queue(b, dst_rank, queue, turn, length);
  o.wait_flag = credit_flag;
  o.post_rank = dst_rank;
  o.post_flag = data_flag;
  return o;
}

// Describes a destination in a network queue, the own rank's `own`th: slots of the own rank, which
// the proxy copies to the receiver's; or the receiver's slots, where they can be addressed.
HCCC_FN hccc_operand hccc_send_far(const hccc_block& b, int queue, int dst_rank, int turn,
                                   int length, int data_flag, int credit_flag, int own) {
  hccc_operand o = hccc_send(b, queue, dst_rank, turn, length, data_flag, credit_flag);
  o.own = own;
  return o;
}

HCCC_FN unsigned hccc_message(const hccc_block& b, const hccc_operand& o, unsigned m) {
  return o.message + (m - b.m0);
}

#endif

// Returns where a block begins in a user buffer of a rank, in elements.
HCCC_FN long long hccc_block_place(const hccc_block& b, const hccc_operand& o) {
  const int block = o.slot / HCCC_SUB;
#if HCCC_UNEVEN
  const long long row = 2LL * o.rank + (o.buffer == HCCC_OUTPUT);
  if (b.p->blocks) return b.p->blocks[HCCC_UNEVEN + row * HCCC_RANKS + block];
#endif
  return block * b.p->count;
}

// Returns where a slot begins in a user buffer, in elements. A user buffer is made of blocks of
// `count` elements, a block of SUB chunks.
HCCC_FN long long hccc_user_offset(const hccc_block& b, const hccc_operand& o) {
  const long long chunk = HCCC_CHANNELS * b.p->part;
  return hccc_block_place(b, o) + o.slot % HCCC_SUB * chunk + b.channel * b.p->part;
}

#if HCCC_QUEUES > 0
// Returns the slot of a message, in elements from the beginning of scratch. Queues that begin at a
// rank lie after the queues that end there.
HCCC_FN long long hccc_slot_at(const hccc_block& b, int queue, unsigned message) {
  const long long chunks = static_cast<long long>(HCCC_SCRATCH + HCCC_STAGE) * HCCC_CHANNELS;
  const long long first = (static_cast<long long>(queue) * HCCC_CHANNELS + b.channel) * HCCC_SLOTS;
  return chunks * b.p->part + (first + (message & (HCCC_SLOTS - 1))) * b.p->micro;
}

#endif

// Returns what a source's elements are multiplied by: send buffers hold what nothing has
// multiplied yet, all else what was read from one before.
HCCC_FN hccc_value hccc_scale_of(const hccc_block& b, const hccc_operand& o) {
  if (o.buffer != HCCC_INPUT) return hccc_value{1};
  return hccc_dtype::up(hccc_of_bits<hccc_T>(hccc_peer_of(b, o.rank).scalar));
}

// Returns where micro-batch m of an operand begins: this channel's part of its chunk, or a slot of its
// queue. One load of an address, whatever the buffer is, so that those of many operands overlap.
HCCC_FN hccc_T* hccc_place(const hccc_block& b, const hccc_operand& o, unsigned m) {
  const bool staged = o.buffer == HCCC_IN_STAGE && b.p->in_place;
  const long long batch = static_cast<long long>(m) * b.p->micro;
  const hccc_peer& peer = hccc_peer_of(b, o.rank);
  void* const* base = o.buffer == HCCC_OUTPUT ? &peer.output : &peer.input;
  long long at;
  if (HCCC_SCRATCH + HCCC_STAGE > 0 && (staged || o.buffer == HCCC_IN_SCRATCH)) {
    const long long slot = staged ? HCCC_SCRATCH + o.slot : o.slot;
    base = &b.p->ranks[o.rank].scratch;
    at = (slot * HCCC_CHANNELS + b.channel) * b.p->part + batch;
#if HCCC_QUEUES > 0
  } else if (o.buffer == HCCC_IN_QUEUE) {
    const bool away = HCCC_SENDS > 0 && o.own >= 0 && !hccc_reaches(b, o.rank);
    base = &b.p->ranks[away ? b.rank : o.rank].scratch;
    at = hccc_slot_at(b, away ? HCCC_QUEUES + o.own : o.slot, hccc_message(b, o, m));
#endif
  } else {
    at = hccc_user_offset(b, o) + batch;
  }
  HCCC_IS_GLOBAL(base);
  return static_cast<hccc_T*>(*base) + at;
}
