// worker.cpp: threads that run streams.
#include "worker.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <climits>
#include <system_error>

namespace hcccrt::cpu {

thread_local bool in_worker = false;

bool Ticket::done() const {
  if (!of) return true;
  std::lock_guard<std::mutex> lock(of->mutex);
  return of->completed >= number;
}

void Ticket::wait() const {
  if (!of) return;
  std::unique_lock<std::mutex> lock(of->mutex);
  of->moved.wait(lock, [this] { return of->completed >= number; });
}

Worker::Worker(std::atomic<int> *lost, size_t stack_bytes, std::vector<int> cpus)
    : lost_(lost), stack_bytes_(stack_bytes), cpus_(std::move(cpus)) {}

Worker::~Worker() {
  finish();
  join();
}

Ticket Worker::push(std::vector<Ticket> after, Job job) {
  std::lock_guard<std::mutex> lock(progress_->mutex);
  if (!started_) start();
  queue_.push_back({std::move(after), std::move(job)});
  arrived_.notify_one();
  return {progress_, ++progress_->submitted};
}

Ticket Worker::tail() const {
  std::lock_guard<std::mutex> lock(progress_->mutex);
  return {progress_, progress_->submitted};
}

void Worker::finish() {
  std::lock_guard<std::mutex> lock(progress_->mutex);
  closing_ = true;
  arrived_.notify_one();
}

void Worker::drop() {
  dropped_ = true;
  finish();
}

void Worker::join() {
  {
    std::lock_guard<std::mutex> lock(progress_->mutex);
    if (!started_) return;
    started_ = false;
  }
  pthread_join(thread_, nullptr);
}

// Starts a thread that takes no signals: they are for the program's threads.
void Worker::start() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack_bytes_) pthread_attr_setstacksize(&attributes, stack_bytes_);
  if (!cpus_.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus_) CPU_SET(cpu, &set);
    pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, &attributes, enter, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error) throw std::system_error(error, std::generic_category());
  started_ = true;
  pthread_setname_np(thread_, "hcccrt-stream");
}

void *Worker::enter(void *self) {
  in_worker = true;
  static_cast<Worker *>(self)->run();
  return nullptr;
}

void Worker::run() {
  std::unique_lock<std::mutex> lock(progress_->mutex);
  for (;;) {
    arrived_.wait(lock, [this] { return !queue_.empty() || closing_; });
    if (queue_.empty()) return;
    {
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      execute(work);
    }  // the job is destroyed before it counts as completed
    lock.lock();
    ++progress_->completed;
    progress_->moved.notify_all();
  }
}

void Worker::execute(const Work &work) {
  for (const Ticket &ticket : work.after)
    if (!dropped_) ticket.wait();
  if (dropped_ || *lost_ || !work.job) return;
  hcccrtError_t error;
  try {
    error = work.job();
  } catch (...) {
    error = hcccrtErrorLaunchFailure;
  }
  int none = hcccrtSuccess;
  if (error) lost_->compare_exchange_strong(none, error);
}

}  // namespace hcccrt::cpu
