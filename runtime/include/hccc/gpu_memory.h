/* gpu_memory.h: memory of a GPU that other GPUs read and write during a launch. Plain C, for host
 * programs; a program for AMD that is not compiled as HIP defines __HIP_PLATFORM_AMD__, as HIP's
 * own headers want.
 *
 * Flags, scratch, and buffers that peers access directly must come from here when the ranks are on
 * several AMD devices: ordinary hipMalloc memory may stay in a device's cache for the whole launch,
 * so that peers read old data or wait for ever. On NVIDIA it is cudaMalloc's.
 */
#ifndef HCCC_GPU_MEMORY_H
#define HCCC_GPU_MEMORY_H

#include <stddef.h>

#include "hccc.h"

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime_api.h>
#define HCCC_GPU(name) hip##name

/* Allocates uncached memory where HIP, the driver and the device have it, as RCCL does; else
 * fine-grained memory. */
static inline hipError_t hccc_gpu_malloc(void **memory, size_t bytes) {
#ifdef hipDeviceMallocUncached
  if (hipExtMallocWithFlags(memory, bytes, hipDeviceMallocUncached) == hipSuccess)
    return hipSuccess;
  (void)hipGetLastError();
#endif
  return hipExtMallocWithFlags(memory, bytes, hipDeviceMallocFinegrained);
}

#else
#include <cuda_runtime_api.h>
#define HCCC_GPU(name) cuda##name

static inline cudaError_t hccc_gpu_malloc(void **memory, size_t bytes) {
  return cudaMalloc(memory, bytes);
}

#endif

/* Frees memory that no launch uses; null is allowed. Returns an hccc_status. */
static inline int hccc_gpu_free(void *memory) {
  return !memory || HCCC_GPU(Free)(memory) == HCCC_GPU(Success) ? HCCC_OK : HCCC_DEVICE;
}

/* Allocates `bytes` of zeroed memory on the current device; null for 0. Returns an hccc_status. */
static inline int hccc_gpu_allocate(void **memory, size_t bytes) {
  *memory = NULL;
  if (!bytes) return HCCC_OK;
  if (hccc_gpu_malloc(memory, bytes) == HCCC_GPU(Success)) {
    if (HCCC_GPU(Memset)(*memory, 0, bytes) == HCCC_GPU(Success) &&
        HCCC_GPU(StreamSynchronize)(0) == HCCC_GPU(Success))
      return HCCC_OK;
    (void)hccc_gpu_free(*memory);
  }
  *memory = NULL;
  return HCCC_DEVICE;
}

#endif
