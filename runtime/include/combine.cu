// combine.cu: what a job does with arrays of a GPU at a border: it reduces two of them, and divides an average.
// Of the type and the reduction that types.h chooses; `hccc standard --collective combine` compiles it for CUDA or HIP.
#define HCCC_RANKS 1
#define HCCC_BLOCKS 1
#define HCCC_CHANNELS 1
#define HCCC_THREADS 256

#include "hccc/types.h"

#if defined(__HIP__)
#define HCCC_GLOBAL static __attribute__((global))
#define HCCC_OWN_BLOCK __builtin_amdgcn_workgroup_id_x()
#ifdef HCCC_HIP_API
#define HCCC_GPU(name) hip##name
#endif
#elif defined(__CUDACC__)
#define HCCC_GLOBAL static __global__
#define HCCC_OWN_BLOCK blockIdx.x
#define HCCC_GPU(name) cuda##name
#endif

typedef hccc_element::stored hccc_stored;
typedef HCCC_JOIN(hccc_op_, HCCC_OP)<hccc_element> hccc_combining;

template <class D>
HCCC_FN typename D::stored hccc_divided(typename D::stored x, int by) {
  if constexpr (D::kind == 'b') return x;  // has no average
  else return D::down(D::divide(D::up(x), by));
}

HCCC_FN size_t hccc_first() { return static_cast<size_t>(HCCC_OWN_BLOCK) * hccc_threads + static_cast<size_t>(hccc_thread()); }

// step: the threads of all blocks.
HCCC_GLOBAL void hccc_combine_kernel(hccc_stored* to, const hccc_stored* a, const hccc_stored* b, size_t n, size_t step) {
  for (size_t i = hccc_first(); i < n; i += step)
    to[i] = hccc_element::down(hccc_combining::apply(hccc_element::up(a[i]), hccc_element::up(b[i])));
}

HCCC_GLOBAL void hccc_divide_kernel(hccc_stored* at, int by, size_t n, size_t step) {
  for (size_t i = hccc_first(); i < n; i += step) at[i] = hccc_divided<hccc_element>(at[i], by);
}

#ifdef HCCC_GPU

#ifndef HCCC_LAUNCH_KERNEL
#define HCCC_LAUNCH_KERNEL(kernel, ...) HCCC_GPU(LaunchKernel)(reinterpret_cast<const void*>(kernel), __VA_ARGS__)
#endif

// Returns the blocks of a kernel over n elements.
static unsigned hccc_blocks(size_t n) {
  const size_t blocks = (n + hccc_threads - 1) / hccc_threads;
  return static_cast<unsigned>(blocks < 1024 ? blocks : 1024);
}

template <class Kernel>
static int hccc_launch(Kernel kernel, unsigned blocks, void** arguments, void* stream) {
  const auto in = static_cast<HCCC_GPU(Stream_t)>(stream);
  return HCCC_LAUNCH_KERNEL(kernel, dim3(blocks), dim3(HCCC_THREADS), arguments, 0, in) != HCCC_GPU(Success);
}

// Loads the kernels onto the thread's device. Returns 0, or not where it cannot have them.
extern "C" __attribute__((visibility("default"))) int hccc_combine_loads(void) {
  HCCC_GPU(FuncAttributes) found;
  const void* const kernels[] = {reinterpret_cast<const void*>(hccc_combine_kernel),
                                 reinterpret_cast<const void*>(hccc_divide_kernel)};
  for (const void* one : kernels)
    if (HCCC_GPU(FuncGetAttributes)(&found, one) != HCCC_GPU(Success)) return 1;
  return 0;
}

// Puts to = a op b into a stream, element by element; `to` may be a or b. Returns 0, or not where the device refuses.
extern "C" __attribute__((visibility("default"))) int hccc_combine(void* to, const void* a, const void* b, size_t n,
                                                                   void* stream) {
  size_t step = static_cast<size_t>(hccc_blocks(n)) * hccc_threads;
  void* arguments[] = {&to, &a, &b, &n, &step};
  return n ? hccc_launch(hccc_combine_kernel, hccc_blocks(n), arguments, stream) : 0;
}

// Puts the division of each element into a stream, as an average has it.
extern "C" __attribute__((visibility("default"))) int hccc_divide(void* at, size_t n, int by, void* stream) {
  size_t step = static_cast<size_t>(hccc_blocks(n)) * hccc_threads;
  void* arguments[] = {&at, &by, &n, &step};
  return n ? hccc_launch(hccc_divide_kernel, hccc_blocks(n), arguments, stream) : 0;
}

#endif
