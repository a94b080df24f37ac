// port_cpu.h: the host. A block has one thread; its waits yield the core to other blocks.
#pragma once

#include "scheduler.h"

// Generated functions need not use all of their parameters: a rank may have one neighbour only.
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define HCCC_FN static inline __attribute__((unused))
// Else unoptimized kernels of one library would share the first one's: they differ by their macros.
#define HCCC_METHOD inline __attribute__((always_inline))
#define HCCC_NOINLINE static __attribute__((noinline, unused))
#define HCCC_IS_GLOBAL(at)
#define HCCC_UNROLL(n)
#define HCCC_SHARES_PARAMS 0
#define HCCC_SWITCHED 0
#define HCCC_BODY "cpu_body.h"
#define HCCC_PACKETS_BODY "packets.h"
#define HCCC_KERNEL  // cpu_runtime.h calls hccc_run_block

constexpr unsigned hccc_epoch_bits = 32;  // of a launch's number, in packets
constexpr bool hccc_port_parallel = false;
constexpr int hccc_threads = 1;

HCCC_FN int hccc_thread() { return 0; }
HCCC_FN void hccc_barrier() {}
HCCC_FN bool hccc_barrier_any(bool c) { return c; }

HCCC_FN unsigned hccc_ld_relaxed(const unsigned* flag) {
  return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

HCCC_FN unsigned hccc_poll(const unsigned* flag) {
  return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

HCCC_FN void hccc_acquire_polled() {}

HCCC_FN void hccc_st_relaxed(unsigned* flag, unsigned value) {
  __atomic_store_n(flag, value, __ATOMIC_RELAXED);
}

HCCC_FN void hccc_st_release(unsigned* flag, unsigned value) {
  __atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

HCCC_FN unsigned hccc_count(unsigned* counter) {
  return __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED);
}

HCCC_FN bool hccc_claim(unsigned* word, unsigned expected) {
  return __atomic_compare_exchange_n(word, &expected, 1u, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

HCCC_FN unsigned hccc_bits_of(float x) { return __builtin_bit_cast(unsigned, x); }
HCCC_FN float hccc_float_of(unsigned bits) { return __builtin_bit_cast(float, bits); }

// Rounds a product of its own: no sum is fused with it (for GCC, with -ffp-contract=off).
HCCC_FN float hccc_product(float a, float b) {
#ifdef __clang__
#pragma clang fp contract(off)
#endif
  return a * b;
}

HCCC_FN double hccc_product(double a, double b) {
#ifdef __clang__
#pragma clang fp contract(off)
#endif
  return a * b;
}

// Converts float16 without branches, so that loops vectorise. Shifting the exponent into place and
// multiplying by 2^112 renormalises subnormals; infinities and NaNs keep a full exponent.
HCCC_FN float hccc_half_up(unsigned short bits) {
  const unsigned magnitude = (bits & 0x7fffu) << 13;
  const unsigned scaled = hccc_bits_of(hccc_float_of(magnitude) * 0x1p112f);
  const unsigned special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  return hccc_float_of(scaled | special | (bits & 0x8000u) << 16);
}

// Rounds to nearest even. Small values are rounded by adding a float whose last bit is float16's
// last bit; larger ones by integer addition, which carries into the exponent as it should.
HCCC_FN unsigned short hccc_half_down(float x) {
  const unsigned bits = hccc_bits_of(x);
  const unsigned magnitude = bits & 0x7fffffffu;
  const unsigned small = hccc_bits_of(hccc_float_of(magnitude) + 0.5f) - 0x3f000000u;
  const unsigned normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  unsigned half = magnitude < 0x38800000u ? small : normal;
  half = magnitude >= 0x47800000u ? 0x7c00u : half;
  half |= bits >> 16 & 0x8000u;
  return static_cast<unsigned short>(magnitude > 0x7f800000u ? 0x7fffu : half);
}
