// monitor.h: a thread that notices failures that no kernel can: the end of a rank's process, a rank
// that aborts, different calls at two ranks. It wakes up ten times a second.
#pragma once

#include <stdint.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "descriptor.h"
#include "failure.h"
#include "host.h"

namespace hccc {

// Sends all other ranks the reason why this one aborts.
void notify_ranks(hccc_bootstrap *bootstrap, hcccResult_t code, const std::string &text);

class Monitor {
 public:
  // watch: called at every turn; throws nothing.
  Monitor(hccc_bootstrap *bootstrap, const Host &host, Failure &failure, int rank, std::function<void()> watch);
  ~Monitor();

  // The number of the running call, 0 for none: calls are compared while one runs.
  std::atomic<uint64_t> running{0};

  void notify(hcccResult_t code, const std::string &text) { notify_ranks(bootstrap_, code, text); }

  // Closes the descriptors, in a child of fork() that has no such thread.
  void forsake();

 private:
  void run();
  void wait();
  void read_messages();
  void handle_departure(int rank, bool orderly);
  void compare_calls();

  hccc_bootstrap *bootstrap_;
  const Host &host_;
  Failure &failure_;
  const int rank_;
  const std::function<void()> watch_;
  std::vector<Descriptor> processes_;  // of every other process of this host; -1: none, or ended
  std::vector<bool> left_;
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace hccc
