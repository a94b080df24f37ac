// port_hip.h: AMD, for clang -x hip. Kernels use compiler builtins only, no device library.
//
// The API's header alone is included, where there is one: clang wants its declarations before a
// kernel. hip_runtime.h would bring a device library that must fit the compiler.
#pragma once

#if !defined(__HIPCC_RTC__)
#if __has_include(<hip/hip_runtime_api.h>)
#include <hip/hip_runtime_api.h>
#define HCCC_HIP_API
#elif !defined(__HIP_DEVICE_COMPILE__)
#error "hip/hip_runtime_api.h is not on the include path; without it compile for the device only"
#endif
#endif

#define HCCC_FN static inline __attribute__((device, always_inline))
#define HCCC_METHOD inline __attribute__((device, always_inline))
#define HCCC_NOINLINE static __attribute__((device, noinline, unused))
#define HCCC_PRAGMA(text) _Pragma(#text)
#define HCCC_SHARES_PARAMS 0
#define HCCC_SWITCHED 0
#define HCCC_UNROLL(n) HCCC_PRAGMA(unroll n)
#define HCCC_SHARED __attribute__((shared))

#if HCCC_SYSTEM_SCOPE
#define HCCC_SCOPE __HIP_MEMORY_SCOPE_SYSTEM
#define HCCC_FENCE_SCOPE ""
#else
#define HCCC_SCOPE __HIP_MEMORY_SCOPE_AGENT
#define HCCC_FENCE_SCOPE "agent"
#endif

// The counters of outstanding loads and stores; on gfx9 they are one.
#if defined(__GFX10__) || defined(__GFX11__)
#define HCCC_WAIT_FOR_MEMORY "s_waitcnt vmcnt(0)\n\ts_waitcnt_vscnt null, 0x0"
#elif defined(__GFX12__)
#define HCCC_WAIT_FOR_MEMORY "s_wait_loadcnt 0x0\n\ts_wait_storecnt 0x0"
#else
#define HCCC_WAIT_FOR_MEMORY "s_waitcnt vmcnt(0)"
#endif

// Says that an address is one of global memory: what tables or callers give might be of any.
#ifdef __HIP_DEVICE_COMPILE__
#define HCCC_IS_GLOBAL(at) \
  __builtin_assume(!__builtin_amdgcn_is_shared(at) && !__builtin_amdgcn_is_private(at))
#else
#define HCCC_IS_GLOBAL(at)
#endif

HCCC_FN int hccc_thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }

// Waits until this wavefront's stores are in memory and its cache operations are done. No fence
// guarantees that: a fence of workgroup scope need not wait for stores, and clang's release stores
// do not wait for the write-back that they begin.
HCCC_FN void hccc_drain() { asm volatile(HCCC_WAIT_FOR_MEMORY ::: "memory"); }

// Lets the block meet; for shared memory only.
HCCC_FN void hccc_barrier_shared() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Lets the block meet; after it one thread may release the stores of all.
HCCC_FN void hccc_barrier() {
  hccc_drain();
  hccc_barrier_shared();
}

// Returns, to all threads of the block, whether c holds for any. The last barrier keeps a fast
// thread's next vote from overtaking a slow reader; after the first only the vote is touched.
HCCC_FN bool hccc_barrier_any(bool c) {
  static HCCC_SHARED unsigned any;
  if (hccc_thread() == 0) any = 0;
  hccc_barrier();
  if (c) any = 1;
  hccc_barrier_shared();
  const bool result = any != 0;
  hccc_barrier_shared();
  return result;
}

HCCC_FN void hccc_pause() { __builtin_amdgcn_s_sleep(1); }

// Reads the constant-rate counter; the host asks the driver for its rate.
HCCC_FN unsigned long long hccc_clock() {
#if __has_builtin(__builtin_readsteadycounter)  // clang 19
  return __builtin_readsteadycounter();
#elif defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_s_sendmsg_rtnl(0x83);  // MSG_RTN_GET_REALTIME
#else
  return __builtin_amdgcn_s_memrealtime();
#endif
}

HCCC_FN unsigned hccc_ld_relaxed(const unsigned* flag) {
  return __hip_atomic_load(flag, __ATOMIC_RELAXED, HCCC_SCOPE);
}

// Relaxed: an acquire would invalidate caches at each poll. The fence after the last makes it one,
// by the rule of the language: a load, then a fence that acquires.
HCCC_FN unsigned hccc_poll(const unsigned* flag) { return hccc_ld_relaxed(flag); }
HCCC_FN void hccc_acquire_polled() {
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, HCCC_FENCE_SCOPE);
}

HCCC_FN void hccc_st_relaxed(unsigned* flag, unsigned value) {
  __hip_atomic_store(flag, value, __ATOMIC_RELAXED, HCCC_SCOPE);
}

HCCC_FN void hccc_st_release(unsigned* flag, unsigned value) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, HCCC_FENCE_SCOPE);
  hccc_drain();
  hccc_st_relaxed(flag, value);
}

HCCC_FN unsigned hccc_count(unsigned* counter) {
  return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, HCCC_SCOPE);
}

HCCC_FN bool hccc_claim(unsigned* word, unsigned expected) {
  return __hip_atomic_compare_exchange_strong(word, &expected, 1u, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

HCCC_FN unsigned hccc_bits_of(float x) { return __builtin_bit_cast(unsigned, x); }
HCCC_FN float hccc_float_of(unsigned bits) { return __builtin_bit_cast(float, bits); }

// Rounds a product of its own: no sum is fused with it.
HCCC_FN float hccc_product(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}

HCCC_FN double hccc_product(double a, double b) {
#pragma clang fp contract(off)
  return a * b;
}

HCCC_FN float hccc_half_up(unsigned short bits) { return __builtin_bit_cast(_Float16, bits); }

// The processor's conversion keeps the sign and the payload of a NaN.
HCCC_FN unsigned short hccc_half_down(float x) {
  const unsigned short bits = __builtin_bit_cast(unsigned short, static_cast<_Float16>(x));
  return x == x ? bits : 0x7fff;
}

typedef unsigned hccc_words_vector __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(1))) hccc_words_vector hccc_global_words;

// 16 bytes in registers.
struct alignas(16) hccc_words {
  unsigned word[4];
};

// Loads 16 bytes: by the address space one global_load_dwordx4 instead of a flat load. Data is used
// once per block, so it should not stay in the caches of this unit.
HCCC_FN hccc_words hccc_ld16(const void* at) {
  const auto v = __builtin_nontemporal_load((const hccc_global_words*)at);
  return __builtin_bit_cast(hccc_words, v);
}

// Loads 16 bytes that a neighbour loads too: the cache has them then.
HCCC_FN hccc_words hccc_ld16_shared(const void* at) {
  return __builtin_bit_cast(hccc_words, *(const hccc_global_words*)at);
}

HCCC_FN void hccc_st16(void* at, hccc_words w) {
  *(hccc_global_words*)at = __builtin_bit_cast(hccc_words_vector, w);
}

// Keeps loads before it from being moved behind the use of others of them.
HCCC_FN void hccc_all_loaded() { __builtin_amdgcn_sched_barrier(0); }

// Two halves of 8 bytes, each with a flag in the upper half of its upper word.
struct hccc_packet {
  unsigned low[2], high[2];
};

typedef __attribute__((address_space(1))) unsigned long long hccc_global_half;

// Load and store a packet as two halves: 16 bytes are not promised to be one access.
HCCC_FN hccc_packet hccc_ld_packet(const void* at) {
  const hccc_global_half* half = (const hccc_global_half*)at;
  const unsigned long long a = __hip_atomic_load(half, __ATOMIC_RELAXED, HCCC_SCOPE);
  const unsigned long long b = __hip_atomic_load(half + 1, __ATOMIC_RELAXED, HCCC_SCOPE);
  return {{static_cast<unsigned>(a), static_cast<unsigned>(b)},
          {static_cast<unsigned>(a >> 32), static_cast<unsigned>(b >> 32)}};
}

HCCC_FN void hccc_st_packet(void* at, hccc_packet p) {
  hccc_global_half* half = (hccc_global_half*)at;
  const unsigned long long a = static_cast<unsigned long long>(p.high[0]) << 32 | p.low[0];
  const unsigned long long b = static_cast<unsigned long long>(p.high[1]) << 32 | p.low[1];
  __hip_atomic_store(half, a, __ATOMIC_RELAXED, HCCC_SCOPE);
  __hip_atomic_store(half + 1, b, __ATOMIC_RELAXED, HCCC_SCOPE);
}

// Orders what this thread did before with what it does next, for who hears of either.
HCCC_FN void hccc_fence() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, HCCC_FENCE_SCOPE);
  hccc_drain();
}

#ifndef HCCC_KERNEL_NAME
#define HCCC_KERNEL_NAME hccc_kernel
#endif

#define HCCC_KERNEL                                                                        \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(HCCC_THREADS, HCCC_THREADS))) \
  void HCCC_KERNEL_NAME(const hccc_params p) {                                             \
    hccc_run_block(p, static_cast<int>(__builtin_amdgcn_workgroup_id_y()),                 \
                   static_cast<int>(__builtin_amdgcn_workgroup_id_x()));                   \
  }
