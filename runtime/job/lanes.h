// lanes.h: the lanes of a job, a thread each, and their end.
#pragma once

#include <string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../communicator/comm.h"
#include "combine.h"
#include "device_combine.h"
#include "joined.h"
#include "pieces.h"
#include "schedule.h"

namespace hccc::job {

using Clock = std::chrono::steady_clock;
constexpr auto LOOK = std::chrono::milliseconds(20);   // between looks at other ranks
constexpr auto GRACE = std::chrono::milliseconds(1500);  // in which lanes leave after a failure
constexpr auto REASON = std::chrono::milliseconds(1500);  // of a loaded host
constexpr double LATER_S = 1;  // after a call's end: it is this job that says which step was late

// A call. Threads that a library has not let go may outlive it, and the job.
struct Call {
  std::shared_ptr<const Schedule> schedule;
  char *buffers[HCCC_JOB_NOWHERE] = {};
  hcccDataType_t type{};
  hcccRedOp_t op{};
  size_t size = 0;
  Combine combine = nullptr;
  const DeviceCombine *on_device = nullptr;  // null: the host reduces
  bool arrives_there = false;                // on the device, what is reduced
  std::array<hccc_vendor_comm *, 2> pairs = {};
};

class Lanes {
 public:
  Lanes(const Joined &with, std::vector<std::string> steps)
      : border_(with.border), vendor_(with.vendor), comm_(with.comm), device_(with.device), in_pieces_(with.in_pieces),
        steps_(std::move(steps)), rank_(border_->of.rank()) {}

  // Starts the thread of a lane, for the calls from now on.
  static std::thread started(const std::shared_ptr<Lanes> &lanes, size_t lane) {
    return std::thread([lanes, lane, turn = lanes->turn_] { lanes->work(lane, turn); });
  }

  // Runs a call whose lanes have threads. False: it failed.
  bool run(const Call &call, double timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    call_ = call, all_ = call.schedule->view();
    const auto n = static_cast<size_t>(all_.n_lanes);
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
    const auto pairs = call_.pairs;
    changed_.notify_all();
    lock.unlock();
    if (!told) border_->of.abort(code, text);
    abort_library(pairs);
  }

  // Ends it at every rank, whether or not a call runs.
  void stop(hcccResult_t code, const std::string &text) {
    std::array<hccc_vendor_comm *, 2> pairs;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (failed_) return;
      code_ = code, text_ = text, failed_ = true, pairs = call_.pairs;
      changed_.notify_all();
    }
    border_->of.abort(code, text);
    abort_library(pairs);
  }

  hcccResult_t code() const { return code_; }
  const std::string &text() const { return text_; }
  bool left_behind() const { return left_behind_; }
  bool failed() const { return failed_; }
  unsigned long long sent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  void abort_library(const std::array<hccc_vendor_comm *, 2> &pairs) const {
    for (hccc_vendor_comm *const one : {comm_, pairs[0], pairs[1]})
      if (one) vendor_->abort(one);
  }

  void work(size_t lane, uint64_t seen) {
    std::optional<OnDevice> there;
    std::unique_ptr<Pieces> pieces;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || turn_ != seen; });
      if (ending_) return;
      seen = turn_;
      if (lane >= static_cast<size_t>(all_.n_lanes)) continue;
      lock.unlock();
      carry_out(lane, [&]() -> Pieces & {
        if (pieces) return *pieces;
        there.emplace(*device_);
        set_memory_of_thread(Device());
        pieces = std::make_unique<Pieces>();
        return *pieces;
      });
      lock.lock();
      if (--running_ == 0) changed_.notify_all();
    }
  }

  // Returns a lane's pieces, which are made when they are first needed.
  using Made = std::function<Pieces &()>;

  void carry_out(size_t lane, const Made &made) {
    const hccc_job_schedule &all = all_;
    const hccc_job_task *const begin = all.tasks + all.lane_begin[lane], *const end = all.tasks + all.lane_begin[lane + 1];
    for (const hccc_job_task *at = begin; at != end;) {
      const hccc_job_task *next = at + 1;
      while (next != end && passes(*at) && passes(*next) && at->group == next->group) ++next;
      for (const hccc_job_task *one = at; one != next; ++one)
        for (int64_t w = one->first_wait; w < one->first_wait + one->n_waits; ++w)
          if (!wait(all.waits[w])) return;
      if (!carry_out(at, next, made)) return;
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

  // Carries out tasks that go on together. False: the call has failed.
  bool carry_out(const hccc_job_task *at, const hccc_job_task *end, const Made &made) {
    try {
      if (end - at > 1) of_vendor(vendor_->group_start());
      for (const hccc_job_task *one = at; one != end; ++one) perform(*one, made);
      if (end - at > 1) of_vendor(vendor_->group_end());
      if (device_ && at->kind < HCCC_JOB_HOP_SEND) of_vendor(vendor_->wait(comm_, made().stream()));
      if (device_ && at->kind == HCCC_JOB_REDUCE_PAIR) of_vendor(vendor_->wait(pair(*at), made().stream()));
      return !failed_;
    } catch (const Error &error) {
      await_reason(error.code);
      fail(error.code, error.what(), at);
      return false;
    }
  }

  void of_vendor(hcccResult_t result) const {
    if (result == hcccSuccess) return;
    const std::string name = vendor_->name, text = vendor_->last_error();
    throw Error(result, text.rfind(name, 0) == 0 ? text : name + ": " + text);
  }

  // Waits for the reason of a rank that is gone or has given up, which may come after its library's end does.
  void await_reason(hcccResult_t result) const {
    const bool of_another = result == hcccRemoteError || result == hcccAborted;
    const auto until = Clock::now() + REASON;
    while (of_another && border_->of.failure().code() == hcccSuccess && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  char *at(int buffer, int64_t element) const {
    return buffer == HCCC_JOB_NOWHERE ? nullptr : call_.buffers[buffer] + static_cast<size_t>(element) * call_.size;
  }

  void perform(const hccc_job_task &t, const Made &made) {
    const char *const from = at(t.from, t.from_at);
    char *const to = at(t.to, t.to_at);
    const auto n = static_cast<size_t>(t.count);
    switch (t.kind) {
      case HCCC_JOB_HOP_SEND: return send(t, from, n * call_.size, made);
      case HCCC_JOB_HOP_RECEIVE: return receive(t, to, n * call_.size, made);
      case HCCC_JOB_ADD: return add(to, from, at(t.with, t.with_at), n, made);
      case HCCC_JOB_COPY:
        if (device_) return made().copy(to, from, n * call_.size, go_on());
        memmove(to, from, n * call_.size);
        return;
      default: return of_vendor(call_vendor(t, from, to, n, device_ ? made().stream() : nullptr));
    }
  }

  hcccResult_t call_vendor(const hccc_job_task &t, const char *from, char *to, size_t n, void *stream) const {
    switch (t.kind) {
      case HCCC_JOB_REDUCE: return vendor_->reduce(from, to, n, call_.type, call_.op, t.peer, comm_, stream);
      case HCCC_JOB_BROADCAST: return vendor_->broadcast(from, to, n, call_.type, t.peer, comm_, stream);
      case HCCC_JOB_REDUCE_SCATTER:
        return vendor_->reduce_scatter(from, to, n, call_.type, call_.op, comm_, stream);
      case HCCC_JOB_ALL_GATHER: return vendor_->all_gather(from, to, n, call_.type, comm_, stream);
      case HCCC_JOB_SEND: return vendor_->send(from, n, call_.type, t.peer, comm_, stream);
      case HCCC_JOB_RECEIVE: return vendor_->recv(to, n, call_.type, t.peer, comm_, stream);
      case HCCC_JOB_REDUCE_PAIR:
        return vendor_->reduce(from, to, n, call_.type, call_.op, t.peer > t.within, pair(t), stream);
      default: return hcccInternalError;
    }
  }

  // Returns the communicator of the two ranks that a task names.
  hccc_vendor_comm *pair(const hccc_job_task &t) const { return call_.pairs[t.peer / 2 == t.within / 2 ? 0 : 1]; }

  Pieces::GoOn go_on() const {
    return [this] { return !failed_; };
  }

  // Sends over the border, in pieces where either end may have memory of a device.
  void send(const hccc_job_task &t, const char *from, size_t bytes, const Made &made) {
    const auto one = [&](const char *at, size_t n) { must(hcccSend(at, n, hcccUint8, t.peer, border_, nullptr)); };
    if (!t.within) sent_.fetch_add(bytes, std::memory_order_relaxed);
    if (device_) return made().each(nullptr, from, bytes, [&](char *host, size_t, size_t n) { one(host, n); }, go_on());
    in_pieces(bytes, [&](size_t first, size_t n) { one(from + first, n); });
  }

  void receive(const hccc_job_task &t, char *to, size_t bytes, const Made &made) {
    const auto one = [&](char *at, size_t n) { must(hcccRecv(at, n, hcccUint8, t.peer, border_, nullptr)); };
    if (device_ && (t.to != HCCC_JOB_ARRIVED || call_.arrives_there))
      return made().each(to, nullptr, bytes, [&](char *host, size_t, size_t n) { one(host, n); }, go_on());
    in_pieces(bytes, [&](size_t first, size_t n) { one(to + first, n); });
  }

  template <class Use>
  void in_pieces(size_t bytes, const Use &use) const {
    const size_t piece = in_pieces_ ? PIECE : bytes;
    for (size_t first = 0; first < bytes; first += piece) use(first, std::min(piece, bytes - first));
  }

  // to = from op what has arrived.
  void add(char *to, const char *from, const char *arrived, size_t n, const Made &made) const {
    if (!device_) return call_.combine(to, from, arrived, n);
    if (call_.on_device) {
      const hcccrtStream_t stream = made().stream();
      if (call_.on_device->combine(to, from, arrived, n, stream))
        throw Error(hcccUnhandledDeviceError, "the device refuses a reduction");
      return Pieces::wait(stream, go_on());
    }
    made().each(to, from, n * call_.size, [&](char *host, size_t first, size_t bytes) {
      call_.combine(host, host, arrived + first, bytes / call_.size);
    }, go_on());
  }

  // Fails a call that is late, or that another rank has failed.
  void look(Clock::time_point begun, double timeout) {
    if (border_->of.failure().code() != hcccSuccess) return fail(hcccRemoteError, "", nullptr);
    for (hccc_vendor_comm *const one : {comm_, call_.pairs[0], call_.pairs[1]}) {
      hcccResult_t error = hcccSuccess;
      if (!one || vendor_->async_error(one, &error) != hcccSuccess || error == hcccSuccess) continue;
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
    const hccc_job_schedule &all = all_;
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
  const std::optional<Device> device_;
  const bool in_pieces_;
  const std::vector<std::string> steps_;
  const int rank_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Call call_;
  hccc_job_schedule all_{};  // of the call
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
