// gpu_body.h: reduceCopy(k sources -> d destinations) by all threads of a block.
//
// 16 bytes a load where every address allows it, and as many in flight per thread, for any k, as its
// registers hold: packs of few sources, or one of each, or of many sources a group after the other.
// Elements are read and written as words; those that a primitive reduces are converted in registers.
#pragma once

#include "types.h"

constexpr int hccc_pack = 16 / sizeof(hccc_T);  // elements in 16 bytes
// Loads of 16 bytes in flight per thread; sixteen sums, or those of a wider type, need registers too.
constexpr bool hccc_large_sums = sizeof(hccc_T) == 1 || sizeof(hccc_value) >= 4 * sizeof(hccc_T);
constexpr bool hccc_many_registers = HCCC_THREADS * hccc_blocks_per_unit <= 512;  // 128
constexpr int hccc_loads = (hccc_large_sums ? 2 : 4) * (hccc_many_registers ? 2 : 1);

// Pointers beyond this many live in shared memory instead of registers.
constexpr int hccc_register_pointers = hccc_many_registers ? 5 : 3;
#ifndef HCCC_OPERANDS  // of the primitive that has most
#define HCCC_OPERANDS (HCCC_RANKS < 254 ? 2 * HCCC_RANKS + 4 : 512)
#endif
constexpr int hccc_shared_pointer_count = HCCC_OPERANDS;
static HCCC_SHARED hccc_T* hccc_shared_pointers[hccc_shared_pointer_count];
static HCCC_SHARED hccc_word hccc_shared_scales[hccc_op::multiplies ? hccc_shared_pointer_count : 1];

// Pointers to K sources and then D destinations. Set before a barrier, read after it.
template <int K, int D, bool few>
struct hccc_pointer_array {
  hccc_T* place[K + D];
  HCCC_METHOD void set(int i, hccc_T* at) { place[i] = at; }
  HCCC_METHOD hccc_T* at(int i) const { return place[i]; }
  hccc_value scale[hccc_op::multiplies ? K : 1];
  HCCC_METHOD void set_scale(int i, hccc_value by) { scale[i] = by; }
  HCCC_METHOD hccc_value scale_of(int i) const { return scale[i]; }
};

template <int K, int D>
struct hccc_pointer_array<K, D, false> {
  static_assert(K + D <= hccc_shared_pointer_count, "more operands than HCCC_OPERANDS");
  HCCC_METHOD void set(int i, hccc_T* at) { hccc_shared_pointers[i] = at; }
  HCCC_METHOD hccc_T* at(int i) const { return hccc_shared_pointers[i]; }
  HCCC_METHOD void set_scale(int i, hccc_value by) {
    hccc_shared_scales[i] = __builtin_bit_cast(hccc_word, hccc_dtype::down(by));
  }
  HCCC_METHOD hccc_value scale_of(int i) const {
    return hccc_dtype::up(__builtin_bit_cast(hccc_T, hccc_shared_scales[i]));
  }
};

template <int k, int d>
struct hccc_pointers : hccc_pointer_array<k, d, (k + d <= hccc_register_pointers)> {
  static constexpr int K = k, D = d;
  static constexpr bool few = k + d <= hccc_register_pointers;
  static constexpr bool all = k <= hccc_loads + 1;            // sources are read at once
  static constexpr int group = all ? k : hccc_loads;            // or so many of them
  static constexpr int unroll = k >= hccc_loads ? 1 : hccc_loads / k;  // packs of each of them
  long long offset;                                              // elements past the places
  HCCC_METHOD hccc_T* get(int i) const { return this->at(i) + offset; }
  HCCC_FN hccc_words load(const hccc_words* at) { return hccc_ld16(at); }
  HCCC_FN void store(hccc_words* at, hccc_words w) { hccc_st16(at, w); }
};

// Words, the 16 bytes of a pack or others, as elements, and as values to compute with.
template <class Words>
struct hccc_elements {
  static constexpr int length = sizeof(Words) / sizeof(hccc_T);
  hccc_T item[length];
};

template <class Words>
struct hccc_values {
  static constexpr int length = hccc_elements<Words>::length;
  hccc_value item[length];
};

// Multiplies a value of source k where the reduction does that.
template <class Pointers>
HCCC_FN hccc_value hccc_scaled([[maybe_unused]] const Pointers& pointers, [[maybe_unused]] int k,
                               hccc_value x) {
  if constexpr (hccc_op::multiplies) return hccc_op::scaled(x, pointers.scale_of(k));
  else return x;
}

// Whether two values of a type are converted by one instruction, and how.
template <class D>
struct hccc_pair {
  static constexpr bool at_once = false;
};
#if defined(HCCC_PAIRS) && HCCC_PAIRS
template <>
struct hccc_pair<hccc_half> {
  static constexpr bool at_once = true;
  HCCC_FN unsigned down(float low, float high) { return hccc_halves_down(low, high); }
};
template <>
struct hccc_pair<hccc_brain> {
  static constexpr bool at_once = true;
  HCCC_FN unsigned down(float low, float high) { return hccc_brains_down(low, high); }
};
#endif

template <class D>
struct hccc_is_brain {
  static constexpr bool value = false;
};
template <>
struct hccc_is_brain<hccc_brain> {
  static constexpr bool value = true;
};

// Converts words to values. A bfloat16 is the upper half of a word: no half is taken out of it.
template <class Pointers, class Words>
HCCC_FN hccc_values<Words> hccc_up(const Pointers& pointers, int k, Words w) {
  constexpr int length = hccc_values<Words>::length;
  hccc_values<Words> v;
  if constexpr (hccc_is_brain<hccc_dtype>::value) {
    HCCC_UNROLL(length)
    for (int i = 0; i < length; ++i) {
      const unsigned word = w.word[i / 2], bits = i % 2 ? word & 0xffff0000u : word << 16;
      v.item[i] = hccc_scaled(pointers, k, hccc_float_of(bits));
    }
    return v;
  }
  const hccc_elements<Words> e = __builtin_bit_cast(hccc_elements<Words>, w);
  HCCC_UNROLL(length)
  for (int i = 0; i < length; ++i) v.item[i] = hccc_scaled(pointers, k, hccc_dtype::up(e.item[i]));
  return v;
}

template <int mode, class Words, class D = hccc_dtype>
HCCC_FN Words hccc_down(const hccc_values<Words>& v) {
  constexpr int length = hccc_values<Words>::length;
  if constexpr (hccc_pair<D>::at_once) {
    Words w;
    HCCC_UNROLL(length / 2)
    for (int i = 0; i < length / 2; ++i)
      w.word[i] = hccc_pair<D>::down(hccc_finish<mode>(v.item[2 * i]),
                                     hccc_finish<mode>(v.item[2 * i + 1]));
    return w;
  } else {
    hccc_elements<Words> e;
    HCCC_UNROLL(length)
    for (int i = 0; i < length; ++i)
      e.item[i] = hccc_dtype::down(hccc_finish<mode>(v.item[i]));
    return __builtin_bit_cast(Words, e);
  }
}

template <class Words>
HCCC_FN void hccc_combine(hccc_values<Words>& sum, const hccc_values<Words>& v) {
  constexpr int length = hccc_values<Words>::length;
  HCCC_UNROLL(length)
  for (int i = 0; i < length; ++i) sum.item[i] = hccc_op::apply(sum.item[i], v.item[i]);
}

// The packs of a turn of the loop: `first`, and every hccc_threads from there that is below `end`.
// whole: all U are.
template <bool whole>
struct hccc_turn {
  unsigned first, end;
  HCCC_METHOD bool has(int u) const { return whole || first + u * hccc_threads < end; }
};

// Loads the packs of a turn of n sources from number k on. Pointers come first, since no load of
// shared memory is moved across those of packs.
template <int n, int U, class Pointers, class Turn>
HCCC_FN void hccc_load(hccc_words (&got)[n][U], const Pointers& pointers, int k, const Turn& turn) {
  const hccc_words* from[n];
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    const int source = k + g < Pointers::K ? k + g : 0;
    from[g] = reinterpret_cast<const hccc_words*>(pointers.get(source)) + turn.first;
  }
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    HCCC_UNROLL(U)
    for (int u = 0; u < U; ++u) {
      got[g][u] = {};
      if (k + g < Pointers::K && turn.has(u)) got[g][u] = Pointers::load(from[g] + u * hccc_threads);
    }
  }
}

// Stores the packs of a turn to all destinations.
template <int U, class Pointers, class Turn>
HCCC_FN void hccc_store(const Pointers& pointers, const Turn& turn, const hccc_words (&got)[U]) {
  HCCC_UNROLL(Pointers::D <= 16 ? Pointers::D : 1)
  for (int d = 0; d < Pointers::D; ++d) {
    hccc_words* to = reinterpret_cast<hccc_words*>(pointers.get(Pointers::K + d)) + turn.first;
    HCCC_UNROLL(U)
    for (int u = 0; u < U; ++u)
      if (turn.has(u)) Pointers::store(to + u * hccc_threads, got[u]);
  }
}

template <int U, class Pointers, class Turn>
HCCC_FN void hccc_copy_packs(const Pointers& pointers, const Turn& turn) {
  static_assert(Pointers::K == 1, "a primitive that does not reduce has one source");
  hccc_words got[1][U];
  hccc_load(got, pointers, 0, turn);
  hccc_store(pointers, turn, got[0]);
}

// Combines n sources that were loaded, from number k on, into the sums; the first begins them.
template <int n, int U, class Pointers>
HCCC_FN void hccc_combine_group(hccc_values<hccc_words> (&sum)[U], const Pointers& pointers, int k,
                                const hccc_words (&got)[n][U]) {
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    if (k + g >= Pointers::K) continue;
    HCCC_UNROLL(U)
    for (int u = 0; u < U; ++u) {
      const hccc_values<hccc_words> value = hccc_up(pointers, k + g, got[g][u]);
      if (k + g == 0) sum[u] = value;
      else hccc_combine(sum[u], value);
    }
  }
}

template <int mode, int U, class Pointers, class Turn>
HCCC_FN void hccc_reduce_packs(const Pointers& pointers, const Turn& turn) {
  static_assert(hccc_computes(mode), "only a primitive that reduces converts elements");
  constexpr int n = Pointers::group;
  hccc_values<hccc_words> sum[U];
  hccc_words got[n][U];
  hccc_load(got, pointers, 0, turn);
  hccc_combine_group(sum, pointers, 0, got);
  if constexpr (!Pointers::all) {
    HCCC_UNROLL(1)
    for (int k = n; k < Pointers::K; k += n) {
      hccc_load(got, pointers, k, turn);
      hccc_combine_group(sum, pointers, k, got);
    }
  }
  hccc_words result[U];
  HCCC_UNROLL(U)
  for (int u = 0; u < U; ++u) result[u] = hccc_down<mode>(sum[u]);
  hccc_store(pointers, turn, result);
}

template <int mode, int U, class Pointers, class Turn>
HCCC_FN void hccc_move_packs(const Pointers& pointers, const Turn& turn) {
  if constexpr (hccc_computes(mode))
    hccc_reduce_packs<mode, U>(pointers, turn);
  else
    hccc_copy_packs<U>(pointers, turn);
}

HCCC_FN hccc_word hccc_word_at(const hccc_T* at) {
  return *reinterpret_cast<const hccc_word*>(at);
}

HCCC_FN hccc_value hccc_value_at(const hccc_T* at) {
  return hccc_dtype::up(__builtin_bit_cast(hccc_T, hccc_word_at(at)));
}

// Reduces element i of all sources.
template <int mode, class Pointers>
HCCC_FN hccc_word hccc_reduced_word(const Pointers& pointers, unsigned i) {
  static_assert(hccc_computes(mode), "only a primitive that reduces converts elements");
  hccc_value sum = hccc_scaled(pointers, 0, hccc_value_at(pointers.get(0) + i));
  HCCC_UNROLL(Pointers::few ? Pointers::K : 1)
  for (int k = 1; k < Pointers::K; ++k)
    sum = hccc_op::apply(sum, hccc_scaled(pointers, k, hccc_value_at(pointers.get(k) + i)));
  return __builtin_bit_cast(hccc_word, hccc_dtype::down(hccc_finish<mode>(sum)));
}

// Reduces or copies elements [first, n), one in each thread at a time.
template <int mode, class Pointers>
HCCC_FN void hccc_move_elements(const Pointers& pointers, unsigned first, unsigned n) {
  HCCC_UNROLL(1)
  for (unsigned i = first + hccc_thread(); i < n; i += hccc_threads) {
    hccc_word word;
    if constexpr (hccc_computes(mode))
      word = hccc_reduced_word<mode>(pointers, i);
    else
      word = hccc_word_at(pointers.get(0) + i);
    HCCC_UNROLL(Pointers::few ? Pointers::D : 1)
    for (int d = 0; d < Pointers::D; ++d)
      *reinterpret_cast<hccc_word*>(pointers.get(Pointers::K + d) + i) = word;
  }
}

template <class Pointers>
HCCC_FN bool hccc_aligned(const Pointers& pointers) {
  unsigned long long bits = 0;
  HCCC_UNROLL(Pointers::few ? Pointers::K + Pointers::D : 1)
  for (int i = 0; i < Pointers::K + Pointers::D; ++i)
    bits |= reinterpret_cast<unsigned long long>(pointers.get(i));
  return bits % 16 == 0;
}

// Reduces packs of all sources into all destinations, which are aligned.
template <int mode, class Pointers>
HCCC_FN void hccc_move_all_packs(const Pointers& pointers, unsigned packs) {
  constexpr unsigned U = Pointers::unroll;
  unsigned pack = hccc_thread();
  HCCC_UNROLL(1)
  for (; pack + (U - 1) * hccc_threads < packs; pack += U * hccc_threads)
    hccc_move_packs<mode, U>(pointers, hccc_turn<true>{pack, packs});
  if (U > 1 && pack < packs) hccc_move_packs<mode, U>(pointers, hccc_turn<false>{pack, packs});
}

// Reduces n elements of all sources into all destinations.
template <int mode, class Pointers>
HCCC_FN void hccc_reduce_copy(const Pointers& pointers, unsigned n) {
  const unsigned packs = hccc_aligned(pointers) ? n / hccc_pack : 0;
  hccc_move_all_packs<mode>(pointers, packs);
  hccc_move_elements<mode>(pointers, packs * hccc_pack, n);
}
