// switched.h: reduceCopy of one place of all ranks by the NVLink switch (NVLS, sm_90 and later): a load from a
// multicast address gives what all ranks hold, reduced; a store there reaches all. In flight are as many as
// other loads (gpu_body.h).
//
// Where a buffer has no such address, or none that is a whole number of 16 bytes, for elements past the last
// 16 bytes, and for what a switch does not add with the bits that are asked for, it is loads and stores.
#pragma once

#include "primitive.h"

constexpr bool hccc_any_bits = HCCC_MULTICAST > 1;  // floats may be added in any order

#define HCCC_LD_ALL "multimem.ld_reduce.relaxed.sys.global."

// Defines a reduction of 16 bytes: of 4 words at once, of a word after the other, or of half of them.
#define HCCC_SWITCH_OF(known_if, ...)                 \
  {                                                   \
    static constexpr bool known = known_if;           \
    HCCC_FN hccc_words load(const hccc_words* from) { \
      const char* at = reinterpret_cast<const char*>(from);  \
      __VA_ARGS__                                     \
    }                                                 \
  }
#define HCCC_SWITCH_4(what)                                                   \
  HCCC_SWITCH_OF(hccc_any_bits, hccc_words w;                                 \
                 asm volatile(HCCC_LD_ALL what " {%0, %1, %2, %3}, [%4];"     \
                              : "=r"(w.word[0]), "=r"(w.word[1]),             \
                                "=r"(w.word[2]), "=r"(w.word[3])              \
                              : "l"(at)                                       \
                              : "memory");                                    \
                 return w;)
#define HCCC_SWITCH_1(what)                                                        \
  HCCC_SWITCH_OF(true, hccc_words w; HCCC_UNROLL(4) for (int i = 0; i < 4; ++i)    \
                     asm volatile(HCCC_LD_ALL what " %0, [%1];"                    \
                                  : "=r"(w.word[i])                                \
                                  : "l"(at + 4 * i)                                \
                                  : "memory");                                     \
                 return w;)
#define HCCC_SWITCH_2(known_if, what)                                              \
  HCCC_SWITCH_OF(known_if, hccc_pair_of_words w; HCCC_UNROLL(2) for (int i = 0; i < 2; ++i) \
                     asm volatile(HCCC_LD_ALL what " %0, [%1];"                    \
                                  : "=l"(w.half[i])                                \
                                  : "l"(at + 8 * i)                                \
                                  : "memory");                                     \
                 return __builtin_bit_cast(hccc_words, w);)

struct hccc_pair_of_words {
  unsigned long long half[2];
};

// A reduction by the switch; not known: it has none that gives what hccc_op gives.
template <class Op>
struct hccc_switch {
  static constexpr bool known = false;
};

typedef hccc_dtype_int32 hccc_s32;
typedef hccc_dtype_uint32 hccc_u32;
typedef hccc_dtype_int64 hccc_s64;
typedef hccc_dtype_uint64 hccc_u64;

template <class D>
struct hccc_switch_sum {
  static constexpr bool known = false;
};
template <> struct hccc_switch_sum<hccc_dtype_float32> HCCC_SWITCH_4("add.v4.f32");
template <> struct hccc_switch_sum<hccc_half> HCCC_SWITCH_4("add.acc::f32.v4.f16x2");
template <> struct hccc_switch_sum<hccc_brain> HCCC_SWITCH_4("add.acc::f32.v4.bf16x2");
template <> struct hccc_switch_sum<hccc_dtype_float64> HCCC_SWITCH_2(hccc_any_bits, "add.f64");
template <> struct hccc_switch_sum<hccc_s32> HCCC_SWITCH_1("add.s32");
template <> struct hccc_switch_sum<hccc_u32> HCCC_SWITCH_1("add.u32");
template <> struct hccc_switch_sum<hccc_s64> HCCC_SWITCH_2(true, "add.u64");
template <> struct hccc_switch_sum<hccc_u64> HCCC_SWITCH_2(true, "add.u64");

template <class D>
struct hccc_switch<hccc_op_sum<D>> : hccc_switch_sum<D> {};
template <class D>
struct hccc_switch<hccc_op_avg<D>> : hccc_switch_sum<D> {};  // divided when it has come
template <> struct hccc_switch<hccc_op_min<hccc_s32>> HCCC_SWITCH_1("min.s32");
template <> struct hccc_switch<hccc_op_min<hccc_u32>> HCCC_SWITCH_1("min.u32");
template <> struct hccc_switch<hccc_op_min<hccc_s64>> HCCC_SWITCH_2(true, "min.s64");
template <> struct hccc_switch<hccc_op_min<hccc_u64>> HCCC_SWITCH_2(true, "min.u64");
template <> struct hccc_switch<hccc_op_max<hccc_s32>> HCCC_SWITCH_1("max.s32");
template <> struct hccc_switch<hccc_op_max<hccc_u32>> HCCC_SWITCH_1("max.u32");
template <> struct hccc_switch<hccc_op_max<hccc_s64>> HCCC_SWITCH_2(true, "max.s64");
template <> struct hccc_switch<hccc_op_max<hccc_u64>> HCCC_SWITCH_2(true, "max.u64");
#define HCCC_SWITCH_BITS(op, name)                                                        \
  template <> struct hccc_switch<hccc_op_##op<hccc_s32>> HCCC_SWITCH_1(name ".b32");       \
  template <> struct hccc_switch<hccc_op_##op<hccc_u32>> HCCC_SWITCH_1(name ".b32");       \
  template <> struct hccc_switch<hccc_op_##op<hccc_s64>> HCCC_SWITCH_2(true, name ".b64"); \
  template <> struct hccc_switch<hccc_op_##op<hccc_u64>> HCCC_SWITCH_2(true, name ".b64")
HCCC_SWITCH_BITS(band, "and");
HCCC_SWITCH_BITS(bor, "or");
HCCC_SWITCH_BITS(bxor, "xor");

HCCC_FN void hccc_st_all(hccc_words* at, hccc_words w) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at),
               "r"(w.word[0]), "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
               : "memory");
}

// Orders accesses by multicast addresses with those by others of the same memory: each thread does when
// a launch begins and when it ends, since a chunk of such a plan has one primitive.
HCCC_FN void hccc_meet_alias() { asm volatile("fence.proxy.alias;" ::: "memory"); }

// Pointers of a primitive whose sources, or destinations, are one multicast address.
template <class Own, class Op, bool from_all, bool to_all>
struct hccc_switched_pointers {
  static constexpr int K = from_all ? 1 : Own::K, D = to_all ? 1 : Own::D;
  static constexpr bool few = Own::few;
  static constexpr bool all = K == 1 || Own::all;
  static constexpr int group = K == 1 ? 1 : Own::group;
  static constexpr int unroll = K == 1 ? hccc_loads : Own::unroll;
  const Own& own;
  hccc_T *from, *to;
  HCCC_METHOD hccc_T* get(int i) const {
    if (i < K) return from_all ? from : own.get(i);
    return to_all ? to : own.get(Own::K + i - K);
  }
  HCCC_METHOD hccc_value scale_of(int i) const { return own.scale_of(i); }
  HCCC_FN hccc_words load(const hccc_words* at) {
    if constexpr (from_all) return hccc_switch<Op>::load(at);
    else return hccc_ld16(at);
  }
  HCCC_FN void store(hccc_words* at, hccc_words w) {
    if constexpr (to_all) hccc_st_all(at, w);
    else hccc_st16(at, w);
  }
};

// Returns the multicast address of micro-batch m of an operand in a user buffer; null: there is none.
HCCC_FN hccc_T* hccc_place_of_all(const hccc_block& b, const hccc_operand& o, unsigned m) {
  void* const base = o.buffer == HCCC_OUTPUT ? b.all_outputs : b.all_inputs;
  if (!base) return nullptr;
  return static_cast<hccc_T*>(base) + hccc_user_offset(b, o) + static_cast<long long>(m) * b.p->micro;
}

// Reduces n elements of all sources into all destinations, by the switch what it can do.
template <int mode, class Primitive, class Pointers>
HCCC_FN void hccc_move_switched(const hccc_block& b, const Primitive& p, const Pointers& pointers,
                                unsigned m, unsigned n) {
  constexpr int others = mode & ~(HCCC_FAR | HCCC_FROM_ALL | HCCC_TO_ALL);
  constexpr bool from_all = (mode & HCCC_FROM_ALL) && hccc_switch<hccc_op>::known;
  constexpr bool to_all = (mode & HCCC_TO_ALL) != 0;
  if constexpr (from_all || to_all) {
    hccc_T* const from = from_all ? hccc_place_of_all(b, p.from.item[0], m) : nullptr;
    hccc_T* const to = to_all ? hccc_place_of_all(b, p.to.item[0], m) : nullptr;
    const hccc_switched_pointers<Pointers, hccc_op, from_all, to_all> switched{pointers, from, to};
    const bool found = (from || !from_all) && (to || !to_all) && hccc_past_16(switched.get(switched.K)) == 0 &&
                       hccc_difference(switched) == 0;
    const unsigned packs = found ? n / hccc_pack : 0;
    if (packs) {
      hccc_move_all_packs<(from_all ? others & ~HCCC_REDUCE : others)>(switched, packs);
      return hccc_move_elements<others>(pointers, 0, packs * hccc_pack, n);
    }
  }
  hccc_reduce_copy<others>(pointers, n);
}
