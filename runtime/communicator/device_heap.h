// device_heap.h: the memory of hcccMemAlloc on a device: segments that peers map one by one.
#pragma once

#include <deque>
#include <mutex>

#include "device.h"
#include "handles.h"
#include "heap.h"

namespace hccc {

class DeviceHeap final : public Heap {
 public:
  explicit DeviceHeap(const Device &device);
  ~DeviceHeap() override;

  void *take(size_t bytes) override;
  bool give(void *pointer) override;
  bool has(const void *pointer, size_t bytes) const override;
  bool spans(const void *pointer) const override;
  DeviceHeap *of_device() override { return this; }

  const Device &device() const { return device_; }
  HandleKind kind() const { return kind_; }

  // Memory of which allocations are parts. It stays until the heap ends, so that peers need not
  // unmap it before, and keeps its number.
  struct Segment {
    char *base;
    Pieces pieces;
  };
  // Returns the segment that has all of the bytes; -1: none.
  int segment_of(const void *pointer, size_t bytes) const;
  const Segment &segment(int number) const;

 private:
  char *take_piece(size_t bytes);
  char *grow(size_t bytes);
  void clear(char *at, size_t bytes);

  const Device device_;
  const HandleKind kind_;
  std::mutex growing_;  // locked before the next
  size_t total_ = 0;    // of all segments
  mutable std::mutex mutex_;
  std::deque<Segment> segments_;
  hcccrtStream_t stream_ = nullptr;  // waits for no kernel
};

}  // namespace hccc
