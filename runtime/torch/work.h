// work.h: the works of a group, and the queue that runs them in order.
//
// A work runs in a stream of the device layer, or in a thread that waits for it, where that comes
// first: a call that is not asynchronous, or waited for at once, changes no thread. So a callback
// of a work's future, in the stream's thread, may wait for a later work as well.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm.h"

namespace hccc_torch {

class Queue;

class HcccWork : public c10d::Work {
 public:
  using Body = std::function<void()>;

  HcccWork(int rank, c10d::OpType type, const char *title, const std::vector<at::Tensor> &inputs,
           std::vector<at::Tensor> results, std::shared_ptr<Queue> queue, Body body)
      : Work(rank, type, title, inputs),
        results_(std::move(results)),
        queue_(std::move(queue)),
        body_(std::move(body)) {}

  // A send or receive, which goes on with others that are waiting with it.
  HcccWork(int rank, c10d::OpType type, const char *title, const at::Tensor &tensor, std::shared_ptr<Queue> queue,
           const Message &message, Body finish)
      : HcccWork(rank, type, title, {tensor}, {tensor}, std::move(queue), std::move(finish)) {
    message_ = message;
    source_ = message.peer;
    if (!message.sends) message_->source = &source_;
  }

  int sourceRank() const override { return message_ && !message_->sends ? source_ : Work::sourceRank(); }
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  friend class Queue;

  // Sets the future, once, if there is one and the work is done.
  void set_future();

  std::vector<at::Tensor> results_;
  std::shared_ptr<Queue> queue_;
  Body body_;
  std::optional<Message> message_;
  int source_ = ANY_PEER;
  std::atomic<bool> begun_{false};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool future_set_ = false;
};

using WorkPtr = c10::intrusive_ptr<HcccWork>;

// Directs the thread's calls of the device layer to the CPU while it lives.
class OnCpu {
 public:
  OnCpu() {
    if (library().hcccrtGetPlatform(&before_)) before_ = hcccrtPlatformNone;
    library().hcccrtSetPlatform(hcccrtPlatformCPU);
  }
  ~OnCpu() {
    if (before_ == hcccrtPlatformNone) library().hcccrtSetPlatformAuto();
    else library().hcccrtSetPlatform(before_);
  }

 private:
  hcccrtPlatform_t before_ = hcccrtPlatformNone;
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  using Exchange = std::function<void(const std::vector<Message> &)>;

  // exchange: makes messages, in a queue of messages.
  explicit Queue(Exchange exchange = nullptr) : exchange_(std::move(exchange)) {}

  void put(WorkPtr work, bool asynchronous) {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!ended_, "hccc: the process group was destroyed");
    works_.push_back(std::move(work));
    if (asynchronous) tell_stream();
  }

  // Runs works until this one has begun; another thread may be running it.
  void run_until(const HcccWork &work) {
    while (!work.begun_ && run_one(&work)) {
    }
  }

  // Runs what is left; no more may be put.
  void finish() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    while (run_one(nullptr)) {
    }
    hcccrtStream_t stream = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::swap(stream, stream_);
    }
    if (!stream) return;
    const OnCpu cpu;
    library().hcccrtStreamDestroy(stream);  // after the works in it
  }

 private:
  using Queues = std::vector<std::shared_ptr<Queue>>;
  // How long a stream lets messages gather: a send alone may wait for a receive that its receiver
  // makes after a send to this rank.
  static constexpr std::chrono::milliseconds PAUSE{1};

  // Has the stream run one work. mutex_ is held. A stream's function can put nothing into streams:
  // its thread runs the work itself, at the function's end.
  void tell_stream() {
    if (Queues *later = in_stream()) return later->push_back(shared_from_this());
    const OnCpu cpu;
    if (!stream_)
      check_device(library().hcccrtStreamCreateWithFlags(&stream_, hcccrtStreamNonBlocking));
    auto own = std::make_unique<std::shared_ptr<Queue>>(shared_from_this());
    check_device(library().hcccrtLaunchHostFunc(stream_, reached, own.get()));
    own.release();
  }

  static void reached(void *own) {
    const std::unique_ptr<std::shared_ptr<Queue>> queue(static_cast<std::shared_ptr<Queue> *>(own));
    if ((*queue)->exchange_) std::this_thread::sleep_for(PAUSE);
    Queues told = {*queue};
    in_stream() = &told;
    for (size_t k = 0; k < told.size(); ++k) std::shared_ptr<Queue>(told[k])->run_one(nullptr);
    in_stream() = nullptr;
  }

  // The queues that this thread, in a stream's function, has to run a work of; null outside.
  static Queues *&in_stream() {
    static thread_local Queues *queues = nullptr;
    return queues;
  }

  // Runs the first work, after the one that runs; of messages all that wait. False: none is left, or
  // `unless` has begun.
  bool run_one(const HcccWork *unless) {
    std::vector<WorkPtr> works;
    {
      const std::lock_guard<std::mutex> alone(running_);
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (works_.empty() || (unless && unless->begun_)) return false;
        do {
          works.push_back(std::move(works_.front()));
          works_.pop_front();
          works.back()->begun_ = true;
        } while (exchange_ && !works_.empty());
      }
      std::exception_ptr error;
      try {
        run(works);
      } catch (...) {
        error = std::current_exception();
      }
      for (const WorkPtr &work : works) work->finish(error);
    }
    for (const WorkPtr &work : works) work->set_future();  // callbacks may wait for the next work
    return true;
  }

  void run(const std::vector<WorkPtr> &works) {
    std::vector<Message> messages;
    for (const WorkPtr &work : works)
      if (work->message_) messages.push_back(*work->message_);
    if (exchange_) exchange_(messages);
    for (const WorkPtr &work : works) {
      const HcccWork::Body body = std::move(work->body_);
      work->body_ = nullptr;
      body();
    }
  }

  const Exchange exchange_;
  std::mutex running_;  // locked before mutex_
  std::mutex mutex_;
  std::deque<WorkPtr> works_;
  hcccrtStream_t stream_ = nullptr;
  bool ended_ = false;
};

inline bool HcccWork::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout) queue_->run_until(*this);
  return Work::wait(timeout);
}

inline void HcccWork::set_future() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!future_ || !completed_ || future_set_) return;
    future_set_ = true;
  }
  if (exception_) future_->setError(exception_);
  else future_->markCompleted(c10::IValue(results_));
}

inline c10::intrusive_ptr<c10::ivalue::Future> HcccWork::getFuture() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!future_)
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  }
  set_future();
  return future_;
}

}  // namespace hccc_torch
