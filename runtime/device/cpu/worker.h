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

// The progress of a worker. It outlives the worker, so that tickets stay valid.
struct Progress {
  std::mutex mutex;
  std::condition_variable moved;
  uint64_t submitted = 0, completed = 0;
};

// A point in a worker's queue: all jobs pushed before it. Without a worker it is passed.
struct Ticket {
  std::shared_ptr<Progress> of;
  uint64_t number = 0;

  bool done() const;
  void wait() const;
};

// A job; an error is the loss of the device.
using Job = std::function<hcccrtError_t()>;

// Returns whether this thread is a worker's, which must not call the device layer.
extern thread_local bool in_worker;

class Worker {
 public:
  // lost: the error that made the device unusable; jobs are then skipped. cpus: empty for all.
  Worker(std::atomic<int> *lost, size_t stack_bytes, std::vector<int> cpus);
  ~Worker();

  // Queues a job, to run after earlier jobs and after `after`. Throws std::system_error without a
  // thread.
  Ticket push(std::vector<Ticket> after, Job job);
  // Returns the end of the queue.
  Ticket tail() const;
  bool idle() const { return tail().done(); }

  // Lets the thread end after the last job; join() waits for that.
  void finish();
  // Lets the thread end, and skips jobs that have not begun.
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
