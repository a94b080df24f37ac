// failure.h: why a communicator is lost: the first reason, told to all who wait.
#pragma once

#include <hccc/hccc.h>

#include <atomic>
#include <mutex>
#include <string>

#include "control.h"
#include "error.h"

namespace hccc {

class Failure {
 public:
  // The first one stays. True: this was it. Launches that run leave.
  bool set(hcccResult_t code, const std::string &text);

  hcccResult_t code() const { return code_.load(std::memory_order_acquire); }
  std::string text() const;

  // Of the launches of this rank.
  hccc_fault *fault() { return fault_; }
  const hccc_fault *fault() const { return fault_; }
  // Launches have it elsewhere, where a device writes it. Before the first of them.
  void use(hccc_fault *fault) { fault_ = fault; }
  // Where one of them gave up: `claimed` is 1; else nothing of it means anything.
  hccc_fault place() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<hcccResult_t> code_{hcccSuccess};
  std::string text_;
  hccc_fault own_{};
  hccc_fault *fault_ = &own_;
};

// Where a launch was that ended, and what it waited for.
std::string description(const hccc_fault &fault);
// `Allreduce of 1,024 float32 (sum), call 7`.
std::string description(const Called &called);

}  // namespace hccc
