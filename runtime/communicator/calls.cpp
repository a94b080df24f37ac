// calls.cpp: the order of a communicator's calls.
#include "calls.h"

#include <algorithm>
#include <chrono>

#include "device_layer.h"
#include "forks.h"
#include "jobs.h"
#include "log.h"

namespace hccc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds PERIOD(100);  // between checks for a failure while waiting

// The communicators of calls in streams. A graph may reach a call of a communicator that has ended:
// numbers are not used again.
struct Registry {
  uint64_t last = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Calls>> calls;
};
Registry &registry() {
  static auto *all = new Registry;  // outlives every stream
  return *all;
}

uint64_t enlist(std::shared_ptr<Calls> calls) {
  Registry &all = registry();
  std::lock_guard<std::mutex> lock(process_mutex());
  all.calls[++all.last] = std::move(calls);
  return all.last;
}

void forget(uint64_t id) {
  Registry &all = registry();
  std::lock_guard<std::mutex> lock(process_mutex());
  all.calls.erase(id);
}

}  // namespace

Calls::Calls(Communicator &of) : of_(of) { settings_.timeout_s = timeout_of_environment(); }

void Calls::set_timeout(double seconds) {
  if (!(seconds >= 0)) throw Error(hcccInvalidArgument, "a timeout is a number of seconds, or 0");
  std::lock_guard<std::mutex> lock(mutex_);
  settings_.timeout_s = seconds;
}

void Calls::set_cut(long long micro_batch_bytes, int window) {
  if (micro_batch_bytes < 0 || window < 0)
    throw Error(hcccInvalidArgument, "micro-batches and windows are not negative");
  std::lock_guard<std::mutex> lock(mutex_);
  settings_.micro_batch_bytes = micro_batch_bytes, settings_.window = window;
}

Settings Calls::settings() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return settings_;
}

void Calls::enqueue(const Request &request, void *stream) {
  if (!request.messages()) check(request);
  const auto in = static_cast<hcccrtStream_t>(stream);
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  const bool captured = device_layer::captures(in);
  if (captured && request.job())
    throw Error(hcccInvalidUsage, text_of("%s is a job: no graph captures its calls", request.job()->name()));
  const uint64_t id = enlist(shared_from_this());
  waiting_.emplace(id, Waiting{request, {made_, settings_}, captured});
  try {
    device_layer::launch(in, reached, reinterpret_cast<void *>(static_cast<uintptr_t>(id)));
  } catch (...) {
    waiting_.erase(id);
    forget(id);
    throw;
  }
  made_ += !captured, graphs_ = graphs_ || captured;
  if (!captured) return;
  if (request.messages()) of_.note_captured(*request.messages());
  else of_.note_captured(request.wanted());
}

bool Calls::again(const Wanted &wanted) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (done_ != made_ || inside_ || finished_ || abandoned_ || graphs_) return false;
  const Communicator::Again begun = of_.begin_again(wanted, settings_);
  if (begun == Communicator::Again::NO) return false;
  const uint64_t number = made_++;
  if (begun == Communicator::Again::DONE) return end(number), true;
  Inside inside(*this, lock);
  inside.number = &number;
  inside.begin();
  of_.end_again();
  return true;
}

void Calls::check(const Request &request) const {
  if (const Job *job = request.job()) job->check(request.wanted());
  else of_.check(request.wanted(), settings());
}

void Calls::make(const Request &request, const Settings &settings) {
  const Wanted wanted = request.wanted();
  Job *const job = request.job();
  if (!job) return of_.call(wanted, settings);
  of_.note_library(job->name());
  HCCC_LOG(INFO, COLL, of_.rank(), "the job %s, %zu elements", job->name(), wanted.count);
  job->make(wanted, settings.timeout_s);
}

std::shared_ptr<Calls> Calls::of(uint64_t id) {
  Registry &all = registry();
  std::lock_guard<std::mutex> lock(process_mutex());
  const auto found = all.calls.find(id);
  return found == all.calls.end() ? nullptr : found->second;
}

void Calls::reached(void *id) {
  const auto number = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(id));
  if (const std::shared_ptr<Calls> calls = of(number)) return calls->run_waiting(number);
  HCCC_LOG(WARN, COLL, -1, "a stream comes to a call whose communicator has ended: nothing is done");
}

void Calls::run_waiting(uint64_t id) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = waiting_.find(id);
  if (abandoned_ || found == waiting_.end()) return;
  const Waiting own = found->second;
  Inside inside(*this, lock);
  if (!own.captured) {
    inside.number = &own.place.number;
    waiting_.erase(found);
    forget(id);
    if (!wait_for_turn(lock, own.place, own.request.messages() ? begun_ : done_)) return;
  }
  try {
    if (const std::vector<Message> *messages = own.request.messages())
      return make(inside, own.place, messages->data(), messages->size());
    inside.begin();
    make(own.request, own.place.settings);
  } catch (const RefusedCall &error) {
    of_.tell_later(text_of("rank %d, in a stream: ", of_.rank()) + error.what());
  } catch (const Error &error) {
    of_.abort(error.code, text_of("rank %d, in a stream: ", of_.rank()) + error.what());
  } catch (const std::exception &error) {
    of_.abort(hcccSystemError, text_of("rank %d, in a stream: ", of_.rank()) + error.what());
  }
}

Calls::Place Calls::reserve() {
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  ++inside_;  // until it has run
  return {made_++, settings_};
}

void Calls::run(const Place &place, const std::function<void(const Settings &)> &body) {
  std::unique_lock<std::mutex> lock(mutex_);
  Inside inside(*this, lock);
  --inside_;  // that of reserve()
  run(inside, place, body);
}

void Calls::throw_lost() const {
  const hcccResult_t code = of_.failure().code();
  throw Error(code ? code : hcccAborted, code ? of_.failure().text() : "the communicator has ended");
}

void Calls::exchange(const Message *messages, size_t n) {
  std::unique_lock<std::mutex> lock(mutex_);
  check_open();
  const Place place = {made_++, settings_};
  ++inside_;
  exchange(lock, place, messages, n);
}

void Calls::exchange(const Place &place, const std::vector<Message> &messages) {
  std::unique_lock<std::mutex> lock(mutex_);
  exchange(lock, place, messages.data(), messages.size());
}

void Calls::exchange(std::unique_lock<std::mutex> &lock, const Place &place, const Message *messages, size_t n) {
  Inside inside(*this, lock);
  --inside_;  // that of reserve()
  inside.number = &place.number;
  if (!wait_for_turn(lock, place, begun_)) throw_lost();
  make(inside, place, messages, n);
}

// Makes sends and receives whose turn it is. Calls that may begin now do so beside them.
void Calls::make(Inside &inside, const Place &place, const Message *messages, size_t n) {
  if (of_.is_to_be_told()) {
    inside.begin();
    of_.tell_refusal(place.settings.timeout_s);
    inside.lock.lock(), inside.runs = false, --running_;
    if (abandoned_) throw_lost();
  }
  Exchange exchange{messages, n, place.settings.timeout_s};
  of_.begin(exchange);
  if (inside.number) begun_ = std::max(begun_, *inside.number + 1), moved_.notify_all();
  inside.begin();
  of_.complete(exchange);
}

// Notes that a call is done. Of a communicator that is lost the calls before it end as well.
void Calls::end_of_turn(uint64_t number) {
  if (of_.failure().code() != hcccSuccess) done_ = std::max(done_, number + 1);
  else if (number == done_) ++done_;
  else if (number > done_) later_.insert(number);
  while (later_.erase(done_)) ++done_;
  begun_ = std::max(begun_, done_);
}

// Waits for a call's turn: until `turn`, done_ or begun_, comes to its number. False: the communicator
// ends or is lost, or an earlier call does not begin in time as its stream does not reach it.
bool Calls::wait_longer(std::unique_lock<std::mutex> &lock, const Place &place, const uint64_t &turn) {
  Clock::time_point since = Clock::now();
  for (uint64_t at = done_; turn < place.number;) {
    if (abandoned_ || of_.failure().code() != hcccSuccess) return false;
    moved_.wait_for(lock, PERIOD);
    if (running_ || done_ != at) since = Clock::now(), at = done_;
    const std::chrono::duration<double> waited = Clock::now() - since;
    if (place.settings.timeout_s > 0 && waited.count() > place.settings.timeout_s)
      of_.abort(hcccTimeout, text_of("timed out after %g s: rank %d: no stream has come to an earlier call",
                                    place.settings.timeout_s, of_.rank()));
  }
  return !abandoned_;
}

void Calls::finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  finished_ = true;
  wait_for_turn(lock, {made_, settings_}, done_);
  while (inside_ && !abandoned_) moved_.wait(lock);
  if (of_.failure().code() != hcccSuccess) throw Error(of_.failure().code(), of_.failure().text());
}

void Calls::abandon() {
  std::unique_lock<std::mutex> lock(mutex_);
  abandoned_ = true;
  for (const auto &[id, waiting] : waiting_) forget(id);
  waiting_.clear();
  moved_.notify_all();
  while (inside_) moved_.wait(lock);
}

Calls::Progress Calls::progress() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {made_, done_, running_};
}

}  // namespace hccc
