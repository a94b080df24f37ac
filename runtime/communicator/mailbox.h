// mailbox.h: announcements of shared memory between the ranks of a host, with descriptors.
#pragma once

#include <stdint.h>

#include <vector>

#include "handles.h"

namespace hccc {

// A piece of memory that a rank shares with its peers.
struct SharedPiece {
  int32_t from = -1;
  int32_t number = 0;  // of the rank's pieces, in the order of sharing
  int64_t process = 0;
  int64_t device = 0;
  uint64_t bytes = 0, base = 0;  // base: in its own process
  Handle handle;
};

// A socket pair whose sending end every rank of the host gets at the rendezvous. Messages keep
// their bounds, and the order in which a rank sends them.
class Mailbox {
 public:
  explicit Mailbox(int n_ranks);
  ~Mailbox() { close_all(); }
  Mailbox(const Mailbox &) = delete;
  Mailbox &operator=(const Mailbox &) = delete;

  int own() const { return ends_[0]; }     // to poll
  int for_peers() const { return ends_[1]; }  // the sending end
  // Sets the sending end of a rank's mailbox, and owns the descriptor.
  void connect(int rank, int descriptor);

  void close_all();

  // Sends a piece. False: no room now. True also for a rank that has gone.
  bool send(int rank, const SharedPiece &piece, int descriptor);
  // Receives a piece. False: there is none. descriptor: closed by the caller; -1: none came.
  bool receive(SharedPiece *piece, int *descriptor);

 private:
  int ends_[2] = {-1, -1};
  std::vector<int> peers_;
};

}  // namespace hccc
