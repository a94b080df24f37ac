// working_combine.h: runtime/include/combine.cu over tests/runtime/device/working_cuda.cpp: one thread of the CPU runs
// a kernel's blocks, in a stream's turn, on memory that the host cannot touch otherwise. Included before it.
#pragma once

#include <cstddef>
#include <functional>
#include <tuple>

struct CUstream_st;
typedef CUstream_st* cudaStream_t;
enum { cudaSuccess = 0 };

struct cudaFuncAttributes {};
static int cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }

struct dim3 {
  unsigned x;
  explicit dim3(unsigned x) : x(x) {}
};
static thread_local unsigned working_block;

extern "C" {
int cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data);
void* workingMemory(const void* at);
int workingCombines(int more);
}

template <class T>
static T working_argument(T value) {
  return value;
}
template <class T>
static T* working_argument(T* at) {
  return static_cast<T*>(workingMemory(at));
}

template <class... P, size_t... k>
static std::function<void()> working_call(void (*kernel)(P...), void** arguments, std::index_sequence<k...>) {
  const std::tuple<P...> given(*static_cast<P*>(arguments[k])...);
  return [=] { kernel(working_argument(std::get<k>(given))...); };
}

template <class... P>
static int working_launch(void (*kernel)(P...), dim3 grid, void** arguments, cudaStream_t stream) {
  const std::function<void()> call = working_call(kernel, arguments, std::index_sequence_for<P...>());
  auto* const blocks = new std::function<void()>([=] {
    for (working_block = 0; working_block < grid.x; ++working_block) call();
  });
  const auto run = [](void* data) {
    auto* const of = static_cast<std::function<void()>*>(data);
    (*of)();
    workingCombines(1);
    delete of;
  };
  return cudaLaunchHostFunc(stream, run, blocks);
}

#define HCCC_GLOBAL static
#define HCCC_OWN_BLOCK working_block
#define HCCC_GPU(name) cuda##name
#define HCCC_LAUNCH_KERNEL(kernel, grid, threads, arguments, bytes, stream) working_launch(kernel, grid, arguments, stream)
