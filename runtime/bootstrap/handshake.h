// handshake.h: both ends prove that they know the job's secret, before anything else is read.
//
// client hello: magic, version, purpose, rank, n_ranks, job, nonce; server hello: magic, version,
// nonce, HMAC(secret, "server", both hellos); proof of the client: HMAC(secret, "client", both
// hellos). All are of fixed length, so nobody without the secret can make the other end read more.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "link.h"
#include "sha256.h"
#include "sockets.h"

struct pollfd;

namespace hccc::bootstrap {

const uint32_t kVersion = 1;
const size_t kClientHello = 72, kServerHello = 80, kProof = 32;
// In clear: magic, version; the same in every version of the protocol.
const size_t kPrefix = 12;

const char kClientMagic[9] = "hcccBS-c", kServerMagic[9] = "hcccBS-s";

enum Purpose : uint32_t { kToRoot = 1, kToHub = 2, kToShare = 3 };

using Secret = std::array<uint8_t, 32>;
using Job = std::array<char, 16>;  // a random number of the job; zeros before its ranks have met

// What a client says of itself.
struct Claim {
  uint32_t purpose;
  int rank, n_ranks;
  Job job;
};

// What `who`, "client" or "server", proves itself with.
Digest prove(const Secret &secret, const char *who, const std::string &hellos);

// The client's part, up to the server's kWelcome. Throws REFUSED where the server has another
// secret or version, is none, or refuses; TIMEOUT. An empty Link: the server closed the connection,
// try again.
Link introduce(Fd fd, const Claim &claim, const Secret &secret, uint64_t most,
               const Deadline &deadline, const std::string &where);

struct Arrival {
  Fd fd;
  Claim claim;
};

// The server's part: accepts, and gives those that have proved themselves. Others cost it a
// descriptor for 5 s at most; where there are many of them the oldest go first.
class Acceptor {
 public:
  Acceptor(Fd listener, const Secret &secret, uint32_t purpose)
      : listener_(std::move(listener)), secret_(secret), purpose_(purpose) {}
  ~Acceptor() { wipe(secret_.data(), secret_.size()); }

  // Appends what to poll.
  void watch(std::vector<pollfd> *set) const;
  // After poll: `polled` are those of `watch`.
  void step(const pollfd *polled, std::vector<Arrival> *arrived);
  int poll_ms(int at_most) const;  // until something has to be dropped
  // "; 3 connections were dropped, the last from 10.0.0.1:4711: no peer of ours", or "".
  std::string dropped() const;
  void close() {
    listener_.close();
    pending_.clear();
  }

 private:
  struct Pending {
    Fd fd;
    int64_t since;
    std::string in;     // what has come of the hello, then of the proof
    std::string hello;  // both hellos, once the server's has been sent
    Claim claim;
  };

  void accept_all();
  bool make_room();
  bool advance(Pending *p, std::vector<Arrival> *arrived);
  bool answer(Pending *p);
  void drop(const Pending &p, const char *why);

  Fd listener_;
  Secret secret_;
  uint32_t purpose_;
  std::vector<Pending> pending_;
  int64_t paused_until_ = 0;
  size_t n_dropped_ = 0;
  std::string last_;
};

// kWelcome, or what is wrong with the claim; the connection takes both without blocking.
void welcome(Link *link);
void refuse(Fd fd, const Failure &failure);

}  // namespace hccc::bootstrap
