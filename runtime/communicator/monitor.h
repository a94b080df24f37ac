// monitor.h: a thread that notices what no kernel can: that a rank's process has ended, that one gave
// up, that ranks call different things. It sleeps, and looks ten times a second.
#pragma once

#include <stdint.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "failure.h"
#include "host.h"

namespace hccc {

class Monitor {
 public:
  // watch: called whenever it looks; it throws nothing.
  Monitor(hccc_bootstrap *bootstrap, const Host &host, Failure &failure, int rank, std::function<void()> watch);
  ~Monitor();

  // The call that runs, 0 for none: only then it matters what others call.
  std::atomic<uint64_t> running{0};

  // Tells all other ranks why this one gives up.
  void tell(hcccResult_t code, const std::string &text);

 private:
  void run();
  void wait();
  void hear();
  void map_memory();
  void gone(int rank, bool orderly);
  void compare();

  hccc_bootstrap *bootstrap_;
  const Host &host_;
  Failure &failure_;
  const int rank_;
  const std::function<void()> watch_;
  std::vector<int> processes_;  // a pidfd of every other process of this host; -1: none, or ended
  std::vector<bool> left_;
  int stop_ = -1;
  std::thread thread_;
};

}  // namespace hccc
