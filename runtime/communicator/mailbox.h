// mailbox.h: what ranks of one host tell each other about their memory, with descriptors.
#pragma once

#include <stdint.h>

#include <vector>

#include "handles.h"

namespace hccc {

// One piece of memory that a rank lets others map.
struct Announced {
  int32_t from = -1;
  int32_t number = 0;  // of the rank's pieces, in the order in which it told them
  int64_t process = 0;
  int64_t device = 0;
  uint64_t bytes = 0, base = 0;  // base: in its own process
  Handle handle;
};

// Who has the other end of a rank's mailbox can write to it: every rank of the host, which got it from
// the rendezvous. Messages keep their bounds, and come in the order in which one rank sends them.
class Mailbox {
 public:
  explicit Mailbox(int n_ranks);
  ~Mailbox();
  Mailbox(const Mailbox &) = delete;
  Mailbox &operator=(const Mailbox &) = delete;

  int own() const { return ends_[0]; }     // to poll
  int for_peers() const { return ends_[1]; }  // to be given to the others
  // Takes the descriptor.
  void connect(int rank, int descriptor);

  // False: there is no room now. A rank that has gone hears nothing.
  bool send(int rank, const Announced &told, int descriptor);
  // False: there is nothing. descriptor: -1 where none came; to be closed by the caller.
  bool receive(Announced *told, int *descriptor);

 private:
  int ends_[2] = {-1, -1};
  std::vector<int> peers_;
};

}  // namespace hccc
