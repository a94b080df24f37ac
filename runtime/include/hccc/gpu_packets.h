// gpu_packets.h: primitives whose sources and destinations may be packet slots, on a GPU.
//
// A packet is 16 bytes, {word, flag, word, flag}: 8 bytes of data, of which each word comes together
// with a flag, the launch's epoch. Nothing else says that it is there, and nothing is ordered with it.
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

// What a thread moves at once: whole elements in whole packets.
constexpr int hccc_unit_packets = sizeof(hccc_T) > 8 ? 2 : 1;
struct __attribute__((may_alias)) alignas(8) hccc_unit {
  unsigned word[2 * hccc_unit_packets];
};
constexpr int hccc_unit_length = hccc_elements<hccc_unit>::length;
constexpr int hccc_polled = 8 / hccc_unit_packets;  // sources whose packets are loaded at once

// A packet after the last that data can have says which call a slot is of.
constexpr int hccc_call_packet = HCCC_LINES * HCCC_LINE_DATA / 8;
static_assert((hccc_call_packet + 1) * int(sizeof(hccc_packet)) <= HCCC_LINES * HCCC_LINE_ROOM);

// Returns where a packet of a slot of `rank` lies, of this launch's parity.
HCCC_FN char* hccc_packet_at(const hccc_block& b, int rank, int slot, int packet) {
  char* flags = static_cast<char*>(b.p->ranks[rank].flags) + b.p->flags_at;
  const long long half = static_cast<long long>(b.launch & 1) * HCCC_CHANNELS + b.channel;
  const long long line = (half * HCCC_PACKETS + slot) * HCCC_LINES;
  return flags + hccc_packets_at(hccc_this_shape) + line * HCCC_LINE_ROOM +
         packet * static_cast<long long>(sizeof(hccc_packet));
}

// Returns whether a part of a chunk has packets in this launch. The first of a block has one in every
// launch, also without data: by that ranks hear of each other.
HCCC_FN bool hccc_speaks(const hccc_block& b, int sub, long long valid) {
  return valid || (!sub && !b.channel);
}

HCCC_FN int hccc_units_of(long long elements) {
  return static_cast<int>((elements + hccc_unit_length - 1) / hccc_unit_length);
}

HCCC_FN int hccc_units(const hccc_block& b, int sub, long long valid) {
  return valid ? hccc_units_of(valid) : hccc_speaks(b, sub, valid);
}

// Returns the first unit of this thread. Short parts are spread over the block's threads, so that
// chunks are moved at the same time; a part's units are those of the same threads in all primitives.
HCCC_FN int hccc_first_unit(const hccc_block& b, int sub) {
  const int whole = (hccc_units_of(b.p->part) + 31) / 32 * 32;
  const int begin = static_cast<int>(static_cast<long long>(sub) * whole % hccc_threads);
  const int first = hccc_thread() - begin;
  return first < 0 ? first + hccc_threads : first;
}

// Returns whether flags are to be forgotten: epochs wrap soon, and a packet that small calls have left
// alone since they wrapped last could be taken for a new one.
HCCC_FN bool hccc_forgets(const hccc_block& b) { return b.launch >= 0xfffffffeu; }

// Returns this thread's number from the last, so that what is said of a call is said by threads that
// have no data in short calls.
HCCC_FN int hccc_from_last() { return hccc_threads - 1 - hccc_thread(); }

// Returns whether this thread has nothing to do in a primitive.
template <int K, int D>
HCCC_FN bool hccc_is_idle(const hccc_block& b, int sub, long long valid) {
  const bool told = !sub && !b.channel && hccc_from_last() < (K > D ? K : D);
  return !told && !hccc_forgets(b) && hccc_first_unit(b, sub) >= hccc_units(b, sub, valid);
}

// Waits until half of a packet of the own rank is there; rare, so out of line, and with a copy of the
// block, which keeps the caller's in registers. False: the launch is lost.
HCCC_NOINLINE bool hccc_await_packet(hccc_block b, int prim, int rank, int slot, int packet, int half) {
  const char* at = hccc_packet_at(b, b.rank, slot, packet);
  const unsigned* flag = reinterpret_cast<const unsigned*>(at) + 2 * half + 1;
  return hccc_wait(b, flag, b.launch, {HCCC_WAIT_PACKET, rank, prim, static_cast<unsigned>(slot)});
}

// Tells every destination of the block's first part what call this is, and hears it of every source, in a
// thread each. False: the launch is lost.
template <int mode, int W, int K, int D, int N>
HCCC_FN bool hccc_tell_call(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p) {
  const unsigned call[2] = {static_cast<unsigned>(b.p->signature),
                            static_cast<unsigned>(b.p->signature >> 32)};
  HCCC_UNROLL(1)
  for (int i = hccc_from_last(); i < D; i += hccc_threads) {
    const hccc_operand o = hccc_pick_operand(p, K + i);
    if (o.buffer == HCCC_IN_PACKETS)
      hccc_st_packet(hccc_packet_at(b, o.rank, o.slot, hccc_call_packet),
                     {{call[0], call[1]}, {b.launch, b.launch}});
  }
  bool same = true;
  HCCC_UNROLL(1)
  for (int i = hccc_from_last(); b.p->signature && same && i < K; i += hccc_threads) {
    const hccc_operand o = hccc_pick_operand(p, i);
    if (o.buffer != HCCC_IN_PACKETS) continue;
    for (int half = 0; same && half < 2; ++half)
      same = hccc_await_packet(b, p.prim, o.rank, o.slot, hccc_call_packet, half);
    if (!same) return false;
    const hccc_packet said = hccc_ld_packet(hccc_packet_at(b, b.rank, o.slot, hccc_call_packet));
    same = (said.word[0] == call[0] && said.word[1] == call[1]) || !(said.word[0] | said.word[1]);
    if (!same) hccc_report(b, 0, 0, {HCCC_OTHER_CALL, o.rank, -1, 0});
  }
  return same;
}

// Loads a unit of memory, of which `left` elements are there, or more.
HCCC_FN hccc_unit hccc_load_unit(const hccc_T* at, int left) {
  const bool aligned = reinterpret_cast<unsigned long long>(at) % alignof(hccc_unit) == 0;
  if (aligned && left >= hccc_unit_length) return *reinterpret_cast<const hccc_unit*>(at);
  hccc_elements<hccc_unit> e{};
  HCCC_UNROLL(hccc_unit_length)
  for (int i = 0; i < hccc_unit_length; ++i)
    if (i < left) e.item[i] = __builtin_bit_cast(hccc_T, hccc_word_at(at + i));
  return __builtin_bit_cast(hccc_unit, e);
}

HCCC_FN void hccc_store_unit(hccc_T* at, hccc_unit unit, int left) {
  const bool aligned = reinterpret_cast<unsigned long long>(at) % alignof(hccc_unit) == 0;
  if (aligned && left >= hccc_unit_length) {
    *reinterpret_cast<hccc_unit*>(at) = unit;
    return;
  }
  const hccc_elements<hccc_unit> e = __builtin_bit_cast(hccc_elements<hccc_unit>, unit);
  HCCC_UNROLL(hccc_unit_length)
  for (int i = 0; i < hccc_unit_length; ++i)
    if (i < left) *reinterpret_cast<hccc_word*>(at + i) = __builtin_bit_cast(hccc_word, e.item[i]);
}

// Returns the half of a unit's packets that is late, from 0, or -1.
HCCC_FN int hccc_late_half(const hccc_packet (&got)[hccc_unit_packets], unsigned epoch) {
  int late = -1;
  HCCC_UNROLL(hccc_unit_packets)
  for (int i = 0; i < hccc_unit_packets; ++i) {
    if (got[i].flag[0] != epoch) late = 2 * i;
    if (got[i].flag[1] != epoch) late = 2 * i + 1;
  }
  return late;
}

// Loads a unit of n sources, from number k on: packets again and again, all at once, until all are there.
// In the place of a source in memory another's packets are loaded, so that no load depends on its kind.
// False: the launch is lost.
template <int n, int mode, int W, int K, int D, int N>
HCCC_FN bool hccc_receive_units(hccc_unit (&got)[n], const hccc_block& b,
                                const hccc_primitive<mode, W, K, D, N>& p, int k, int unit, int left) {
  const char* from[n];
  bool packets[n];
  const char* any = nullptr;
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    const hccc_operand& o = p.from.item[k + g < K ? k + g : 0];
    packets[g] = k + g < K && o.buffer == HCCC_IN_PACKETS;
    if (packets[g]) any = from[g] = hccc_packet_at(b, b.rank, o.slot, unit * hccc_unit_packets);
    else if (k + g < K) got[g] = hccc_load_unit(hccc_place(b, o, 0) + unit * hccc_unit_length, left);
  }
  if (!any) return true;
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) from[g] = packets[g] ? from[g] : any;
  hccc_packet found[n][hccc_unit_packets];
  for (unsigned turns = 1;; ++turns) {
    HCCC_UNROLL(n)
    for (int g = 0; g < n; ++g) {
      HCCC_UNROLL(hccc_unit_packets)
      for (int i = 0; i < hccc_unit_packets; ++i)
        found[g][i] = hccc_ld_packet(from[g] + i * sizeof(hccc_packet));
    }
    int source = -1, half = 0;
    HCCC_UNROLL(n)
    for (int g = 0; g < n; ++g) {
      const int late = hccc_late_half(found[g], b.launch);
      if (packets[g] && late >= 0) source = k + g, half = late;
    }
    if (source < 0) break;
    if (turns % 256) continue;
    const hccc_operand o = hccc_pick_operand(p, source);
    const int packet = unit * hccc_unit_packets + half / 2;
    if (!hccc_await_packet(b, p.prim, o.rank, o.slot, packet, half % 2)) return false;
  }
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    HCCC_UNROLL(2 * hccc_unit_packets)
    for (int i = 0; i < 2 * hccc_unit_packets; ++i)
      got[g].word[i] = packets[g] ? found[g][i / 2].word[i % 2] : got[g].word[i];
  }
  return true;
}

// Stores a unit to n destinations, from number d on. Their places first, since no load is moved across
// the stores.
template <int n, int mode, int W, int K, int D, int N>
HCCC_FN void hccc_send_units(hccc_unit result, const hccc_block& b,
                             const hccc_primitive<mode, W, K, D, N>& p, int d, int unit, int left) {
  char* to[n];
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    const hccc_operand& o = p.to.item[d + g < D ? d + g : 0];
    if (o.buffer == HCCC_IN_PACKETS) to[g] = hccc_packet_at(b, o.rank, o.slot, unit * hccc_unit_packets);
    else to[g] = reinterpret_cast<char*>(hccc_place(b, o, 0) + unit * hccc_unit_length);
  }
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    if (d + g >= D) continue;
    if (p.to.item[d + g].buffer != HCCC_IN_PACKETS) {
      hccc_store_unit(reinterpret_cast<hccc_T*>(to[g]), result, left);
      continue;
    }
    HCCC_UNROLL(hccc_unit_packets)
    for (int i = 0; i < hccc_unit_packets; ++i)
      hccc_st_packet(to[g] + i * sizeof(hccc_packet), {{result.word[2 * i], result.word[2 * i + 1]},
                                                       {b.launch, b.launch}});
  }
}

// What the sources of a primitive are multiplied by, where the reduction does that.
template <int K>
struct hccc_unit_scales {
  const hccc_block& b;
  const hccc_operands<K>& from;
  HCCC_METHOD hccc_value scale_of(int k) const { return hccc_scale_of(b, from.item[k < K ? k : 0]); }
};

// Combines or copies one unit, of which `left` elements are there, or more. False: the launch is lost.
template <int mode, int W, int K, int D, int N>
HCCC_FN bool hccc_exchange_unit(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p,
                                int unit, int left) {
  constexpr int n = K < hccc_polled ? K : hccc_polled, m = D < 8 ? D : 8;
  hccc_unit got[n];
  if (!hccc_receive_units(got, b, p, 0, unit, left)) return false;
  hccc_unit result = got[0];
  if constexpr (hccc_computes(mode)) {
    const hccc_unit_scales<K> scales{b, p.from};
    hccc_values<hccc_unit> sum = hccc_up(scales, 0, got[0]);
    HCCC_UNROLL(n)
    for (int g = 1; g < n; ++g) hccc_combine(sum, hccc_up(scales, g, got[g]));
    HCCC_UNROLL(1)
    for (int k = n; k < K; k += n) {
      if (!hccc_receive_units(got, b, p, k, unit, left)) return false;
      HCCC_UNROLL(n)
      for (int g = 0; g < n; ++g)
        if (k + g < K) hccc_combine(sum, hccc_up(scales, k + g, got[g]));
    }
    result = hccc_down<mode>(sum);
  }
  HCCC_UNROLL(1)
  for (int d = 0; d < D; d += m) hccc_send_units<m>(result, b, p, d, unit, left);
  return true;
}

// Forgets the flags of a slot, after the last read in this launch: each thread of its own units, and of
// those that this launch leaves alone.
HCCC_NOINLINE void hccc_clear_slot(hccc_block b, int slot, int first) {
  for (int unit = first; unit * hccc_unit_packets < hccc_call_packet; unit += hccc_threads)
    for (int i = 0; i < hccc_unit_packets; ++i)
      hccc_st_packet(hccc_packet_at(b, b.rank, slot, unit * hccc_unit_packets + i), {});
}

// Executes a primitive on the `valid` elements of this channel's part of chunk `sub` of a block, by all
// threads. False: the launch is lost.
template <int mode, int W, int K, int D, int N>
HCCC_FN bool hccc_exchange(const hccc_block& b, const hccc_primitive<mode, W, K, D, N>& p, int sub,
                           long long valid) {
  static_assert(hccc_computes(mode) || K == 1, "a primitive that does not reduce has one source");
  bool ok = true;
  if (!sub && !b.channel) ok = hccc_tell_call(b, p);
  const int first = hccc_first_unit(b, sub), units = hccc_units(b, sub, valid);
  HCCC_UNROLL(1)
  for (int unit = first; ok && unit < units; unit += hccc_threads)
    ok = hccc_exchange_unit(b, p, unit, static_cast<int>(valid) - unit * hccc_unit_length);
  HCCC_UNROLL(1)
  for (int i = 0; hccc_forgets(b) && i < K; ++i) {
    const hccc_operand o = hccc_pick_operand(p, i);
    if (o.buffer == HCCC_IN_PACKETS) hccc_clear_slot(b, o.slot, first);
  }
  return ok;
}
