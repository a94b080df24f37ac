// port_cuda.h: NVIDIA, for nvcc and NVRTC. Includes no header of the toolkit.
#pragma once

#define HCCC_FN static __device__ __forceinline__
#define HCCC_METHOD __device__ __forceinline__
#define HCCC_NOINLINE static __device__ __noinline__
#define HCCC_PRAGMA(text) _Pragma(#text)
#define HCCC_UNROLL(n) HCCC_PRAGMA(unroll n)
#define HCCC_SHARED __shared__
#define HCCC_SHARES_PARAMS !HCCC_INLINE

#if HCCC_MULTICAST && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HCCC_SWITCHED 1
#else
#define HCCC_SWITCHED 0
#endif

#if HCCC_SYSTEM_SCOPE
#define HCCC_SCOPE "sys"
#else
#define HCCC_SCOPE "gpu"
#endif

// Says that an address is one of global memory: what tables or callers give might be of any.
#ifdef __CUDACC_RTC__  // not tried with it
#define HCCC_IS_GLOBAL(at)
#else
#define HCCC_IS_GLOBAL(at) __builtin_assume(__isGlobal(at))
#endif

HCCC_FN int hccc_thread() { return threadIdx.x; }
HCCC_FN void hccc_barrier() { __syncthreads(); }
HCCC_FN bool hccc_barrier_any(bool c) { return __syncthreads_or(c); }
HCCC_FN void hccc_pause() { __nanosleep(32); }

HCCC_FN unsigned long long hccc_clock() {  // nanoseconds
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

HCCC_FN unsigned hccc_ld_relaxed(const unsigned* flag) {
  unsigned have;
  asm volatile("ld.relaxed." HCCC_SCOPE ".global.u32 %0, [%1];" : "=r"(have) : "l"(flag) : "memory");
  return have;
}

// An acquire itself, so that the last poll needs no second load. It empties the unit's L1, which
// holds nothing that is read twice.
HCCC_FN unsigned hccc_poll(const unsigned* flag) {
  unsigned have;
  asm volatile("ld.acquire." HCCC_SCOPE ".global.u32 %0, [%1];" : "=r"(have) : "l"(flag) : "memory");
  return have;
}

HCCC_FN void hccc_acquire_polled() {}

HCCC_FN void hccc_st_relaxed(unsigned* flag, unsigned value) {
  asm volatile("st.relaxed." HCCC_SCOPE ".global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

HCCC_FN void hccc_st_release(unsigned* flag, unsigned value) {
  asm volatile("st.release." HCCC_SCOPE ".global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

HCCC_FN unsigned hccc_count(unsigned* counter) { return atomicAdd(counter, 1u); }

HCCC_FN bool hccc_claim(unsigned* word, unsigned from) {
  return atomicCAS_system(word, from, 1u) == from;
}

HCCC_FN unsigned hccc_bits_of(float x) { return __float_as_uint(x); }
HCCC_FN float hccc_float_of(unsigned bits) { return __uint_as_float(bits); }

// Rounds a product of its own: no sum is fused with it.
HCCC_FN float hccc_product(float a, float b) { return __fmul_rn(a, b); }
HCCC_FN double hccc_product(double a, double b) { return __dmul_rn(a, b); }

HCCC_FN float hccc_half_up(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

// The instruction makes 0x7fff of a NaN.
HCCC_FN unsigned short hccc_half_down(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// Convert two floats, the first to the lower half. A NaN becomes 0x7fff.
#define HCCC_PAIRS (__CUDA_ARCH__ >= 800)
HCCC_FN unsigned hccc_halves_down(float low, float high) {
  unsigned bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

HCCC_FN unsigned hccc_brains_down(float low, float high) {
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

// 16 bytes in registers.
struct alignas(16) hccc_words {
  unsigned word[4];
};

// Loads 16 bytes. Volatile keeps the loads between their barriers. Data is used once per block, so
// it need not evict anything from L1. Never ld.nc: peers write this memory meanwhile.
HCCC_FN hccc_words hccc_ld16(const void* at) {
  hccc_words w;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3])
               : "l"(at)
               : "memory");
  return w;
}

// Loads 16 bytes that a neighbour loads too: L1 has them then.
HCCC_FN hccc_words hccc_ld16_shared(const void* at) {
  hccc_words w;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3])
               : "l"(at)
               : "memory");
  return w;
}

HCCC_FN void hccc_all_loaded() {}

HCCC_FN void hccc_st16(void* at, hccc_words w) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w.word[0]),
               "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
               : "memory");
}

// Two halves of 8 bytes, each with a flag in the upper half of its upper word.
struct hccc_packet {
  unsigned low[2], high[2];
};

// Load and store a packet by one instruction, of which each half is one access.
HCCC_FN hccc_packet hccc_ld_packet(const void* at) {
  unsigned long long half[2];
  asm volatile("ld.relaxed." HCCC_SCOPE ".global.v2.u64 {%0, %1}, [%2];"
               : "=l"(half[0]), "=l"(half[1])
               : "l"(at)
               : "memory");
  return {{static_cast<unsigned>(half[0]), static_cast<unsigned>(half[1])},
          {static_cast<unsigned>(half[0] >> 32), static_cast<unsigned>(half[1] >> 32)}};
}

HCCC_FN void hccc_st_packet(void* at, hccc_packet p) {
  asm volatile("st.relaxed." HCCC_SCOPE ".global.v2.u64 [%0], {%1, %2};" ::"l"(at),
               "l"(static_cast<unsigned long long>(p.high[0]) << 32 | p.low[0]),
               "l"(static_cast<unsigned long long>(p.high[1]) << 32 | p.low[1])
               : "memory");
}

// Orders what this thread did before with what it does next, for who hears of either.
HCCC_FN void hccc_fence() { asm volatile("fence.acq_rel." HCCC_SCOPE ";" ::: "memory"); }

#ifndef HCCC_KERNEL_NAME
#define HCCC_KERNEL_NAME hccc_kernel
#endif

#define HCCC_KERNEL                                                                       \
  extern "C" __global__ void __launch_bounds__(HCCC_THREADS, hccc_blocks_per_unit)        \
      HCCC_KERNEL_NAME(const __grid_constant__ hccc_params p) {                           \
    hccc_run_block(p, blockIdx.y, blockIdx.x);                                            \
  }
