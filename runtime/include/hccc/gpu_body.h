// gpu_body.h: reduceCopy(k sources -> d destinations) by all threads of a block.
//
// 16 bytes a load, and as many in flight per thread, for any k, as its registers hold: packs of few
// sources, or one of each, or of many sources a group after the other. Packs begin where the first
// destination is aligned; elements before and after them are moved one by one. A source that is not
// alike modulo 16 is read by two loads a pack, the words around it.
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
  static constexpr bool kept = !few && hccc_many_registers && k + d <= 2 * hccc_loads + 2;
  static constexpr int group = all ? k : hccc_loads;            // or so many of them
  static constexpr int unroll = k >= hccc_loads ? 1 : hccc_loads / k;  // packs of each of them
  long long offset;                                              // elements past the places
  HCCC_METHOD hccc_T* get(int i) const { return this->at(i) + offset; }
};

HCCC_FN unsigned hccc_past_16(const void* at) {
  return static_cast<unsigned>(reinterpret_cast<unsigned long long>(at)) % 16;
}

// The words around 16 bytes at any address, of an element; a neighbour loads one of them too.
struct hccc_around {
  hccc_words low, high;
};

HCCC_FN hccc_around hccc_ld_around(const void* at) {
  const char* const low = static_cast<const char*>(at) - hccc_past_16(at);
  return {hccc_ld16_shared(low), hccc_ld16_shared(low + 16)};
}

// Returns the 16 bytes that are `past` bytes past the beginning of the words around them.
HCCC_FN hccc_words hccc_within(const hccc_around& around, unsigned past) {
  unsigned word[8];
  HCCC_UNROLL(4)
  for (int i = 0; i < 4; ++i) word[i] = around.low.word[i], word[4 + i] = around.high.word[i];
  // Values are chosen, not places: those would be addresses of registers.
  const auto take = [&](int i, unsigned later, bool taken) {
    const unsigned here = word[i];
    word[i] = taken ? later : here;
  };
  HCCC_UNROLL(6)
  for (int i = 0; i < 6; ++i) take(i, word[i + 2], past & 8);
  if constexpr (sizeof(hccc_T) < 8) {
    HCCC_UNROLL(5)
    for (int i = 0; i < 5; ++i) take(i, word[i + 1], past & 4);
  }
  hccc_words w;
  HCCC_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const unsigned long long two = static_cast<unsigned long long>(word[i + 1]) << 32 | word[i];
    w.word[i] = sizeof(hccc_T) < 4 ? static_cast<unsigned>(two >> past % 4 * 8) : word[i];
  }
  return w;
}

// The same places, `skip` elements further on, where packs begin: the first destination is aligned
// there, and all else is if it is not `shifted`. Destinations that are not aligned are left out.
template <class Own, bool shifted>
struct hccc_places_of_packs {
  static constexpr int K = Own::K, D = Own::D;
  static constexpr int most = !shifted ? hccc_loads : hccc_loads > 2 ? hccc_loads / 2 : 1;
  static constexpr bool all = shifted ? K <= most : Own::all;
  static constexpr int group = all ? K : most;
  static constexpr int unroll = K >= most ? 1 : most / K;
  const Own& own;
  unsigned skip;
  HCCC_METHOD hccc_T* get(int i) const { return own.get(i) + skip; }
  HCCC_METHOD hccc_value scale_of(int i) const { return own.scale_of(i); }
  HCCC_FN auto load(const hccc_words* at) {
    if constexpr (shifted) return hccc_ld_around(at);
    else return hccc_ld16(at);
  }
  HCCC_FN void store(hccc_words* at, hccc_words w) {
    if (!shifted || D == 1 || hccc_past_16(at) == 0) hccc_st16(at, w);
  }
};

// Of a copy from one place to another.
struct hccc_two_places {
  static constexpr int K = 1, D = 1;
  static constexpr bool few = true, all = true;
  hccc_T *from, *to;
  HCCC_METHOD hccc_T* get(int i) const { return i ? to : from; }
  HCCC_METHOD hccc_value scale_of(int) const { return hccc_value{1}; }
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

HCCC_FN hccc_words hccc_pack_of(const hccc_words& loaded, const void*) { return loaded; }
HCCC_FN hccc_words hccc_pack_of(const hccc_around& loaded, const void* at) {
  return hccc_within(loaded, hccc_past_16(at));
}

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
  decltype(Pointers::load(from[0])) loaded[n][U];
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    HCCC_UNROLL(U)
    for (int u = 0; u < U; ++u) {
      loaded[g][u] = {};
      if (k + g < Pointers::K && turn.has(u)) loaded[g][u] = Pointers::load(from[g] + u * hccc_threads);
    }
  }
  hccc_all_loaded();
  HCCC_UNROLL(n)
  for (int g = 0; g < n; ++g) {
    HCCC_UNROLL(U)
    for (int u = 0; u < U; ++u) got[g][u] = hccc_pack_of(loaded[g][u], from[g]);
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
  hccc_values<hccc_words> sum[U] = {};
  hccc_words got[n][U];
  if constexpr (Pointers::all) {
    hccc_load(got, pointers, 0, turn);
    hccc_combine_group(sum, pointers, 0, got);
  } else {
    // The first group is one of the loop: were it before it, registers would hold two.
    HCCC_UNROLL(1)
    for (int k = 0; k < Pointers::K; k += n) {
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
  HCCC_IS_GLOBAL(at);
  return *reinterpret_cast<const hccc_word*>(at);
}

HCCC_FN hccc_value hccc_value_of(hccc_word word) {
  return hccc_dtype::up(__builtin_bit_cast(hccc_T, word));
}

// Reduces element i of all sources, of which a group at a time is read at once.
template <int mode, class Pointers>
HCCC_FN hccc_word hccc_reduced_word(const Pointers& pointers, unsigned i) {
  static_assert(hccc_computes(mode), "only a primitive that reduces converts elements");
  constexpr int K = Pointers::K, group = K <= 9 ? K : 8;
  hccc_value sum{};
  HCCC_UNROLL(1)
  for (int first = 0; first < K; first += group) {
    const hccc_T* from[group];
    hccc_word got[group];
    HCCC_UNROLL(group)
    for (int g = 0; g < group; ++g) from[g] = pointers.get(first + g < K ? first + g : 0) + i;
    HCCC_UNROLL(group)
    for (int g = 0; g < group; ++g) got[g] = hccc_word_at(from[g]);
    HCCC_UNROLL(group)
    for (int g = 0; g < group; ++g) {
      if (first + g >= K) continue;
      const hccc_value value = hccc_scaled(pointers, first + g, hccc_value_of(got[g]));
      sum = first + g == 0 ? value : hccc_op::apply(sum, value);
    }
  }
  return __builtin_bit_cast(hccc_word, hccc_dtype::down(hccc_finish<mode>(sum)));
}

// Reduces or copies elements [0, head) and [last, n), one in each thread at a time.
template <int mode, class Pointers>
HCCC_FN void hccc_move_elements(const Pointers& pointers, unsigned head, unsigned last, unsigned n) {
  HCCC_UNROLL(1)
  for (unsigned k = hccc_thread(); k < head + (n - last); k += hccc_threads) {
    const unsigned i = k < head ? k : last + (k - head);
    hccc_word word;
    if constexpr (hccc_computes(mode))
      word = hccc_reduced_word<mode>(pointers, i);
    else
      word = hccc_word_at(pointers.get(0) + i);
    HCCC_UNROLL(Pointers::few ? Pointers::D : 1)
    for (int d = 0; d < Pointers::D; ++d) {
      hccc_T* const to = pointers.get(Pointers::K + d) + i;
      HCCC_IS_GLOBAL(to);
      *reinterpret_cast<hccc_word*>(to) = word;
    }
  }
}

// Returns how places differ from that of the first destination, modulo 16, from place `first` on.
template <class Pointers>
HCCC_FN unsigned hccc_difference(const Pointers& pointers, int first = 0) {
  const unsigned at = hccc_past_16(pointers.get(Pointers::K));
  unsigned bits = 0;
  HCCC_UNROLL(Pointers::few ? Pointers::K + Pointers::D : 4)
  for (int i = first; i < Pointers::K + Pointers::D; ++i) bits |= hccc_past_16(pointers.get(i)) ^ at;
  return bits;
}

// The pointers of a loop in registers, where these hold them: a compiler for sm_80 would read them in
// each turn.
template <class Own>
struct hccc_kept_pointers : Own {
  static constexpr int n = Own::K + Own::D;
  hccc_T* kept[n];
  HCCC_METHOD explicit hccc_kept_pointers(const Own& own) : Own(own) {
    HCCC_UNROLL(n)
    for (int i = 0; i < n; ++i) kept[i] = own.get(i);
  }
  HCCC_METHOD hccc_T* get(int i) const { return kept[i]; }
};

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

// Where packs lie among n elements: past `head` elements, up to the `last`.
struct hccc_packs {
  unsigned head, count, last;
};

// Returns that for a first destination. shifted: there are elements around them, since the words around
// a pack reach past it.
HCCC_FN hccc_packs hccc_packs_of(const hccc_T* to, bool shifted, unsigned n) {
  const unsigned past = hccc_past_16(to), around = shifted ? hccc_pack : 0;
  const unsigned head = (16 - past) % 16 / sizeof(hccc_T) + around;
  if (past % sizeof(hccc_T) || n < head + around) return {0, 0, 0};
  const unsigned count = (n - head - around) / hccc_pack;
  return {head, count, head + count * hccc_pack};
}

// Does so where the places are not alike, but for the destinations that are not like the first.
template <int mode, class Pointers>
HCCC_FN void hccc_reduce_shifted(const Pointers& pointers, unsigned n) {
  const hccc_packs packs = hccc_packs_of(pointers.get(Pointers::K), true, n);
  const hccc_places_of_packs<Pointers, true> from{pointers, packs.head};
  constexpr unsigned U = from.unroll;
  HCCC_UNROLL(1)
  for (unsigned pack = hccc_thread(); pack < packs.count; pack += U * hccc_threads)
    hccc_move_packs<mode, U>(from, hccc_turn<false>{pack, packs.count});
  hccc_move_elements<mode>(pointers, packs.head, packs.last, n);
}

// Copies what the first destination has, or the only source, to those that are not like the first.
template <int mode, class Pointers>
HCCC_FN void hccc_copy_to_unlike(const Pointers& pointers, unsigned n) {
  if constexpr (hccc_computes(mode)) hccc_barrier();
  const int from = hccc_computes(mode) ? Pointers::K : 0;
  HCCC_UNROLL(1)
  for (int d = 1; d < Pointers::D; ++d) {
    hccc_T* to = pointers.get(Pointers::K + d);
    if constexpr (Pointers::few) {
      HCCC_UNROLL(Pointers::D)
      for (int i = 1; i < Pointers::D; ++i)
        if (i == d) to = pointers.get(Pointers::K + i);
    }
    if (hccc_past_16(to) != hccc_past_16(pointers.get(Pointers::K)))
      hccc_reduce_shifted<HCCC_COPY>(hccc_two_places{pointers.get(from), to}, n);
  }
}

// Reduces n elements of all sources into all destinations.
template <int mode, class Pointers>
HCCC_FN void hccc_reduce_copy(const Pointers& pointers, unsigned n) {
  if (hccc_difference(pointers)) {
    hccc_reduce_shifted<mode>(pointers, n);
    if constexpr (Pointers::D > 1)
      if (hccc_difference(pointers, Pointers::K)) hccc_copy_to_unlike<mode>(pointers, n);
    return;
  }
  const hccc_packs packs = hccc_packs_of(pointers.get(Pointers::K), false, n);
  const hccc_places_of_packs<Pointers, false> all{pointers, packs.head};
  if constexpr (Pointers::kept)
    hccc_move_all_packs<mode>(hccc_kept_pointers(all), packs.count);
  else
    hccc_move_all_packs<mode>(all, packs.count);
  hccc_move_elements<mode>(pointers, packs.head, packs.last, n);
}
