// host.h: the ranks of this host and what each shares, mapped here: its arena (control, flags, scratch)
// and its heap; or of a device, by `DeviceMemory`, all but control.
#pragma once

#include <hccc/hccc.h>

#include <memory>
#include <vector>

#include "../bootstrap/include/hccc_bootstrap.h"
#include "control.h"
#include "heap.h"
#include "device_memory.h"
#include "shared_memory.h"

namespace hccc {

// What a rank tells all others when it joins.
struct Joined {
  int64_t process = 0;
  uint64_t heap_bytes = 0;
  uint64_t heap_base = 0;  // in its own process
  int64_t platform = 0;    // of its heap: hcccrtPlatform_t, 0 for memory of the host
  int64_t scratch_bytes = 0;
  uint32_t handles = 0, opens = 0;  // HandleKind of its memory, and bits of those that it can map
};

[[noreturn]] void fail_as(const hccc_bootstrap_error &error);

class Host {
 public:
  // Exchanges and maps. Throws Error.
  Host(hccc_bootstrap *bootstrap, int rank, int n_ranks, double timeout_s);

  // As kernels read it.
  const hccc_rank *ranks() const { return device_memory_ ? device_memory_->table() : ranks_.data(); }
  Control &control(int rank) const;
  int process(int rank) const { return static_cast<int>(joined_[static_cast<size_t>(rank)].process); }
  bool one_process() const { return one_process_; }
  // Whether a rank is on this host; of others there is no memory and no control.
  bool near(int rank) const { return ranks_[static_cast<size_t>(rank)].flags != nullptr; }
  int n_near() const;

  // What the network may reach of this rank: numbers as network.h has them.
  struct Window {
    int number;
    void *base;
    long long bytes;
  };
  std::vector<Window> own_windows() const;
  int n_ranks() const { return static_cast<int>(joined_.size()); }

  // Whether peers reach all of it.
  bool reaches(const void *pointer, size_t bytes) const;
  Heap &heap() const { return *heap_; }
  // What libraries are to be for: `cpu`, `cuda`, `hip`.
  const char *target() const { return device_memory_ ? device_memory_->device().name() : "cpu"; }
  // Whether calls are launched in streams of a device, rather than run by threads.
  bool on_gpu() const {
    return device_memory_ && device_memory_->device().platform != hcccrtPlatformCPU;
  }
  const std::shared_ptr<Heap> &held() const { return heap_; }
  // Null where memory is the host's.
  DeviceMemory *device_memory() const { return device_memory_.get(); }

  long long most_flag_bytes() const;
  long long most_scratch_bytes() const { return static_cast<long long>(scratch_bytes_); }

 private:
  void exchange(hccc_bootstrap *bootstrap, double timeout_s);
  void check_platforms() const;
  void check_handles() const;
  void meet(hccc_bootstrap *bootstrap, double timeout_s);
  void map(std::vector<int> &files, size_t arena_bytes);
  void fill_tables();

  int rank_;
  std::shared_ptr<Heap> heap_;
  std::vector<Joined> joined_;
  std::vector<SharedFile> arenas_, heaps_;  // of every rank; heaps of this process: empty
  std::vector<hccc_window> windows_;
  std::vector<hccc_rank> ranks_;
  std::unique_ptr<DeviceMemory> device_memory_;
  size_t scratch_bytes_ = 0;
  bool one_process_ = true;
};

}  // namespace hccc
