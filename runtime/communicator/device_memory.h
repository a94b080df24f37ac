// device_memory.h: the device memory that a rank and its peers on this host share: flags and
// scratch from the beginning, segments of heaps once a call has a buffer there.
#pragma once

#include <hccc/hccc.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "control.h"
#include "device_heap.h"
#include "mailbox.h"

namespace hccc {

class DeviceMemory {
 public:
  // Allocates this rank's memory; it is not shared yet.
  DeviceMemory(std::shared_ptr<DeviceHeap> heap, int rank, int n_ranks);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  Mailbox &mailbox() { return mailbox_; }
  long long flag_bytes() const;
  long long scratch_bytes() const;
  char *flags() const { return static_cast<char *>(own_); }
  char *scratch() const { return flags() + flag_bytes(); }
  const Device &device() const { return heap_->device(); }
  HandleKind kind() const { return heap_->kind(); }
  unsigned opens() const;  // bits of HandleKind

  // Returns whether to go on waiting; may throw.
  using Continue = std::function<bool()>;
  // Shares flags and scratch with the peers, ranks of this host, and maps theirs. all_here: they
  // are threads of this process. Throws Error.
  void exchange(const std::vector<Control *> &controls, bool all_here, const Continue &go_on);
  // Tells ranks of other hosts of a window of this rank, and returns when they know it.
  using Tell = std::function<void(int window, void *base, size_t bytes, const Continue &)>;
  void tell_hosts_by(Tell tell) { tell_hosts_ = std::move(tell); }
  // Shares bytes of the heap; returns when every peer has mapped them. Throws Error.
  void share_with_peers(const void *pointer, size_t bytes, const Continue &go_on);
  // Zeroes the first bytes of the own flags, which no launch touches. Throws Error.
  void zero_flags(long long bytes);
  // Maps the memory that peers have announced. By one thread at a time. Throws Error.
  void map_shared_pieces();

  // Returns the rank whose memory this device is mapping, or has just mapped, slowly: as where it waits
  // for a kernel to end; -1: none.
  int slow_mapping() const;

  // Returns the table of all ranks, in memory of the device; null flags: not a peer.
  const hccc_rank *table() const { return reinterpret_cast<const hccc_rank *>(table_); }

 private:
  void allocate();
  void release() noexcept;
  bool may_free() const;

  void announce(int number, const SharedPiece &piece, int descriptor, const Continue &go_on);
  void open(const SharedPiece &piece, int descriptor);
  void reach_device(int other);
  void set_memory(int rank, char *base);
  void set_window(int rank, int number, void *base, uint64_t bytes);
  void upload(size_t at, const void *from, size_t bytes);

  const std::shared_ptr<DeviceHeap> heap_;
  const int rank_, n_ranks_;
  Mailbox mailbox_;
  std::vector<Control *> controls_;  // of peers; null of the others
  bool all_here_ = false;
  Tell tell_hosts_;  // null: all are on this host

  void *own_ = nullptr;  // flags, then scratch
  size_t own_bytes_ = 0;
  char *table_ = nullptr;
  hcccrtStream_t stream_ = nullptr;

  using Clock = std::chrono::steady_clock;
  struct Mapping {
    Clock::time_point begin, end;  // end: the largest while it is under way
    int rank;
  };
  struct MappingNow;

  mutable std::mutex mutex_;
  Mapping mapping_{{}, {}, -1};  // the last one
  std::vector<hccc_rank> ranks_;
  std::vector<int> shared_;  // window of each segment of the own heap, from 1; 0: not shared
  int n_shared_ = 0;
  std::vector<void *> opened_;  // of other processes
};

}  // namespace hccc
