// failure.h: the first failure of a communicator, which all waiting calls return.
#pragma once

#include <hccc/hccc.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "control.h"
#include "error.h"

namespace hccc {

class Failure {
 public:
  // Sets the failure if there is none yet, and asks running launches to leave. True: it was the
  // first.
  bool set(hcccResult_t code, const std::string &text);
  // Sets the failure after half a second, unless another comes first: a peer that is gone may have
  // left because of a failure that this rank has yet to hear of. confirm() does it, which the monitor
  // calls.
  void suspect(hcccResult_t code, const std::string &text);
  void confirm();

  hcccResult_t code() const { return code_.load(std::memory_order_acquire); }
  std::string text() const;

  // Returns the fault record of this rank's launches.
  hccc_fault *fault() { return fault_; }
  const hccc_fault *fault() const { return fault_; }
  // Uses another fault record, which a device writes; called before the first launch.
  void use(hccc_fault *fault) { fault_ = fault; }
  // Returns the fault of a launch that ended early, with `claimed` 1; else nothing in it is valid.
  hccc_fault place() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<hcccResult_t> code_{hcccSuccess};
  std::string text_;
  std::atomic<bool> suspected_{false};  // the members below are set
  hcccResult_t suspected_code_ = hcccSuccess;
  std::string suspected_text_;
  std::chrono::steady_clock::time_point suspected_at_;
  hccc_fault own_{};
  hccc_fault *fault_ = &own_;
};

// Describes where a launch was when it ended, and what it waited for.
std::string description(const hccc_fault &fault);
// Describes a call: `Allreduce of 1,024 float32 (sum), call 7`.
std::string description(const Called &called);

}  // namespace hccc
