// acceptor.cpp: the server's part of the handshake, for any number of connections.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "handshake.h"

namespace hccc::bootstrap {
namespace {

const size_t kMostPending = 256;
const int64_t kMs = 1000000, kMostAge = 5000 * kMs, kLeastAge = 100 * kMs;

}  // namespace

void Acceptor::watch(std::vector<pollfd> *set) const {
  const bool full = now_ns() < paused_until_;
  set->push_back({full ? -1 : listener_.get(), POLLIN, 0});
  for (const Pending &p : pending_) set->push_back({p.fd.get(), POLLIN, 0});
}

int Acceptor::poll_ms(int at_most) const {
  int64_t next = now_ns() + at_most * kMs;
  if (paused_until_ > now_ns()) next = std::min(next, paused_until_);
  if (!pending_.empty()) next = std::min(next, pending_.front().since + kMostAge);
  return static_cast<int>(std::max<int64_t>(0, (next - now_ns()) / kMs + 1));
}

void Acceptor::step(const pollfd *polled, std::vector<Arrival> *arrived) {
  const int64_t now = now_ns();
  std::vector<Pending> kept;
  kept.reserve(pending_.size());
  for (size_t i = 0; i < pending_.size(); ++i) {
    Pending &p = pending_[i];
    if (polled[1 + i].revents && !advance(&p, arrived)) continue;
    if (now - p.since > kMostAge) drop(p, "it did not say who it is within 5 s");
    else kept.push_back(std::move(p));
  }
  pending_ = std::move(kept);
  if (polled[0].revents) accept_all();
}

void Acceptor::accept_all() {
  while (make_room()) {
    Fd fd = Fd::of(
        [&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // No descriptor or memory is left: unauthenticated connections must not hold them all.
      if (!pending_.empty()) {
        drop(pending_.front(), "no descriptor was left");
        pending_.erase(pending_.begin());
      }
      paused_until_ = now_ns() + kLeastAge;
      return;
    }
    pending_.push_back({std::move(fd), now_ns(), "", "", {}});
  }
}

// Makes room for one connection: of too many the oldest is dropped, once it has had 100 ms. A peer
// needs a few.
bool Acceptor::make_room() {
  if (pending_.size() < kMostPending) return true;
  const int64_t may_go = pending_.front().since + kLeastAge;
  if (now_ns() < may_go) {
    paused_until_ = may_go;
    return false;
  }
  drop(pending_.front(), "too many connections at once");
  pending_.erase(pending_.begin());
  return true;
}

// Reads from a pending connection. False: it is no longer pending, but authenticated or dropped.
bool Acceptor::advance(Pending *p, std::vector<Arrival> *arrived) {
  char part[kClientHello];
  for (;;) {
    const size_t wanted = (p->hello.empty() ? kClientHello : kProof) - p->in.size();
    const ssize_t n = recv(p->fd.get(), part, wanted, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) {
      drop(*p, p->hello.empty() ? "it closed the connection" : "it has another secret, or gave up");
      return false;
    }
    p->in.append(part, static_cast<size_t>(n));
    if (p->hello.empty()) {
      if (!answer(p)) return false;
    } else if (p->in.size() == kProof) {
      const Digest wanted_proof = proof_of(secret_, "client", p->hello);
      if (same(wanted_proof.data(), p->in.data(), kProof)) {
        set_options(p->fd.get());
        arrived->push_back({std::move(p->fd), p->claim});
      } else {
        drop(*p, "it has another secret");
      }
      return false;
    }
  }
}

// Checks a hello as far as it has arrived, and answers a whole one. False: dropped.
bool Acceptor::answer(Pending *p) {
  const std::string &in = p->in;
  if (std::memcmp(in.data(), kClientMagic, std::min<size_t>(in.size(), 8)) != 0) {
    drop(*p, "it is not of hccc");
    return false;
  }
  const bool other = in.size() >= kPrefix && get<uint32_t>(in.data() + 8) != kVersion;
  if (!other && in.size() < kClientHello) return true;
  std::string hello = kServerMagic;
  put(&hello, kVersion);
  put<uint32_t>(&hello, 0);
  char nonce[32];
  random_bytes(nonce, sizeof nonce);
  hello.append(nonce, sizeof nonce);
  const std::string hellos = in + hello;
  const Digest own = other ? Digest{} : proof_of(secret_, "server", hellos);
  hello.append(reinterpret_cast<const char *>(own.data()), own.size());
  const ssize_t n = send(p->fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (other || n != static_cast<ssize_t>(hello.size())) {
    drop(*p, other ? "it speaks another version of the protocol" : "it closed the connection");
    return false;
  }
  const char *at = in.data() + kPrefix;
  p->claim.purpose = get<uint32_t>(at);
  p->claim.rank = get<int32_t>(at + 4);
  p->claim.n_ranks = get<int32_t>(at + 8);
  std::memcpy(p->claim.job.data(), at + 12, p->claim.job.size());
  if (p->claim.purpose != purpose_) {
    drop(*p, "it is of another part of the protocol");
    return false;
  }
  p->hello = hellos;
  p->in.clear();
  return true;
}

void Acceptor::drop(const Pending &p, const char *why) {
  ++n_dropped_;
  last_ = "from " + peer_name(p.fd.get()) + ": " + why;
}

std::string Acceptor::dropped() const {
  if (!n_dropped_) return "";
  return text("; %zu connection%s dropped, the last %s", n_dropped_,
              n_dropped_ == 1 ? " was" : "s were", last_.c_str());
}

}  // namespace hccc::bootstrap
