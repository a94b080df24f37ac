// gpu_calls.h: calls that are launched on a GPU: they run in streams, one after another in the order in
// which they were made, and what became of one is seen later.
#pragma once

#include <hccc/hccc.h>

#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "control.h"
#include "device.h"
#include "heap.h"
#include "staging.h"

namespace hccc {

class GpuCalls {
 public:
  // Throws Error.
  GpuCalls(const Device &device, std::shared_ptr<Heap> heap);
  // Waits for what runs.
  ~GpuCalls();
  GpuCalls(const GpuCalls &) = delete;
  GpuCalls &operator=(const GpuCalls &) = delete;

  // In memory that host and device read: as the host has it, and as kernels do.
  hccc_fault *fault() const { return fault_; }
  hccc_fault *fault_of_device() const { return fault_of_device_; }

  // Memory that kernels of the device can touch. Throws Error.
  void check_buffers(const Buffers &buffers) const;

  using Reaches = std::function<bool(const char *, size_t)>;
  // What a launch comes after, in its stream: launches in other streams, and copies of what peers do not
  // reach. Throws Error.
  Staged before(const Buffers &given, const Reaches &reaches, hcccrtStream_t stream);
  // What comes after it. Throws Error.
  void after(const Staged &staged, const Called &called, hcccrtStream_t stream);
  // An input of its own for a call in place that is to be run as one that is not. Throws Error.
  Buffers apart(const Buffers &given, hcccrtStream_t stream);

  // Of the calls that were made the first that has not been seen to end; false: all have. Throws Error.
  bool running(Called *first);
  // How many have not been seen to end.
  size_t unfinished();
  void wait_for_all();

 private:
  struct Queued {
    Called called;
    hcccrtEvent_t done;
  };
  struct Kept {
    char *base = nullptr;
    size_t bytes = 0;
  };

  char *room(Kept &kept, size_t bytes);
  void copy(void *to, const void *from, size_t bytes, hcccrtStream_t stream) const;
  bool captures(hcccrtStream_t stream) const;
  hcccrtEvent_t event();

  const Device device_;
  const std::shared_ptr<Heap> heap_;
  hccc_fault *fault_ = nullptr, *fault_of_device_ = nullptr;
  Kept input_, output_, apart_;

  std::mutex mutex_;  // of what follows
  std::deque<Queued> queued_;
  std::vector<hcccrtEvent_t> spare_;
  hcccrtStream_t last_ = nullptr;  // of the last launch
};

}  // namespace hccc
