// instructions.h: what each instruction for AMD does to a wave. `Handlers` has the names.
#pragma once

#include <math.h>

#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "../floats.h"
#include "accesses.h"

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
struct half {
  u16 bits;
};

// ---- operands ----

struct Source {
  const u32* at;
  int stride;  // words from lane to lane; 0: all have the same
  u32 low(int l) const { return at[l * stride]; }
  u64 both(int l) const { return low(l) | u64(at[l * stride + (stride ? LANES : 1)]) << 32; }
};

inline Source source(Machine& m, Wave& w, const Instruction& i, int k) {
  if (i.modified >> k & 1) return {m.temporary[k], 1};
  if (i.s[k] == CONSTANT) return {reinterpret_cast<const u32*>(&i.k[k]), 0};
  return {w.words + i.s[k], i.s[k] >= VECTORS};
}

template <class To, class From>
To as(From from) {
  To to;
  static_assert(sizeof to == sizeof from);
  memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
T get(const Source& s, int l) {
  if constexpr (sizeof(T) == 8)
    return as<T>(s.both(l));
  else if constexpr (sizeof(T) == 4)
    return as<T>(s.low(l));
  else
    return as<T>(u16(s.low(l)));
}

// Sets a lane of a register; the upper half of one is 0 after instructions of 16 bits.
template <class T>
void set(u32* to, int l, T value) {
  if constexpr (sizeof(T) == 8) {
    const u64 both = as<u64>(value);
    to[l] = u32(both);
    to[LANES + l] = u32(both >> 32);
  } else if constexpr (sizeof(T) == 4) {
    to[l] = as<u32>(value);
  } else {
    to[l] = as<u16>(value);
  }
}

// ---- vectors ----

// Applies a function of a lane's operands; of one that returns bool the results are a mask.
template <auto f>
struct Each;
template <class R, class... A, R (*f)(A...)>
struct Each<f> {
  static bool run(Machine& m, Wave& w, const Instruction& i) {
    return go(m, w, i, std::index_sequence_for<A...>{});
  }
  template <size_t... K>
  static bool go(Machine& m, Wave& w, const Instruction& i, std::index_sequence<K...>) {
    const Source s[] = {source(m, w, i, K)...};
    u32* const to = w.words + i.d[0];
    if constexpr (std::is_same_v<R, bool>) {
      u64 mask = 0;
      for_lanes(w.exec(), [&](int l) { mask |= u64(f(get<A>(s[K], l)...)) << l; });
      set_pair(to, mask);
    } else {
      for_lanes(w.exec(), [&](int l) { set<R>(to, l, f(get<A>(s[K], l)...)); });
    }
    return true;
  }
};

// Applies it to both halves of registers, of 16 bits each.
template <auto f>
struct Halves;
template <class R, class... A, R (*f)(A...)>
struct Halves<f> {
  static bool run(Machine& m, Wave& w, const Instruction& i) {
    return go(m, w, i, std::index_sequence_for<A...>{});
  }
  template <size_t... K>
  static bool go(Machine& m, Wave& w, const Instruction& i, std::index_sequence<K...>) {
    const Source s[] = {source(m, w, i, K)...};
    u32* const to = w.words + i.d[0];
    const auto part = [&](int k, int l, int select, int sign) {
      const u16 bits = u16(s[k].low(l) >> (select >> k & 1 ? 16 : 0));
      return u16(bits ^ (sign >> k & 1) << 15);
    };
    for_lanes(w.exec(), [&](int l) {
      const u32 low = as<u16>(f(as<A>(part(K, l, i.op_sel, i.neg))...));
      to[l] = low | u32(as<u16>(f(as<A>(part(K, l, i.op_sel_hi, i.neg_hi))...))) << 16;
    });
    return true;
  }
};

// Applies it to two floats in a pair of registers.
template <float (*f)(float, float, float)>
bool two_floats(Machine& m, Wave& w, const Instruction& i) {
  const int n = i.s[2] == -1 ? 2 : 3;
  Source s[3];
  for (int k = 0; k < n; ++k) s[k] = source(m, w, i, k);
  u32* const to = w.words + i.d[0];
  for_lanes(w.exec(), [&](int l) {
    float results[2];
    for (int r = 0; r < 2; ++r) {
      float given[3] = {};
      for (int k = 0; k < n; ++k) {
        const bool high = (r ? i.op_sel_hi : i.op_sel) >> k & 1;
        const u32 bits = high ? u32(s[k].both(l) >> 32) : s[k].low(l);
        given[k] = as<float>(bits ^ u32((r ? i.neg_hi : i.neg) >> k & 1) << 31);
      }
      results[r] = f(given[0], given[1], given[2]);
    }
    to[l] = as<u32>(results[0]);
    to[LANES + l] = as<u32>(results[1]);
  });
  return true;
}

inline bool swap_two(Machine&, Wave& w, const Instruction& i) {
  u32 *const one = w.words + i.d[0], *const other = w.words + i.d[1];
  for_lanes(w.exec(), [&](int l) { std::swap(one[l], other[l]); });
  return true;
}

inline bool move_two(Machine& m, Wave& w, const Instruction& i) {
  const Source a = source(m, w, i, 0), b = source(m, w, i, 1);
  u32* const to = w.words + i.d[0];
  for_lanes(w.exec(), [&](int l) {
    const u64 first = a.both(l), second = b.both(l);
    to[l] = u32(i.op_sel & 1 ? first >> 32 : first);
    to[LANES + l] = u32(i.op_sel & 2 ? second >> 32 : second);
  });
  return true;
}

inline u16 to_half(float x) {
  if (x != x) return u16((as<u32>(x) >> 16 & 0x8000) | 0x7e00 | (as<u32>(x) >> 13 & 0x3ff));
  return u16(narrow<5, 10, false>(x, 0, 0x7bff));
}
inline float of_half(half x) {
  if ((x.bits & 0x7fff) > 0x7c00)
    return as<float>(u32(x.bits & 0x8000) << 16 | 0x7fc00000 | u32(x.bits & 0x3ff) << 13);
  return widen<5, 10>(x.bits);
}

// A product and a sum of floats, of 32 bits or halves each. part: 0 a float, else half of a register.
template <int part>
bool mixed(Machine& m, Wave& w, const Instruction& i) {
  Source s[3];
  for (int k = 0; k < 3; ++k) s[k] = source(m, w, i, k);
  u32* const to = w.words + i.d[0];
  for_lanes(w.exec(), [&](int l) {
    float given[3];
    for (int k = 0; k < 3; ++k) {
      const u32 bits = s[k].low(l);
      float x = as<float>(bits);
      if (i.op_sel_hi >> k & 1) x = of_half({u16(i.op_sel >> k & 1 ? bits >> 16 : bits)});
      if (i.neg_hi >> k & 1) x = fabsf(x);
      given[k] = i.neg >> k & 1 ? -x : x;
    }
    const float sum = std::fma(given[0], given[1], given[2]);
    if (part == 0) to[l] = as<u32>(sum);
    if (part == 1) to[l] = (to[l] & 0xffff0000) | to_half(sum);
    if (part == 2) to[l] = (to[l] & 0xffff) | u32(to_half(sum)) << 16;
  });
  return true;
}

// Adds or subtracts with a carry in and one out. order: whether the second is what is subtracted.
template <bool adds, bool carried, bool reversed>
bool carry(Machine& m, Wave& w, const Instruction& i) {
  const Source a = source(m, w, i, reversed), b = source(m, w, i, !reversed);
  const u64 in = carried ? source(m, w, i, 2).both(0) : 0;
  u64 out = 0;
  u32* const to = w.words + i.d[0];
  for_lanes(w.exec(), [&](int l) {
    const u64 more = in >> l & 1;
    const u64 sum = adds ? u64(a.low(l)) + b.low(l) + more : u64(a.low(l)) - b.low(l) - more;
    to[l] = u32(sum);
    out |= (sum >> 32 & 1) << l;
  });
  set_pair(w.words + i.d[1], out);
  return true;
}
template <class T, class Long>
bool multiply_add(Machine& m, Wave& w, const Instruction& i) {
  const Source a = source(m, w, i, 0), b = source(m, w, i, 1), c = source(m, w, i, 2);
  u64 out = 0;
  u32* const to = w.words + i.d[0];
  for_lanes(w.exec(), [&](int l) {
    const u64 product = u64(Long(get<T>(a, l)) * Long(get<T>(b, l)));
    const u64 sum = product + c.both(l);
    out |= u64(sum < product) << l;
    set<u64>(to, l, sum);
  });
  set_pair(w.words + i.d[1], out);
  return true;
}
inline bool select(Machine& m, Wave& w, const Instruction& i) {
  const Source a = source(m, w, i, 0), b = source(m, w, i, 1);
  const u64 mask = source(m, w, i, 2).both(0);
  u32* const to = w.words + i.d[0];
  for_lanes(w.exec(), [&](int l) { to[l] = mask >> l & 1 ? b.low(l) : a.low(l); });
  return true;
}
inline bool read_lane(Machine& m, Wave& w, const Instruction& i) {
  w.words[i.d[0]] = source(m, w, i, 0).low(source(m, w, i, 1).low(0) % LANES);
  return true;
}
inline bool read_first(Machine& m, Wave& w, const Instruction& i) {
  const int lane = w.exec() ? __builtin_ctzll(w.exec()) : 0;
  w.words[i.d[0]] = source(m, w, i, 0).low(lane);
  return true;
}
inline bool write_lane(Machine& m, Wave& w, const Instruction& i) {
  w.words[i.d[0] + source(m, w, i, 1).low(0) % LANES] = source(m, w, i, 0).low(0);
  return true;
}

inline u32 byte_of(u64 both, u32 which) {
  which &= 255;
  if (which >= 13) return 255;
  if (which == 12) return 0;
  if (which >= 8) return both >> (16 * (which - 8) + 15) & 1 ? 255 : 0;
  return u32(both >> 8 * which) & 255;
}
inline u32 permuted(u32 a, u32 b, u32 which) {
  const u64 both = u64(a) << 32 | b;
  u32 r = 0;
  for (int k = 0; k < 4; ++k) r |= byte_of(both, which >> 8 * k) << 8 * k;
  return r;
}
template <class T, class Byte>
T dot4(u32 a, u32 b, T c) {
  for (int k = 0; k < 32; k += 8) c += u32(Byte(a >> k)) * u32(Byte(b >> k));
  return c;
}
inline s32 signed24(u32 a) { return s32(a << 8) >> 8; }
template <class To, class From>
To truncated(From x) {
  if (x != x) return 0;
  if (x <= From(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (x >= From(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return To(x);
}
// The smaller or larger number; a NaN only of two.
template <class T>
T least(T a, T b) {
  if (a == b) return std::signbit(a) ? a : b;
  return std::fmin(a, b);
}
template <class T>
T most(T a, T b) {
  if (a == b) return std::signbit(a) ? b : a;
  return std::fmax(a, b);
}

#define HCCC_EACH(X)                                                                           \
  X(mov_b32, u32, (u32 a), a)                                                                  \
  X(mov_b64, u64, (u64 a), a)                                                                  \
  X(accvgpr_read_b32, u32, (u32 a), a)                                                         \
  X(accvgpr_write_b32, u32, (u32 a), a)                                                        \
  X(accvgpr_mov_b32, u32, (u32 a), a)                                                          \
  X(not_b32, u32, (u32 a), ~a)                                                                 \
  X(bfrev_b32, u32, (u32 a), reversed_bits(a))                                                 \
  X(ffbh_u32, u32, (u32 a), a ? __builtin_clz(a) : ~0u)                                        \
  X(ffbl_b32, u32, (u32 a), a ? __builtin_ctz(a) : ~0u)                                        \
  X(bcnt_u32_b32, u32, (u32 a, u32 b), u32(__builtin_popcount(a)) + b)                         \
  X(add_u32, u32, (u32 a, u32 b), a + b)                                                       \
  X(sub_u32, u32, (u32 a, u32 b), a - b)                                                       \
  X(subrev_u32, u32, (u32 a, u32 b), b - a)                                                    \
  X(add_u32_clamp, u32, (u32 a, u32 b), a + b < a ? ~0u : a + b)                               \
  X(sub_u32_clamp, u32, (u32 a, u32 b), a < b ? 0 : a - b)                                     \
  X(and_b32, u32, (u32 a, u32 b), a & b)                                                       \
  X(or_b32, u32, (u32 a, u32 b), a | b)                                                        \
  X(xor_b32, u32, (u32 a, u32 b), a ^ b)                                                       \
  X(xnor_b32, u32, (u32 a, u32 b), ~(a ^ b))                                                   \
  X(lshlrev_b32, u32, (u32 a, u32 b), b << (a & 31))                                           \
  X(lshrrev_b32, u32, (u32 a, u32 b), b >> (a & 31))                                           \
  X(ashrrev_i32, s32, (u32 a, s32 b), b >> (a & 31))                                           \
  X(lshlrev_b64, u64, (u32 a, u64 b), b << (a & 63))                                           \
  X(lshrrev_b64, u64, (u32 a, u64 b), b >> (a & 63))                                           \
  X(ashrrev_i64, s64, (u32 a, s64 b), b >> (a & 63))                                           \
  X(min_u32, u32, (u32 a, u32 b), std::min(a, b))                                              \
  X(max_u32, u32, (u32 a, u32 b), std::max(a, b))                                              \
  X(min_i32, s32, (s32 a, s32 b), std::min(a, b))                                              \
  X(max_i32, s32, (s32 a, s32 b), std::max(a, b))                                              \
  X(mul_lo_u32, u32, (u32 a, u32 b), a * b)                                                    \
  X(mul_hi_u32, u32, (u32 a, u32 b), u32(u64(a) * b >> 32))                                    \
  X(mul_hi_i32, u32, (s32 a, s32 b), u32(s64(a) * b >> 32))                                    \
  X(mul_u32_u24, u32, (u32 a, u32 b), (a & 0xffffff) * (b & 0xffffff))                         \
  X(mul_i32_i24, u32, (u32 a, u32 b), u32(signed24(a)) * u32(signed24(b)))                     \
  X(mul_hi_u32_u24, u32, (u32 a, u32 b), u32(u64(a & 0xffffff) * (b & 0xffffff) >> 32))        \
  X(mul_hi_i32_i24, u32, (u32 a, u32 b), u32(s64(signed24(a)) * signed24(b) >> 32))             \
  X(mad_u32_u24, u32, (u32 a, u32 b, u32 c), (a & 0xffffff) * (b & 0xffffff) + c)              \
  X(mad_i32_i24, u32, (u32 a, u32 b, u32 c), u32(signed24(a)) * u32(signed24(b)) + c)          \
  X(add3_u32, u32, (u32 a, u32 b, u32 c), a + b + c)                                           \
  X(or3_b32, u32, (u32 a, u32 b, u32 c), a | b | c)                                            \
  X(and_or_b32, u32, (u32 a, u32 b, u32 c), (a & b) | c)                                       \
  X(lshl_or_b32, u32, (u32 a, u32 b, u32 c), (a << (b & 31)) | c)                              \
  X(lshl_add_u32, u32, (u32 a, u32 b, u32 c), (a << (b & 31)) + c)                             \
  X(add_lshl_u32, u32, (u32 a, u32 b, u32 c), (a + b) << (c & 31))                             \
  X(xad_u32, u32, (u32 a, u32 b, u32 c), (a ^ b) + c)                                          \
  X(lshl_add_u64, u64, (u64 a, u32 b, u64 c), (a << (b & 7)) + c)                              \
  X(bfe_u32, u32, (u32 a, u32 b, u32 c), u32(u64(a) >> (b & 31) & ((u64(1) << (c & 31)) - 1))) \
  X(bfe_i32, s32, (s32 a, u32 b, u32 c),                                                       \
    c & 31 ? s32(s64(u64(s64(a) >> (b & 31)) << (64 - (c & 31))) >> (64 - (c & 31))) : 0)      \
  X(bfi_b32, u32, (u32 a, u32 b, u32 c), (a & b) | (~a & c))                                   \
  X(alignbit_b32, u32, (u32 a, u32 b, u32 c), u32((u64(a) << 32 | b) >> (c & 31)))             \
  X(alignbyte_b32, u32, (u32 a, u32 b, u32 c), u32((u64(a) << 32 | b) >> 8 * (c & 3)))         \
  X(perm_b32, u32, (u32 a, u32 b, u32 c), permuted(a, b, c))                                   \
  X(dot4_u32_u8, u32, (u32 a, u32 b, u32 c), (dot4<u32, u8>(a, b, c)))                         \
  X(dot4_i32_i8, u32, (u32 a, u32 b, u32 c), (dot4<u32, s8>(a, b, c)))                         \
  X(min3_u32, u32, (u32 a, u32 b, u32 c), std::min({a, b, c}))                                 \
  X(max3_u32, u32, (u32 a, u32 b, u32 c), std::max({a, b, c}))                                 \
  X(min3_i32, s32, (s32 a, s32 b, s32 c), std::min({a, b, c}))                                 \
  X(max3_i32, s32, (s32 a, s32 b, s32 c), std::max({a, b, c}))                                 \
  X(med3_i32, s32, (s32 a, s32 b, s32 c), std::max(std::min(a, b), std::min(std::max(a, b), c))) \
  X(med3_u32, u32, (u32 a, u32 b, u32 c), std::max(std::min(a, b), std::min(std::max(a, b), c))) \
  X(min3_f32, float, (float a, float b, float c), least(least(a, b), c))                       \
  X(max3_f32, float, (float a, float b, float c), most(most(a, b), c))                         \
  X(add_f32, float, (float a, float b), a + b)                                                 \
  X(sub_f32, float, (float a, float b), a - b)                                                 \
  X(subrev_f32, float, (float a, float b), b - a)                                              \
  X(mul_f32, float, (float a, float b), a * b)                                                 \
  X(min_f32, float, (float a, float b), least(a, b))                                           \
  X(max_f32, float, (float a, float b), most(a, b))                                            \
  X(fma_f32, float, (float a, float b, float c), std::fma(a, b, c))                            \
  X(add_f64, double, (double a, double b), a + b)                                              \
  X(mul_f64, double, (double a, double b), a * b)                                              \
  X(min_f64, double, (double a, double b), least(a, b))                                        \
  X(max_f64, double, (double a, double b), most(a, b))                                         \
  X(fma_f64, double, (double a, double b, double c), std::fma(a, b, c))                        \
  X(ldexp_f32, float, (float a, s32 b), std::ldexp(a, b))                                      \
  X(ldexp_f64, double, (double a, s32 b), std::ldexp(a, b))                                    \
  X(cvt_f32_ubyte0, float, (u32 a), float(a & 255))                                            \
  X(cvt_f32_ubyte1, float, (u32 a), float(a >> 8 & 255))                                       \
  X(cvt_f32_ubyte2, float, (u32 a), float(a >> 16 & 255))                                      \
  X(cvt_f32_ubyte3, float, (u32 a), float(a >> 24))                                            \
  X(cvt_f32_u32, float, (u32 a), float(a))                                                     \
  X(cvt_f32_i32, float, (s32 a), float(a))                                                     \
  X(cvt_f64_u32, double, (u32 a), double(a))                                                   \
  X(cvt_f64_i32, double, (s32 a), double(a))                                                   \
  X(cvt_f64_f32, double, (float a), double(a))                                                 \
  X(cvt_f32_f64, float, (double a), float(a))                                                  \
  X(cvt_u32_f32, u32, (float a), (truncated<u32>(a)))                                          \
  X(cvt_i32_f32, s32, (float a), (truncated<s32>(a)))                                          \
  X(cvt_u32_f64, u32, (double a), (truncated<u32>(a)))                                         \
  X(cvt_i32_f64, s32, (double a), (truncated<s32>(a)))                                         \
  X(cvt_f32_f16, float, (half a), of_half(a))                                                  \
  X(cvt_f16_f32, half, (float a), half{to_half(a)})                                            \
  X(rndne_f32, float, (float a), nearbyintf(a))                                                \
  X(trunc_f32, float, (float a), truncf(a))                                                    \
  X(floor_f32, float, (float a), floorf(a))                                                    \
  X(rndne_f64, double, (double a), nearbyint(a))                                               \
  X(trunc_f64, double, (double a), trunc(a))                                                   \
  X(floor_f64, double, (double a), floor(a))

// Those of 16 bits, which are there for pairs, too.
#define HCCC_HALVES(X)                                                      \
  X(add_u16, u16, (u16 a, u16 b), u16(a + b))                               \
  X(sub_u16, u16, (u16 a, u16 b), u16(a - b))                               \
  X(add_i16, u16, (u16 a, u16 b), u16(a + b))                               \
  X(sub_i16, u16, (u16 a, u16 b), u16(a - b))                               \
  X(subrev_u16, u16, (u16 a, u16 b), u16(b - a))                            \
  X(mul_lo_u16, u16, (u16 a, u16 b), u16(u32(a) * b))                       \
  X(mad_u16, u16, (u16 a, u16 b, u16 c), u16(u32(a) * b + c))               \
  X(min_u16, u16, (u16 a, u16 b), std::min(a, b))                           \
  X(max_u16, u16, (u16 a, u16 b), std::max(a, b))                           \
  X(min_i16, s16, (s16 a, s16 b), std::min(a, b))                           \
  X(max_i16, s16, (s16 a, s16 b), std::max(a, b))                           \
  X(min3_u16, u16, (u16 a, u16 b, u16 c), std::min({a, b, c}))              \
  X(max3_u16, u16, (u16 a, u16 b, u16 c), std::max({a, b, c}))              \
  X(min3_i16, s16, (s16 a, s16 b, s16 c), std::min({a, b, c}))              \
  X(max3_i16, s16, (s16 a, s16 b, s16 c), std::max({a, b, c}))              \
  X(lshlrev_b16, u16, (u16 a, u16 b), u16(b << (a & 15)))                   \
  X(lshrrev_b16, u16, (u16 a, u16 b), u16(b >> (a & 15)))                   \
  X(ashrrev_i16, s16, (u16 a, s16 b), s16(b >> (a & 15)))                   \
  X(add_f16, half, (half a, half b), half{to_half(of_half(a) + of_half(b))}) \
  X(sub_f16, half, (half a, half b), half{to_half(of_half(a) - of_half(b))}) \
  X(mul_f16, half, (half a, half b), half{to_half(of_half(a) * of_half(b))}) \
  X(min_f16, half, (half a, half b), half{to_half(least(of_half(a), of_half(b)))}) \
  X(max_f16, half, (half a, half b), half{to_half(most(of_half(a), of_half(b)))})

#define HCCC_DEFINE(name, type, given, value) \
  inline type each_##name given { return value; }
inline u32 reversed_bits(u32 a) {
  u32 r = 0;
  for (int k = 0; k < 32; ++k) r |= (a >> k & 1) << (31 - k);
  return r;
}
HCCC_EACH(HCCC_DEFINE)
HCCC_HALVES(HCCC_DEFINE)

inline float sum_of(float a, float b, float) { return a + b; }
inline float product_of(float a, float b, float) { return a * b; }
inline float fused_of(float a, float b, float c) { return std::fma(a, b, c); }

#define HCCC_COMPARISONS(X)       \
  X(eq, a == b)                   \
  X(ne, a != b)                   \
  X(lg, a < b || a > b)           \
  X(lt, a < b)                    \
  X(le, a <= b)                   \
  X(gt, a > b)                    \
  X(ge, a >= b)                   \
  X(o, a == a && b == b)          \
  X(u, a != a || b != b)          \
  X(neq, !(a == b))               \
  X(nlg, !(a < b || a > b))       \
  X(nlt, !(a < b))                \
  X(nle, !(a <= b))               \
  X(ngt, !(a > b))                \
  X(nge, !(a >= b))
#define HCCC_COMPARE(name, value)   \
  template <class T>                \
  bool is_##name(T a, T b) {        \
    return value;                   \
  }                                 \
  inline bool half_is_##name(half x, half y) { return is_##name(of_half(x), of_half(y)); }
HCCC_COMPARISONS(HCCC_COMPARE)

// ---- scalars ----

enum Condition { UNCHANGED, IF_ANY };  // what becomes of scc: 1 if the result is not 0

template <auto f, Condition condition>
struct One;
template <class R, class... A, R (*f)(A...), Condition condition>
struct One<f, condition> {
  static bool run(Machine& m, Wave& w, const Instruction& i) {
    return go(m, w, i, std::index_sequence_for<A...>{});
  }
  template <size_t... K>
  static bool go(Machine& m, Wave& w, const Instruction& i, std::index_sequence<K...>) {
    const R r = f(get<A>(source(m, w, i, K), 0)...);
    if constexpr (std::is_same_v<R, bool>) {
      w.scc() = r;
    } else {
      if constexpr (sizeof(R) == 8)
        set_pair(w.words + i.d[0], as<u64>(r));
      else
        w.words[i.d[0]] = as<u32>(r);
      if (condition == IF_ANY) w.scc() = r != 0;
    }
    return true;
  }
};

#define HCCC_ONE(X)                                                                   \
  X(mov_b32, u32, (u32 a), a, UNCHANGED)                                              \
  X(mov_b64, u64, (u64 a), a, UNCHANGED)                                              \
  X(movk_i32, s32, (u32 a), s16(a), UNCHANGED)                                        \
  X(not_b32, u32, (u32 a), ~a, IF_ANY)                                                \
  X(not_b64, u64, (u64 a), ~a, IF_ANY)                                                \
  X(brev_b32, u32, (u32 a), reversed_bits(a), UNCHANGED)                              \
  X(sext_i32_i8, s32, (u32 a), s8(a), UNCHANGED)                                      \
  X(sext_i32_i16, s32, (u32 a), s16(a), UNCHANGED)                                    \
  X(bcnt1_i32_b32, u32, (u32 a), u32(__builtin_popcount(a)), IF_ANY)                  \
  X(bcnt1_i32_b64, u32, (u64 a), u32(__builtin_popcountll(a)), IF_ANY)                \
  X(ff1_i32_b32, u32, (u32 a), a ? u32(__builtin_ctz(a)) : ~0u, UNCHANGED)            \
  X(ff1_i32_b64, u32, (u64 a), a ? u32(__builtin_ctzll(a)) : ~0u, UNCHANGED)          \
  X(flbit_i32_b32, u32, (u32 a), a ? u32(__builtin_clz(a)) : ~0u, UNCHANGED)          \
  X(abs_i32, s32, (s32 a), s32(a < 0 ? 0u - u32(a) : u32(a)), IF_ANY)                 \
  X(and_b32, u32, (u32 a, u32 b), a & b, IF_ANY)                                      \
  X(and_b64, u64, (u64 a, u64 b), a & b, IF_ANY)                                      \
  X(or_b32, u32, (u32 a, u32 b), a | b, IF_ANY)                                       \
  X(or_b64, u64, (u64 a, u64 b), a | b, IF_ANY)                                       \
  X(xor_b32, u32, (u32 a, u32 b), a ^ b, IF_ANY)                                      \
  X(xor_b64, u64, (u64 a, u64 b), a ^ b, IF_ANY)                                      \
  X(andn2_b32, u32, (u32 a, u32 b), a & ~b, IF_ANY)                                   \
  X(andn2_b64, u64, (u64 a, u64 b), a & ~b, IF_ANY)                                   \
  X(orn2_b32, u32, (u32 a, u32 b), a | ~b, IF_ANY)                                    \
  X(orn2_b64, u64, (u64 a, u64 b), a | ~b, IF_ANY)                                    \
  X(nand_b64, u64, (u64 a, u64 b), ~(a & b), IF_ANY)                                  \
  X(nor_b64, u64, (u64 a, u64 b), ~(a | b), IF_ANY)                                   \
  X(xnor_b64, u64, (u64 a, u64 b), ~(a ^ b), IF_ANY)                                  \
  X(lshl_b32, u32, (u32 a, u32 b), a << (b & 31), IF_ANY)                             \
  X(lshl_b64, u64, (u64 a, u32 b), a << (b & 63), IF_ANY)                             \
  X(lshr_b32, u32, (u32 a, u32 b), a >> (b & 31), IF_ANY)                             \
  X(lshr_b64, u64, (u64 a, u32 b), a >> (b & 63), IF_ANY)                             \
  X(ashr_i32, s32, (s32 a, u32 b), a >> (b & 31), IF_ANY)                             \
  X(ashr_i64, s64, (s64 a, u32 b), a >> (b & 63), IF_ANY)                             \
  X(bfe_u32, u32, (u32 a, u32 b),                                                     \
    u32(u64(a) >> (b & 31) & ((u64(1) << (b >> 16 & 127)) - 1)), IF_ANY)              \
  X(mul_i32, u32, (u32 a, u32 b), a * b, UNCHANGED)                                   \
  X(mul_hi_u32, u32, (u32 a, u32 b), u32(u64(a) * b >> 32), UNCHANGED)                \
  X(mul_hi_i32, u32, (s32 a, s32 b), u32(s64(a) * b >> 32), UNCHANGED)                \
  X(pack_ll_b32_b16, u32, (u32 a, u32 b), (a & 0xffff) | b << 16, UNCHANGED)          \
  X(pack_lh_b32_b16, u32, (u32 a, u32 b), (a & 0xffff) | (b & 0xffff0000), UNCHANGED) \
  X(pack_hh_b32_b16, u32, (u32 a, u32 b), a >> 16 | (b & 0xffff0000), UNCHANGED)      \
  X(cmp_eq_u64, bool, (u64 a, u64 b), a == b, UNCHANGED)                              \
  X(cmp_lg_u64, bool, (u64 a, u64 b), a != b, UNCHANGED)                              \
  X(bitcmp0_b32, bool, (u32 a, u32 b), !(a >> (b & 31) & 1), UNCHANGED)               \
  X(bitcmp1_b32, bool, (u32 a, u32 b), a >> (b & 31) & 1, UNCHANGED)                  \
  X(bitcmp0_b64, bool, (u64 a, u32 b), !(a >> (b & 63) & 1), UNCHANGED)               \
  X(bitcmp1_b64, bool, (u64 a, u32 b), a >> (b & 63) & 1, UNCHANGED)
#define HCCC_DEFINE_ONE(name, type, given, value, condition) \
  inline type one_##name given { return value; }
HCCC_ONE(HCCC_DEFINE_ONE)

// Adds or subtracts: scc is the carry of unsigned numbers, the overflow of signed ones.
template <class T, bool adds, bool carried>
bool scalar_sum(Machine& m, Wave& w, const Instruction& i) {
  const s64 a = get<T>(source(m, w, i, 0), 0), b = get<T>(source(m, w, i, 1), 0);
  const s64 more = carried ? w.scc() : 0, sum = adds ? a + b + more : a - b - more;
  w.words[i.d[0]] = u32(sum);
  w.scc() = sum != s64(T(sum));
  return true;
}
inline bool add_small(Machine& m, Wave& w, const Instruction& i) {
  const s64 sum = s64(s32(w.words[i.d[0]])) + s16(source(m, w, i, 0).low(0));
  w.words[i.d[0]] = u32(sum);
  w.scc() = sum != s64(s32(sum));
  return true;
}
inline bool multiply_small(Machine& m, Wave& w, const Instruction& i) {
  w.words[i.d[0]] *= u32(s32(s16(source(m, w, i, 0).low(0))));
  return true;
}
template <class T, bool larger>
bool scalar_choice(Machine& m, Wave& w, const Instruction& i) {
  const T a = get<T>(source(m, w, i, 0), 0), b = get<T>(source(m, w, i, 1), 0);
  w.scc() = larger ? a > b : a < b;
  w.words[i.d[0]] = u32(w.scc() ? a : b);
  return true;
}
template <class T>
bool scalar_select(Machine& m, Wave& w, const Instruction& i) {
  const T value = get<T>(source(m, w, i, w.scc() ? 0 : 1), 0);
  if constexpr (sizeof(T) == 8)
    set_pair(w.words + i.d[0], value);
  else
    w.words[i.d[0]] = value;
  return true;
}
template <u64 (*f)(u64, u64)>  // of the operand and of exec, which is kept
bool save_exec(Machine& m, Wave& w, const Instruction& i) {
  const u64 old = w.exec(), now = f(source(m, w, i, 0).both(0), old);
  set_pair(w.words + i.d[0], old);
  set_pair(w.words + EXEC, now);
  w.scc() = now != 0;
  return true;
}
inline u64 and_not_first(u64 a, u64 b) { return ~a & b; }

// ---- control ----

enum When { ALWAYS, SCC_0, SCC_1, VCC_NONE, VCC_ANY, EXEC_NONE, EXEC_ANY };
template <When when>
bool branch(Machine& m, Wave& w, const Instruction& i) {
  const u64 vcc = pair(w.words + VCC);
  const bool taken = when == ALWAYS      ? true
                     : when == SCC_0     ? !w.scc()
                     : when == SCC_1     ? w.scc()
                     : when == VCC_NONE  ? !vcc
                     : when == VCC_ANY   ? vcc
                     : when == EXEC_NONE ? !w.exec()
                                         : w.exec() != 0;
  if (taken) w.next = m.code + i.target;
  return true;
}
inline bool jump(Machine& m, Wave& w, const Instruction& i, u64 to) {
  if (to < CODE || to % 4 || (to - CODE) / 4 >= m.n_code) return m.fail(w, i, WILD, to);
  w.next = m.code + (to - CODE) / 4;
  return true;
}
inline bool jump_to(Machine& m, Wave& w, const Instruction& i) {
  return jump(m, w, i, source(m, w, i, 0).both(0));
}
inline bool call(Machine& m, Wave& w, const Instruction& i) {
  const u64 to = source(m, w, i, 0).both(0);
  set_pair(w.words + i.d[0], CODE + 4 * u64(w.next - m.code));
  return jump(m, w, i, to);
}
inline bool here(Machine&, Wave& w, const Instruction& i) {
  set_pair(w.words + i.d[0], i.k[0]);
  return true;
}
inline bool nothing(Machine&, Wave&, const Instruction&) { return true; }
inline bool sleep(Machine&, Wave& w, const Instruction&) {
  w.unpolled = 0;
  return false;
}
inline bool trap(Machine& m, Wave& w, const Instruction& i) { return m.fail(w, i, TRAP); }
inline bool end(Machine& m, Wave& w, const Instruction&) { return m.end(w); }
inline bool barrier(Machine& m, Wave& w, const Instruction&) { return m.barrier(w); }
inline bool wait(Machine& m, Wave& w, const Instruction& i) {
  if (m.wait_for(w, i.k[0], i.k[1])) m.executed[&i - m.code] |= WAITED;
  return !m.stopped;
}

// ---- memory ----

inline bool load(Machine& m, Wave& w, const Instruction& i) { return m.load(w, i); }
inline bool store(Machine& m, Wave& w, const Instruction& i) { return m.store(w, i); }
template <bool loads>
bool share(Machine& m, Wave& w, const Instruction& i) { return m.ds(w, i, loads); }
template <int words>
bool load_scalar(Machine& m, Wave& w, const Instruction& i) { return m.load_scalar(w, i, words); }
inline bool clock(Machine& m, Wave& w, const Instruction& i) { return m.clock(w, i); }
inline bool write_back(Machine& m, Wave& w, const Instruction& i) { return m.write_back(w, i); }
inline bool invalidate(Machine& m, Wave& w, const Instruction& i) { return m.invalidate(w, i); }
inline bool invalidate_device(Machine& m, Wave& w, const Instruction&) {
  return m.invalidate_device(w);
}
template <class T, T (*f)(T, T, T)>  // of what is there, and one or two operands
bool atomic(Machine& m, Wave& w, const Instruction& i) { return m.atomic<T>(w, i, f); }
template <class T>
T swapped(T, T a, T) { return a; }
template <class T>
T compared(T old, T a, T b) { return old == b ? a : old; }
template <class T>
T added(T old, T a, T) { return old + a; }
template <class T>
T anded(T old, T a, T) { return old & a; }
template <class T>
T ored(T old, T a, T) { return old | a; }
template <class T>
T smaller(T old, T a, T) { return std::min(old, a); }
template <class T>
T larger(T old, T a, T) { return std::max(old, a); }

// ---- their names ----

class Handlers {
 public:
  std::map<std::string, Handler> known;

  Handlers() {
#define HCCC_ADD(name, type, given, value) add("v_" #name, Each<each_##name>::run);
#define HCCC_ADD_PAIR(name, type, given, value) add("v_pk_" #name, Halves<each_##name>::run);
#define HCCC_ADD_ONE(name, type, given, value, condition) \
  add("s_" #name, One<one_##name, condition>::run);
    HCCC_EACH(HCCC_ADD)
    HCCC_HALVES(HCCC_ADD)
    HCCC_HALVES(HCCC_ADD_PAIR)
    HCCC_ONE(HCCC_ADD_ONE)
    vectors();
    scalars();
    control();
    accesses();
  }

 private:
  void add(const std::string& name, Handler handler) { known[name] = handler; }

  template <class T>
  void comparisons(const std::string& type) {
#define HCCC_ADD_COMPARE(name, value) \
  add("v_cmp_" #name "_" + type, Each<is_##name<T>>::run);
    HCCC_COMPARISONS(HCCC_ADD_COMPARE)
  }
  void vectors() {
    comparisons<u16>("u16");
    comparisons<s16>("i16");
    comparisons<u32>("u32");
    comparisons<s32>("i32");
    comparisons<u64>("u64");
    comparisons<s64>("i64");
    comparisons<float>("f32");
    comparisons<double>("f64");
#define HCCC_ADD_HALF(name, value) add("v_cmp_" #name "_f16", Each<half_is_##name>::run);
    HCCC_COMPARISONS(HCCC_ADD_HALF)
    add("v_mad_legacy_u16", Each<each_mad_u16>::run);
    known.erase("v_mad_u16");  // which keeps the upper half
    add("v_swap_b32", swap_two);
    add("v_pk_mov_b32", move_two);
    add("v_pk_add_f32", two_floats<sum_of>);
    add("v_pk_mul_f32", two_floats<product_of>);
    add("v_pk_fma_f32", two_floats<fused_of>);
    add("v_fma_mix_f32", mixed<0>);
    add("v_fma_mixlo_f16", mixed<1>);
    add("v_fma_mixhi_f16", mixed<2>);
    add("v_add_co_u32", carry<true, false, false>);
    add("v_addc_co_u32", carry<true, true, false>);
    add("v_sub_co_u32", carry<false, false, false>);
    add("v_subb_co_u32", carry<false, true, false>);
    add("v_subrev_co_u32", carry<false, false, true>);
    add("v_subbrev_co_u32", carry<false, true, true>);
    add("v_mad_u64_u32", multiply_add<u32, u64>);
    add("v_mad_i64_i32", multiply_add<s32, s64>);
    add("v_cndmask_b32", select);
    add("v_readlane_b32", read_lane);
    add("v_readfirstlane_b32", read_first);
    add("v_writelane_b32", write_lane);
  }
  void scalars() {
    add("s_add_u32", scalar_sum<u32, true, false>);
    add("s_addc_u32", scalar_sum<u32, true, true>);
    add("s_sub_u32", scalar_sum<u32, false, false>);
    add("s_subb_u32", scalar_sum<u32, false, true>);
    add("s_add_i32", scalar_sum<s32, true, false>);
    add("s_sub_i32", scalar_sum<s32, false, false>);
    add("s_addk_i32", add_small);
    add("s_mulk_i32", multiply_small);
    add("s_min_u32", scalar_choice<u32, false>);
    add("s_max_u32", scalar_choice<u32, true>);
    add("s_min_i32", scalar_choice<s32, false>);
    add("s_max_i32", scalar_choice<s32, true>);
    add("s_cselect_b32", scalar_select<u32>);
    add("s_cselect_b64", scalar_select<u64>);
    compare<u32>("u32");
    compare<s32>("i32");
    add("s_and_saveexec_b64", save_exec<one_and_b64>);
    add("s_or_saveexec_b64", save_exec<one_or_b64>);
    add("s_xor_saveexec_b64", save_exec<one_xor_b64>);
    add("s_andn2_saveexec_b64", save_exec<one_andn2_b64>);
    add("s_orn2_saveexec_b64", save_exec<one_orn2_b64>);
    add("s_andn1_saveexec_b64", save_exec<and_not_first>);
  }
  template <class T>
  void compare(const std::string& type) {
    for (const char* kind : {"s_cmp_", "s_cmpk_"}) {
      add(kind + ("eq_" + type), One<is_eq<T>, UNCHANGED>::run);
      add(kind + ("lg_" + type), One<is_ne<T>, UNCHANGED>::run);
      add(kind + ("lt_" + type), One<is_lt<T>, UNCHANGED>::run);
      add(kind + ("le_" + type), One<is_le<T>, UNCHANGED>::run);
      add(kind + ("gt_" + type), One<is_gt<T>, UNCHANGED>::run);
      add(kind + ("ge_" + type), One<is_ge<T>, UNCHANGED>::run);
    }
  }
  void control() {
    add("s_branch", branch<ALWAYS>);
    add("s_cbranch_scc0", branch<SCC_0>);
    add("s_cbranch_scc1", branch<SCC_1>);
    add("s_cbranch_vccz", branch<VCC_NONE>);
    add("s_cbranch_vccnz", branch<VCC_ANY>);
    add("s_cbranch_execz", branch<EXEC_NONE>);
    add("s_cbranch_execnz", branch<EXEC_ANY>);
    add("s_setpc_b64", jump_to);
    add("s_swappc_b64", call);
    add("s_getpc_b64", here);
    for (const char* name : {"s_nop", "v_nop", "s_setprio", "s_icache_inv"}) add(name, nothing);
    add("s_sleep", sleep);
    add("s_trap", trap);
    add("s_endpgm", end);
    add("s_barrier", barrier);
    add("s_waitcnt", wait);
  }
  void accesses() {
    add("load", load);
    add("store", store);
    for (const char* two : {"", "2"}) {
      add(std::string("ds_load") + two, share<true>);
      add(std::string("ds_store") + two, share<false>);
      add(std::string("ds_read") + two, share<true>);
      add(std::string("ds_write") + two, share<false>);
    }
    add("s_load_dword", load_scalar<1>);
    add("s_load_dwordx2", load_scalar<2>);
    add("s_load_dwordx4", load_scalar<4>);
    add("s_load_dwordx8", load_scalar<8>);
    add("s_load_dwordx16", load_scalar<16>);
    add("s_memtime", clock);
    add("s_memrealtime", clock);
    add("buffer_wbl2", write_back);
    add("buffer_inv", invalidate);
    add("buffer_wbinvl1_vol", invalidate);
    add("buffer_invl2", invalidate_device);
    atomics<u32, s32>("");
    atomics<u64, s64>("_x2");
  }
  template <class U, class S>
  void atomics(const std::string& size) {
    add("atomic_swap" + size, atomic<U, swapped<U>>);
    add("atomic_cmpswap" + size, atomic<U, compared<U>>);
    add("atomic_add" + size, atomic<U, added<U>>);
    add("atomic_and" + size, atomic<U, anded<U>>);
    add("atomic_or" + size, atomic<U, ored<U>>);
    add("atomic_umin" + size, atomic<U, smaller<U>>);
    add("atomic_umax" + size, atomic<U, larger<U>>);
    add("atomic_smin" + size, atomic<S, smaller<S>>);
    add("atomic_smax" + size, atomic<S, larger<S>>);
  }
};
