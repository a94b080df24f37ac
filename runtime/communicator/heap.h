// heap.h: the memory of hcccMemAlloc, which the other ranks of a host can map.
#pragma once

#include <stddef.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "device.h"
#include "pieces.h"
#include "shared_memory.h"

namespace hccc {

class DeviceHeap;

class Heap {
 public:
  // Returns this process's heap of a device, or, of no platform, of the host. It is made for its first
  // holder and freed with its last. Throws Error.
  static std::shared_ptr<Heap> held(const Device &device);

  virtual ~Heap() = default;
  // Allocates zeroed memory, aligned to a page; for zero bytes a page. Throws Error where there is
  // no room.
  virtual void *take(size_t bytes) = 0;
  // Frees memory. False: it was not allocated here.
  virtual bool give(void *pointer) = 0;
  // Returns whether all of the bytes lie in one allocation.
  virtual bool has(const void *pointer, size_t bytes) const = 0;
  // Returns whether an address is in the heap's memory, allocated or not.
  virtual bool spans(const void *pointer) const = 0;
  // Counts the allocations that were freed: while it stays, what lay in one still does.
  uint64_t frees() const { return frees_.load(std::memory_order_acquire); }
  // Returns itself; null: memory of the host.
  virtual DeviceHeap *of_device() { return nullptr; }
  // Return the file of all the memory, which peers map, and where it is here; null: memory of a
  // device.
  virtual const SharedFile *file() const { return nullptr; }
  virtual char *base() const { return nullptr; }

 protected:
  std::atomic<uint64_t> frees_{0};
};

// One file of a process, as large as memory may be. Every peer maps it when a communicator is made,
// and so all later allocations.
class FileHeap final : public Heap {
 public:
  explicit FileHeap(size_t bytes);

  void *take(size_t bytes) override;
  bool give(void *pointer) override;
  bool has(const void *pointer, size_t bytes) const override;
  bool spans(const void *pointer) const override;
  const SharedFile *file() const override { return &file_; }
  char *base() const override { return mapping_.base(); }

 private:
  SharedFile file_;
  Mapping mapping_;
  mutable std::mutex mutex_;
  Pieces pieces_;
};

// Return where the calling thread has memory and makes communicators: where it was told to, none if it was
// not; else its device, or no platform for the host, by HCCC_HEAP, and where that is not set, where
// HCCC_PLATFORM names a GPU. Throw Error.
std::optional<Device> told_memory();
Device memory_of_thread();
// Tells the calling thread so. Throws Error where the device is not here.
void set_memory_of_thread(const std::optional<Device> &device);

// Returns HCCC_HEAP_BYTES, else 0. Throws Error.
size_t heap_bytes_of_environment();

}  // namespace hccc
