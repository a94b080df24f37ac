// broadcasts.cpp: the rings of short Broadcasts.
#include "broadcasts.h"

#include <hccc/backoff.h>

#include "arguments.h"
#include "communicator.h"
#include "log.h"

namespace hccc {

uint64_t Broadcasts::taken_by_all() const {
  uint64_t least = sent_;
  for (size_t r = 0; r < rings_.size(); ++r)
    if (static_cast<int>(r) != rank_)
      least = std::min(least, ring(static_cast<int>(r)).taken_of(rank_).pieces.load(std::memory_order_acquire));
  return least;
}

void Broadcasts::reset() {
  for (PieceHead &head : ring(rank_).heads) head.turn.store(0, std::memory_order_relaxed);
  for (size_t r = 0; r < rings_.size(); ++r)
    ring(rank_).taken_of(static_cast<int>(r)).pieces.store(0, std::memory_order_relaxed);
  sent_ = taken_ = 0;
  std::fill(received_.begin(), received_.end(), 0);
}

// Returns whether a call goes through the root's ring without an agreement: all ranks that make it say the same. What a
// user has loaded runs as it was written.
bool Communicator::goes_ahead(const Library &library, const Wanted &wanted) const {
  if (!broadcasts_ || !wanted.count || wanted.blocks || !library.standard()) return false;
  if (strcmp(library.description().collective, "Broadcast")) return false;
  return wanted.count <= MOST_AHEAD / static_cast<size_t>(bytes_of_type(wanted.type));
}

// Returns the number of a call that all ranks have begun. No rank is further ahead of another than PIECES calls, so that
// the calls of a number can be compared.
uint64_t Communicator::begun_by_all() const {
  uint64_t least = UINT64_MAX;
  for (int r = 0; r < n_ranks_; ++r)
    least = std::min(least, host_->control(r).called[0].load(std::memory_order_relaxed));
  return std::max(least, monitor_->settled());
}

// Makes a Broadcast through the root's ring. A root that is ahead learns in a later call that this one was refused.
void Communicator::broadcast(const Buffers &buffers, const Called &called) {
  const unsigned long long start = hccc_clock();
  hccc_backoff backoff = {oversubscribed_, 0};
  const auto wait = [&] {
    if (__atomic_load_n(&failure_.fault()->claimed, __ATOMIC_ACQUIRE)) throw_reason(called);
    hccc_back_off(backoff);
    hccc_sleep_for_part(hccc_clock() - start);
  };
  while (called.number - begun_ > PIECES && (begun_ = begun_by_all(), called.number - begun_ > PIECES)) wait();
  const size_t bytes = static_cast<size_t>(called.count) * static_cast<size_t>(bytes_of_type(called.type));
  if (called.root == rank_) {
    broadcasts_->send(buffers.send, bytes, called.signature, wait);
    if (buffers.receive && buffers.receive != buffers.send) memmove(buffers.receive, buffers.send, bytes);
  } else if (!broadcasts_->receive(called.root, buffers.receive, bytes, called.signature, wait)) {
    monitor_->refuse(called.number);
    throw Error(hcccInvalidUsage, "");
  }
}

}  // namespace hccc
