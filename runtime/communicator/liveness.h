// liveness.h: which ranks show signs of life: those of this host by the beats of their monitors, in
// their control pages, others by the answers that rank 0 gets from them.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "host.h"

namespace hccc {

class Liveness {
 public:
  Liveness(hccc_bootstrap *bootstrap, const Host &host, int rank);

  // Beats for this rank, and looks at the beats of the others of this host.
  void beat();
  // Looks for signs of life of ranks of other hosts, and asks for new ones.
  void ask();

  // Looks for no more signs of a rank: it has left.
  void forget(int rank);

  // Says which ranks stand still: that are stopped, or have shown no sign of life for so long;
  // "": none.
  std::string describe_silent(double seconds) const;
  // Returns the number of the last call that a rank of another host began, as far as it is known.
  uint64_t far_call(int rank) const;
  // Returns the same, if the rank was in that call when it answered; else 0.
  uint64_t far_running(int rank) const;
  // Returns whether that is another call than this one of the same number.
  bool far_differs(int rank, const Called &own) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Sign {
    uint32_t beat = 0;
    Clock::time_point changed = Clock::now();
    double silent_s = 0;  // of a rank of another host
    unsigned long long call = 0;
    bool left = false;
  };
  bool left(int rank) const;
  std::vector<int> silent_near(double seconds, double *longest) const;
  std::vector<int> silent_far(double seconds, double *longest) const;

  hccc_bootstrap *bootstrap_;
  const Host &host_;
  const int rank_;
  mutable std::mutex mutex_;
  std::vector<Sign> signs_;
};

// Returns what ranks of other hosts are told of a call: its number, whether it runs, and a digest.
uint64_t shown(const Called &called, bool runs);

// Writes ranks as `rank 3` or `ranks 1, 2 and 5`.
std::string names_of(const std::vector<int> &ranks);

}  // namespace hccc
