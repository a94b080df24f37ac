// worker.h: a thread for calls of a library that cannot be interrupted.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace hccc::vendor {

class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;

  // Runs a body in the worker's thread. Throws what it throws, or what `look` does, which is called now
  // and then: the thread is then left inside the body, which must hold what it needs.
  void run(std::function<void()> body, const std::function<void()> &look);
  // Returns whether a body was left.
  bool left() const { return left_; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable begun, done;
    std::function<void()> body;  // null: none to run
    std::exception_ptr error;
    bool ends = false;
  };
  static void serve(std::shared_ptr<State> state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  bool left_ = false;
};

}  // namespace hccc::vendor
