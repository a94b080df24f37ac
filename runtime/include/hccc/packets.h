// packets.h: primitives whose sources and destinations may be packet slots, on the host.
//
// A packet is a line of 64 bytes: data, what call it is of, and a flag, stored last with release. Who
// finds the launch's epoch in the flag has the data, and that of packets before it; there is no other
// signal. A packet is written once in a launch and read once, and written again two launches later at
// the earliest, when it is known to have been read (compiler/proofs/reuse.py).
#pragma once

#include "primitive.h"

constexpr bool hccc_meets = true;  // a block has one thread


struct hccc_line {
  unsigned char data[HCCC_LINE_DATA];
  unsigned call;  // of the signature; 0: not compared
  unsigned flag;
};
static_assert(sizeof(hccc_line) == HCCC_LINE, "a line of the cache");

// Elements that are combined at once: whole packets of whole elements.
constexpr long hccc_exchanged_unit = 2 * HCCC_LINE_DATA / long(sizeof(hccc_T));
constexpr long hccc_exchanged = hccc_tile / hccc_exchanged_unit * hccc_exchanged_unit;

// A primitive's operands.
struct hccc_exchange_of {
  int prim;
  const hccc_operand* from;
  int k;
  const hccc_operand* to;
  int d;
};

HCCC_FN unsigned hccc_short_signature(const hccc_block& b) {
  return static_cast<unsigned>(b.p->signature ^ b.p->signature >> 32);
}

constexpr long long hccc_slot_bytes = 1LL * HCCC_LINE * HCCC_LINES;

// Returns the first packet of a slot of `rank`, of this launch's parity.
HCCC_FN hccc_line* hccc_slot_of(const hccc_block& b, int rank, int slot) {
  char* slots = static_cast<char*>(b.ranks[rank].flags) + b.slots_at;
  return reinterpret_cast<hccc_line*>(slots + slot * hccc_slot_bytes);
}

// Fetches a line for a store that comes later, where it lies in the cache of the core that has read it. Old
// processors take the instruction for none.
HCCC_FN void hccc_fetch_to_store(void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" : : "r"(line));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Sends `bytes` from packet `first` of a slot on; an empty packet where there are none. Lines of the next
// launch's parity are fetched meanwhile: its stores then wait for no other core, in a call that is as long.
HCCC_NOINLINE void hccc_send_lines(const hccc_block& b, const hccc_operand& to, long long first,
                                   const unsigned char* from, long bytes) {
  hccc_line* line = hccc_slot_of(b, to.rank, to.slot) + first;
  const unsigned call = hccc_short_signature(b);
  constexpr long long parity = HCCC_CHANNELS * HCCC_PACKETS * hccc_slot_bytes;
  const long long next = b.launch & 1 ? -parity : parity;
  long at = 0;
  do {
    hccc_fetch_to_store(reinterpret_cast<char*>(line) + next);
    if (bytes - at >= HCCC_LINE_DATA) __builtin_memcpy(line->data, from + at, HCCC_LINE_DATA);
    else __builtin_memcpy(line->data, from + at, static_cast<unsigned long>(bytes - at));
    line->call = call;
    hccc_st_release(&line->flag, b.launch);
    at += HCCC_LINE_DATA, ++line;
  } while (at < bytes);
}

// Receives what hccc_send_lines sent. False: the launch is lost. One thread has sent all of it in order:
// when the last packet is there, so are those before. Who waited for each would take it from the
// sender's cache while it is written.
HCCC_NOINLINE bool hccc_receive_lines(const hccc_block& b, int prim, const hccc_operand& from,
                                      long long first, unsigned char* to, long bytes) {
  const hccc_line* line = hccc_slot_of(b, b.rank, from.slot) + first;
  const hccc_line& last = line[bytes ? (bytes - 1) / HCCC_LINE_DATA : 0];
  const unsigned call = hccc_short_signature(b);
  const hccc_cause cause = {HCCC_WAIT_PACKET, from.rank, prim, static_cast<unsigned>(from.slot)};
  if (!hccc_wait(b, &last.flag, b.launch, cause)) return false;
  if (last.call != call && last.call && call) {
    hccc_report(b, 0, 0, {HCCC_OTHER_CALL, from.rank, -1, 0});
    return false;
  }
  long at = 0;
  for (; at + HCCC_LINE_DATA <= bytes; at += HCCC_LINE_DATA, ++line)
    __builtin_memcpy(to + at, line->data, HCCC_LINE_DATA);
  if (at < bytes) __builtin_memcpy(to + at, line->data, static_cast<unsigned long>(bytes - at));
  return true;
}

// Forgets the epochs of a slot, after its last read in this launch. Before epochs wrap, so that a
// packet that small calls have left alone since they wrapped last cannot be taken for a new one.
HCCC_FN void hccc_clear_slot(const hccc_block& b, const hccc_operand& from) {
  hccc_line* line = hccc_slot_of(b, b.rank, from.slot);
  for (long i = 0; i < HCCC_LINES; ++i) hccc_st_relaxed(&line[i].flag, 0);
}

// Combines or copies elements [at, at + n) of the part. False: the launch is lost.
template <int mode>
HCCC_FN bool hccc_exchange_some(const hccc_block& b, const hccc_exchange_of& e, long long at, long n) {
  constexpr bool computes = hccc_computes(mode);
  hccc_T received[hccc_exchanged], rounded[computes ? hccc_exchanged : 1];
  hccc_value tile[computes ? hccc_exchanged : 1];
  const long long first = at * static_cast<long long>(sizeof(hccc_T)) / HCCC_LINE_DATA;
  const long bytes = n * static_cast<long>(sizeof(hccc_T));
  hccc_T* source = received;
  for (int i = 0; i < e.k; ++i) {
    const hccc_operand& o = e.from[i];
    const bool packets = o.buffer == HCCC_IN_PACKETS;
    source = packets ? received : hccc_place(b, o, 0) + at;
    if (packets && !hccc_receive_lines(b, e.prim, o, first,
                                       reinterpret_cast<unsigned char*>(received), bytes))
      return false;
    if constexpr (computes) {
      hccc_value by{1};
      if constexpr (hccc_op::multiplies) by = hccc_scale_of(b, o);
      if (i == 0) hccc_combine_pass<1, true>(tile, {&source, &by}, 0, n);
      else hccc_combine_pass<1, false>(tile, {&source, &by}, 0, n);
    }
  }
  if constexpr (computes) hccc_round_tile<mode>(rounded, tile, n);
  hccc_T* result = computes ? rounded : source;
  for (int i = 0; i < e.d; ++i) {
    const hccc_operand& o = e.to[i];
    if (o.buffer == HCCC_IN_PACKETS)
      hccc_send_lines(b, o, first, reinterpret_cast<const unsigned char*>(result), bytes);
    else
      hccc_copy_elements(hccc_place(b, o, 0) + at, result, n);
  }
  return true;
}

// Executes a primitive on the `valid` elements of this channel's part of chunk `sub` of a block. A
// part without data has no packets, but the first of all has one in every launch: by that ranks hear
// of each other, and notice that one makes another call. False: the launch is lost.
template <int mode>
HCCC_NOINLINE bool hccc_exchange_lines(const hccc_block& b, const hccc_exchange_of& e, int sub,
                                       long long valid) {
  const bool speaks = valid || (!sub && !b.channel);
  for (long long at = 0; speaks && (at < valid || !at); at += hccc_exchanged) {
    const long n = static_cast<long>(valid - at < hccc_exchanged ? valid - at : hccc_exchanged);
    if (!hccc_exchange_some<mode>(b, e, at, n)) return false;
  }
  for (int i = 0; b.launch >= 0xfffffffeu && i < e.k; ++i)
    if (e.from[i].buffer == HCCC_IN_PACKETS) hccc_clear_slot(b, e.from[i]);
  return true;
}

template <class From, class To, int mode, int W, int K, int D, int N>
HCCC_FN bool hccc_exchange(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p, int sub,
                           int valid) {
  return hccc_exchange_lines<mode>(b, {p.prim, p.from.item, K, p.to.item, D}, sub, valid);
}

// Returns whether this thread has nothing to do in a primitive.
template <class From, class To>
HCCC_FN bool hccc_is_idle(const hccc_block&, int, bool) {
  return false;
}

// Greetings are empty packets in the last slots of a rank, one for each rank that sends them.
HCCC_FN hccc_operand hccc_greeting(int rank, int from) {
  return hccc_chunk_at(HCCC_IN_PACKETS, rank, HCCC_PACKETS - HCCC_RANKS + from);
}

// Tells all other ranks that this one has begun the launch, in its first block.
HCCC_FN void hccc_greet(const hccc_block& b) {
  const unsigned char none = 0;
  for (int i = 1; i < HCCC_RANKS; ++i)
    hccc_send_lines(b, hccc_greeting((b.rank + i) % HCCC_RANKS, b.rank), 0, &none, 0);
}

// Waits until all other ranks have begun the launch. False: it is lost.
HCCC_FN bool hccc_await_greetings(const hccc_block& b) {
  unsigned char none;
  for (int i = 1; i < HCCC_RANKS; ++i) {
    const int peer = (b.rank + i) % HCCC_RANKS;
    hccc_operand from = hccc_greeting(peer, peer);
    if (!hccc_receive_lines(b, -1, from, 0, &none, 0)) return false;
  }
  return true;
}
