// gpu_port.h: takes the place of hccc/port.h, so that the host runs gpu_body.h, by blocks of one thread, with
// the float16 conversions of a GPU's port: conversions.h, their text. The instructions in it are the
// functions ptx_* below, as PTX defines them. Compile with -DHCCC_THREADS_AS_BLOCKS=1.
#pragma once

#ifndef HCCC_SYSTEM_SCOPE
#define HCCC_SYSTEM_SCOPE 1
#endif

#define hccc_half_up hccc_host_half_up
#define hccc_half_down hccc_host_half_down
#define hccc_epoch_bits hccc_host_epoch_bits
#include "port_cpu.h"
#undef hccc_half_up
#undef hccc_half_down
#undef hccc_epoch_bits
#undef HCCC_BODY
#define HCCC_BODY "gpu_body.h"
#undef HCCC_PACKETS_BODY
#define HCCC_PACKETS_BODY "gpu_packets.h"
#define HCCC_SHARED thread_local
#ifndef HCCC_THREADS
#define HCCC_THREADS 512
#endif
#ifndef HCCC_BLOCKS_PER_UNIT
#define HCCC_BLOCKS_PER_UNIT 1
#endif
constexpr int hccc_blocks_per_unit = HCCC_BLOCKS_PER_UNIT;
constexpr unsigned hccc_epoch_bits = 16;  // as port_gpu.h

struct alignas(16) hccc_words {
  unsigned word[4];
};

HCCC_FN hccc_words hccc_ld16(const void* at) {
  if (reinterpret_cast<unsigned long long>(at) % 16) __builtin_trap();
  return *static_cast<const hccc_words*>(at);
}

HCCC_FN hccc_words hccc_ld16_shared(const void* at) { return hccc_ld16(at); }

HCCC_FN void hccc_st16(void* at, hccc_words w) {
  if (reinterpret_cast<unsigned long long>(at) % 16) __builtin_trap();
  *static_cast<hccc_words*>(at) = w;
}

HCCC_FN void hccc_all_loaded() {}

struct hccc_packet {
  unsigned low[2], high[2];
};

HCCC_FN hccc_packet hccc_ld_packet(const void* at) {
  if (reinterpret_cast<unsigned long long>(at) % 16) __builtin_trap();
  const unsigned long long* half = static_cast<const unsigned long long*>(at);
  const unsigned long long a = __atomic_load_n(half, __ATOMIC_RELAXED);
  const unsigned long long b = __atomic_load_n(half + 1, __ATOMIC_RELAXED);
  return {{static_cast<unsigned>(a), static_cast<unsigned>(b)},
          {static_cast<unsigned>(a >> 32), static_cast<unsigned>(b >> 32)}};
}

HCCC_FN void hccc_st_packet(void* at, hccc_packet p) {
  if (reinterpret_cast<unsigned long long>(at) % 16) __builtin_trap();
  unsigned long long* half = static_cast<unsigned long long*>(at);
  __atomic_store_n(half, static_cast<unsigned long long>(p.high[0]) << 32 | p.low[0], __ATOMIC_RELAXED);
  __atomic_store_n(half + 1, static_cast<unsigned long long>(p.high[1]) << 32 | p.low[1], __ATOMIC_RELAXED);
}

HCCC_FN void hccc_fence() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

HCCC_FN float ptx_cvt_f32_f16(unsigned short bits) {
  return (bits & 0x7fff) > 0x7c00 ? hccc_float_of(0x7fffffffu) : hccc_host_half_up(bits);
}

HCCC_FN unsigned short ptx_cvt_rn_f16_f32(float x) {
  return x == x ? hccc_host_half_down(x) : 0x7fff;
}

// Both instructions take the upper half first.
HCCC_FN unsigned ptx_cvt_rn_f16x2_f32(float high, float low) {
  return static_cast<unsigned>(ptx_cvt_rn_f16_f32(high)) << 16 | ptx_cvt_rn_f16_f32(low);
}

HCCC_FN unsigned ptx_nearest_brain(float x) {
  const unsigned bits = hccc_bits_of(x), low = bits & 0xffffu, even = bits >> 16 & 1u;
  if (x != x) return 0x7fff;
  return (bits >> 16) + (low > 0x8000u || (low == 0x8000u && even) ? 1 : 0);
}

HCCC_FN unsigned ptx_cvt_rn_bf16x2_f32(float high, float low) {
  return ptx_nearest_brain(high) << 16 | ptx_nearest_brain(low);
}

#include "conversions.h"
