// hub.h: connects the ranks of a job after the rendezvous; in rank 0's process.
#pragma once

#include <map>
#include <mutex>

#include "handshake.h"

struct pollfd;

namespace hccc::bootstrap {

enum CallKind : uint32_t { kSetUp = 1, kAllgather, kAllgatherv, kBarrier, kShare };
const char *name_of(uint32_t call_kind);

// Gathers the contributions to collective calls, forwards messages, and reports departures.
class Hub {
 public:
  // own: one end of a socket pair, rank 0 has the other; root: reports ranks that end before they
  // are connected.
  Hub(Fd listener, const Secret &secret, const Job &job, int n_ranks, Fd own, Link root);

  // Runs until rank 0 leaves or ends, or memory is short: then its connections close, which every
  // rank notices. A guest is attended to until it goes.
  void run();

  // Has the thread of `run` do a guest's turns; null: nobody's, and none runs any more. False: the
  // thread has ended.
  bool attend(const hccc_bootstrap_guest *guest);

 private:
  struct Member {
    Link link;
    bool joined = false, leaving = false, gone = false;
    std::string why;  // the failure because of which it left
    uint64_t calls = 0;
    int64_t pinged = 0;  // when it was sent the ping that it has not answered; 0: none
    uint64_t state = 0;  // of its last answer
  };
  struct Call {
    uint32_t kind;
    int first;                  // the rank that called first
    std::vector<Bytes> parts;   // contributions; null: has not called
    int n_parts = 0;
    Bytes failed;               // the failure that every caller gets; null: none
  };

  void serve();
  void close_all();
  void step();
  void wait(std::vector<pollfd> *set, int at_most_ms);
  void accept(const pollfd *polled);
  void admit(Arrival *arrival);
  void stop_accepting_if_complete();
  void read_root();
  void read_from(int rank);
  void take(int rank, const Frame &frame);
  void contribute(int rank, const Frame &frame);
  void probe(int rank);
  void complete(uint64_t seq, Call *call);
  void fail_call(uint64_t seq, Call *call, const Failure &failure);
  void remove(int rank);
  void send(int rank, const Bytes &bytes);
  Failure absence() const;
  std::vector<int> missing(uint64_t seq) const;

  Job job_;
  bool accepting_ = true;  // not all ranks have connected
  Link root_;
  Acceptor acceptor_;
  std::vector<Member> members_;
  int n_joined_ = 1;
  int first_gone_ = -1;  // that ended without leaving, else that left with a failure
  std::map<uint64_t, Call> calls_;  // not yet made by all ranks

  std::mutex attending_;  // of all below; held while a turn runs
  hccc_bootstrap_guest guest_ = {};
  Deadline due_ = Deadline::never();  // the guest's next turn
  bool over_ = false;                 // the thread attends to nobody any more
};

}  // namespace hccc::bootstrap
