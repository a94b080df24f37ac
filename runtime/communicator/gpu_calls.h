// gpu_calls.h: calls that are launched on a GPU: in streams, one after another in the order of the
// calls; results are checked later.
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
  // Waits for running launches.
  ~GpuCalls();
  GpuCalls(const GpuCalls &) = delete;
  GpuCalls &operator=(const GpuCalls &) = delete;

  // Return the addresses of the fault record, which host and device read: the host's and the
  // kernels'.
  hccc_fault *fault() const { return fault_; }
  hccc_fault *fault_of_device() const { return fault_of_device_; }

  // Checks that kernels of the device can touch the buffers. Throws Error.
  void check_buffers(const Buffers &buffers) const;

  using Reaches = std::function<bool(const char *, size_t)>;
  // Puts in front of a launch, in its stream: waits for launches in other streams, and copies of
  // buffers that peers do not reach. Throws Error.
  Staged before(const Buffers &given, const Reaches &reaches, hcccrtStream_t stream);
  // Puts copies and an event behind a launch. Throws Error.
  void after(const Staged &staged, const Called &called, hcccrtStream_t stream);
  // The same of an uneven call.
  Staged before(const Buffers &given, const CopiedBlocks &blocks, hcccrtStream_t stream);
  void after(const Staged &staged, const CopiedBlocks &blocks, const Called &called, hcccrtStream_t stream);
  // Puts a copy of a call's table into its stream, and returns where its kernel reads it. Throws Error.
  const long long *on_device(const std::vector<long long> &table, hcccrtStream_t stream);
  // Copies the input of a call in place, to run it out of place. Throws Error.
  Buffers apart(const Buffers &given, hcccrtStream_t stream);
  // Returns whether an array lies in memory of a device.
  bool holds(const void *at) const;
  // Copies memory of a device to the host, when a stream comes to that, and waits. Throws Error.
  void fetch(void *to, const void *from, size_t bytes, hcccrtStream_t stream) const;
  // Returns whether a stream is being captured into a graph.
  bool captures(hcccrtStream_t stream) const;

  // Finds the first call that has not ended, by events; false: all have. Throws Error.
  bool running(Called *first);
  // Counts the calls that have not ended, by events.
  size_t unfinished();
  // Counts the launches so far, without those of graphs.
  uint64_t launched();
  void wait_for_all();

 private:
  struct Queued {
    Called called;
    hcccrtEvent_t done;
    std::vector<long long> table;  // of an uneven call: the stream copies it when it comes to that
  };
  struct Room {
    char *base = nullptr;
    size_t bytes = 0;
    bool captured = false;  // a graph has its address
  };

  void follow(hcccrtStream_t stream);
  char *reserve(Room &room, size_t bytes, hcccrtStream_t stream);
  void copy(void *to, const void *from, size_t bytes, hcccrtStream_t stream) const;
  hcccrtEvent_t event();

  const Device device_;
  const std::shared_ptr<Heap> heap_;
  hccc_fault *fault_ = nullptr, *fault_of_device_ = nullptr;
  Room input_, output_, apart_, table_;
  std::vector<long long> copied_;  // the table of the call that is being launched
  std::vector<char *> kept_;  // former rooms that graphs use

  std::mutex mutex_;  // of the members below
  std::deque<Queued> queued_;
  uint64_t launched_ = 0;
  std::vector<hcccrtEvent_t> spare_;
  hcccrtStream_t last_ = nullptr;  // of the last launch
};

}  // namespace hccc
