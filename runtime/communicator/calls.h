// calls.h: the calls of a communicator, from all threads and streams, run in the order in which
// they were made.
//
// Every call has a number, and runs when all calls before it are done: without a stream in the
// thread that makes it, else when its stream reaches it. A call waits for earlier calls only, so no
// order of streams is a deadlock. Sends and receives wait only until earlier ones have begun, so that
// none that waits for its other end keeps a later one. Calls that a graph has captured have no number: each launch of
// the graph runs them when it reaches them, between two other calls.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "communicator.h"

namespace hccc {

class Job;

// A stored call: of a collective, with a copy of its text, and of the job that makes it, or sends and receives.
struct Request {
  explicit Request(const Wanted &wanted, std::shared_ptr<Job> job = nullptr)
      : wanted_(wanted), library_(wanted.library ? wanted.library : ""), job_(std::move(job)) {}
  explicit Request(std::shared_ptr<const std::vector<Message>> messages) : messages_(std::move(messages)) {}
  const std::vector<Message> *messages() const { return messages_.get(); }
  Job *job() const { return job_.get(); }  // null: none
  Wanted wanted() const {
    Wanted made = wanted_;
    if (made.library) made.library = library_.c_str();
    return made;
  }

 private:
  Wanted wanted_;
  std::string library_;
  std::shared_ptr<Job> job_;
  std::shared_ptr<const std::vector<Message>> messages_;  // null: a collective
};

class Calls : public std::enable_shared_from_this<Calls> {
 public:
  // The communicator must live until abandon() has returned.
  explicit Calls(Communicator &of);

  void set_timeout(double seconds);
  void set_cut(long long micro_batch_bytes, int window);
  // Returns the settings of the next call.
  Settings settings() const;

  // Checks a call and puts it into a stream. Throws Error; later errors are the communicator's
  // failure.
  void enqueue(const Request &request, void *stream);
  // Checks what can be known of a collective's call when it is made. Throws Error.
  void check(const Request &request) const;
  // Makes a collective's call in its turn, by its job or the communicator. Throws Error.
  void make(const Request &request, const Settings &settings);

  // A reserved place in the order of calls. It must be run.
  struct Place {
    uint64_t number = 0;
    Settings settings;
  };
  Place reserve();
  // Runs a body in its turn, of a place or of one that is reserved now. Throws Error, also where its
  // turn does not come.
  void run(const Place &place, const std::function<void(const Settings &)> &body);
  template <class Body>
  void run(const Body &body);
  // Makes a call that is like the vendor's library's last one but for its buffers, where no other is under way. The lock
  // is held until that is not soon done. False: it is not, and nothing was done. Throws Error.
  bool again(const Wanted &wanted);
  // Makes sends and receives, which begin in their turn. Throws Error.
  void exchange(const Place &place, const std::vector<Message> &messages);
  void exchange(const Message *messages, size_t n);

  // Waits for all calls; no more may be made. Throws Error where they do not end.
  void finish();
  // Drops calls that have not begun, and waits for running ones.
  void abandon();

  // How many were made and are done, and how many launches of graphs run.
  struct Progress {
    uint64_t made = 0, done = 0;
    int running = 0;
  };
  Progress progress() const;

 private:
  // A call in a stream or a graph.
  struct Waiting {
    Request request;
    Place place;
    bool captured;
  };
  // Marks a thread as in a call, or waiting to be, while it lives. The lock is held at both ends.
  struct Inside {
    Inside(Calls &of, std::unique_lock<std::mutex> &lock) : of(of), lock(lock) { ++of.inside_; }
    ~Inside() {
      if (!lock.owns_lock()) lock.lock();
      --of.inside_;
      if (runs) --of.running_;
      if (number) of.end(*number);
      of.moved_.notify_all();
    }
    Inside(const Inside &) = delete;
    Inside &operator=(const Inside &) = delete;
    void begin() { runs = true, ++of.running_, lock.unlock(); }

    Calls &of;
    std::unique_lock<std::mutex> &lock;
    const uint64_t *number = nullptr;  // done when this ends
    bool runs = false;
  };

  static void reached(void *id);
  static std::shared_ptr<Calls> of(uint64_t id);
  void run_waiting(uint64_t id);
  template <class Body>
  void run(Inside &inside, const Place &place, const Body &body);
  void exchange(std::unique_lock<std::mutex> &lock, const Place &place, const Message *messages, size_t n);
  void make(Inside &inside, const Place &place, const Message *messages, size_t n);
  [[noreturn]] void throw_lost() const;
  bool wait_for_turn(std::unique_lock<std::mutex> &lock, const Place &place, const uint64_t &turn) {
    return turn >= place.number ? !abandoned_ : wait_longer(lock, place, turn);
  }
  bool wait_longer(std::unique_lock<std::mutex> &lock, const Place &place, const uint64_t &turn);
  void end(uint64_t number) {
    if (number == done_ && later_.empty()) begun_ = std::max(begun_, ++done_);
    else end_of_turn(number);
  }
  void end_of_turn(uint64_t number);
  void check_open() const {
    if (finished_ || abandoned_) throw Error(hcccInvalidUsage, "the communicator is finalized");
  }

  Communicator &of_;
  mutable std::mutex mutex_;  // locked before that of the device layer
  std::condition_variable moved_;
  Settings settings_;
  uint64_t made_ = 0, done_ = 0;  // all calls before `done_` are done
  uint64_t begun_ = 0;            // all before are done, or are sends and receives that have begun
  std::set<uint64_t> later_;      // calls past `done_` that are done
  int inside_ = 0;   // threads that run calls, or wait to
  int running_ = 0;  // threads that run calls
  bool finished_ = false, abandoned_ = false;
  bool graphs_ = false;  // some graph has captured a call
  std::unordered_map<uint64_t, Waiting> waiting_;
};

template <class Body>
void Calls::run(const Body &body) {
  std::unique_lock<std::mutex> lock(mutex_);
  check_open();
  const Place place = {made_++, settings_};
  Inside inside(*this, lock);
  run(inside, place, body);
}

template <class Body>
void Calls::run(Inside &inside, const Place &place, const Body &body) {
  inside.number = &place.number;
  if (!wait_for_turn(inside.lock, place, done_)) throw_lost();
  inside.begin();
  body(place.settings);
}

}  // namespace hccc
