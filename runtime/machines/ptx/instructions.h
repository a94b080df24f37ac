// instructions.h: what each instruction of PTX does to a thread of the machine. `handlers` has the
// names; registers are 8 bytes, of which narrower types take the lowest.
#pragma once

#include <math.h>

#include <map>
#include <string>
#include <type_traits>

#include "../floats.h"
#include "machine.h"

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

template <class T>
T get(const Thread& t, int at) {
  T value;
  memcpy(&value, t.frame + at, sizeof value);
  return value;
}

// Sets a register: what it holds is extended by its sign or by zeros.
template <class T>
void set(Thread& t, int at, T value) {
  u64 word = 0;
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    word = u64(s64(value));
  else
    memcpy(&word, &value, sizeof value);
  memcpy(t.frame + at, &word, 8);
}

// ---- arithmetic ----

template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
    std::conditional_t<std::is_signed_v<T>, s32, u32>>;

// Of integers, sums and products wrap: in the unsigned type.
template <class T, class F>
T wrapped(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>)
    return T(f(u64(a), u64(b)));
  else
    return f(a, b);
}

struct Add {
  template <class T>
  static T of(T a, T b) { return wrapped(a, b, [](auto x, auto y) { return x + y; }); }
};
struct Sub {
  template <class T>
  static T of(T a, T b) { return wrapped(a, b, [](auto x, auto y) { return x - y; }); }
};
struct Mul {
  template <class T>
  static T of(T a, T b) { return wrapped(a, b, [](auto x, auto y) { return x * y; }); }
};
struct MulHigh {
  template <class T>
  static T of(T a, T b) {
    using W = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return T((W(a) * W(b)) >> (8 * sizeof(T)));
  }
};
struct Div {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (!b) return T(-1);
      if (std::is_signed_v<T> && b == T(-1)) return T(-u64(a));
    }
    return a / b;
  }
};
struct Rem {
  template <class T>
  static T of(T a, T b) { return !b ? a : std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b); }
};
// Of a number and a NaN, the number.
struct Min {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return signbit(a) ? a : b;
      return fmin(a, b);
    }
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return signbit(a) ? b : a;
      return fmax(a, b);
    }
    return a > b ? a : b;
  }
};
template <class F>
struct WithNan {
  template <class T>
  static T of(T a, T b) { return a != a || b != b ? T(NAN) : F::of(a, b); }
};
struct And {
  template <class T>
  static T of(T a, T b) { return a & b; }
};
struct Or {
  template <class T>
  static T of(T a, T b) { return a | b; }
};
struct Xor {
  template <class T>
  static T of(T a, T b) { return a ^ b; }
};

// The canonical NaN: what arithmetic of NVIDIA's makes of any.
template <class T>
T canonical(T value) {
  if constexpr (std::is_same_v<T, float>) {
    const u32 nan = 0x7fffffff;
    if (value != value) memcpy(&value, &nan, 4);
  }
  return value;
}

template <class T, class F>
bool binary(Machine&, Thread& t, const Instruction& i) {
  set<T>(t, i.a[0], canonical(F::of(get<T>(t, i.a[1]), get<T>(t, i.a[2]))));
  return true;
}
template <class T>
bool mul_wide(Machine&, Thread& t, const Instruction& i) {
  using W = Wide<T>;
  set<W>(t, i.a[0], W(W(get<T>(t, i.a[1])) * W(get<T>(t, i.a[2]))));
  return true;
}
template <class T>
bool mad_wide(Machine&, Thread& t, const Instruction& i) {
  using W = Wide<T>;
  const W product = W(W(get<T>(t, i.a[1])) * W(get<T>(t, i.a[2])));
  set<W>(t, i.a[0], Add::of(product, get<W>(t, i.a[3])));
  return true;
}
template <class T>
bool mad(Machine&, Thread& t, const Instruction& i) {
  set<T>(t, i.a[0], Add::of(Mul::of(get<T>(t, i.a[1]), get<T>(t, i.a[2])), get<T>(t, i.a[3])));
  return true;
}
template <class T>
bool fused(Machine&, Thread& t, const Instruction& i) {
  set<T>(t, i.a[0], canonical(T(std::fma(get<T>(t, i.a[1]), get<T>(t, i.a[2]),
                                         get<T>(t, i.a[3])))));
  return true;
}
template <class T, int what>
bool unary(Machine&, Thread& t, const Instruction& i) {
  const T a = get<T>(t, i.a[1]);
  T r;
  if constexpr (std::is_floating_point_v<T>)
    r = what == 0 ? -a : T(fabs(a));
  else
    r = what == 0 ? T(-u64(a)) : what == 1 ? (a < 0 ? T(-u64(a)) : a) : T(~a);
  set<T>(t, i.a[0], r);
  return true;
}
inline bool not_predicate(Machine&, Thread& t, const Instruction& i) {
  set<u8>(t, i.a[0], !get<u8>(t, i.a[1]));
  return true;
}
// Shifts by more than there are bits give zeros, or signs.
template <class T, bool left>
bool shift(Machine&, Thread& t, const Instruction& i) {
  const T a = get<T>(t, i.a[1]);
  const u32 by = get<u32>(t, i.a[2]), most = 8 * sizeof(T);
  T r;
  if (left)
    r = by < most ? T(u64(a) << by) : T(0);
  else
    r = by < most ? T(a >> by) : a < 0 ? T(-1) : T(0);
  set<T>(t, i.a[0], r);
  return true;
}
template <bool left, bool wrap>
bool funnel(Machine&, Thread& t, const Instruction& i) {
  const u64 both = u64(get<u32>(t, i.a[2])) << 32 | get<u32>(t, i.a[1]);
  u32 by = get<u32>(t, i.a[3]);
  by = wrap ? by & 31 : std::min<u32>(by, 32);
  set<u32>(t, i.a[0], left ? u32(both << by >> 32) : u32(both >> by));
  return true;
}
inline bool lop3(Machine&, Thread& t, const Instruction& i) {
  const u32 a = get<u32>(t, i.a[1]), b = get<u32>(t, i.a[2]), c = get<u32>(t, i.a[3]);
  const u32 table = get<u32>(t, i.a[4]);
  u32 r = 0;
  for (int k = 0; k < 8; ++k)
    if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  set<u32>(t, i.a[0], r);
  return true;
}
inline bool prmt(Machine&, Thread& t, const Instruction& i) {
  const u64 both = u64(get<u32>(t, i.a[2])) << 32 | get<u32>(t, i.a[1]);
  const u32 pick = get<u32>(t, i.a[3]);
  u32 r = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 one = pick >> 4 * k & 15;
    u32 byte = both >> 8 * (one & 7) & 255;
    if (one & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << 8 * k;
  }
  set<u32>(t, i.a[0], r);
  return true;
}
template <class T>
bool extract(Machine&, Thread& t, const Instruction& i) {
  const int bits = 8 * sizeof(T), at = get<u32>(t, i.a[2]) & 255, n = get<u32>(t, i.a[3]) & 255;
  const T a = get<T>(t, i.a[1]);
  T r = 0;
  const bool sign = std::is_signed_v<T> && n && (a >> std::min(at + n - 1, bits - 1) & 1);
  for (int k = 0; k < bits; ++k) {
    const bool bit = k < n && at + k < bits ? a >> (at + k) & 1 : sign;
    if (bit) r = T(u64(r) | u64(1) << k);
  }
  set<T>(t, i.a[0], r);
  return true;
}
template <class T>
bool insert(Machine&, Thread& t, const Instruction& i) {
  const int bits = 8 * sizeof(T), at = get<u32>(t, i.a[3]) & 255, n = get<u32>(t, i.a[4]) & 255;
  const T a = get<T>(t, i.a[1]);
  T r = get<T>(t, i.a[2]);
  for (int k = 0; k < n && at + k < bits; ++k)
    r = T((r & ~(T(1) << (at + k))) | (a >> k & 1) << (at + k));
  set<T>(t, i.a[0], r);
  return true;
}
template <class T, int what>
bool count_bits(Machine&, Thread& t, const Instruction& i) {
  const T a = get<T>(t, i.a[1]);
  const int bits = 8 * sizeof(T);
  if (what == 0) set<u32>(t, i.a[0], u32(__builtin_popcountll(a)));
  if (what == 1) set<u32>(t, i.a[0], a ? u32(__builtin_clzll(a)) - (64 - bits) : bits);
  if (what == 2) {
    T r = 0;
    for (int k = 0; k < bits; ++k) r |= T(a >> k & 1) << (bits - 1 - k);
    set<T>(t, i.a[0], r);
  }
  return true;
}

// ---- comparisons ----

struct Eq {
  template <class T>
  static bool of(T a, T b) { return a == b; }
};
struct Ne {
  template <class T>
  static bool of(T a, T b) { return a == a && b == b && a != b; }
};
struct Lt {
  template <class T>
  static bool of(T a, T b) { return a < b; }
};
struct Le {
  template <class T>
  static bool of(T a, T b) { return a <= b; }
};
struct Gt {
  template <class T>
  static bool of(T a, T b) { return a > b; }
};
struct Ge {
  template <class T>
  static bool of(T a, T b) { return a >= b; }
};
struct Num {
  template <class T>
  static bool of(T a, T b) { return a == a && b == b; }
};
template <class F>
struct Unless {  // true also of a NaN
  template <class T>
  static bool of(T a, T b) { return a != a || b != b || F::of(a, b); }
};

template <class T, class F>
bool compare(Machine&, Thread& t, const Instruction& i) {
  set<u8>(t, i.a[0], F::of(get<T>(t, i.a[1]), get<T>(t, i.a[2])));
  return true;
}
template <class T, class F, class G>  // with another predicate
bool compare_and(Machine&, Thread& t, const Instruction& i) {
  const bool r = F::of(get<T>(t, i.a[1]), get<T>(t, i.a[2]));
  set<u8>(t, i.a[0], G::of(u8(r), get<u8>(t, i.a[3])));
  return true;
}
inline bool select(Machine&, Thread& t, const Instruction& i) {
  set<u64>(t, i.a[0], get<u64>(t, get<u8>(t, i.a[3]) ? i.a[1] : i.a[2]));
  return true;
}

// ---- moves and conversions ----

inline bool move(Machine&, Thread& t, const Instruction& i) {
  set<u64>(t, i.a[0], get<u64>(t, i.a[1]));
  return true;
}
inline bool move_frame(Machine&, Thread& t, const Instruction& i) {
  set<u64>(t, i.a[0], reinterpret_cast<u64>(t.frame + i.offset));
  return true;
}
inline bool move_special(Machine& m, Thread& t, const Instruction& i) {
  set<u64>(t, i.a[0], m.special(t, int(i.offset)));
  return true;
}
template <class T>
bool pack(Machine&, Thread& t, const Instruction& i) {
  u64 word = 0;
  for (int k = 0; k < i.count; ++k)
    word |= u64(get<T>(t, i.a[1 + k])) << 8 * sizeof(T) * k % 64;
  set<u64>(t, i.a[0], word);
  return true;
}
template <class T>
bool unpack(Machine&, Thread& t, const Instruction& i) {
  const u64 word = get<u64>(t, i.a[i.count]);
  for (int k = 0; k < i.count; ++k)
    if (i.a[k] >= 0) set<T>(t, i.a[k], T(word >> 8 * sizeof(T) * k));
  return true;
}
inline bool to_shared(Machine&, Thread& t, const Instruction& i) {
  set<u64>(t, i.a[0], get<u64>(t, i.a[1]) - reinterpret_cast<u64>(t.block->shared.data()));
  return true;
}
inline bool from_shared(Machine&, Thread& t, const Instruction& i) {
  set<u64>(t, i.a[0], get<u64>(t, i.a[1]) + reinterpret_cast<u64>(t.block->shared.data()));
  return true;
}

// round: to nearest (0), to zero (1), down (2), up (3). Floats to integers saturate.
template <class To, class From, int round>
bool convert(Machine&, Thread& t, const Instruction& i) {
  const From a = get<From>(t, i.a[1]);
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const double whole = round == 0   ? nearbyint(double(a))
                         : round == 1 ? trunc(double(a))
                         : round == 2 ? floor(double(a))
                                      : ceil(double(a));
    const double low = double(std::numeric_limits<To>::min());
    const double high = ldexp(1.0, 8 * sizeof(To) - std::is_signed_v<To>);
    set<To>(t, i.a[0], a != a           ? To(sizeof(To) == 8 ? u64(1) << 63 : 0)
                       : whole < low    ? std::numeric_limits<To>::min()
                       : whole >= high  ? std::numeric_limits<To>::max()
                                        : To(whole));
  } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<From, To> && round >= 0) {
    set<To>(t, i.a[0], To(round == 0   ? nearbyint(double(a))
                          : round == 1 ? trunc(double(a))
                          : round == 2 ? floor(double(a))
                                       : ceil(double(a))));
  } else {
    set<To>(t, i.a[0], canonical(To(a)));
  }
  return true;
}
template <class To, class From>  // of integers, to the nearest that there is
bool saturate(Machine&, Thread& t, const Instruction& i) {
  const __int128 a = get<From>(t, i.a[1]);
  const __int128 low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  set<To>(t, i.a[0], To(a < low ? low : a > high ? high : a));
  return true;
}

inline u16 to_half(float x) { return u16(narrow<5, 10, false>(x, 0x7fff, 0x7bff)); }
inline u16 to_bfloat(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  if (x != x) return 0x7fff;
  return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float of_half(u16 bits) { return canonical(widen<5, 10>(bits)); }
inline float of_bfloat(u16 bits) {
  const u32 word = u32(bits) << 16;
  float x;
  memcpy(&x, &word, 4);
  return x;
}
inline u8 to_e4m3(float x) { return u8(narrow<4, 3, true>(x, 0x7f, 0x7e)); }
inline u8 to_e5m2(float x) { return u8(narrow<5, 2, true>(x, 0x7f, 0x7b)); }

template <u16 (*f)(float)>
bool shorten(Machine&, Thread& t, const Instruction& i) {
  set<u16>(t, i.a[0], f(get<float>(t, i.a[1])));
  return true;
}
template <float (*f)(u16)>
bool lengthen(Machine&, Thread& t, const Instruction& i) {
  set<float>(t, i.a[0], f(get<u16>(t, i.a[1])));
  return true;
}
template <class T, T (*f)(float)>  // two floats to a pair, the first one above
bool shorten_two(Machine&, Thread& t, const Instruction& i) {
  const u32 high = f(get<float>(t, i.a[1])), low = f(get<float>(t, i.a[2]));
  set<u32>(t, i.a[0], high << 8 * sizeof(T) | low);
  return true;
}
template <int exponent, int mantissa>  // a pair of bytes to a pair of halves
bool lengthen_two(Machine&, Thread& t, const Instruction& i) {
  const u32 both = get<u16>(t, i.a[1]);
  const u32 low = to_half(widen<exponent, mantissa>(both & 255));
  set<u32>(t, i.a[0], u32(to_half(widen<exponent, mantissa>(both >> 8))) << 16 | low);
  return true;
}
// Pairs of 16-bit floats, each half in float and rounded once.
template <float (*up)(u16), u16 (*down)(float), class F>
bool paired(Machine&, Thread& t, const Instruction& i) {
  const u32 a = get<u32>(t, i.a[1]), b = get<u32>(t, i.a[2]);
  const u32 low = down(F::of(up(u16(a)), up(u16(b))));
  set<u32>(t, i.a[0], u32(down(F::of(up(u16(a >> 16)), up(u16(b >> 16))))) << 16 | low);
  return true;
}
template <float (*up)(u16), u16 (*down)(float), class F>
bool halved(Machine&, Thread& t, const Instruction& i) {
  set<u16>(t, i.a[0], down(F::of(up(get<u16>(t, i.a[1])), up(get<u16>(t, i.a[2])))));
  return true;
}

// ---- control ----

inline bool jump(Machine& m, Thread& t, const Instruction& i) {
  t.next = m.code + i.target;
  return true;
}
inline bool call(Machine& m, Thread& t, const Instruction& i) {
  m.call(t, i);
  return true;
}
inline bool leave(Machine& m, Thread& t, const Instruction&) { return m.leave(t); }
inline bool leave_kernel(Machine& m, Thread& t, const Instruction&) { return m.end(t); }
inline bool trap(Machine& m, Thread& t, const Instruction& i) {
  return m.fail(t, i, TRAP, 0);
}
inline bool nothing(Machine&, Thread&, const Instruction&) { return true; }
inline bool sleep(Machine&, Thread& t, const Instruction&) {
  t.unpolled = 0;
  return false;
}

// ---- memory ----

// A strong access of a vector is one of each of its elements, in any order, and others come between.
inline bool is_apart(const Instruction& i) { return i.order >= VOLATILE && i.count > 1; }

// Makes the next of them by `access`, which takes the bytes before the element. Returns whether it was the
// last; `on` is whether the thread's turn goes on.
template <class F>
bool next_part(Machine& m, Thread& t, const Instruction& i, int size, F access, bool& on) {
  if (!t.parts) t.first = int(m.memory.rng.below(i.count));
  on = access((t.first + t.parts) % i.count * size);
  if (!on) return false;
  t.parts = (t.parts + 1) % i.count;
  if (!t.parts) return true;
  --t.next;
  on = m.memory.rng.chance(512);
  return false;
}

template <class T>
bool load(Machine& m, Thread& t, const Instruction& i) {
  u8 own[MOST_BYTES], *const bytes = is_apart(i) ? t.vector : own;
  bool on = true;
  const auto part = [&](int at) { return m.load(t, i, sizeof(T), bytes + at, at); };
  if (!is_apart(i) && !m.load(t, i, sizeof(T) * i.count, bytes)) return false;
  if (is_apart(i) && !next_part(m, t, i, sizeof(T), part, on)) return on;
  for (int k = 0; k < i.count; ++k) {
    T value;
    memcpy(&value, bytes + k * sizeof(T), sizeof(T));
    if (i.a[1 + k] >= 0) set<T>(t, i.a[1 + k], value);
  }
  return i.order < RELAXED || m.memory.rng.chance(512);
}
template <class T>
bool store(Machine& m, Thread& t, const Instruction& i) {
  u8 bytes[MOST_BYTES];
  bool on = true;
  for (int k = 0; k < i.count; ++k) {
    const T value = get<T>(t, i.a[1 + k]);
    memcpy(bytes + k * sizeof(T), &value, sizeof(T));
  }
  if (!is_apart(i)) return m.store(t, i, sizeof(T) * i.count, bytes);
  next_part(m, t, i, sizeof(T), [&](int at) { return m.store(t, i, sizeof(T), bytes + at, at); }, on);
  return on;
}
struct Exchange {
  template <class T>
  static T of(T, T b) { return b; }
};
struct Increment {
  template <class T>
  static T of(T a, T b) { return a >= b ? T(0) : T(a + 1); }
};
struct Decrement {
  template <class T>
  static T of(T a, T b) { return !a || a > b ? b : T(a - 1); }
};
template <class T, class F>
bool atomic(Machine& m, Thread& t, const Instruction& i) {
  const T b = get<T>(t, i.a[2]);
  return m.atomic<T>(t, i, [b](T a) { return F::of(a, b); });
}
template <class T>
bool compare_and_swap(Machine& m, Thread& t, const Instruction& i) {
  const T wanted = get<T>(t, i.a[2]), other = get<T>(t, i.a[3]);
  return m.atomic<T>(t, i, [wanted, other](T a) { return a == wanted ? other : a; });
}
inline bool fence(Machine& m, Thread& t, const Instruction& i) {
  m.fence(t, i);
  return true;
}
template <int reduction>
bool barrier(Machine& m, Thread& t, const Instruction& i) {
  return m.barrier(t, i, reduction);
}

// ---- multicast addresses ----
//
// Their loads and stores are weak, whatever the text says: each needs what orders others. A switch reduces
// in any order.

template <class T, class Sum, class F>
bool load_all(Machine& m, Thread& t, const Instruction& i, F change) {
  constexpr int most = MOST_BYTES / sizeof(T);
  T bytes[most];
  Sum sums[most];
  bool first = true;
  const int size = int(sizeof(T)) * i.count;
  const bool on = m.everywhere(t, i, size, [&](Region* region, u64 at) {
    m.memory.load_weak(t.who, region, at, size, int(&i - m.code), reinterpret_cast<u8*>(bytes));
    for (int k = 0; k < i.count; ++k) change(sums[k], bytes[k], first);
    first = false;
  });
  for (int k = 0; on && k < i.count; ++k)
    if (i.a[1 + k] >= 0) set<T>(t, i.a[1 + k], T(sums[k]));
  return on;
}
template <class T, class F>
bool reduce_all(Machine& m, Thread& t, const Instruction& i) {
  return load_all<T, T>(m, t, i, [](T& sum, T x, bool first) { sum = first ? x : F::of(sum, x); });
}
// Two 16-bit floats, which are added in float.
template <float (*up)(u16), u16 (*down)(float)>
struct PairOfSums {
  float low, high;
  explicit operator u32() const { return u32(down(high)) << 16 | down(low); }
};
template <float (*up)(u16), u16 (*down)(float)>
bool add_all_halves(Machine& m, Thread& t, const Instruction& i) {
  using Sum = PairOfSums<up, down>;
  return load_all<u32, Sum>(m, t, i, [](Sum& sum, u32 x, bool first) {
    const float low = up(u16(x)), high = up(u16(x >> 16));
    sum = first ? Sum{low, high} : Sum{sum.low + low, sum.high + high};
  });
}
template <class T>
bool store_all(Machine& m, Thread& t, const Instruction& i) {
  u8 bytes[MOST_BYTES];
  for (int k = 0; k < i.count; ++k) {
    const T value = get<T>(t, i.a[1 + k]);
    memcpy(bytes + k * sizeof(T), &value, sizeof(T));
  }
  const int size = int(sizeof(T)) * i.count;
  return m.everywhere(t, i, size, [&](Region* region, u64 at) {
    m.memory.store_weak(t.who, region, at, size, int(&i - m.code), bytes, t.stores);
  });
}
template <class T, class F>
bool add_to_all(Machine& m, Thread& t, const Instruction& i) {
  const T b = get<T>(t, i.a[1]);
  if (i.order == RELEASE) m.release(t, i);
  return m.everywhere(t, i, sizeof(T), [&](Region* region, u64 at) {
    T value;
    u8* const bytes = reinterpret_cast<u8*>(&value);
    m.memory.load_strong(t.who, region, at, sizeof(T), bytes);
    value = F::of(value, b);
    m.memory.store_strong(t.who, region, at, sizeof(T), int(&i - m.code), bytes);
  });
}

// ---- their names ----

class Handlers {
 public:
  std::map<std::string, Handler> known;

  Handlers() {
    integers<u8, s8>("8");
    integers<u16, s16>("16");
    integers<u32, s32>("32");
    integers<u64, s64>("64");
    floats<float>("f32");
    floats<double>("f64");
    predicates();
    conversions();
    halves();
    multicasts<u32>("u32");
    multicasts<s32>("s32");
    multicasts<u64>("u64");
    multicasts<s64>("s64");
    bits_of_all<u32>("b32");
    bits_of_all<u64>("b64");
    add("multimem.ld_reduce.add.f32", reduce_all<float, Add>);
    add("multimem.ld_reduce.add.f64", reduce_all<double, Add>);
    add("multimem.ld_reduce.add.f16x2", add_all_halves<of_half, to_half>);
    add("multimem.ld_reduce.add.bf16x2", add_all_halves<of_bfloat, to_bfloat>);
    add("multimem.st.f32", store_all<float>);
    rest();
  }

 private:
  void add(const std::string& name, Handler handler) { known[name] = handler; }

  template <class T>
  void ordered(const std::string& type) {
    add("min." + type, binary<T, Min>);
    add("max." + type, binary<T, Max>);
    add("add." + type, binary<T, Add>);
    add("sub." + type, binary<T, Sub>);
    comparison<T, Eq>("setp.eq", type);
    comparison<T, Ne>("setp.ne", type);
    comparison<T, Lt>("setp.lt", type);
    comparison<T, Le>("setp.le", type);
    comparison<T, Gt>("setp.gt", type);
    comparison<T, Ge>("setp.ge", type);
    add("neg." + type, unary<T, 0>);
    add("abs." + type, unary<T, 1>);
    accesses<T>(type);
  }
  template <class T, class F>
  void comparison(const std::string& name, const std::string& type) {
    add(name + "." + type, compare<T, F>);
    add(name + ".and." + type, compare_and<T, F, And>);
    add(name + ".or." + type, compare_and<T, F, Or>);
    add(name + ".xor." + type, compare_and<T, F, Xor>);
  }
  template <class T>
  void accesses(const std::string& type) {
    add("ld." + type, load<T>);
    add("st." + type, store<T>);
    add("selp." + type, select);
    add("mov." + type, move);
  }
  template <class T>
  void whole(const std::string& type) {
    ordered<T>(type);
    add("mul.lo." + type, binary<T, Mul>);
    add("mul.hi." + type, binary<T, MulHigh>);
    add("mad.lo." + type, mad<T>);
    add("div." + type, binary<T, Div>);
    add("rem." + type, binary<T, Rem>);
    add("shr." + type, shift<T, false>);
    add("bfe." + type, extract<T>);
    if constexpr (sizeof(T) < 8 && sizeof(T) > 1) {
      add("mul.wide." + type, mul_wide<T>);
      add("mad.wide." + type, mad_wide<T>);
    }
    for (const char* operation : {"add", "min", "max", "exch"}) {
      const std::string name = std::string("atom.") + operation + "." + type;
      const char first = operation[0] == 'm' ? operation[1] : operation[0];
      add(name, first == 'a' && operation[0] == 'a' ? atomic<T, Add>
                : first == 'i'                      ? atomic<T, Min>
                : operation[0] == 'm'               ? atomic<T, Max>
                                                    : atomic<T, Exchange>);
    }
  }
  template <class U, class S>
  void integers(const std::string& bits) {
    whole<U>("u" + bits);
    whole<S>("s" + bits);
    accesses<U>("b" + bits);
    const std::string b = ".b" + bits;
    add("and" + b, binary<U, And>);
    add("or" + b, binary<U, Or>);
    add("xor" + b, binary<U, Xor>);
    add("not" + b, unary<U, 2>);
    add("shl" + b, shift<U, true>);
    add("shr" + b, shift<U, false>);
    add("popc" + b, count_bits<U, 0>);
    add("clz" + b, count_bits<U, 1>);
    add("bfi" + b, insert<U>);
    add("brev" + b, count_bits<U, 2>);
    comparison<U, Eq>("setp.eq", "b" + bits);
    comparison<U, Ne>("setp.ne", "b" + bits);
    add("atom.exch" + b, atomic<U, Exchange>);
    add("atom.cas" + b, compare_and_swap<U>);
    add("atom.and" + b, atomic<U, And>);
    add("atom.or" + b, atomic<U, Or>);
    add("atom.xor" + b, atomic<U, Xor>);
    add("atom.inc.u" + bits, atomic<U, Increment>);
    add("atom.dec.u" + bits, atomic<U, Decrement>);
    add("mov.pack" + b, pack<U>);
    add("mov.unpack" + b, unpack<U>);
  }
  template <class T>
  void floats(const std::string& type) {
    ordered<T>(type);
    add("mul." + type, binary<T, Mul>);
    add("div." + type, binary<T, Div>);
    add("fma." + type, fused<T>);
    add("min.NaN." + type, binary<T, WithNan<Min>>);
    add("max.NaN." + type, binary<T, WithNan<Max>>);
    comparison<T, Num>("setp.num", type);
    comparison<T, Unless<Eq>>("setp.equ", type);
    comparison<T, Unless<Ne>>("setp.neu", type);
    comparison<T, Unless<Lt>>("setp.ltu", type);
    comparison<T, Unless<Le>>("setp.leu", type);
    comparison<T, Unless<Gt>>("setp.gtu", type);
    comparison<T, Unless<Ge>>("setp.geu", type);
    comparison<T, Unless<Eq>>("setp.equ", type);
    add("setp.nan." + type, [](Machine&, Thread& t, const Instruction& i) {
      const T a = get<T>(t, i.a[1]), b = get<T>(t, i.a[2]);
      set<u8>(t, i.a[0], a != a || b != b);
      return true;
    });
  }
  void predicates() {
    add("and.pred", binary<u8, And>);
    add("or.pred", binary<u8, Or>);
    add("xor.pred", binary<u8, Xor>);
    add("not.pred", not_predicate);
  }
  template <class From>
  void conversions_of(const std::string& from) {
    to<From, u8>("u8", from);
    to<From, s8>("s8", from);
    to<From, u16>("u16", from);
    to<From, s16>("s16", from);
    to<From, u32>("u32", from);
    to<From, s32>("s32", from);
    to<From, u64>("u64", from);
    to<From, s64>("s64", from);
    to<From, float>("f32", from);
    to<From, double>("f64", from);
  }
  template <class From, class To>
  void to(const std::string& to, const std::string& from) {
    const std::string name = "." + to + "." + from;
    if constexpr (std::is_floating_point_v<From>) {
      add("cvt.rni" + name, convert<To, From, 0>);
      add("cvt.rzi" + name, convert<To, From, 1>);
      add("cvt.rmi" + name, convert<To, From, 2>);
      add("cvt.rpi" + name, convert<To, From, 3>);
      add("cvt.rn" + name, convert<To, From, -1>);
    } else if constexpr (std::is_floating_point_v<To>) {
      add("cvt.rn" + name, convert<To, From, -1>);
    } else {
      add("cvt.sat" + name, saturate<To, From>);
    }
    add("cvt" + name, convert<To, From, std::is_floating_point_v<From> ? -1 : 0>);
  }
  void conversions() {
    conversions_of<u8>("u8");
    conversions_of<s8>("s8");
    conversions_of<u16>("u16");
    conversions_of<s16>("s16");
    conversions_of<u32>("u32");
    conversions_of<s32>("s32");
    conversions_of<u64>("u64");
    conversions_of<s64>("s64");
    conversions_of<float>("f32");
    conversions_of<double>("f64");
  }
  template <float (*up)(u16), u16 (*down)(float)>
  void halves_of(const std::string& type) {
    add("cvt.f32." + type, lengthen<up>);
    add("cvt.rn." + type + ".f32", shorten<down>);
    add("cvt.rn." + type + "x2.f32", shorten_two<u16, down>);
    add("add." + type + "x2", paired<up, down, Add>);
    add("sub." + type + "x2", paired<up, down, Sub>);
    add("mul." + type + "x2", paired<up, down, Mul>);
    add("min." + type + "x2", paired<up, down, Min>);
    add("max." + type + "x2", paired<up, down, Max>);
    add("min.NaN." + type + "x2", paired<up, down, WithNan<Min>>);
    add("max.NaN." + type + "x2", paired<up, down, WithNan<Max>>);
    add("add." + type, halved<up, down, Add>);
    add("sub." + type, halved<up, down, Sub>);
    add("mul." + type, halved<up, down, Mul>);
    add("min." + type, halved<up, down, Min>);
    add("max." + type, halved<up, down, Max>);
    accesses<u16>(type);
  }
  void halves() {
    halves_of<of_half, to_half>("f16");
    halves_of<of_bfloat, to_bfloat>("bf16");
    add("cvt.rn.satfinite.e4m3x2.f32", shorten_two<u8, to_e4m3>);
    add("cvt.rn.satfinite.e5m2x2.f32", shorten_two<u8, to_e5m2>);
    add("cvt.rn.f16x2.e4m3x2", lengthen_two<4, 3>);
    add("cvt.rn.f16x2.e5m2x2", lengthen_two<5, 2>);
  }
  template <class T>
  void multicasts(const std::string& type) {
    add("multimem.ld_reduce.add." + type, reduce_all<T, Add>);
    add("multimem.ld_reduce.min." + type, reduce_all<T, Min>);
    add("multimem.ld_reduce.max." + type, reduce_all<T, Max>);
    add("multimem.red.add." + type, add_to_all<T, Add>);
    add("multimem.st." + type, store_all<T>);
  }
  template <class T>
  void bits_of_all(const std::string& type) {
    add("multimem.ld_reduce.and." + type, reduce_all<T, And>);
    add("multimem.ld_reduce.or." + type, reduce_all<T, Or>);
    add("multimem.ld_reduce.xor." + type, reduce_all<T, Xor>);
    add("multimem.st." + type, store_all<T>);
  }
  void rest() {
    add("nothing", nothing);
    add("mov", move);
    add("mov.frame", move_frame);
    add("mov.special", move_special);
    add("lop3.b32", lop3);
    add("prmt.b32", prmt);
    add("shf.l.wrap.b32", funnel<true, true>);
    add("shf.r.wrap.b32", funnel<false, true>);
    add("shf.l.clamp.b32", funnel<true, false>);
    add("shf.r.clamp.b32", funnel<false, false>);
    for (const char* space : {"global", "local", "const", "param"}) {
      add(std::string("cvta.") + space + ".u64", move);
      add(std::string("cvta.to.") + space + ".u64", move);
    }
    add("cvta.shared.u64", from_shared);
    add("cvta.to.shared.u64", to_shared);
    add("bra", jump);
    add("call", call);
    add("ret", leave);
    add("exit", leave_kernel);
    add("trap", trap);
    add("brkpt", trap);
    add("nanosleep.u32", sleep);
    add("fence", fence);
    add("bar.sync", barrier<NO_REDUCTION>);
    add("bar.red.or.pred", barrier<ANY>);
    add("bar.red.and.pred", barrier<EVERY>);
    add("bar.red.popc.u32", barrier<COUNT>);
  }
};
