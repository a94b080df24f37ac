// gpu_body.h: reduceCopy(k sources -> d destinations) by all threads of a block.
//
// 16 bytes a load where every address allows it, and about 64 bytes in flight per thread for any
// k: sources are read in groups, so that a thread needs no more than 64 registers. Elements are read
// and written as words; those that a primitive reduces are converted in registers.
#pragma once

#include "types.h"

constexpr int hccc_pack = 16 / sizeof(hccc_T);  // elements in 16 bytes
// Loads of 16 bytes in flight per thread; sixteen sums, or those of a wider type, need registers too.
constexpr bool hccc_large_sums = sizeof(hccc_T) == 1 || sizeof(hccc_value) >= 4 * sizeof(hccc_T);
constexpr int hccc_loads = hccc_large_sums ? 2 : 4;

// Pointers beyond this many live in shared memory instead of registers.
constexpr int hccc_register_pointers = 3;
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
  static constexpr int group = k == 1 ? 1 : k <= hccc_loads ? k - 1 : hccc_loads;  // read at once
  static constexpr int unroll = k >= hccc_loads ? 1 : hccc_loads / k;  // packs of each of them
  long long offset;                                              // elements past the places
  HCCC_METHOD hccc_T* get(int i) const { return this->at(i) + offset; }
};

// 16 bytes as elements, and as values to compute with.
struct hccc_elements {
  hccc_T item[hccc_pack];
};

struct hccc_values {
  hccc_value item[hccc_pack];
};

// Multiplies a value of source k where the reduction does that.
template <class Pointers>
HCCC_FN hccc_value hccc_scaled([[maybe_unused]] const Pointers& pointers, [[maybe_unused]] int k,
                               hccc_value x) {
  if constexpr (hccc_op::multiplies) return hccc_op::scaled(x, pointers.scale_of(k));
  else return x;
}

template <class Pointers>
HCCC_FN hccc_values hccc_up(const Pointers& pointers, int k, hccc_words w) {
  const hccc_elements e = __builtin_bit_cast(hccc_elements, w);
  hccc_values v;
  HCCC_UNROLL(hccc_pack)
  for (int i = 0; i < hccc_pack; ++i) v.item[i] = hccc_scaled(pointers, k, hccc_dtype::up(e.item[i]));
  return v;
}

template <int mode>
HCCC_FN hccc_words hccc_down(const hccc_values& v) {
  hccc_elements e;
  HCCC_UNROLL(hccc_pack)
  for (int i = 0; i < hccc_pack; ++i) e.item[i] = hccc_dtype::down(hccc_finish<mode>(v.item[i]));
  return __builtin_bit_cast(hccc_words, e);
}

HCCC_FN void hccc_combine(hccc_values& sum, const hccc_values& v) {
  HCCC_UNROLL(hccc_pack)
  for (int i = 0; i < hccc_pack; ++i) sum.item[i] = hccc_op::apply(sum.item[i], v.item[i]);
}

template <class Pointers>
HCCC_FN void hccc_store(const Pointers& pointers, unsigned pack, hccc_words w) {
  HCCC_UNROLL(Pointers::few ? Pointers::D : 1)
  for (int d = 0; d < Pointers::D; ++d)
    hccc_st16(reinterpret_cast<hccc_words*>(pointers.get(Pointers::K + d)) + pack, w);
}

// Loads U packs of source k.
template <int U, class Pointers>
HCCC_FN void hccc_load(hccc_words (&got)[U], const Pointers& pointers, int k, unsigned pack) {
  const hccc_words* from = reinterpret_cast<hccc_words*>(pointers.get(k)) + pack;
  HCCC_UNROLL(U)
  for (int u = 0; u < U; ++u) got[u] = hccc_ld16(from + u * hccc_threads);
}

template <int U, class Pointers>
HCCC_FN void hccc_copy_packs(const Pointers& pointers, unsigned pack) {
  static_assert(Pointers::K == 1, "a primitive that does not reduce has one source");
  hccc_words got[U];
  hccc_load(got, pointers, 0, pack);
  HCCC_UNROLL(U)
  for (int u = 0; u < U; ++u) hccc_store(pointers, pack + u * hccc_threads, got[u]);
}

// Combines a group of sources, from number k on, into the sums; loads come first.
template <int U, class Pointers>
HCCC_FN void hccc_combine_group(hccc_values (&sum)[U], const Pointers& pointers, int k,
                                unsigned pack) {
  hccc_words got[Pointers::group][U];
  HCCC_UNROLL(Pointers::group)
  for (int g = 0; g < Pointers::group; ++g)
    if (k + g < Pointers::K) hccc_load(got[g], pointers, k + g, pack);
  HCCC_UNROLL(Pointers::group)
  for (int g = 0; g < Pointers::group; ++g) {
    if (k + g >= Pointers::K) continue;
    HCCC_UNROLL(U)
    for (int u = 0; u < U; ++u) hccc_combine(sum[u], hccc_up(pointers, k + g, got[g][u]));
  }
}

template <int mode, int U, class Pointers>
HCCC_FN void hccc_reduce_packs(const Pointers& pointers, unsigned pack) {
  static_assert(hccc_computes(mode), "only a primitive that reduces converts elements");
  hccc_words own[U];
  hccc_values sum[U];
  hccc_load(own, pointers, 0, pack);
  HCCC_UNROLL(U)
  for (int u = 0; u < U; ++u) sum[u] = hccc_up(pointers, 0, own[u]);
  HCCC_UNROLL(1)
  for (int k = 1; k < Pointers::K; k += Pointers::group) hccc_combine_group(sum, pointers, k, pack);
  HCCC_UNROLL(U)
  for (int u = 0; u < U; ++u)
    hccc_store(pointers, pack + u * hccc_threads, hccc_down<mode>(sum[u]));
}

template <int mode, int U, class Pointers>
HCCC_FN void hccc_move_packs(const Pointers& pointers, unsigned pack) {
  if constexpr (hccc_computes(mode))
    hccc_reduce_packs<mode, U>(pointers, pack);
  else
    hccc_copy_packs<U>(pointers, pack);
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

// Reduces n elements of all sources into all destinations.
template <int mode, class Pointers>
HCCC_FN void hccc_reduce_copy(const Pointers& pointers, unsigned n) {
  const unsigned packs = hccc_aligned(pointers) ? n / hccc_pack : 0;
  constexpr unsigned U = Pointers::unroll;
  unsigned pack = hccc_thread();
  HCCC_UNROLL(1)
  for (; pack + (U - 1) * hccc_threads < packs; pack += U * hccc_threads)
    hccc_move_packs<mode, U>(pointers, pack);
  if constexpr (U > 1) {
    HCCC_UNROLL(1)
    for (; pack < packs; pack += hccc_threads) hccc_move_packs<mode, 1>(pointers, pack);
  }
  hccc_move_elements<mode>(pointers, packs * hccc_pack, n);
}
