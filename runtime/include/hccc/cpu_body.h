// cpu_body.h: reduceCopy(k sources -> d destinations) on the host, for any alignment.
//
// Blocks of elements that fit the first-level cache are combined in a local array that aliases
// nothing, so that the compiler vectorises, then written to every destination.
#pragma once

#include "types.h"

// Pointers to k sources and then d destinations.
template <int k, int d>
struct hccc_pointers {
  static constexpr int K = k, D = d;
  static constexpr bool few = true;
  hccc_T* place[k + d];
  hccc_value scale[hccc_op::multiplies ? k : 1];  // of each source
  long long offset;  // elements past the places
  HCCC_METHOD void set(int i, hccc_T* at) { place[i] = at; }
  HCCC_METHOD void set_scale(int i, hccc_value by) { scale[i] = by; }
};

// Elements of user buffers: not always aligned, not always declared with this type.
template <class T>
struct hccc_in_memory {
  typedef T unaligned __attribute__((aligned(1), may_alias));
};
template <class R>
struct hccc_in_memory<hccc_complex<R>> {
  typedef hccc_complex<R> unaligned;
};
typedef hccc_in_memory<hccc_T>::unaligned hccc_unaligned;
typedef unsigned char hccc_wide __attribute__((vector_size(32), aligned(1), may_alias));

constexpr long hccc_tile = 4096 / sizeof(hccc_value);  // values of the local array

// Copies bytes. Not memcpy: glibc's falls to a tenth of its speed when source and destination
// differ by a few bytes modulo 4096. The empty asm keeps the compiler from calling memcpy instead.
HCCC_NOINLINE void hccc_copy_bytes(unsigned char* to, const unsigned char* from, long bytes) {
  long i = 0;
  for (; i + 128 <= bytes; i += 128) {
    const hccc_wide* in = reinterpret_cast<const hccc_wide*>(from + i);
    hccc_wide* out = reinterpret_cast<hccc_wide*>(to + i);
    const hccc_wide a = in[0], b = in[1], c = in[2], d = in[3];
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    asm volatile("" ::: "memory");
  }
  typedef unsigned long long hccc_words __attribute__((aligned(1), may_alias));
  for (; i + 8 <= bytes; i += 8) {
    *reinterpret_cast<hccc_words*>(to + i) = *reinterpret_cast<const hccc_words*>(from + i);
    asm volatile("" ::: "memory");
  }
  for (; i < bytes; ++i) {
    to[i] = from[i];
    asm volatile("" ::: "memory");
  }
}

HCCC_FN void hccc_copy_elements(hccc_T* to, const hccc_T* from, long n) {
  hccc_copy_bytes(reinterpret_cast<unsigned char*>(to),
                  reinterpret_cast<const unsigned char*>(from), n * long(sizeof(hccc_T)));
}

// Sources, and what each is multiplied by where the reduction does that.
struct hccc_given {
  hccc_T* const* from;
  const hccc_value* scale;
  HCCC_METHOD hccc_given past(int k) const { return {from + k, hccc_op::multiplies ? scale + k : scale}; }
};

// Combines G sources into the tile in one pass; the first pass of all starts with source 0.
template <int G, bool first>
HCCC_FN void hccc_combine_pass(hccc_value* __restrict tile, hccc_given given, long at, long n) {
  const hccc_unaligned* source[G];
  hccc_value by[G];
  for (int g = 0; g < G; ++g) source[g] = given.from[g] + at;
  for (int g = 0; hccc_op::multiplies && g < G; ++g) by[g] = given.scale[g];
  for (long i = 0; i < n; ++i) {
    hccc_value sum = first ? hccc_op::scaled(hccc_dtype::up(source[0][i]), by[0]) : tile[i];
    for (int g = first; g < G; ++g)
      sum = hccc_op::apply(sum, hccc_op::scaled(hccc_dtype::up(source[g][i]), by[g]));
    tile[i] = sum;
  }
}

HCCC_FN void hccc_combine_tile(hccc_value* tile, hccc_given given, int k, long at, long n) {
  int done = k >= 4 ? 4 : k >= 2 ? 2 : 1;
  if (done == 4) hccc_combine_pass<4, true>(tile, given, at, n);
  if (done == 2) hccc_combine_pass<2, true>(tile, given, at, n);
  if (done == 1) hccc_combine_pass<1, true>(tile, given, at, n);
  for (; k - done >= 4; done += 4) hccc_combine_pass<4, false>(tile, given.past(done), at, n);
  for (; k - done >= 2; done += 2) hccc_combine_pass<2, false>(tile, given.past(done), at, n);
  for (; k - done >= 1; done += 1) hccc_combine_pass<1, false>(tile, given.past(done), at, n);
}

template <int mode>
HCCC_FN void hccc_round_tile(hccc_T* __restrict to, const hccc_value* __restrict tile, long n) {
  for (long i = 0; i < n; ++i) to[i] = hccc_dtype::down(hccc_finish<mode>(tile[i]));
}

// Reduces k sources into d destinations; the result is rounded once.
template <int mode>
HCCC_NOINLINE void hccc_reduce_elements(hccc_given given, int k, hccc_T* const* to, int d, long n) {
  hccc_value tile[hccc_tile];
  hccc_T rounded[hccc_tile];
  for (long at = 0; at < n; at += hccc_tile) {
    const long length = n - at < hccc_tile ? n - at : hccc_tile;
    hccc_combine_tile(tile, given, k, at, length);
    hccc_round_tile<mode>(rounded, tile, length);
    for (int i = 0; i < d; ++i) hccc_copy_elements(to[i] + at, rounded, length);
  }
}

// Copies a source to d destinations, tile by tile, so that it is read from memory once.
HCCC_NOINLINE void hccc_spread_elements(const hccc_T* from, hccc_T* const* to, int d, long n) {
  constexpr long step = 16384 / sizeof(hccc_T);
  for (long at = 0; at < n; at += step)
    for (int i = 0; i < d; ++i)
      hccc_copy_elements(to[i] + at, from + at, n - at < step ? n - at : step);
}

template <int mode, class Pointers>
HCCC_FN void hccc_reduce_copy(const Pointers& pointers, unsigned n) {
  constexpr int K = Pointers::K, D = Pointers::D;
  hccc_T* at[K + D];
  for (int i = 0; i < K + D; ++i) at[i] = pointers.place[i] + pointers.offset;
  if constexpr (hccc_computes(mode))
    hccc_reduce_elements<mode & HCCC_FINAL>({at, pointers.scale}, K, at + K, D, n);
  else if constexpr (D == 1)
    hccc_copy_elements(at[1], at[0], n);
  else
    hccc_spread_elements(at[0], at + 1, D, n);
}
