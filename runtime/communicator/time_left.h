// time_left.h: what is left of the time of a call that waits several times.
#pragma once

#include <algorithm>
#include <chrono>

namespace hccc {

class TimeLeft {
 public:
  // 0: without end.
  explicit TimeLeft(double seconds) : seconds_(seconds) {}

  // Returns the timeout of the next wait: 0 without end, else more than 0.
  double seconds() const {
    if (seconds_ <= 0) return 0;
    const std::chrono::duration<double> spent = Clock::now() - start_;
    return std::max(0.001, seconds_ - spent.count());
  }
  bool over() const {
    return seconds_ > 0 && std::chrono::duration<double>(Clock::now() - start_).count() > seconds_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace hccc
