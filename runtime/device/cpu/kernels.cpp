// kernels.cpp: launches functions of the host as kernels.
#include <cstdlib>
#include <cstring>

#include "api.h"

namespace hcccrt::cpu {
namespace {

constexpr size_t kLine = 64;

struct Deallocate {
  void operator()(void *p) const { std::free(p); }
};
using Aligned = std::unique_ptr<void, Deallocate>;

// Allocates zeroed shared memory; null for 0 bytes.
Aligned aligned(size_t bytes) {
  if (!bytes) return nullptr;
  const size_t whole = (bytes + kLine - 1) / kLine * kLine;
  void *p = std::aligned_alloc(kLine, whole);
  if (!p) throw std::bad_alloc();
  return Aligned(std::memset(p, 0, whole));
}

// A launch, all by value: its caller does not wait.
struct Launch {
  hcccrtCpuKernel kernel;
  hcccrtDim3 grid, block;
  size_t shared_bytes;
  std::vector<size_t> at;  // of each argument
  std::vector<char> bytes;

  hcccrtError_t run() const {
    const Aligned copied = aligned(bytes.size()), shared = aligned(shared_bytes);
    if (!bytes.empty()) std::memcpy(copied.get(), bytes.data(), bytes.size());
    std::vector<void *> arguments;
    for (const size_t offset : at) arguments.push_back(static_cast<char *>(copied.get()) + offset);
    hcccrtCpuBlock b = {grid, block, {0, 0, 0}, shared.get(), shared_bytes};
    for (b.block_idx.z = 0; b.block_idx.z < grid.z; ++b.block_idx.z)
      for (b.block_idx.y = 0; b.block_idx.y < grid.y; ++b.block_idx.y)
        for (b.block_idx.x = 0; b.block_idx.x < grid.x; ++b.block_idx.x) {
          if (shared_bytes && (b.block_idx.x || b.block_idx.y || b.block_idx.z))
            std::memset(shared.get(), 0, shared_bytes);
          hcccrtCpuBlock given = b;
          if (kernel.fn(&given, arguments.data())) return hcccrtErrorLaunchFailure;
        }
    return hcccrtSuccess;
  }
};

const hcccrtCpuKernel *kernel_of(const void *function) {
  const auto *kernel = static_cast<const hcccrtCpuKernel *>(function);
  const bool is = kernel && kernel->magic == HCCCRT_CPU_KERNEL && kernel->fn &&
                  kernel->n_arguments >= 0 && (!kernel->n_arguments || kernel->argument_bytes);
  return is ? kernel : nullptr;
}

int threads_of(const hcccrtCpuKernel &kernel) {
  return kernel.max_threads_per_block > 0
             ? std::min(kMostThreads, kernel.max_threads_per_block)
             : kMostThreads;
}

FunctionLimits limits_of(const State &s, const hcccrtCpuKernel *kernel) {
  const auto it = s.limits.find(kernel);
  const size_t most = kMostSharedBytes, room = most - std::min(most, kernel->shared_bytes);
  return it == s.limits.end() ? FunctionLimits{static_cast<int>(room), -1} : it->second;
}

hcccrtError_t prepare(const State &s, const void *function, hcccrtDim3 grid, hcccrtDim3 block,
                      void **arguments, size_t shared, std::shared_ptr<const Launch> *made) {
  const auto *kernel = kernel_of(function);
  if (!kernel) return hcccrtErrorInvalidDeviceFunction;
  if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
    return hcccrtErrorInvalidConfiguration;
  const auto threads = static_cast<unsigned long long>(block.x) * block.y;
  const auto most = static_cast<unsigned long long>(threads_of(*kernel));
  if (threads > most || threads * block.z > most)
    return hcccrtErrorInvalidConfiguration;
  if (shared > static_cast<size_t>(limits_of(s, kernel).dynamic_shared_bytes))
    return hcccrtErrorInvalidValue;
  if (kernel->n_arguments && !arguments) return hcccrtErrorInvalidValue;
  auto launch = std::make_shared<Launch>();
  launch->kernel = *kernel;
  launch->grid = grid;
  launch->block = block;
  launch->shared_bytes = kernel->shared_bytes + shared;
  for (int i = 0; i < kernel->n_arguments; ++i) {
    const size_t offset = (launch->bytes.size() + 15) / 16 * 16, size = kernel->argument_bytes[i];
    launch->at.push_back(offset);
    launch->bytes.resize(offset + size);
    std::memcpy(launch->bytes.data() + offset, arguments[i], size);
  }
  *made = std::move(launch);
  return hcccrtSuccess;
}

}  // namespace

hcccrtError_t LaunchKernel(const void *function, hcccrtDim3 grid, hcccrtDim3 block,
                           void **arguments, size_t shared, hcccrtStream_t handle) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream || stream->device != call.device->index) return hcccrtErrorInvalidResourceHandle;
  std::shared_ptr<const Launch> launch;
  if (const auto error = prepare(call.s, function, grid, block, arguments, shared, &launch))
    return error;
  return submit(call.s, *stream, [launch] { return launch->run(); });
}

hcccrtError_t ExtLaunchKernel(const void *function, hcccrtDim3 grid, hcccrtDim3 block,
                              void **arguments, size_t shared, hcccrtStream_t stream,
                              hcccrtEvent_t start, hcccrtEvent_t stop, int flags) {
  if (flags & ~1) return hcccrtErrorInvalidValue;
  if (start)
    if (const auto error = EventRecord(start, stream)) return error;
  if (const auto error = LaunchKernel(function, grid, block, arguments, shared, stream))
    return error;
  return stop ? EventRecord(stop, stream) : hcccrtSuccess;
}

hcccrtError_t FuncGetAttributes(hcccrtFuncAttributes *attributes, const void *function) {
  Call call;
  if (call.error) return call.error;
  if (!attributes) return hcccrtErrorInvalidValue;
  const auto *kernel = kernel_of(function);
  if (!kernel) return hcccrtErrorInvalidDeviceFunction;
  const FunctionLimits limits = limits_of(call.s, kernel);
  *attributes = {};
  attributes->sharedSizeBytes = kernel->shared_bytes;
  attributes->maxThreadsPerBlock = threads_of(*kernel);
  attributes->maxDynamicSharedSizeBytes = limits.dynamic_shared_bytes;
  attributes->preferredShmemCarveout = limits.carveout;
  return hcccrtSuccess;
}

hcccrtError_t FuncSetAttribute(const void *function, hcccrtFuncAttribute_t attribute, int value) {
  Call call;
  if (call.error) return call.error;
  const auto *kernel = kernel_of(function);
  if (!kernel) return hcccrtErrorInvalidDeviceFunction;
  FunctionLimits limits = limits_of(call.s, kernel);
  if (attribute == hcccrtFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || static_cast<size_t>(value) + kernel->shared_bytes > kMostSharedBytes)
      return hcccrtErrorInvalidValue;
    limits.dynamic_shared_bytes = value;
  } else if (attribute == hcccrtFuncAttributePreferredSharedMemoryCarveout) {
    if (value < -1 || value > 100) return hcccrtErrorInvalidValue;
    limits.carveout = value;
  } else {
    return hcccrtErrorInvalidValue;
  }
  call.s.limits[kernel] = limits;
  return hcccrtSuccess;
}

}  // namespace hcccrt::cpu
