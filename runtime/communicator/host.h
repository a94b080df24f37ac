// host.h: the ranks of this host and the memory that they share, mapped here: every rank's arena
// (control, rings, flags, scratch) and heap; on a device `DeviceMemory` has all of it but control.
#pragma once

#include <hccc/hccc.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../bootstrap/include/hccc_bootstrap.h"
#include "broadcasts.h"
#include "control.h"
#include "heap.h"
#include "device_memory.h"
#include "rings.h"
#include "scratch.h"
#include "shared_memory.h"
#include "short_calls.h"
#include "time_left.h"
#include "uneven.h"

namespace hccc {

// What each rank contributes when a communicator is made.
struct Joined {
  int64_t process = 0;
  uint64_t heap_bytes = 0;
  uint64_t heap_base = 0;  // in its own process
  int64_t platform = 0;    // of its heap: hcccrtPlatform_t, 0 for memory of the host
  int64_t scratch_bytes = 0;
  uint64_t vendor = 0;     // VendorCalls::wish()
  uint32_t handles = 0, opens = 0;  // HandleKind of its memory, and bits of the kinds that it can map
};

[[noreturn]] void fail_as(const hccc_bootstrap_error &error);

class Host {
 public:
  // Exchanges memory with the other ranks and maps theirs. device: of the memory, of no platform: the
  // host's; family: of the communicator that this one was split of. Throws Error.
  Host(hccc_bootstrap *bootstrap, int rank, int n_ranks, const Device &device, const Family &family,
       const TimeLeft &left);

  // Returns the table that kernels read.
  const hccc_rank *ranks() const { return device_memory_ ? device_memory_->table() : ranks_.data(); }
  Control &control(int rank) const;
  // Returns the ring of messages from one rank of this host to another.
  Ring &ring(int from, int to) const;
  // Returns what a rank of this host tells the others of an uneven call; two calls take turns.
  int64_t *told_by(int rank, uint64_t call) const;
  // The same of a short call.
  ToldInput &told_input(int rank, uint64_t call) const;
  // Returns the ring of each rank, all of this host, for Broadcasts.
  std::vector<BroadcastRing *> broadcast_rings() const;
  // Returns where the heap of a rank of this host is in this process.
  char *heap_of(int rank) const;
  int process(int rank) const { return static_cast<int>(joined_[static_cast<size_t>(rank)].process); }
  uint64_t vendor(int rank) const { return joined_[static_cast<size_t>(rank)].vendor; }
  bool one_process() const { return one_process_; }
  // Returns whether a rank is on this host. Other ranks have no memory and no control here.
  bool near(int rank) const { return arenas_[static_cast<size_t>(rank)].base() != nullptr; }
  int n_near() const;

  // Memory of this rank that the network may reach; numbered as in network.h. On a device its
  // segments come later.
  struct Window {
    int number;
    void *base;
    long long bytes;
  };
  std::vector<Window> own_windows() const;
  // Return whether a rank's memory is a device's, and whether any rank's is.
  bool of_device(int rank) const { return joined_[static_cast<size_t>(rank)].platform != 0; }
  bool any_device() const;
  int n_ranks() const { return static_cast<int>(joined_.size()); }

  // Returns whether peers reach all of the bytes.
  bool reaches(const void *pointer, size_t bytes) const;
  // Maps at least so many bytes of every rank's flags, where memory is the host's. No kernel may run, and
  // nobody zero flags. Throws Error.
  void map_flags(long long bytes);
  // Zeroes the first bytes of the own flags. Throws Error.
  void zero_flags(long long bytes);
  // Takes the shared scratch of this rank for a call, where it is free.
  bool take_scratch() { return family_.scratch && family_.scratch->take(); }
  void give_scratch() { family_.scratch->give(); }
  // Says whether a rank's next call uses its shared scratch, or this communicator's own.
  void share_scratch(int rank, bool shared) { shares_[static_cast<size_t>(rank)] = shared; }
  // Maps at least so many bytes of every rank's scratch, where memory is the host's. No kernel may
  // run. Throws Error.
  void map_scratch(size_t bytes);
  // Returns the shared scratch for a communicator of some of these ranks.
  Family family(const std::vector<int> &ranks) const;
  // Frees what a child of fork() has of its parent's: mappings and descriptors.
  void forsake();
  Heap &heap() const { return *heap_; }
  // Returns the target of libraries: `cpu`, `cuda`, `hip`.
  const char *target() const { return device_memory_ ? device_memory_->device().name() : "cpu"; }
  // Returns whether calls are launched in streams of a device, rather than run by threads.
  bool on_gpu() const {
    return device_memory_ && device_memory_->device().platform != hcccrtPlatformCPU;
  }
  const std::shared_ptr<Heap> &held() const { return heap_; }
  // Returns the shared memory of a device; null: memory of the host.
  DeviceMemory *device_memory() const { return device_memory_.get(); }

  long long most_flag_bytes() const;
  long long most_scratch_bytes() const {
    return static_cast<long long>(family_.scratch ? std::min(scratch_bytes_, family_.scratch->most()) : scratch_bytes_);
  }

 private:
  void exchange(hccc_bootstrap *bootstrap, const TimeLeft &left);
  void check_platforms(const std::vector<int> &files) const;
  void check_handles() const;
  void exchange_device_memory(hccc_bootstrap *bootstrap, const TimeLeft &left);
  void map(std::vector<int> &files, size_t arena_bytes);
  void fill_tables();

  // Return the bytes of an arena before its flags, and before what is told of uneven calls, of short
  // ones, and the ring of Broadcasts.
  size_t head_bytes() const;
  size_t told_at() const;
  size_t inputs_at() const;
  size_t broadcasts_at() const;

  int rank_;
  std::shared_ptr<Heap> heap_;
  std::vector<Joined> joined_;
  std::vector<Mapping> arenas_;  // of every rank: control page and rings of messages; of another host: null
  std::vector<Mapping> flags_;   // of every rank, as many as loaded libraries need; likewise
  std::vector<std::shared_ptr<const Mapping>> heaps_;  // of every rank; null: of this process
  std::vector<hccc_window> windows_;
  std::vector<hccc_rank> ranks_;
  std::unique_ptr<DeviceMemory> device_memory_;
  size_t scratch_bytes_ = 0;
  Family family_;                  // where memory is the host's
  std::unique_ptr<Scratch> scratch_;  // the own, likewise
  std::vector<char> shares_;       // whether a rank uses its shared scratch
  bool one_process_ = true;
};

}  // namespace hccc
