// scratch.h: scratch of the ranks of a host, mapped as far as calls have needed it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "shared_memory.h"

namespace hccc {

// Memory of each rank for what a call keeps in between. A communicator has some of its own, and some
// that it shares with all that are split of it: that is, at each rank, one call's at a time. A
// call never waits for it: ranks come to the calls of several communicators in any order.
class Scratch {
 public:
  // most: bytes of a rank.
  Scratch(size_t n_ranks, size_t most) : most_(most), parts_(n_ranks) {}

  // Sets a rank's first part, which grows.
  void add(size_t rank, Mapping part) { parts_[rank] = std::move(part); }
  // Returns where a rank's is, of at least so many bytes; null: it is not of this host. It may have moved: no
  // kernel of this process may use it. Throws Error.
  void *at(size_t rank, size_t bytes);
  size_t most() const { return most_; }

  // Takes the own rank's for a call. False: another call has it.
  bool take() { return !taken_.exchange(true, std::memory_order_acquire); }
  void give() { taken_.store(false, std::memory_order_release); }

 private:
  const size_t most_;
  std::mutex mutex_;  // of the next
  std::vector<Mapping> parts_;
  std::atomic<bool> taken_{false};
};

// The scratch that a communicator shares with those that it was split of; null: with none.
struct Family {
  std::shared_ptr<Scratch> scratch;
  std::vector<int> ranks;  // of this communicator's ranks, there
};

}  // namespace hccc
