// The launch of an emitted CUDA library over tests/runtime/device/working_cuda.cpp: in a stream's turn CPU
// threads run the grid. Put before hccc/gpu_launch.h in a translation unit for the CPU.
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
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void*, int, unsigned long);
void workingKernel(int change);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data);
}

struct cudaFuncAttributes {};

// Whether the kernel is loaded, and how often that was by a launch.
static bool working_loaded = false;
extern "C" __attribute__((visibility("default"), weak)) int working_late_loads = 0;

static cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  working_loaded = true;
  return cudaSuccess;
}

struct working_launch {
  hccc_params params;
  int blocks;
};

static cudaError_t cudaLaunchCooperativeKernel(const void*, dim3 grid, dim3, void** arguments, unsigned long,
                                               cudaStream_t stream) {
  working_late_loads += !working_loaded;
  working_loaded = true;
  const int blocks = static_cast<int>(grid.x * grid.y);
  working_launch* launch = new working_launch{*static_cast<hccc_params*>(arguments[0]), blocks};
  const auto run = [](void* data) {
    working_launch* of = static_cast<working_launch*>(data);
    workingKernel(1);
    hccc_run_team(hccc_cpu_block, &of->params, of->blocks, 1, true);  // stays: a graph may run it again
    workingKernel(-1);
  };
  return cudaLaunchHostFunc(stream, run, launch);
}

static void working_kernel(const hccc_params) {}
#define HCCC_KERNEL_NAME working_kernel
#define __CUDACC__ 1
