// handshake.h: mutual authentication by the job's secret, before anything else is read.
//
// client hello: magic, version, purpose, rank, n_ranks, job, nonce; server hello: magic, version,
// nonce, HMAC(secret, "server", both hellos); proof of the client: HMAC(secret, "client", both
// hellos). All have fixed lengths: without the secret, nobody makes the other end read more.
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
// Magic and version, which stay where they are in every version of the protocol.
const size_t kPrefix = 12;

const char kClientMagic[9] = "hcccBS-c", kServerMagic[9] = "hcccBS-s";

enum Purpose : uint32_t { kToRoot = 1, kToHub = 2, kToShare = 3 };

using Secret = std::array<uint8_t, 32>;
using Job = std::array<char, 16>;  // the job's random number; zeros before its ranks have met

// The claims of a client hello.
struct Claim {
  uint32_t purpose;
  int rank, n_ranks;
  Job job;
};

// Computes the proof of `who`, "client" or "server".
Digest proof_of(const Secret &secret, const char *who, const std::string &hellos);

// Authenticates as a client, up to the server's kWelcome. Throws REFUSED where the server has
// another secret or version, is not of hccc, or refuses; TIMEOUT. Returns an empty Link where the
// server closed the connection: try again.
Link authenticate(Fd fd, const Claim &claim, const Secret &secret, uint64_t most,
               const Deadline &deadline, const std::string &where);

struct Arrival {
  Fd fd;
  Claim claim;
};

// Accepts connections and authenticates them. A connection that does not authenticate costs a
// descriptor for 5 s at most; of too many the oldest are dropped first.
class Acceptor {
 public:
  Acceptor(Fd listener, const Secret &secret, uint32_t purpose)
      : listener_(std::move(listener)), secret_(secret), purpose_(purpose) {}
  ~Acceptor() { wipe(secret_.data(), secret_.size()); }

  // Appends the descriptors to poll.
  void watch(std::vector<pollfd> *set) const;
  // Handles the events of `polled`, the descriptors of `watch`.
  void step(const pollfd *polled, std::vector<Arrival> *arrived);
  int poll_ms(int at_most) const;  // until a connection has to be dropped
  // Returns "; 3 connections were dropped, the last from 10.0.0.1:4711: …", or "".
  std::string dropped() const;
  void close() {
    listener_.close();
    pending_.clear();
  }

 private:
  struct Pending {
    Fd fd;
    int64_t since;
    std::string in;     // received of the hello, then of the proof
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

// Send kWelcome, or what is wrong with the claim, without blocking.
void welcome(Link *link);
void refuse(Fd fd, const Failure &failure);

}  // namespace hccc::bootstrap
