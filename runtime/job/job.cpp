// job.cpp: the lanes of a job, a thread each, and their end.
#include "include/hccc_job.h"

#include <string.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../communicator/comm.h"
#include "combine.h"
#include "joined.h"

namespace hccc::job {

using Clock = std::chrono::steady_clock;
constexpr auto LOOK = std::chrono::milliseconds(20);   // between looks at other ranks
constexpr auto GRACE = std::chrono::milliseconds(1500);  // in which lanes leave after a failure
constexpr auto REASON = std::chrono::milliseconds(1500);  // of a loaded host
constexpr double LATER_S = 1;  // after a call's end: it is this job that says which step was late

// A call. Threads that a library has not let go may outlive it, and the job.
struct Call {
  const hccc_job_schedule *schedule = nullptr;
  char *buffers[4] = {};
  hcccDataType_t type{};
  hcccRedOp_t op{};
  size_t size = 0;
  Combine combine = nullptr;
};

class Lanes {
 public:
  Lanes(hcccComm_t border, const hccc_vendor *vendor, hccc_vendor_comm *comm, std::vector<std::string> steps)
      : border_(border), vendor_(vendor), comm_(comm), steps_(std::move(steps)), rank_(border->of.rank()) {}

  // Starts the thread of a lane, for the calls from now on.
  static std::thread started(const std::shared_ptr<Lanes> &lanes, size_t lane) {
    return std::thread([lanes, lane, turn = lanes->turn_] { lanes->work(lane, turn); });
  }

  // Runs a call whose lanes have threads. False: it failed.
  bool run(const Call &call, double timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    call_ = call;
    const auto n = static_cast<size_t>(call.schedule->n_lanes);
    done_ = std::vector<std::atomic<int>>(n);
    running_ = n;
    ++turn_;
    changed_.notify_all();
    const auto begun = Clock::now();
    const auto finished = [this] { return running_ == 0; };
    while (!changed_.wait_for(lock, LOOK, finished)) {
      if (failed_) {
        if (!changed_.wait_for(lock, GRACE, finished)) left_behind_ = true;
        break;
      }
      lock.unlock();
      look(begun, timeout);
      lock.lock();
    }
    return !failed_;
  }

  void end() {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

  // Fails a call at every rank. where: the task that failed; null: others have, or it is too late.
  void fail(hcccResult_t code, const std::string &why, const hccc_job_task *where) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (failed_) return;
    const std::string here = where ? described(where->step) : slowest();
    const Failure &known = border_->of.failure();
    const bool told = known.code() != hcccSuccess;
    if (told) code_ = known.code(), text_ = known.text() + text_of("; rank %d was in ", rank_) + here;
    else code_ = code, text_ = text_of("rank %d, ", rank_) + here + ": " + why;
    failed_ = true;
    const std::string text = text_;
    changed_.notify_all();
    lock.unlock();
    if (!told) border_->of.abort(code, text);
    if (comm_) vendor_->abort(comm_);
  }

  hcccResult_t code() const { return code_; }
  const std::string &text() const { return text_; }
  bool left_behind() const { return left_behind_; }
  bool failed() const { return failed_; }
  unsigned long long sent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  void work(size_t lane, uint64_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || turn_ != seen; });
      if (ending_) return;
      seen = turn_;
      if (lane >= static_cast<size_t>(call_.schedule->n_lanes)) continue;
      lock.unlock();
      carry_out(lane);
      lock.lock();
      if (--running_ == 0) changed_.notify_all();
    }
  }

  void carry_out(size_t lane) {
    const hccc_job_schedule &all = *call_.schedule;
    const hccc_job_task *const begin = all.tasks + all.lane_begin[lane], *const end = all.tasks + all.lane_begin[lane + 1];
    for (const hccc_job_task *at = begin; at != end;) {
      const hccc_job_task *next = at + 1;
      while (next != end && passes(*at) && passes(*next) && at->group == next->group) ++next;
      for (const hccc_job_task *one = at; one != next; ++one)
        for (int64_t w = one->first_wait; w < one->first_wait + one->n_waits; ++w)
          if (!wait(all.waits[w])) return;
      if (next - at > 1 ? !together(at, next) : !carry_out(*at)) return;
      at = next;
      done_[lane].store(static_cast<int>(at - begin), std::memory_order_seq_cst);
      if (waiting_.load(std::memory_order_seq_cst)) {
        std::lock_guard<std::mutex> lock(mutex_);
        changed_.notify_all();
      }
    }
  }

  static bool passes(const hccc_job_task &task) {
    return task.kind == HCCC_JOB_SEND || task.kind == HCCC_JOB_RECEIVE;
  }

  // Returns when tasks of another lane are done. False: the call has failed.
  bool wait(const hccc_job_wait &on) {
    const auto &done = done_[static_cast<size_t>(on.lane)];
    if (done.load(std::memory_order_acquire) >= on.tasks) return true;
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.wait(lock, [&] { return failed_ || done.load(std::memory_order_seq_cst) >= on.tasks; });
    --waiting_;
    return !failed_;
  }

  bool together(const hccc_job_task *at, const hccc_job_task *end) {
    hcccResult_t result = vendor_->group_start();
    for (const hccc_job_task *one = at; one != end && result == hcccSuccess; ++one) result = perform(*one);
    if (result == hcccSuccess) result = vendor_->group_end();
    return ended(*at, result);
  }

  bool carry_out(const hccc_job_task &task) { return ended(task, perform(task)); }

  // Waits for the reason of a rank that is gone or has given up, which may come after its library's end does.
  void await_reason(hcccResult_t result) const {
    const bool of_another = result == hcccRemoteError || result == hcccAborted;
    const auto until = Clock::now() + REASON;
    while (of_another && border_->of.failure().code() == hcccSuccess && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  bool ended(const hccc_job_task &task, hcccResult_t result) {
    if (result == hcccSuccess) return !failed_;
    await_reason(result);
    const bool hop = task.kind == HCCC_JOB_HOP_SEND || task.kind == HCCC_JOB_HOP_RECEIVE;
    const char *why = hop ? hcccGetLastError(nullptr) : vendor_->last_error();
    fail(result, hop ? std::string(why) : std::string(vendor_->name) + ": " + why, &task);
    return false;
  }

  char *at(int buffer, int64_t element) const {
    return buffer == HCCC_JOB_NOWHERE ? nullptr : call_.buffers[buffer] + static_cast<size_t>(element) * call_.size;
  }

  hcccResult_t perform(const hccc_job_task &t) {
    const char *const from = at(t.from, t.from_at);
    char *const to = at(t.to, t.to_at);
    const auto n = static_cast<size_t>(t.count);
    switch (t.kind) {
      case HCCC_JOB_REDUCE: return vendor_->reduce(from, to, n, call_.type, call_.op, t.peer, comm_, nullptr);
      case HCCC_JOB_BROADCAST: return vendor_->broadcast(from, to, n, call_.type, t.peer, comm_, nullptr);
      case HCCC_JOB_REDUCE_SCATTER:
        return vendor_->reduce_scatter(from, to, n, call_.type, call_.op, comm_, nullptr);
      case HCCC_JOB_ALL_GATHER: return vendor_->all_gather(from, to, n, call_.type, comm_, nullptr);
      case HCCC_JOB_SEND: return vendor_->send(from, n, call_.type, t.peer, comm_, nullptr);
      case HCCC_JOB_RECEIVE: return vendor_->recv(to, n, call_.type, t.peer, comm_, nullptr);
      case HCCC_JOB_HOP_SEND:
        sent_.fetch_add(n * call_.size, std::memory_order_relaxed);
        return hcccSend(from, n, call_.type, t.peer, border_, nullptr);
      case HCCC_JOB_HOP_RECEIVE: return hcccRecv(to, n, call_.type, t.peer, border_, nullptr);
      case HCCC_JOB_ADD: call_.combine(to, from, at(t.with, t.with_at), n); return hcccSuccess;
      case HCCC_JOB_COPY: memmove(to, from, n * call_.size); return hcccSuccess;
      default: return hcccInternalError;
    }
  }

  // Fails a call that is late, or that another rank has failed.
  void look(Clock::time_point begun, double timeout) {
    if (border_->of.failure().code() != hcccSuccess) return fail(hcccRemoteError, "", nullptr);
    hcccResult_t error = hcccSuccess;
    if (comm_ && vendor_->async_error(comm_, &error) == hcccSuccess && error != hcccSuccess) {
      await_reason(error);
      return fail(error, std::string(vendor_->name) + ": " + hcccGetErrorString(error), nullptr);
    }
    if (timeout > 0 && std::chrono::duration<double>(Clock::now() - begun).count() > timeout)
      fail(hcccTimeout, text_of("timed out after %g s", timeout), nullptr);
  }

  std::string described(int step) const {
    const auto at = static_cast<size_t>(step);
    return step < 0 || at >= steps_.size() ? "a copy of its own" : text_of("step %d, ", step) + steps_[at];
  }

  // Describes the earliest step that a lane is in.
  std::string slowest() const {
    const hccc_job_schedule &all = *call_.schedule;
    int least = -1;
    for (size_t lane = 0; lane < done_.size(); ++lane) {
      const int64_t at = all.lane_begin[lane] + done_[lane].load(std::memory_order_relaxed);
      if (at < all.lane_begin[lane + 1] && all.tasks[at].step >= 0 && (least < 0 || all.tasks[at].step < least))
        least = all.tasks[at].step;
    }
    return described(least);
  }

  const hcccComm_t border_;
  const hccc_vendor *const vendor_;
  hccc_vendor_comm *const comm_;
  const std::vector<std::string> steps_;
  const int rank_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Call call_;
  std::vector<std::atomic<int>> done_;  // tasks of each lane
  std::atomic<int> waiting_{0};         // lanes that wait for others
  std::atomic<bool> failed_{false};
  std::atomic<unsigned long long> sent_{0};
  hcccResult_t code_ = hcccSuccess;
  std::string text_;
  uint64_t turn_ = 0;
  size_t running_ = 0;  // lanes
  bool ending_ = false, left_behind_ = false;
};

}  // namespace hccc::job

struct hccc_job {
  explicit hccc_job(hccc::job::Joined &&with, std::vector<std::string> steps)
      : joined(std::move(with)),
        lanes(std::make_shared<hccc::job::Lanes>(joined.border, joined.vendor, joined.comm, std::move(steps))) {}
  ~hccc_job() {
    const bool left_behind = lanes->left_behind();
    lanes->end();
    for (std::thread &one : threads) left_behind ? one.detach() : one.join();
    if (left_behind) joined.forget();  // a thread of the library may use them until the process ends
    else if (scratch) hcccMemFree(scratch);
  }

  hccc::job::Joined joined;
  const std::shared_ptr<hccc::job::Lanes> lanes;
  std::vector<std::thread> threads;
  void *scratch = nullptr;
  size_t scratch_bytes = 0;
  double timeout = -1;  // that was set last; -1: none was
  std::string error;
};

namespace hccc::job {
namespace {

template <class Body>
hcccResult_t caught(hccc_job *job, const Body &body) {
  return guarded(body, [&](hcccResult_t code, const std::string &text) {
    if (job) job->error = text;
    thread_error() = text;
    return code;
  });
}

void set_timeout(hccc_job &job, double timeout) {
  if (timeout == job.timeout) return;
  const double later = timeout > 0 ? timeout + LATER_S : 0;
  must(hcccCommSetTimeout(job.joined.border, later));
  if (job.joined.comm && job.joined.vendor->set_timeout(job.joined.comm, later) != hcccSuccess)
    throw Error(hcccInvalidArgument, job.joined.vendor->last_error());
  job.timeout = timeout;
}

void provide_scratch(hccc_job &job, size_t bytes) {
  if (bytes <= job.scratch_bytes) return;
  if (job.scratch) hcccMemFree(std::exchange(job.scratch, nullptr));
  job.scratch_bytes = 0;
  must(hcccMemAlloc(&job.scratch, bytes));
  job.scratch_bytes = bytes;
}

void run(hccc_job &job, const hccc_job_schedule &schedule, const void *send, void *receive, hcccDataType_t type,
         hcccRedOp_t op, double timeout) {
  if (job.lanes->failed()) throw Error(job.lanes->code(), job.lanes->text());
  Call call;
  call.schedule = &schedule, call.type = type, call.op = op == hcccAvg ? hcccSum : op;
  call.combine = combine_of(type, op);
  job.joined.check(type, call.op, call.combine != nullptr);
  call.size = static_cast<size_t>(bytes_of_type(type));
  set_timeout(job, timeout);
  provide_scratch(job, static_cast<size_t>(schedule.scratch) * call.size);
  call.buffers[HCCC_JOB_INPUT] = static_cast<char *>(const_cast<void *>(send));
  call.buffers[HCCC_JOB_OUTPUT] = static_cast<char *>(receive);
  call.buffers[HCCC_JOB_SCRATCH] = static_cast<char *>(job.scratch);
  while (job.threads.size() < static_cast<size_t>(schedule.n_lanes))
    job.threads.push_back(Lanes::started(job.lanes, job.threads.size()));
  if (!job.lanes->run(call, timeout)) throw Error(job.lanes->code(), job.lanes->text());
  if (op == hcccAvg && schedule.output)
    divide_of(type)(receive, static_cast<size_t>(schedule.output), static_cast<int>(schedule.ranks));
}

}  // namespace
}  // namespace hccc::job

HCCC_API hcccResult_t hccc_job_make(hccc_job **made, hcccComm_t comm, const hccc_job_given *given) {
  return hccc::job::caught(nullptr, [&] {
    std::vector<std::string> steps(given->steps, given->steps + given->n_steps);
    *made = new hccc_job(hccc::job::joined(comm, *given), std::move(steps));
  });
}

HCCC_API hcccResult_t hccc_job_run(hccc_job *job, const hccc_job_schedule *schedule, const void *send, void *receive,
                                   hcccDataType_t type, hcccRedOp_t op, double timeout) {
  return hccc::job::caught(job, [&] { hccc::job::run(*job, *schedule, send, receive, type, op, timeout); });
}

HCCC_API const char *hccc_job_error(const hccc_job *job) { return job->error.c_str(); }

HCCC_API unsigned long long hccc_job_sent(const hccc_job *job) { return job->lanes->sent(); }

HCCC_API void hccc_job_end(hccc_job *job) { delete job; }
