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
#include <utility>
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

  // A send or receive, which goes on with others that are waiting with it. prepare: before it begins; may be null.
  HcccWork(int rank, c10d::OpType type, const char *title, const at::Tensor &tensor, std::shared_ptr<Queue> queue,
           const Message &message, Body prepare, Body finish)
      : HcccWork(rank, type, title, {tensor}, {tensor}, std::move(queue), std::move(finish)) {
    message_ = message;
    prepare_ = std::move(prepare);
    status_.source = message.peer;
    if (!message.sends) message_->status = &status_;
    if (!tensor.device().is_cpu()) return;  // copies that wait for a device keep no other message
    message_->done = [](void *work) { static_cast<HcccWork *>(work)->end(nullptr); };
    message_->argument = this;
  }

  int sourceRank() const override { return message_ && !message_->sends ? status_.source : Work::sourceRank(); }
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  friend class Queue;

  // Lists the device of the tensors, unless it is the host.
  std::vector<c10::Device> devices() const {
    if (results_.empty() || results_[0].device().is_cpu()) return {};
    return {results_[0].device()};
  }
  // Ends the work, once: with what is left to do, unless it failed.
  void end(std::exception_ptr error) {
    if (ended_.exchange(true)) return;
    const Body body = std::exchange(body_, nullptr);
    try {
      if (!error && body) body();
    } catch (...) {
      error = std::current_exception();
    }
    finish(error);
  }
  // Sets the future, once, if there is one and the work is done.
  void set_future();

  std::vector<at::Tensor> results_;
  std::shared_ptr<Queue> queue_;
  Body prepare_, body_;
  std::optional<Message> message_;
  hcccStatus_t status_{};
  std::atomic<bool> begun_{false};
  std::atomic<bool> ended_{false};
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

// How a queue of messages makes them. next: the number of the next exchange, in the order of these
// calls; make: makes one, beside those that other threads make.
struct Exchanges {
  std::function<uint64_t()> next;
  std::function<void(const std::vector<Message> &, uint64_t number)> make;
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  // exchanges: of a queue of messages.
  explicit Queue(std::optional<Exchanges> exchanges = std::nullopt) : exchanges_(std::move(exchanges)) {}

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
    std::vector<hcccrtStream_t> streams;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::swap(streams, streams_);
    }
    const OnCpu cpu;
    for (const hcccrtStream_t one : streams) library().hcccrtStreamDestroy(one);  // after the works in it
  }

 private:
  using Queues = std::vector<std::shared_ptr<Queue>>;
  // How long a stream lets messages gather: a send alone may wait for a receive that its receiver
  // makes after a send to this rank.
  static constexpr std::chrono::milliseconds PAUSE{1};
  static constexpr size_t MOST_STREAMS = 16;  // of messages
  static constexpr size_t FEW = 16;           // messages

  struct Told {
    std::shared_ptr<Queue> queue;
    hcccrtStream_t stream;
  };

  // Has a stream run one work, or all messages that wait then. mutex_ is held. A stream's function can
  // put nothing into streams: its thread runs the work itself, at the function's end.
  void tell_stream() {
    if (Queues *later = in_stream()) return later->push_back(shared_from_this());
    if (told_) return;
    const OnCpu cpu;
    const hcccrtStream_t stream = free_stream();
    if (!stream) return;  // the next that is free runs it
    auto own = std::make_unique<Told>(Told{shared_from_this(), stream});
    check_device(library().hcccrtLaunchHostFunc(stream, reached, own.get()));
    own.release();
    told_ = exchanges_.has_value();
  }

  // Returns the stream of collectives, or one that makes no messages; null: there are enough.
  hcccrtStream_t free_stream() {
    if (!exchanges_ && !streams_.empty()) return streams_[0];
    if (!free_.empty()) {
      const hcccrtStream_t found = free_.back();
      free_.pop_back();
      return found;
    }
    if (streams_.size() == MOST_STREAMS) return nullptr;
    hcccrtStream_t made = nullptr;
    check_device(library().hcccrtStreamCreateWithFlags(&made, hcccrtStreamNonBlocking));
    streams_.push_back(made);
    return made;
  }

  static void reached(void *own) {
    const std::unique_ptr<Told> by(static_cast<Told *>(own));
    Queues told = {by->queue};
    in_stream() = &told;
    if (by->queue->exchanges_) by->queue->make_messages(by->stream);
    else by->queue->run_one(nullptr);
    for (size_t k = 1; k < told.size(); ++k) std::shared_ptr<Queue>(told[k])->run_one(nullptr);
    in_stream() = nullptr;
  }

  void make_messages(hcccrtStream_t stream) {
    std::this_thread::sleep_for(PAUSE);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      told_ = false;  // messages from now on have another stream, as this one may wait long
    }
    while (run_one(nullptr)) {
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(stream);
  }

  // The queues that this thread, in a stream's function, has to run a work of; null outside.
  static Queues *&in_stream() {
    static thread_local Queues *queues = nullptr;
    return queues;
  }

  // Runs the first work, after the one that runs; of messages all that wait, of many those up to `unless`: who
  // waits for one waits for all that it runs. False: none is left, or `unless` has begun.
  bool run_one(const HcccWork *unless) {
    std::vector<WorkPtr> works;
    {
      std::unique_lock<std::mutex> alone(running_);
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (works_.empty() || (unless && unless->begun_)) return false;
        const bool few = works_.size() <= FEW;
        do {
          works.push_back(std::move(works_.front()));
          works_.pop_front();
          works.back()->begun_ = true;
        } while (exchanges_ && !works_.empty() && (few || !unless || !unless->begun_));
      }
      std::exception_ptr error;
      try {
        uint64_t number = 0;
        if (exchanges_) {
          number = exchanges_->next();
          alone.unlock();  // later messages join
        }
        run(works, number);
      } catch (...) {
        error = std::current_exception();
      }
      for (const WorkPtr &work : works) work->end(error);
    }
    for (const WorkPtr &work : works) work->set_future();  // callbacks may wait for the next work
    return true;
  }

  void run(const std::vector<WorkPtr> &works, uint64_t number) {
    std::vector<Message> messages;
    std::exception_ptr unprepared;
    for (const WorkPtr &work : works) {
      const HcccWork::Body prepare = std::exchange(work->prepare_, nullptr);
      try {
        if (prepare) prepare();
      } catch (...) {
        unprepared = std::current_exception();
      }
      if (work->message_) messages.push_back(*work->message_);
    }
    if (unprepared) messages.clear();  // the number is used all the same
    if (exchanges_) exchanges_->make(messages, number);
    if (unprepared) std::rethrow_exception(unprepared);
  }

  const std::optional<Exchanges> exchanges_;
  std::mutex running_;  // locked before mutex_
  std::mutex mutex_;
  std::deque<WorkPtr> works_;
  std::vector<hcccrtStream_t> streams_, free_;
  bool told_ = false;  // a stream will make the messages that wait
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
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices());
  }
  set_future();
  return future_;
}

}  // namespace hccc_torch
