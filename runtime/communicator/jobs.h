// jobs.h: the jobs of a communicator, which make calls in place of its libraries (runtime/job).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "libraries.h"

namespace hccc {

class Job {
 public:
  virtual ~Job() = default;
  virtual const char *name() const = 0;
  // Returns whether it does a call's collective for its root, or has the name that the call asks for.
  virtual bool does(const Wanted &wanted) const = 0;
  // Checks what this rank can of a call before it is made. Throws Error.
  virtual void check(const Wanted &wanted) const = 0;
  // Makes a call; returns when this rank's part is done. Throws Error.
  virtual void make(const Wanted &wanted, double timeout_s) = 0;
  // Makes a running call return, and no later one begin, here and at every rank.
  virtual void stop(hcccResult_t code, const std::string &text) = 0;
};

class Jobs {
 public:
  void add(std::shared_ptr<Job> job) {
    std::lock_guard<std::mutex> lock(mutex_);
    all_.push_back(std::move(job));
    any_.store(true, std::memory_order_release);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }
  // Returns the job of a call, the last one loaded that does it; null: none.
  std::shared_ptr<Job> of(const Wanted &wanted) const {
    if (!any_.load(std::memory_order_acquire)) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(all_.rbegin(), all_.rend(), [&](const auto &one) { return one->does(wanted); });
    return found == all_.rend() ? nullptr : *found;
  }
  void stop(hcccResult_t code, const std::string &text) const {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &one : all_) one->stop(code, text);
  }
  void end() {
    std::lock_guard<std::mutex> lock(mutex_);
    all_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::vector<std::shared_ptr<Job>> all_;
};

// Returns whether a file is a job's table.
bool is_job(const std::string &path);
// Loads the job of a file, with the library that HCCC_VENDOR names. Collective, in a call's turn. Throws Error.
std::shared_ptr<Job> load_job(hcccComm_t comm, const std::string &path, double timeout_s);

}  // namespace hccc
