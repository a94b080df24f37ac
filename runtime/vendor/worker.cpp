// worker.cpp: see worker.h.
#include "worker.h"

#include <chrono>
#include <utility>

namespace hccc::vendor {

Worker::Worker() { std::thread(serve, state_).detach(); }

Worker::~Worker() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->ends = true;
  state_->begun.notify_one();
}

void Worker::serve(std::shared_ptr<State> state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->begun.wait(lock, [&] { return state->body || state->ends; });
    if (!state->body) return;
    const std::function<void()> body = state->body;
    lock.unlock();
    std::exception_ptr error;
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    state->body = nullptr, state->error = error;
    state->done.notify_one();
  }
}

void Worker::run(std::function<void()> body, const std::function<void()> &look) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->body = std::move(body), state_->error = nullptr;
  state_->begun.notify_one();
  while (!state_->done.wait_for(lock, std::chrono::milliseconds(20), [&] { return !state_->body; })) try {
      look();
    } catch (...) {
      left_ = true;
      throw;
    }
  if (state_->error) std::rethrow_exception(state_->error);
}

}  // namespace hccc::vendor
