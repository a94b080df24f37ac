// types.h: the dtype and the reduction of this translation unit, chosen by -DHCCC_DTYPE=float16
// -DHCCC_OP=sum; HCCC_REDUCTIONS has those that are the program's own. A primitive combines floats in
// a type of HCCC_ACCUMULATE bits at least, and rounds the result once, when it is stored; 0: in their
// own type, rounded after every two. An 8-bit or 16-bit float is rounded as a float32 that is.
//
// The same bits on every target: integers wrap, integer division truncates, bfloat16 rounds to
// nearest even in software, a product of complex numbers rounds each of its products and sums. A
// bool is true where its byte is not 0, and a reduced one is 0 or 1. min and max keep the left of two equals; a NaN is the result of both,
// of two the right one. A NaN of a type shorter than float32 is stored with all bits set but its
// sign (0x7fff, 0x7f), as CUDA's conversions make it; one of float32 or float64 has the bits that
// the processor gives it.
#pragma once

#include "port.h"

#ifndef HCCC_DTYPE
#define HCCC_DTYPE float32
#endif
#ifndef HCCC_OP
#define HCCC_OP sum
#endif
#ifndef HCCC_ACCUMULATE
#define HCCC_ACCUMULATE 32
#endif

// `stored` is the type in memory, `value` the type of arithmetic; up and down convert.
// W is an unsigned type that wraps, wide enough not to be promoted to int.
template <class T, class W>
struct hccc_integer {
  using stored = T;
  using value = T;
  static constexpr char kind = static_cast<T>(-1) < 0 ? 'i' : 'u';  // NumPy's letter
  HCCC_FN T up(T x) { return x; }
  HCCC_FN T down(T x) { return x; }
  HCCC_FN T add(T a, T b) { return static_cast<T>(static_cast<W>(a) + static_cast<W>(b)); }
  HCCC_FN T mul(T a, T b) { return static_cast<T>(static_cast<W>(a) * static_cast<W>(b)); }
  // Divides in int where T is narrower: 256 ranks are no int8.
  HCCC_FN T divide(T a, int n) { return static_cast<T>(a / static_cast<decltype(a + a)>(n)); }
  HCCC_FN T least(T a, T b) { return b < a ? b : a; }
  HCCC_FN T most(T a, T b) { return a < b ? b : a; }
  HCCC_FN T both(T a, T b) { return static_cast<T>(a & b); }
  HCCC_FN T either(T a, T b) { return static_cast<T>(a | b); }
  HCCC_FN T differ(T a, T b) { return static_cast<T>(a ^ b); }
  HCCC_FN T truth(T a) { return a != 0; }
  HCCC_FN T subtract(T a, T b) { return static_cast<T>(static_cast<W>(a) - static_cast<W>(b)); }
  HCCC_FN T negate(T a) { return subtract(0, a); }
  HCCC_FN T magnitude(T a) { return a < 0 ? negate(a) : a; }
  HCCC_FN T flip(T a) { return static_cast<T>(~a); }
};

// A sum of truth values is whether any is true, a product whether all are.
struct hccc_truth {
  using T = unsigned char;
  using stored = T;
  using value = T;
  static constexpr char kind = 'b';
  HCCC_FN T up(T x) { return x != 0; }
  HCCC_FN T down(T x) { return x; }
  HCCC_FN T add(T a, T b) { return a | b; }
  HCCC_FN T mul(T a, T b) { return a & b; }
  HCCC_FN T least(T a, T b) { return a & b; }
  HCCC_FN T most(T a, T b) { return a | b; }
  HCCC_FN T both(T a, T b) { return a & b; }
  HCCC_FN T either(T a, T b) { return a | b; }
  HCCC_FN T differ(T a, T b) { return a ^ b; }
  HCCC_FN T truth(T a) { return a; }
};

// I: a signed integer of the same size; `infinity`: the bits of the infinity. NaNs are told by their
// bits: compilers vectorise that in every loop, and -ffast-math leaves it alone.
template <class T, class I, I infinity>
struct hccc_real {
  using value = T;
  static constexpr char kind = 'f';
  HCCC_FN T add(T a, T b) { return a + b; }
  HCCC_FN T mul(T a, T b) { return a * b; }
  HCCC_FN T divide(T a, int n) { return a / static_cast<T>(n); }
  HCCC_FN T least(T a, T b) { return nan_or(b, b < a ? b : a); }
  HCCC_FN T most(T a, T b) { return nan_or(b, a < b ? b : a); }
  HCCC_FN T subtract(T a, T b) { return a - b; }
  HCCC_FN T quotient(T a, T b) { return a / b; }
  HCCC_FN T negate(T a) { return -a; }
  HCCC_FN T magnitude(T a) {
    return __builtin_bit_cast(T, __builtin_bit_cast(I, a) & static_cast<I>(~0ull >> (65 - 8 * sizeof(I))));
  }
  // Returns `right` where it is a NaN. A left one needs no such care: no comparison replaces it.
  HCCC_FN T nan_or(T right, T otherwise) {
    constexpr I magnitude = static_cast<I>(~0ull >> (65 - 8 * sizeof(I)));
    const I r = __builtin_bit_cast(I, right), o = __builtin_bit_cast(I, otherwise);
    return __builtin_bit_cast(T, (r & magnitude) > infinity ? r : o);
  }
};

typedef hccc_real<float, int, 0x7f800000> hccc_single;
typedef hccc_real<double, long long, 0x7ff0000000000000ll> hccc_double;

template <class Real>
struct hccc_plain_real : Real {
  using T = typename Real::value;
  using stored = T;
  HCCC_FN T up(T x) { return x; }
  HCCC_FN T down(T x) { return x; }
};

// A complex number, at any address and in memory that is declared with other types.
template <class R>
struct __attribute__((packed, may_alias)) hccc_complex {
  R re, im;
};

template <class R>
struct hccc_complex_number {
  using T = hccc_complex<R>;
  using stored = T;
  using value = T;
  static constexpr char kind = 'c';
  HCCC_FN T up(T x) { return x; }
  HCCC_FN T down(T x) { return x; }
  HCCC_FN T add(T a, T b) { return {a.re + b.re, a.im + b.im}; }
  HCCC_FN T mul(T a, T b) {
    return {hccc_product(a.re, b.re) - hccc_product(a.im, b.im),
            hccc_product(a.re, b.im) + hccc_product(a.im, b.re)};
  }
  HCCC_FN T divide(T a, int n) { return {a.re / static_cast<R>(n), a.im / static_cast<R>(n)}; }
};

struct hccc_half : hccc_single {
  using stored = unsigned short;
  HCCC_FN float up(stored x) { return hccc_half_up(x); }
  HCCC_FN stored down(float x) { return hccc_half_down(x); }
};

struct hccc_brain : hccc_single {
  using stored = unsigned short;
  HCCC_FN float up(stored x) { return hccc_float_of(static_cast<unsigned>(x) << 16); }
  // Rounds to nearest even.
  HCCC_FN stored down(float x) {
    const unsigned bits = hccc_bits_of(x);
    const unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return static_cast<stored>(nan ? 0x7fffu : rounded);
  }
};

// float8_e4m3 (no infinities) and float8_e5m2 of the OCP standard: `fraction` bits of fraction,
// exponents biased by `bias`; `largest`: the bits of the largest finite value.
template <int fraction, int bias, unsigned largest>
struct hccc_eighth : hccc_single {
  using stored = unsigned char;
  // Avoids floats below 2^-126, which some targets flush to zero.
  HCCC_FN float up(stored x) {
    const unsigned magnitude = x & 0x7fu;
    constexpr unsigned rebias = (127u - bias) << 23;
    const unsigned normal = (magnitude << (23 - fraction)) + rebias;
    constexpr float least = 1.0f / (1 << (bias - 1 + fraction));
    const unsigned small = hccc_bits_of(static_cast<float>(static_cast<int>(magnitude)) * least);
    constexpr bool infinite = largest >> fraction != 0x7fu >> fraction;
    constexpr unsigned full = infinite ? 0x7f800000u : 0x7fc00000u;
    const unsigned special = magnitude > largest ? full : 0u;
    // By masks: a branch would keep the loop from being vectorised.
    const unsigned is_normal = 0u - static_cast<unsigned>(magnitude >> fraction != 0);
    const unsigned bits = (normal & is_normal) | (small & ~is_normal);
    return hccc_float_of(bits | special | (x & 0x80u) << 24);
  }
  // Rounds to nearest even. Too large values and infinities become the largest finite value, a NaN
  // becomes 0x7f: as CUDA's conversions do by default. Small values are rounded by adding a float
  // whose last bit is the last bit of the result.
  HCCC_FN stored down(float x) {
    const unsigned bits = hccc_bits_of(x);
    const unsigned magnitude = bits & 0x7fffffffu;
    constexpr unsigned first = (128u - bias) << 23;  // the smallest normal value
    constexpr float step = static_cast<float>(1 << 23) / (1 << (bias - 1 + fraction));
    const unsigned small = hccc_bits_of(hccc_float_of(magnitude) + step) - hccc_bits_of(step);
    constexpr int cut = 23 - fraction;
    constexpr unsigned half = (1u << (cut - 1)) - 1;
    const unsigned even = magnitude >> cut & 1u;
    const unsigned normal = (magnitude - ((127u - bias) << 23) + half + even) >> cut;
    unsigned result = magnitude < first ? small : normal;
    result = result > largest ? largest : result;
    result |= bits >> 24 & 0x80u;
    return static_cast<stored>(magnitude > 0x7f800000u ? 0x7fu : result);
  }
};

typedef hccc_integer<signed char, unsigned> hccc_dtype_int8;
typedef hccc_integer<unsigned char, unsigned> hccc_dtype_uint8;
typedef hccc_integer<short, unsigned> hccc_dtype_int16;
typedef hccc_integer<unsigned short, unsigned> hccc_dtype_uint16;
typedef hccc_integer<int, unsigned> hccc_dtype_int32;
typedef hccc_integer<unsigned, unsigned> hccc_dtype_uint32;
typedef hccc_integer<long long, unsigned long long> hccc_dtype_int64;
typedef hccc_integer<unsigned long long, unsigned long long> hccc_dtype_uint64;
typedef hccc_half hccc_dtype_float16;
typedef hccc_brain hccc_dtype_bfloat16;
typedef hccc_plain_real<hccc_single> hccc_dtype_float32;
typedef hccc_plain_real<hccc_double> hccc_dtype_float64;
typedef hccc_eighth<3, 7, 0x7eu> hccc_dtype_float8e4m3;
typedef hccc_eighth<2, 15, 0x7bu> hccc_dtype_float8e5m2;
typedef hccc_truth hccc_dtype_bool;
typedef hccc_complex_number<float> hccc_dtype_complex64;
typedef hccc_complex_number<double> hccc_dtype_complex128;

#define HCCC_JOIN_(a, b) a##b
#define HCCC_JOIN(a, b) HCCC_JOIN_(a, b)

// Rounds to float32 so that rounding the result to a shorter type gives what rounding x to it does:
// towards zero, and to an odd last bit where that is inexact. In integers, so that no compiler takes
// a conversion there and back for nothing. What is too large becomes an infinity.
HCCC_FN float hccc_to_odd(double x) {
  typedef unsigned long long bits;
  const bits all = __builtin_bit_cast(bits, x), magnitude = all & (~0ull >> 1);
  const bits rest = (1ull << 29) - 1;  // of a double's fraction, which a float has not
  const bits inexact = (magnitude & rest) != 0;
  const bits normal = (magnitude >> 29) - (896ull << 23);
  constexpr bits least = 897ull << 52;  // 2^-126, the smallest normal float
  const double small = __builtin_bit_cast(double, magnitude < least ? magnitude : 0) * 0x1p149;
  const int steps = static_cast<int>(small);
  bits result = normal | inexact;
  if (magnitude < least) result = static_cast<bits>(steps) | (static_cast<double>(steps) != small);
  if (magnitude >= 1151ull << 52) result = 0x7f800000u;  // 2^128
  if (magnitude > 2047ull << 52) result = 0x7fc00000u;
  return hccc_float_of(static_cast<unsigned>(result | (all >> 32 & 0x80000000u)));
}

// A float whose values are float64.
template <class D>
struct hccc_float_in_double : hccc_double {
  using stored = typename D::stored;
  HCCC_FN double up(stored x) { return static_cast<double>(D::up(x)); }
  HCCC_FN stored down(double x) {
    if constexpr (sizeof(stored) < sizeof(float)) return D::down(hccc_to_odd(x));
    else return static_cast<float>(x);
  }
};

// A complex number of float32 whose values are of float64.
struct hccc_complex_in_double : hccc_complex_number<double> {
  using stored = hccc_complex<float>;
  HCCC_FN T up(stored x) { return {x.re, x.im}; }
  HCCC_FN stored down(T x) { return {static_cast<float>(x.re), static_cast<float>(x.im)}; }
};

// The dtype D with the values that it has for HCCC_ACCUMULATE.
template <class D, int bits, class V>
struct hccc_accumulated {
  typedef D dtype;
};
template <class D>
struct hccc_accumulated<D, 64, float> {
  typedef hccc_float_in_double<D> dtype;
};
template <class D>
struct hccc_accumulated<D, 64, hccc_complex<float>> {
  typedef hccc_complex_in_double dtype;
};

typedef HCCC_JOIN(hccc_dtype_, HCCC_DTYPE) hccc_element;
typedef hccc_accumulated<hccc_element, HCCC_ACCUMULATE, hccc_element::value>::dtype hccc_dtype;
typedef hccc_dtype::stored hccc_T;
typedef hccc_dtype::value hccc_value;

// An element where it only moves: a word of its size, so that no conversion can change its bits.
template <int bytes>
struct hccc_word_of;
template <>
struct hccc_word_of<1> {
  typedef unsigned char word;
};
template <>
struct hccc_word_of<2> {
  typedef unsigned short word;
};
template <>
struct hccc_word_of<4> {
  typedef unsigned word;
};
template <>
struct hccc_word_of<8> {
  typedef unsigned long long word;
};
template <>
struct hccc_word_of<16> {
  struct word {
    unsigned long long half[2];
  };
};
typedef hccc_word_of<sizeof(hccc_T)>::word hccc_word;

// A reduction of values of dtype D. takes: whether it is for dtypes of a kind; divides: whether the
// primitive that makes the final value finishes it; multiplies: whether what is read from a send
// buffer is first multiplied by the scalar of its rank.
template <class D>
struct hccc_reduction {
  using V = typename D::value;
  static constexpr bool divides = false, multiplies = false;
  HCCC_FN constexpr bool takes(char) { return true; }
  HCCC_FN V finish(V x) { return x; }
  HCCC_FN V scaled(V x, V) { return x; }
};

template <class D>
struct hccc_order : hccc_reduction<D> {
  HCCC_FN constexpr bool takes(char kind) { return kind != 'c'; }
};

template <class D>
struct hccc_bits : hccc_reduction<D> {
  HCCC_FN constexpr bool takes(char kind) { return kind == 'b' || kind == 'i' || kind == 'u'; }
};

template <class D>
struct hccc_op_sum : hccc_reduction<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::add(a, b); }
};

template <class D>
struct hccc_op_prod : hccc_reduction<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::mul(a, b); }
};

template <class D>
struct hccc_op_min : hccc_order<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::least(a, b); }
};

template <class D>
struct hccc_op_max : hccc_order<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::most(a, b); }
};

// A sum, divided once by the primitive that makes the final value.
template <class D>
struct hccc_op_avg : hccc_op_sum<D> {
  using V = typename D::value;
  static constexpr bool divides = true;
  HCCC_FN constexpr bool takes(char kind) { return kind != 'b'; }
  HCCC_FN V finish(V x) { return D::divide(x, HCCC_RANKS); }
};

// A sum of what ranks give times their scalars. A product is rounded by itself.
template <class D>
struct hccc_op_premul_sum : hccc_op_sum<D> {
  using V = typename D::value;
  static constexpr bool multiplies = true;
  HCCC_FN constexpr bool takes(char kind) { return kind == 'i' || kind == 'u' || kind == 'f'; }
  HCCC_FN V scaled(V x, V by) {
    if constexpr (D::kind == 'f') return hccc_product(x, by);
    else return D::mul(x, by);
  }
};

template <class D>
struct hccc_op_band : hccc_bits<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::both(a, b); }
};

template <class D>
struct hccc_op_bor : hccc_bits<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::either(a, b); }
};

template <class D>
struct hccc_op_bxor : hccc_bits<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::differ(a, b); }
};

template <class D>
struct hccc_op_land : hccc_bits<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::both(D::truth(a), D::truth(b)); }
};

template <class D>
struct hccc_op_lor : hccc_bits<D> {
  using V = typename D::value;
  HCCC_FN V apply(V a, V b) { return D::either(D::truth(a), D::truth(b)); }
};

// The operations of reductions of one's own (compiler/base/reductions), of values of dtype D.
template <class D>
struct hccc_terms {
  using V = typename D::value;
  template <class N>
  HCCC_FN V number(N n) { return static_cast<V>(n); }
  HCCC_FN V add(V x, V y) { return D::add(x, y); }
  HCCC_FN V subtract(V x, V y) { return D::subtract(x, y); }
  HCCC_FN V multiply(V x, V y) {
    if constexpr (D::kind == 'f') return hccc_product(x, y);  // rounds, whatever is added to it
    else return D::mul(x, y);
  }
  HCCC_FN V divide(V x, V y) { return D::quotient(x, y); }
  HCCC_FN V negate(V x) { return D::negate(x); }
  HCCC_FN V magnitude(V x) { return D::magnitude(x); }
  HCCC_FN V smaller(V x, V y) { return D::least(x, y); }
  HCCC_FN V larger(V x, V y) { return D::most(x, y); }
  HCCC_FN V both(V x, V y) { return D::both(x, y); }
  HCCC_FN V either(V x, V y) { return D::either(x, y); }
  HCCC_FN V differ(V x, V y) { return D::differ(x, y); }
  HCCC_FN V flip(V x) { return D::flip(x); }
  HCCC_FN bool equal(V x, V y) { return x == y; }
  HCCC_FN bool unequal(V x, V y) { return x != y; }
  HCCC_FN bool less(V x, V y) { return x < y; }
  HCCC_FN bool more(V x, V y) { return x > y; }
  HCCC_FN bool most(V x, V y) { return x <= y; }
  HCCC_FN bool least(V x, V y) { return x >= y; }
  HCCC_FN bool any(bool x, bool y) { return x | y; }
  HCCC_FN bool every(bool x, bool y) { return x & y; }
  HCCC_FN bool deny(bool x) { return !x; }
  HCCC_FN V pick(bool of, V x, V y) { return of ? x : y; }
};

// Defines a reduction of one's own. `of`: the kinds of dtypes that it is for.
#define HCCC_OWN(name, of, ...)                                                 \
  template <class D>                                                            \
  struct hccc_op_##name : hccc_reduction<D> {                                   \
    using V = typename D::value;                                                \
    using t = hccc_terms<D>;                                                    \
    HCCC_FN constexpr bool takes(char kind) {                                   \
      for (const char* one = of; *one; ++one)                                   \
        if (*one == kind) return true;                                          \
      return false;                                                             \
    }                                                                           \
    HCCC_FN V apply(V a, V b) { return __VA_ARGS__; }                           \
  };
#ifdef HCCC_REDUCTIONS
HCCC_REDUCTIONS
#endif

// A reduction whose result is rounded each time.
template <class Op>
struct hccc_rounded_op : Op {
  HCCC_FN hccc_value apply(hccc_value a, hccc_value b) {
    return hccc_dtype::up(hccc_dtype::down(Op::apply(a, b)));
  }
  HCCC_FN hccc_value scaled(hccc_value x, hccc_value by) {
    if constexpr (Op::multiplies) return hccc_dtype::up(hccc_dtype::down(Op::scaled(x, by)));
    else return x;
  }
};

// The reduction Op as it is for HCCC_ACCUMULATE.
template <class Op, bool rounds>
struct hccc_chosen_op {
  typedef Op op;
};
template <class Op>
struct hccc_chosen_op<Op, true> {
  typedef hccc_rounded_op<Op> op;
};

constexpr bool hccc_rounds = HCCC_ACCUMULATE == 0 && sizeof(hccc_T) < sizeof(hccc_value);
typedef hccc_chosen_op<HCCC_JOIN(hccc_op_, HCCC_OP)<hccc_dtype>, hccc_rounds>::op hccc_op;
static_assert(hccc_op::takes(hccc_dtype::kind), "HCCC_OP is no reduction of HCCC_DTYPE");

// The modes of a primitive, or-ed together.
constexpr int HCCC_COPY = 0;
constexpr int HCCC_REDUCE = 1;           // combines its sources, left to right
constexpr int HCCC_FINAL = 2;            // makes the final value: avg divides
constexpr int HCCC_IF_IN_PLACE = 4;      // moves data only in place
constexpr int HCCC_IF_OUT_OF_PLACE = 8;  // moves data only out of place
constexpr int HCCC_FAR = 16;             // some of its queues, puts or posts go over the network
constexpr int HCCC_FROM_ALL = 32;        // its sources are one place of all ranks
constexpr int HCCC_TO_ALL = 64;          // its destinations are

// Returns whether a primitive of this mode divides, and whether it computes at all.
HCCC_FN constexpr bool hccc_divides(int mode) { return hccc_op::divides && (mode & HCCC_FINAL); }
HCCC_FN constexpr bool hccc_computes(int mode) {
  return (mode & HCCC_REDUCE) || hccc_divides(mode) || hccc_op::multiplies;
}

// Returns the element whose bits are the lowest of a word; of more than 8 bytes there is no scalar.
template <class T>
HCCC_FN T hccc_of_bits([[maybe_unused]] unsigned long long bits) {
  if constexpr (sizeof(T) > 8) return T{};
  else return __builtin_bit_cast(T, static_cast<typename hccc_word_of<sizeof(T)>::word>(bits));
}

// Finishes a value before it is stored.
template <int mode>
HCCC_FN hccc_value hccc_finish(hccc_value x) {
  if constexpr (hccc_divides(mode)) x = hccc_op::finish(x);
  return x;
}
