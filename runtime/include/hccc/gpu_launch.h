// gpu_launch.h: launches the ranks of a call on one GPU. Include it after HCCC_KERNEL.
//
// All blocks wait for each other, so all must be resident: the launch is cooperative, and is
// refused when they do not fit. Device-only compilation leaves the host part out.
#pragma once

#if defined(__HIP__)
#ifdef HCCC_HIP_API
#define HCCC_GPU(name) hip##name
#define HCCC_UNITS hipDeviceAttributeMultiprocessorCount
#define HCCC_COOPERATIVE hipDeviceAttributeCooperativeLaunch
#endif
#elif defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#define HCCC_GPU(name) cuda##name
#define HCCC_UNITS cudaDevAttrMultiProcessorCount
#define HCCC_COOPERATIVE cudaDevAttrCooperativeLaunch
#endif

#ifdef HCCC_GPU

#include "launch.h"
#include "tracing.h"

template <class Attribute>
static inline int hccc_device_attribute(Attribute attribute) {
  int device = 0, value = 0;
  if (HCCC_GPU(GetDevice)(&device) != HCCC_GPU(Success)) return 0;
  if (HCCC_GPU(DeviceGetAttribute)(&value, attribute, device) != HCCC_GPU(Success)) return 0;
  return value;
}

// Returns the ticks per second of hccc_clock: nanoseconds on NVIDIA, a constant-rate counter on
// AMD.
static inline double hccc_ticks_per_second() {
#if defined(__HIP__)
#if HIP_VERSION >= 50500000
  const int rate = hccc_device_attribute(hipDeviceAttributeWallClockRate);
  if (rate > 0) return 1e3 * rate;
#endif
  return 1e8;  // the fastest there is: where it is slower, deadlines are too late, never too early
#else
  return 1e9;
#endif
}

// Counts the blocks of the kernel that the device holds at once; 0: it cannot launch them together.
static inline long long hccc_resident_blocks(const void* kernel) {
  int per_unit = 0;
  if (!hccc_device_attribute(HCCC_COOPERATIVE)) return 0;
  if (HCCC_GPU(OccupancyMaxActiveBlocksPerMultiprocessor)(&per_unit, kernel, HCCC_THREADS, 0) !=
      HCCC_GPU(Success))
    return 0;
  return static_cast<long long>(per_unit) * hccc_device_attribute(HCCC_UNITS);
}

// A kernel of this library, in a list of all of them.
struct hccc_kernel_entry {
  const void* kernel;
  hccc_kernel_entry* next;
};
__attribute__((weak, visibility("hidden"))) hccc_kernel_entry* hccc_kernels;

__attribute__((constructor)) static void hccc_list_kernel() {
  static hccc_kernel_entry entry;  // set here: a guard of its constructor would need libstdc++
  entry = {reinterpret_cast<const void*>(HCCC_KERNEL_NAME), hccc_kernels};
  hccc_kernels = &entry;
}

// library.h has what it does. A query of a kernel loads it.
extern "C" __attribute__((weak, visibility("default"))) int hccc_load_kernels(void) {
  for (const hccc_kernel_entry* one = hccc_kernels; one; one = one->next) {
    HCCC_GPU(FuncAttributes) found;
    if (HCCC_GPU(FuncGetAttributes)(&found, one->kernel) != HCCC_GPU(Success)) return HCCC_DEVICE;
  }
  return HCCC_OK;
}

// Starts ranks [first_rank, first_rank + n_local) on the current device, in `stream`. All that
// `comm` points to, and the call's `local` of several ranks, lies in memory that the device reads.
// Returns an hccc_status; the kernel is done when the stream is, and the fault record then says
// whether it succeeded. After a lost launch it does nothing.
static inline int hccc_gpu_launch(const hccc_comm* comm, const hccc_call* call,
                                  HCCC_GPU(Stream_t) stream) {
  const int bad = hccc_check_call(hccc_this_shape, sizeof(hccc_T), comm, call);
  if (bad) return bad;
  if (!HCCC_SYSTEM_SCOPE && call->n_local != HCCC_RANKS) return HCCC_BAD_ARGUMENT;
  const void* kernel = reinterpret_cast<const void*>(HCCC_KERNEL_NAME);
  const long long blocks = static_cast<long long>(call->n_local) * HCCC_BLOCKS * HCCC_CHANNELS;
  if (blocks > hccc_resident_blocks(kernel)) return HCCC_TOO_LARGE;
  hccc_params p =
      hccc_params_of(hccc_this_shape, sizeof(hccc_T), comm, call, hccc_ticks_per_second());
#ifdef HCCC_TRACE
  const int refused = hccc_trace_into(&p, HCCC_BLOCKS * HCCC_CHANNELS);
  if (refused) return refused;
#endif
  void* arguments[] = {&p};
  const dim3 grid(HCCC_BLOCKS * HCCC_CHANNELS, static_cast<unsigned>(call->n_local));
  return HCCC_GPU(LaunchCooperativeKernel)(kernel, grid, dim3(HCCC_THREADS), arguments, 0,
                                           stream) == HCCC_GPU(Success)
             ? HCCC_OK
             : HCCC_DEVICE;
}

#endif
