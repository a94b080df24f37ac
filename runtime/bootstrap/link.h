// link.h: frames over a connection.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "base.h"

namespace hccc::bootstrap {

enum Kind : uint32_t {
  kWelcome = 1,  // server → client: the handshake is done
  kFailed,       // server → client: payload: encode(Failure); seq: the call that failed, 0: all
  kJoin,         // rank → root: payload: where its hub listens (rank 0), else nothing
  kMet,          // root → rank: payload: the job's number, where its hub listens
  kQuery,        // rank → root or hub: which ranks are missing (in call seq)?
  kMissing,      // the answer; payload: their numbers
  kContribution, // rank → hub: its bytes for call seq; aux: which call
  kGathered,     // hub → rank: the contributions of all: sizes, then data
  kNotify,       // rank → hub: a message for all others
  kMessage,      // hub → rank: a message of rank aux
  kLeaving,      // rank → hub or root: it leaves; payload: its failure, if any
  kDeparted,     // hub → rank: rank aux has gone; seq: whether it sent kLeaving; payload: as there
  kProbe,        // rank → hub: which ranks answer?
  kPing,         // hub → rank: does it answer?
  kPong,         // rank → hub: it does; seq: its state
  kSigns,        // hub → rank: the answer to kProbe; payload: encode(signs of all ranks)
  kWake,         // rank → hub: nothing but that it is awake
};

struct Frame {
  uint32_t kind = 0, aux = 0;
  uint64_t seq = 0;
  std::string payload;
};

using Bytes = std::shared_ptr<const std::string>;

Bytes encode(uint32_t kind, uint32_t aux, uint64_t seq, const std::string &payload = "");
std::string encode(const Failure &failure);
Failure decode_failure(const std::string &payload);  // of any bytes
std::string encode(const std::vector<int> &ranks);
std::vector<int> decode_ranks(const std::string &payload, int n_ranks);

// A rank's sign of life, as the hub has it.
struct Sign {
  uint32_t silent_ms = 0;  // for how long it has left a ping unanswered
  uint64_t state = 0;      // of its last answer
};
std::string encode(const std::vector<Sign> &signs);
std::vector<Sign> decode_signs(const std::string &payload);

// One end of a non-blocking connection. Not for several threads at once.
class Link {
 public:
  Link() = default;
  // No frame may have a payload of more than `most` bytes.
  Link(Fd fd, uint64_t most) : fd_(std::move(fd)), most_(most) {}

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return bool{fd_}; }
  void close() { fd_.close(); }
  Fd take_fd() { return std::move(fd_); }

  // Reads up to `most` bytes. False: the other end has closed, or broken the format; `next` still
  // returns the frames before that.
  bool read(size_t most = 1 << 20);
  bool next(Frame *frame);
  // Queues bytes; `flush` sends without blocking. False: the connection is broken.
  void send(Bytes bytes) { out_.push_back(std::move(bytes)); }
  bool flush();
  bool unsent() const { return !out_.empty(); }
  bool broken() const { return broken_; }
  void mark_broken() { broken_ = true; }  // the other end breaks the protocol

 private:
  Fd fd_;
  uint64_t most_ = 0;
  std::string in_;
  size_t taken_ = 0;
  bool broken_ = false;
  std::deque<Bytes> out_;
  size_t sent_ = 0;
};

// Waits for a frame; throws LOST (`peer`) when the other end closes, TIMEOUT at the deadline.
Frame await(Link *link, const Deadline &deadline, int peer, const char *who);
// Sends all; throws as `await`.
void send_all(Link *link, Bytes bytes, const Deadline &deadline, int peer, const char *who);

}  // namespace hccc::bootstrap
