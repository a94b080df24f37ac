// gpu_packets.h: primitives whose sources and destinations may be packet slots, on a GPU.
//
// A packet is two halves of 8 bytes: 6 bytes of data each, which come together with a flag of 2 bytes,
// of the launch's epoch. Nothing else says that it is there, and nothing is ordered with it.
// Each thread moves units of its own: it loads the packets of all sources of a unit until all are
// there, combines them, and stores the result. No thread waits for another of its block.
#pragma once

#include "primitive.h"

// Whether threads of a block touch what others of it have written, or raise counters. They then meet
// before each primitive; else a unit of a slot is always the same thread's.
#ifdef HCCC_TRACE
constexpr bool hccc_meets = true;
#else
constexpr bool hccc_meets = HCCC_FLAGS + HCCC_SCRATCH + HCCC_STAGE > 0;
#endif

// Whether packets order other memory: a block may write what another of its rank has touched when packets
// that depend on that have come. With one block that is always the same thread.
constexpr bool hccc_orders = HCCC_BLOCKS > 1;

// What a thread moves at once: whole elements in whole packets.
constexpr int hccc_unit_packets = sizeof(hccc_T) > 4 ? sizeof(hccc_T) / 4 : 1;
struct alignas(hccc_unit_packets * 4) hccc_unit {
  unsigned word[3 * hccc_unit_packets];
};
struct __attribute__((may_alias)) hccc_unit_in_memory {
  hccc_unit unit;
};
constexpr int hccc_unit_length = hccc_elements<hccc_unit>::length;
constexpr int hccc_polled = 8 / hccc_unit_packets;  // sources whose packets are loaded at once

// A packet after the last that data can have says which call a slot is of.
constexpr int hccc_slot_length = HCCC_LINES * HCCC_LINE_DATA / int(sizeof(hccc_T));
constexpr int hccc_call_packet =
    (hccc_slot_length + hccc_unit_length - 1) / hccc_unit_length * hccc_unit_packets;
static_assert((hccc_call_packet + 1) * int(sizeof(hccc_packet)) <= HCCC_LINES * HCCC_LINE_ROOM);

constexpr long long hccc_slot_bytes = 1LL * HCCC_LINE_ROOM * HCCC_LINES;

// Returns where the packet slots of `rank` begin, those of this launch's parity.
HCCC_FN char* hccc_slots_of(const hccc_block& b, int rank) {
  return static_cast<char*>(b.ranks[rank].flags) + b.slots_at;
}

// Returns where a packet of a slot lies, in bytes from the first slot.
HCCC_FN long long hccc_packet_at(int slot, int packet) {
  return slot * hccc_slot_bytes + packet * static_cast<long long>(sizeof(hccc_packet));
}

// Returns where a unit of a source or destination in memory lies.
HCCC_FN hccc_T* hccc_unit_at(const hccc_block& b, const hccc_operand& o, int unit) {
  if constexpr (HCCC_SCRATCH + HCCC_STAGE > 0) return hccc_place(b, o, 0) + unit * hccc_unit_length;
  const int within = (o.slot % HCCC_SUB * HCCC_CHANNELS + b.channel) * b.part + unit * hccc_unit_length;
  const long long block = o.slot / HCCC_SUB * static_cast<long long>(b.count);
  return static_cast<hccc_T*>(o.buffer == HCCC_OUTPUT ? b.own.output : b.own.input) + block + within;
}

HCCC_FN int hccc_units_of(int elements) {
  return (elements + hccc_unit_length - 1) / hccc_unit_length;
}

// Returns whether so many elements have a unit of that number; no division.
HCCC_FN bool hccc_has(int unit, int elements) { return unit * hccc_unit_length < elements; }

// Returns the flag of this launch's packets in the upper half of a word.
HCCC_FN unsigned hccc_tag(const hccc_block& b) { return b.launch << hccc_epoch_shift; }

// Returns packet i of a unit.
HCCC_FN hccc_packet hccc_packed(const hccc_unit& unit, int i, unsigned tag) {
  const unsigned* w = unit.word + 3 * i;
  return {{w[0], w[2]}, {tag | (w[1] & 0xffffu), tag | w[1] >> 16}};
}

// Fills in what packet i of a unit has.
HCCC_FN void hccc_unpack(hccc_unit& unit, int i, const hccc_packet& p) {
  unsigned* w = unit.word + 3 * i;
  w[0] = p.low[0], w[1] = (p.high[0] & 0xffffu) | p.high[1] << 16, w[2] = p.low[1];
}

// Returns whether a part is the first of a block, which has a packet in every launch, also without data: by
// that ranks hear of each other, and of what they call.
HCCC_FN bool hccc_is_first(const hccc_block& b, int sub) { return !(sub | b.channel); }

HCCC_FN int hccc_units(const hccc_block& b, int sub, int valid) {
  return valid ? hccc_units_of(valid) : hccc_is_first(b, sub);
}

// Returns the first unit of this thread. Short parts are spread over the block's threads, so that
// chunks are moved at the same time; a part's units are those of the same threads in all primitives.
HCCC_FN int hccc_first_unit(const hccc_block& b, int sub) {
  const unsigned whole = (hccc_units_of(b.part) + 31) / 32 * 32;
  const int first = hccc_thread() - static_cast<int>(sub * whole % hccc_threads);
  return first < 0 ? first + hccc_threads : first;
}

// Returns whether flags are to be forgotten: epochs wrap soon, and a packet that small calls have left
// alone since they wrapped last could be taken for a new one.
HCCC_FN bool hccc_forgets(const hccc_block& b) {
  return (b.launch & hccc_epoch_mask) >= hccc_epoch_mask - 1;
}

// Returns this thread's number from the last, so that what is said of a call is said by threads that
// have no data in short calls.
HCCC_FN int hccc_from_last() { return hccc_threads - 1 - hccc_thread(); }

template <class From, class To>
constexpr int hccc_most_of = From::length > To::length ? From::length : To::length;

// Returns whether this thread has nothing to do in a primitive.
template <class From, class To>
HCCC_FN bool hccc_is_idle(const hccc_block& b, int sub, bool moves) {
  const int valid = moves ? hccc_valid_of(b, sub) : 0;
  if (hccc_forgets(b)) return false;
  if (hccc_is_first(b, sub)) {
    const bool tells = hccc_from_last() < hccc_most_of<From, To>, has = hccc_has(hccc_thread(), valid);
    return !tells && !has && hccc_thread();
  }
  return !hccc_has(hccc_first_unit(b, sub), valid);
}

// Waits until half of a packet of the own rank is there; rare, so out of line, and with a copy of the
// block, which keeps the caller's in registers. False: the launch is lost.
HCCC_NOINLINE bool hccc_await_packet(hccc_block b, int prim, int rank, int slot, int packet, int half) {
  const char* at = b.slots + hccc_packet_at(slot, packet);
  const unsigned* flag = reinterpret_cast<const unsigned*>(at) + 2 * half + 1;
  const unsigned want = b.launch & hccc_epoch_mask;
  return hccc_wait(b, flag, want, {HCCC_WAIT_PACKET, rank, prim, static_cast<unsigned>(slot)});
}

// Tells every destination of the block's first part what call this is, and hears it of every source, in a
// thread each, out of line and as hccc_await_packet. False: the launch is lost.
HCCC_NOINLINE bool hccc_tell_call(hccc_block b, int prim, const hccc_operand* from, int k,
                                  const hccc_operand* to, int d) {
  const unsigned call[2] = {static_cast<unsigned>(b.p->signature),
                            static_cast<unsigned>(b.p->signature >> 32)};
  for (int i = hccc_from_last(); i < d; i += hccc_threads)
    if (to[i].buffer == HCCC_IN_PACKETS)
      hccc_st_packet(hccc_slots_of(b, to[i].rank) + hccc_packet_at(to[i].slot, hccc_call_packet),
                     {{call[0], call[1]}, {hccc_tag(b), hccc_tag(b)}});
  for (int i = hccc_from_last(); b.p->signature && i < k; i += hccc_threads) {
    const hccc_operand o = from[i];
    if (o.buffer != HCCC_IN_PACKETS) continue;
    for (int half = 0; half < 2; ++half)
      if (!hccc_await_packet(b, prim, o.rank, o.slot, hccc_call_packet, half)) return false;
    const hccc_packet said = hccc_ld_packet(b.slots + hccc_packet_at(o.slot, hccc_call_packet));
    const bool same = said.low[0] == call[0] && said.low[1] == call[1];
    if (same || !(said.low[0] | said.low[1])) continue;
    hccc_report(b, 0, 0, {HCCC_OTHER_CALL, o.rank, -1, 0});
    return false;
  }
  return true;
}

// Loads a unit of memory, of which `left` elements are there, or more.
HCCC_FN hccc_unit hccc_load_unit(const hccc_T* at, int left) {
  const bool aligned = reinterpret_cast<unsigned long long>(at) % alignof(hccc_unit) == 0;
  if (aligned && left >= hccc_unit_length) return reinterpret_cast<const hccc_unit_in_memory*>(at)->unit;
  hccc_elements<hccc_unit> e{};
  HCCC_UNROLL(hccc_unit_length)
  for (int i = 0; i < hccc_unit_length; ++i)
    if (i < left) e.item[i] = __builtin_bit_cast(hccc_T, hccc_word_at(at + i));
  return __builtin_bit_cast(hccc_unit, e);
}

HCCC_FN void hccc_store_unit(hccc_T* at, hccc_unit unit, int left) {
  const bool aligned = reinterpret_cast<unsigned long long>(at) % alignof(hccc_unit) == 0;
  if (aligned && left >= hccc_unit_length) {
    reinterpret_cast<hccc_unit_in_memory*>(at)->unit = unit;
    return;
  }
  const hccc_elements<hccc_unit> e = __builtin_bit_cast(hccc_elements<hccc_unit>, unit);
  HCCC_UNROLL(hccc_unit_length)
  for (int i = 0; i < hccc_unit_length; ++i)
    if (i < left) *reinterpret_cast<hccc_word*>(at + i) = __builtin_bit_cast(hccc_word, e.item[i]);
}

// Waits until the packets of a unit of n sources have come, one after the other; rare, as
// hccc_await_packet. False: the launch is lost.
HCCC_NOINLINE bool hccc_await_unit(hccc_block b, int prim, const hccc_operand* from, int n, int unit) {
  for (int k = 0; k < n; ++k) {
    if (from[k].buffer != HCCC_IN_PACKETS) continue;
    for (int half = 0; half < 2 * hccc_unit_packets; ++half) {
      const int packet = unit * hccc_unit_packets + half / 2;
      if (!hccc_await_packet(b, prim, from[k].rank, from[k].slot, packet, half % 2)) return false;
    }
  }
  return true;
}

// Loads a unit of n sources, from number k on: what is in memory, and packets again and again, all at once.
// False: some are not there yet.
template <class From, int n>
HCCC_FN bool hccc_poll_units(hccc_unit (&got)[n], const hccc_block& b, const hccc_operand* from, int k,
                             int unit, int left) {
  const char* at[n];
  bool any = false;
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    if (k + g >= From::length) continue;
    const hccc_operand o = from[k + g];
    any |= From::packets(k + g);
    if (From::packets(k + g)) at[g] = b.slots + hccc_packet_at(o.slot, unit * hccc_unit_packets);
    else got[g] = hccc_load_unit(hccc_unit_at(b, o, unit), left);
  }
  hccc_packet found[n][hccc_unit_packets];
  const unsigned tag = hccc_tag(b);
  bool come = !any;
  HCCC_UNROLL(1)
  for (int turns = 0; !come && turns < 256; ++turns) {
    HCCC_UNROLL(n)
    for (int g = 0; g < n; ++g) {
      HCCC_UNROLL(hccc_unit_packets)
      for (int i = 0; i < hccc_unit_packets; ++i)
        if (From::packets(k + g)) found[g][i] = hccc_ld_packet(at[g] + i * sizeof(hccc_packet));
    }
    unsigned differ = 0;
    HCCC_UNROLL(n)
    for (int g = 0; g < n; ++g) {
      HCCC_UNROLL(hccc_unit_packets)
      for (int i = 0; i < hccc_unit_packets; ++i)
        if (From::packets(k + g))
          differ |= (found[g][i].high[0] ^ tag) | (found[g][i].high[1] ^ tag);
    }
    come = !(differ >> hccc_epoch_shift);
  }
  if (any && come && hccc_orders) hccc_fence();
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    HCCC_UNROLL(hccc_unit_packets)
    for (int i = 0; i < hccc_unit_packets; ++i)
      if (From::packets(k + g)) hccc_unpack(got[g], i, found[g][i]);
  }
  return come;
}

// Receives a unit of n sources, from number k on. False: the launch is lost.
template <class From, int n>
HCCC_FN bool hccc_receive_units(hccc_unit (&got)[n], const hccc_block& b, int prim,
                                const hccc_operand* from, int k, int unit, int left) {
  HCCC_UNROLL(1)
  while (!hccc_poll_units<From, n>(got, b, from, k, unit, left)) {
    const int sources = From::length - k < n ? From::length - k : n;
    if (!hccc_await_unit(b, prim, from + k, sources, unit)) return false;
  }
  return true;
}

// Stores a unit to all destinations in memory.
template <class To>
HCCC_FN void hccc_keep_unit(hccc_unit result, const hccc_block& b, const hccc_operand* to, int unit,
                            int left) {
  HCCC_UNROLL(To::length)
  for (int d = 0; d < To::length; ++d)
    if (!To::packets(d)) hccc_store_unit(hccc_unit_at(b, to[d], unit), result, left);
}

// Stores a unit to all destinations: to others' packet slots first, where nothing is ordered. Where these
// lie is loaded before, for no load is moved across the stores.
template <class To>
HCCC_FN void hccc_send_unit(hccc_unit result, const hccc_block& b, const hccc_operand* to, int unit,
                            int left) {
  if (hccc_orders) {
    hccc_keep_unit<To>(result, b, to, unit, left);
    hccc_fence();
  }
  constexpr int n = To::length < 8 ? To::length : 8;
  HCCC_UNROLL(To::length)
  for (int d = 0; d < To::length; d += n) {
    char* at[n];
    HCCC_UNROLL(n)
    for (int g = 0; g < n; ++g)
      if (To::packets(d + g))
        at[g] = hccc_slots_of(b, to[d + g].rank) +
                hccc_packet_at(to[d + g].slot, unit * hccc_unit_packets);
    HCCC_UNROLL(n)
    for (int g = 0; g < n; ++g) {
      HCCC_UNROLL(hccc_unit_packets)
      for (int i = 0; i < hccc_unit_packets; ++i)
        if (To::packets(d + g))
          hccc_st_packet(at[g] + i * sizeof(hccc_packet), hccc_packed(result, i, hccc_tag(b)));
    }
  }
  if (!hccc_orders) hccc_keep_unit<To>(result, b, to, unit, left);
}

// What the sources of a primitive are multiplied by, where the reduction does that.
struct hccc_unit_scales {
  const hccc_block& b;
  const hccc_operand* from;
  HCCC_METHOD hccc_value scale_of(int k) const { return hccc_scale_of(b, from[k]); }
};

// Combines or copies one unit, of which `left` elements are there, or more. False: the launch is lost.
template <class From, class To, int mode>
HCCC_FN bool hccc_exchange_unit(const hccc_block& b, int prim, const hccc_operand* from,
                                const hccc_operand* to, int unit, int left) {
  constexpr int K = From::length, n = K < hccc_polled ? K : hccc_polled;
  const hccc_unit_scales scales{b, from};
  hccc_unit got[n];
  if (!hccc_receive_units<From, n>(got, b, prim, from, 0, unit, left)) return false;
  hccc_unit result = got[0];
  if constexpr (hccc_computes(mode)) {
    hccc_values<hccc_unit> sum = hccc_up(scales, 0, got[0]);
    HCCC_UNROLL(n)
    for (int k = 1; k < n; ++k) hccc_combine(sum, hccc_up(scales, k, got[k]));
    HCCC_UNROLL(K)
    for (int k = n; k < K; k += n) {
      if (!hccc_receive_units<From, n>(got, b, prim, from, k, unit, left)) return false;
      HCCC_UNROLL(n)
      for (int g = 0; g < n; ++g)
        if (k + g < K) hccc_combine(sum, hccc_up(scales, k + g, got[g]));
    }
    result = hccc_down<mode>(sum);
  }
  hccc_send_unit<To>(result, b, to, unit, left);
  return true;
}

// Forgets the flags of a slot, after the last read in this launch: each thread of its own units, and of
// those that this launch leaves alone.
HCCC_NOINLINE void hccc_clear_slot(hccc_block b, int slot, int first) {
  for (int unit = first; unit * hccc_unit_packets < hccc_call_packet; unit += hccc_threads)
    for (int i = 0; i < hccc_unit_packets; ++i)
      hccc_st_packet(b.slots + hccc_packet_at(slot, unit * hccc_unit_packets + i), {});
}

// Executes a primitive on the `valid` elements of this channel's part of chunk `sub` of a block, by all
// threads. False: the launch is lost.
template <class From, class To, int mode, int W, int K, int D, int N>
HCCC_FN bool hccc_exchange(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p, int sub,
                           int valid) {
  static_assert(hccc_computes(mode) || K == 1, "a primitive that does not reduce has one source");
  const hccc_block own = b;  // in registers, whatever is stored
  bool ok = true;
  if (hccc_is_first(own, sub) && hccc_from_last() < hccc_most_of<From, To>)
    ok = hccc_tell_call(own, p.prim, p.from.item, K, p.to.item, D);
  const int first = hccc_first_unit(own, sub), units = hccc_units(own, sub, valid);
  HCCC_UNROLL(1)
  for (int unit = first; ok && unit < units; unit += hccc_threads)
    ok = hccc_exchange_unit<From, To, mode>(own, p.prim, p.from.item, p.to.item, unit,
                                            valid - unit * hccc_unit_length);
  HCCC_UNROLL(1)
  for (int i = 0; hccc_forgets(own) && i < K; ++i)
    if (p.from.item[i].buffer == HCCC_IN_PACKETS) hccc_clear_slot(own, p.from.item[i].slot, first);
  return ok;
}
