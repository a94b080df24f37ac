// constants.cu: takes the times, one by one, of which the estimates of calls are made
// (constants.py). The instructions are those of hccc's kernels: port_cuda.h, for several devices.
#define HCCC_SYSTEM_SCOPE 1
#include "hccc/port_cuda.h"

#define REACH 1024     // words in a cycle, each of which has the index of another
#define FLAGS (REACH)  // then two flags, a line each, that begin at zero
#define FAR 64

// Stores `bytes` by the whole block, 16 at a time.
HCCC_FN void store(unsigned char* to, int bytes) {
  hccc_words four = {{1u, 2u, 3u, 4u}};
  for (int at = 16 * threadIdx.x; at < bytes; at += 16 * blockDim.x) hccc_st16(to + at, four);
}

HCCC_FN long long fence_after(unsigned char* to, int bytes, int n) {
  long long spent = 0;
  for (int i = 0; i < n; ++i) {
    hccc_barrier();
    store(to, bytes);
    hccc_barrier();
    if (threadIdx.x == 0) {
      long long begin = clock64();
      __threadfence_system();
      spent += clock64() - begin;
    }
  }
  return spent;
}

// Two blocks raise a flag for each other in turns.
HCCC_FN void turns(unsigned* flags, int n) {
  unsigned* mine = flags + FAR * blockIdx.x;
  unsigned* other = flags + FAR * (1 - blockIdx.x);
  for (unsigned i = 1; i <= n; ++i) {
    if (blockIdx.x == 0) hccc_st_release(other, i);
    while (hccc_poll(mine) < i) {
    }
    if (blockIdx.x == 1) hccc_st_release(other, i);
  }
}

HCCC_FN unsigned chase(const unsigned* words, int n) {
  unsigned at = 0;
  for (int i = 0; i < n; ++i) at = hccc_ld_relaxed(words + at);
  return at;
}

HCCC_FN unsigned chase_acquiring(const unsigned* words, int n) {
  unsigned at = 0;
  for (int i = 0; i < n; ++i) at = hccc_poll(words + at);
  return at;
}

// out: ns and cycles of all, cycles of the part that is timed by itself, the last index.
extern "C" __global__ void __launch_bounds__(512)
    constants(unsigned* words, const unsigned* host, unsigned char* room, unsigned long long* out,
              int what, int n) {
  const bool first = threadIdx.x == 0;
  unsigned at = 0;
  long long spent = 0, cycles = clock64();
  unsigned long long begin = hccc_clock();
  switch (what) {
    case LOAD:
      if (first) at = chase(words, n);
      break;
    case ACQUIRE:
      if (first) at = chase_acquiring(words, n);
      break;
    case HOST_LOAD:
      if (first) at = chase(host, n);
      break;
    case FENCE_GPU:
      if (first)
        for (int i = 0; i < n; ++i) __threadfence();
      break;
    case FENCE_SYSTEM:
      if (first)
        for (int i = 0; i < n; ++i) __threadfence_system();
      break;
    case FENCE_4K:
      spent = fence_after(room, 4 << 10, n);
      break;
    case FENCE_64K:
      spent = fence_after(room, 64 << 10, n);
      break;
    case BARRIER:
      for (int i = 0; i < n; ++i) hccc_barrier();
      break;
    case HOP:
      if (first) turns(words + FLAGS, n);
      break;
  }
  if (first && blockIdx.x == 0) {
    out[0] = hccc_clock() - begin;
    out[1] = clock64() - cycles;
    out[2] = spent;
    out[3] = at;
  }
}

extern "C" __global__ void nothing(int) {}
