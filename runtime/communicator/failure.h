// failure.h: the first failure of a communicator, which all waiting calls return, and a call that is
// refused: it differs at some rank, all are told, and the communicator goes on.
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

  // Refuses a call, until resume(). Returns whether there was no refusal yet, and no failure.
  bool refuse();
  // Asks running launches to leave.
  void end_launches();
  bool refused() const { return refused_.load(std::memory_order_seq_cst); }
  // Ends a refusal when no launch runs any more. `text` says what was refused.
  void resume(const std::string &text);
  // Counts the refusals that have ended.
  uint64_t refusals() const { return refusals_.load(std::memory_order_acquire); }
  // Return what was refused, "": nothing, where somebody asks how the communicator is, and where a call
  // begins: that forgets it, and returns nothing where somebody has asked. Who asks is told once, too,
  // what tell_later() was given.
  std::string show_refusal();
  std::string end_refusal();
  void tell_later(const std::string &text);
  // Returns what was refused last, whoever has asked.
  std::string last_refusal() const;
  bool has_refusal() const { return has_refusal_.load(std::memory_order_acquire); }

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
  std::atomic<bool> refused_{false}, has_refusal_{false};
  bool shown_ = false;
  std::atomic<uint64_t> refusals_{0};
  std::string refusal_, last_refusal_;
  std::atomic<bool> has_later_{false};
  std::string later_;
  hccc_fault own_{};
  hccc_fault *fault_ = &own_;
};

// Describes where a launch was when it ended, and what it waited for.
std::string description(const hccc_fault &fault);
// Describes a call: `Allreduce of 1,024 float32 (sum), call 7`.
std::string description(const Called &called);

}  // namespace hccc
