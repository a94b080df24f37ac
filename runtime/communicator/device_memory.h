// device_memory.h: the device memory that a rank and its peers on this host have shown each other: flags and
// scratch when the communicator is made, segments of heaps when a call first has a buffer there.
#pragma once

#include <hccc/hccc.h>

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
  // Memory of its own is allocated; nobody knows of it yet.
  DeviceMemory(std::shared_ptr<DeviceHeap> heap, int rank, int n_ranks);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  Mailbox &mailbox() { return mailbox_; }
  long long flag_bytes() const;
  long long scratch_bytes() const;
  const Device &device() const { return heap_->device(); }
  HandleKind kind() const { return heap_->kind(); }
  unsigned opens() const;  // bits of HandleKind

  // A wait ends when this is false, which may throw.
  using Going = std::function<bool()>;
  // Meets the peers: ranks of this host, and what each shares with the others. all_here: they are
  // threads of this process. Throws Error.
  void meet(const std::vector<Control *> &controls, bool all_here, const Going &going);
  // Returns when every peer reaches these bytes of the heap. Throws Error.
  void show(const void *pointer, size_t bytes, const Going &going);
  // Maps what peers have told. By one thread at a time. Throws Error.
  void hear();

  // Of every rank, in memory of the device; null flags of ranks that are not peers.
  const hccc_rank *table() const { return reinterpret_cast<const hccc_rank *>(table_); }

 private:
  void allocate();
  void release() noexcept;
  bool may_free() const;

  void tell(int number, const Announced &told, int descriptor, const Going &going);
  void open(const Announced &told, int descriptor);
  void reach_device(int other);
  void set_memory(int rank, char *base);
  void set_window(int rank, int number, void *base, uint64_t bytes);
  void upload(size_t at, const void *from, size_t bytes);

  const std::shared_ptr<DeviceHeap> heap_;
  const int rank_, n_ranks_;
  Mailbox mailbox_;
  std::vector<Control *> controls_;  // of peers; null of the others
  bool all_here_ = false;

  void *own_ = nullptr;  // flags, then scratch
  size_t own_bytes_ = 0;
  char *table_ = nullptr;
  hcccrtStream_t stream_ = nullptr;

  std::mutex mutex_;
  std::vector<hccc_rank> ranks_;
  std::vector<int> shown_;  // window of each segment of the own heap, from 1; 0: nobody was told
  int n_shown_ = 0;
  std::vector<void *> opened_;  // of other processes
};

}  // namespace hccc
