// handshake.cpp: the client's part of the handshake; acceptor.cpp has the server's.
#include "handshake.h"

#include <poll.h>

#include <cerrno>
#include <cstring>

namespace hccc::bootstrap {
namespace {

// Sends all bytes. False: the other end has closed, maybe before it read all, and after an answer.
bool write_all(int fd, const char *p, size_t bytes, const Deadline &deadline) {
  while (bytes) {
    const ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      p += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Reads `bytes` bytes, fewer where the connection ends or the deadline passes.
std::string read_all(int fd, size_t bytes, const Deadline &deadline) {
  std::string made(bytes, '\0');
  size_t have = 0;
  while (have < bytes && wait_for(fd, POLLIN, deadline)) {
    const ssize_t n = recv(fd, &made[have], bytes - have, MSG_DONTWAIT);
    if (n > 0) have += static_cast<size_t>(n);
    else if (n == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) break;
  }
  made.resize(have);
  return made;
}

void check_server(const std::string &hello, const std::string &where) {
  const size_t n = std::min(hello.size(), sizeof kServerMagic - 1);
  if (std::memcmp(hello.data(), kServerMagic, n) != 0)
    fail(kRefused, -1, "what answers at %s is not of hccc", where.c_str());
  if (hello.size() < kPrefix) return;
  const auto version = get<uint32_t>(hello.data() + 8);
  if (version != kVersion)
    fail(kRefused, -1, "the hccc at %s speaks version %u of the protocol, this one %u",
         where.c_str(), version, kVersion);
}

std::string client_hello(const Claim &claim) {
  char nonce[32];
  random_bytes(nonce, sizeof nonce);
  std::string hello = kClientMagic;
  put(&hello, kVersion);
  put(&hello, claim.purpose);
  put<uint32_t>(&hello, static_cast<uint32_t>(claim.rank));
  put<uint32_t>(&hello, static_cast<uint32_t>(claim.n_ranks));
  hello.append(claim.job.data(), claim.job.size());
  return hello.append(nonce, sizeof nonce);
}

}  // namespace

Digest proof_of(const Secret &secret, const char *who, const std::string &hellos) {
  const std::string message = std::string("hccc bootstrap ") + who + '\0' + hellos;
  return hmac(secret.data(), secret.size(), message.data(), message.size());
}

Link authenticate(Fd fd, const Claim &claim, const Secret &secret, uint64_t most,
               const Deadline &deadline, const std::string &where) {
  std::string hellos = client_hello(claim);
  write_all(fd.get(), hellos.data(), hellos.size(), deadline);
  const std::string server = read_all(fd.get(), kServerHello, deadline);
  check_server(server, where);
  if (server.size() < kServerHello) return Link();
  const size_t unproved = kServerHello - kProof;
  hellos.append(server, 0, unproved);
  const Digest wanted = proof_of(secret, "server", hellos);
  if (!same(wanted.data(), server.data() + unproved, kProof))
    fail(kRefused, -1, "the hccc at %s has another secret", where.c_str());
  const Digest own = proof_of(secret, "client", hellos);
  write_all(fd.get(), reinterpret_cast<const char *>(own.data()), own.size(), deadline);
  Link link(std::move(fd), most);
  Frame frame;
  try {
    frame = await(&link, deadline, -1, where.c_str());
  } catch (const Failure &failure) {
    if (failure.code != kLost || link.broken()) throw;
    return Link();
  }
  if (frame.kind == kFailed) throw decode_failure(frame.payload);
  if (frame.kind != kWelcome)
    fail(kRefused, -1, "the hccc at %s breaks the protocol", where.c_str());
  return link;
}

void welcome(Link *link) {
  link->send(encode(kWelcome, 0, 0));
  link->flush();
}

void refuse(Fd fd, const Failure &failure) {
  Link link(std::move(fd), 0);
  link.send(encode(kFailed, 0, 0, encode(failure)));
  link.flush();
}

}  // namespace hccc::bootstrap
