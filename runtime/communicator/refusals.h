// refusals.h: how the ranks come back from a call that differs at one of them. Whoever notices it
// tells all; each rank's launches leave, it zeroes its flags when nobody touches them any more, and
// goes on when all have.
#pragma once

#include <stdint.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "failure.h"
#include "notices.h"

namespace hccc {

// A rank without a running launch, and how far it has come.
struct AtRest {
  uint64_t refusal = 0;                // which it is about, from 1; 0: none
  uint64_t number = 0, agreements = 0;  // of its last call, and how many it has agreed on
  uint32_t sent = 0, received = 0;     // transfers between hosts, modulo 2^32
  Called called[2];                    // of the number that is refused, or its last; and the one before
};

class Refusals {
 public:
  static constexpr uint64_t NONE = UINT64_MAX;
  // What the communicator does for it. They throw nothing.
  struct Steps {
    // Ends launches from that call on, and fills it in; false: some still run.
    std::function<bool(AtRest &, uint64_t number)> rest;
    std::function<bool()> reset;                          // zeroes the own flags; false: it failed
    std::function<void(int rank, const Withdrawn &)> drop;  // messages of a rank to this one
  };
  Refusals(hccc_bootstrap *bootstrap, Failure &failure, int rank, int n_ranks, Steps steps);

  // Refuses the call of a number, which runs, and tells all ranks.
  void refuse(uint64_t number);
  // Tells other ranks what they drop. Before this rank is at rest.
  void tell_withdrawn(const std::vector<Withdrawn> &all);
  // Returns the lowest number of a call that is refused.
  uint64_t number() const { return number_.load(std::memory_order_acquire); }
  // Takes a notice of another rank. By one thread, as step().
  void take(int rank, const Notice &notice);
  // Goes as far as it can.
  void step();
  // Returns the number of the last call before the last refusal ended: no rank has come further then.
  uint64_t settled() const { return settled_.load(std::memory_order_acquire); }
  // Returns the agreements before it.
  uint64_t agreements() const { return agreements_.load(std::memory_order_acquire); }

 private:
  bool note(uint64_t number);
  void tell_rest();
  bool all_at_rest() const;
  std::string difference() const;

  hccc_bootstrap *const bootstrap_;
  Failure &failure_;
  const size_t rank_;
  const Steps steps_;
  std::vector<AtRest> at_rest_;
  std::atomic<uint64_t> number_{NONE};  // the lowest of a refused call
  std::atomic<uint64_t> settled_{0}, agreements_{0};
  std::vector<uint64_t> reset_;  // the last refusal for which each rank has zeroed its flags
};

}  // namespace hccc
