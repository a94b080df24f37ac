// client.h: a rank's connection to the others, behind hccc_bootstrap.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "hub.h"
#include "id.h"

namespace hccc::bootstrap {

class Client {
 public:
  Client(const hccc_unique_id &id, int n_ranks, int rank, const Deadline &deadline);
  ~Client();

  struct Gathered {
    std::vector<size_t> sizes;
    std::string data;  // of all ranks, one after the other
  };
  Gathered gather(CallKind kind, const void *own, size_t bytes, const Deadline &deadline);
  void leave_because(const Failure &failure);  // sent to the others when this rank leaves
  void give_up(const std::string &why);        // the same, unless a call has failed

  struct Departure {
    int rank;
    bool orderly;
  };
  struct Message {
    int rank;
    std::string data;
  };
  bool next_departure(Departure *one);
  bool next_message(Message *one);
  void notify(const void *data, size_t bytes);
  void set_state(uint64_t state) { state_ = state; }
  // Asks the hub for signs of life, and returns those that it sent last; silent_ms of rank 0 is the
  // hub's silence. Empty: nothing is known.
  std::vector<Sign> signs();
  // Has the hub's thread do a guest's turns, or nobody's. False: this rank has none.
  bool attend(const hccc_bootstrap_guest *guest);
  int watch() const { return watch_.get(); }
  bool in_child() const { return process_ != getpid(); }  // this process was forked since
  void close();

  const int n_ranks, rank;
  Secret secret;
  Job job = {};
  std::vector<int> host_of, pid_of;
  Address address = loopback();  // at which others reach this rank
  std::string interface;         // its name; "": not known

 private:
  void meet(const Identity &identity, const Deadline &deadline);
  uint64_t largest_answer() const {
    return static_cast<uint64_t>(n_ranks) * (8 + HCCC_BOOTSTRAP_MAX_BYTES) + 1024;
  }
  void start_hub(Fd listener, Link root);
  void set_up(const Deadline &deadline);
  void watch_link();
  bool wait_readable(const Deadline &deadline, bool *unsent);
  void drain();
  void take(Frame *frame);
  void mark_lost();
  void add_departure(const Departure &one, const std::string &why);
  void update_pending_event();
  Failure hub_loss() const;
  Frame call(CallKind kind, const void *own, size_t bytes, const Deadline &deadline);
  [[noreturn]] void fail_late(CallKind kind);

  const pid_t process_;
  std::mutex calling_;  // one collective call at a time
  std::mutex lock_;     // of all below
  Link link_;
  Fd watch_, pending_event_, answer_event_;
  bool lost_ = false;  // the hub has gone
  bool silent_ = false;  // the hub does not answer
  uint64_t seq_ = 0;
  bool answered_ = false, knows_missing_ = false;
  Frame answer_;
  std::vector<int> missing_;
  std::vector<bool> gone_;
  Departure first_gone_ = {-1, true};  // as the hub's
  std::string why_gone_;               // the failure because of which it left
  std::string why_;                    // the failure of the last call
  std::deque<Departure> departures_;
  std::deque<Message> messages_;
  std::atomic<uint64_t> state_{0};
  std::vector<Sign> signs_;
  int64_t asked_ = 0;  // when the hub was asked for signs that it has not sent; 0: it was not
  std::unique_ptr<Hub> hub_;  // of rank 0
  pthread_t hub_thread_;
};

}  // namespace hccc::bootstrap

struct hccc_bootstrap {
  hccc::bootstrap::Client client;
};
