// pool.h: host memory in slots, to stage memory that UCX cannot reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "include/hccc_transport.h"
#include "library.h"

namespace hccc::transport {

// Slots of host memory, registered with UCX and, by the copier, with the device.
class Pool {
 public:
  bool make(ucp::Context context, const hccc_transport_copier &copier, size_t slot_bytes, int slots,
            std::string &why);
  void free(ucp::Context context, const hccc_transport_copier &copier);
  bool made() const { return memory_ != nullptr; }
  int take();  // -1: none is free
  void give(int slot) { free_.push_back(slot); }
  char *at(int slot) const { return memory_ + size_t(slot) * slot_bytes_; }
  ucp::Memory registered() const { return registered_; }

 private:
  char *memory_ = nullptr;
  size_t bytes_ = 0, slot_bytes_ = 0;
  ucp::Memory registered_ = nullptr;
  bool pinned_ = false;
  std::vector<int> free_;
};

// Stores to counters in memory of a device: 4 bytes each, in order.
class Cells {
 public:
  // Begins a store; false: it failed.
  bool store(const hccc_transport_copier &copier, void *to, uint32_t value);
  // Counts the stores that have completed since the last call; negative: one failed.
  int finish(const hccc_transport_copier &copier);
  bool empty() const { return pending_.empty(); }

 private:
  struct Cell {
    uint32_t value;
    void *ticket;
  };
  std::deque<Cell> pending_;  // elements stay where they are
};

}  // namespace hccc::transport
