// A CUDA runtime that keeps a record of what it is asked for and runs the grid with CPU threads.
// Put before hccc/gpu_launch.h in a translation unit for the CPU.
#pragma once

#include "cpu_runtime.h"

struct CUstream_st;
typedef CUstream_st* cudaStream_t;

struct dim3 {
  unsigned x, y, z;
  explicit dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

enum cudaError_t { cudaSuccess, cudaErrorUnknown = 999 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrCooperativeLaunch = 95 };

extern "C" {
struct fake_record {
  int calls, launches;  // of all functions here, and of the launch alone
  unsigned grid[3], block[3];
  unsigned long shared;
  void* stream;
  hccc_params params;
  int loaded;  // kernels
} fake_record __attribute__((weak));

// What the device is like.
#define FAKE __attribute__((weak)) int
FAKE fake_units = 100;
FAKE fake_per_unit = 2;
FAKE fake_cooperative = 1;
FAKE fake_no_device = 0;
FAKE fake_refuses = 0;
}

static cudaError_t cudaGetDevice(int* device) {
  __atomic_fetch_add(&fake_record.calls, 1, __ATOMIC_RELAXED);
  *device = 0;
  return fake_no_device ? cudaErrorUnknown : cudaSuccess;
}

static cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  __atomic_fetch_add(&fake_record.calls, 1, __ATOMIC_RELAXED);
  *value = attribute == cudaDevAttrMultiProcessorCount ? fake_units : fake_cooperative;
  return cudaSuccess;
}

static cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int,
                                                                 unsigned long) {
  __atomic_fetch_add(&fake_record.calls, 1, __ATOMIC_RELAXED);
  *blocks = fake_per_unit;
  return cudaSuccess;
}

static cudaError_t cudaLaunchCooperativeKernel(const void*, dim3 grid, dim3 block, void** arguments,
                                               unsigned long shared, cudaStream_t stream) {
  __atomic_fetch_add(&fake_record.calls, 1, __ATOMIC_RELAXED);
  if (fake_refuses) return cudaErrorUnknown;
  hccc_params p = *static_cast<hccc_params*>(arguments[0]);
  fake_record.params = p;
  fake_record.shared = shared;
  fake_record.stream = stream;
  const unsigned sizes[2][3] = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}};
  for (int i = 0; i < 3; ++i) fake_record.grid[i] = sizes[0][i], fake_record.block[i] = sizes[1][i];
  __atomic_fetch_add(&fake_record.launches, 1, __ATOMIC_RELAXED);
  if (static_cast<int>(grid.x) != hccc_blocks_of_rank) return cudaErrorUnknown;
  const int blocks = static_cast<int>(grid.x * grid.y);
  const int threads = HCCC_THREADS_AS_BLOCKS ? blocks : 1;
  const int status = hccc_run_team(hccc_cpu_block, &p, blocks, threads, false);
  return status == HCCC_OK ? cudaSuccess : cudaErrorUnknown;
}

struct cudaFuncAttributes {};

// Loads a kernel.
static cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  if (fake_refuses) return cudaErrorUnknown;
  fake_record.loaded += 1;
  return cudaSuccess;
}

static void fake_kernel(const hccc_params) {}
#define HCCC_KERNEL_NAME fake_kernel
#define __CUDACC__ 1
