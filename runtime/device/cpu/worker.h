// worker.h: work in order, in a thread of its own that sleeps when there is none.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "../include/hcccrt.h"

namespace hcccrt::cpu {

// How far a worker has come. It outlives the worker, so that tickets of it stay good.
struct Progress {
  std::mutex mutex;
  std::condition_variable moved;
  uint64_t submitted = 0, completed = 0;
};

// All that a worker had been given at some time. Without a worker it is done.
struct Ticket {
  std::shared_ptr<Progress> of;
  uint64_t number = 0;

  bool done() const;
  void wait() const;
};

// Anything but success is the loss of the device.
using Job = std::function<hcccrtError_t()>;

// Whether this thread is a worker's, which must not call the device layer.
extern thread_local bool in_worker;

class Worker {
 public:
  // lost: the error that made the device useless; jobs are passed over then. cpus: empty for all.
  Worker(std::atomic<int> *lost, size_t stack_bytes, std::vector<int> cpus);
  ~Worker();

  // After what was pushed before and after `after`. Throws std::system_error without a thread.
  Ticket push(std::vector<Ticket> after, Job job);
  // All that was pushed until now.
  Ticket tail() const;
  bool idle() const { return tail().done(); }

  // No more work will come: the thread ends after the last. join() waits for that.
  void finish();
  // As finish, and what has not begun is passed over.
  void drop();
  void join();

 private:
  struct Work {
    std::vector<Ticket> after;
    Job job;
  };

  void start();
  void run();
  void execute(const Work &work);
  static void *enter(void *self);

  std::atomic<int> *lost_;
  size_t stack_bytes_;
  std::vector<int> cpus_;
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::condition_variable arrived_;  // with the mutex of progress_, as all below
  std::deque<Work> queue_;
  bool closing_ = false, started_ = false;
  std::atomic<bool> dropped_{false};
  pthread_t thread_{};
};

}  // namespace hcccrt::cpu
