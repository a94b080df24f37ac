// heap.h: the memory of hcccMemAlloc, which the other ranks of a host reach.
#pragma once

#include <stddef.h>

#include <memory>
#include <mutex>

#include "pieces.h"
#include "shared_memory.h"

namespace hccc {

class DeviceHeap;

class Heap {
 public:
  // That of this process, or of the calling thread's device (HCCC_HEAP); made when it is first held
  // and gone with its last holder. Throws Error.
  static std::shared_ptr<Heap> held();

  virtual ~Heap() = default;
  // Zeroed, at a multiple of a page; zero bytes are one page. Throws Error where there is no room.
  virtual void *take(size_t bytes) = 0;
  // False: it is nothing that was taken.
  virtual bool give(void *pointer) = 0;
  // Whether all of it lies in what was taken.
  virtual bool has(const void *pointer, size_t bytes) const = 0;
  // Null where it is memory of the host.
  virtual DeviceHeap *of_device() { return nullptr; }
  // The file in which all of it is, of which peers map all; null where it is of a device.
  virtual const SharedFile *file() const { return nullptr; }
};

// One file of a process, as large as memory may be, of which every peer maps all when a communicator
// is made: what is allocated later is already there.
class FileHeap final : public Heap {
 public:
  explicit FileHeap(size_t bytes);

  void *take(size_t bytes) override;
  bool give(void *pointer) override;
  bool has(const void *pointer, size_t bytes) const override;
  const SharedFile *file() const override { return &file_; }

 private:
  SharedFile file_;
  mutable std::mutex mutex_;
  Pieces pieces_;
};

// Whether memory is that of the calling thread's device: HCCC_HEAP, and where it is not set a GPU that
// HCCC_PLATFORM names. Throws Error.
bool heap_is_of_device();

// HCCC_HEAP_BYTES, else 0. Throws Error.
size_t heap_bytes_of_environment();

}  // namespace hccc
