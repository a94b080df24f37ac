// hub.h: what connects the ranks of a job once they have met; in rank 0's process.
#pragma once

#include <map>

#include "handshake.h"

struct pollfd;

namespace hccc::bootstrap {

enum CallKind : uint32_t { kSetUp = 1, kAllgather, kAllgatherv, kBarrier, kShare };
const char *name_of(uint32_t call_kind);

// Gathers what ranks give to collective calls, passes messages on, and tells of ranks that go.
class Hub {
 public:
  // own: the end of a socket pair whose other is rank 0's; root: tells of ranks that go before they
  // are connected.
  Hub(Fd listener, const Secret &secret, const Job &job, int n_ranks, Fd own, Link root);

  // Until rank 0 goes.
  void run();

 private:
  struct Member {
    Link link;
    bool came = false, bye = false, gone = false;
    std::string why;  // a failure, for which it left
    uint64_t calls = 0;
  };
  struct Call {
    uint32_t kind;
    int first;                  // the rank that called first
    std::vector<Bytes> parts;   // null: has not called
    int n_parts = 0;
    Bytes failed;               // what to tell to those that called, and to those that will
  };

  void step();
  void accept(const pollfd *polled);
  void enter(Arrival *arrival);
  void settle();
  void hear_root();
  void hear(int rank);
  void take(int rank, const Frame &frame);
  void part(int rank, const Frame &frame);
  void complete(uint64_t seq, Call *call);
  void fail_call(uint64_t seq, Call *call, const Failure &failure);
  void leave(int rank);
  void send(int rank, const Bytes &bytes);
  Failure absence() const;
  std::vector<int> missing(uint64_t seq) const;

  Job job_;
  bool accepting_ = true;  // ranks are still to come
  Link root_;
  Acceptor acceptor_;
  std::vector<Member> members_;
  int n_came_ = 1;
  int first_gone_ = -1;  // of those that went without a word, else with a failure, the first
  std::map<uint64_t, Call> calls_;  // those that some ranks have yet to make
};

}  // namespace hccc::bootstrap
