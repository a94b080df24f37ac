// sockets.cpp: listeners and connections; addresses are in addresses.cpp.
#include "sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace hccc::bootstrap {
namespace {

const int kBacklog = 4096;

socklen_t to_sockaddr(const Address &a, sockaddr_storage *to) {
  std::memset(to, 0, sizeof *to);
  if (a.is_v4()) {
    auto *v4 = reinterpret_cast<sockaddr_in *>(to);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(a.port);
    std::memcpy(&v4->sin_addr, a.ip + 12, 4);
    return sizeof *v4;
  }
  auto *v6 = reinterpret_cast<sockaddr_in6 *>(to);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(a.port);
  std::memcpy(&v6->sin6_addr, a.ip, 16);
  return sizeof *v6;
}

socklen_t to_sockaddr(const std::string &name, sockaddr_un *to) {
  std::memset(to, 0, sizeof *to);
  to->sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof to->sun_path) fail(kSystem, -1, "a long socket name");
  std::memcpy(to->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Fd make(int family, int type = SOCK_STREAM) {
  return Fd::of([&] { return socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

// Returns whether a socket is connected to itself: the system may choose, as its own port, the one
// that it connects to while nobody listens there.
bool is_itself(int fd) {
  sockaddr_storage local, peer;
  socklen_t a = sizeof local, b = sizeof peer;
  return getsockname(fd, reinterpret_cast<sockaddr *>(&local), &a) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &b) == 0 &&
         local.ss_family != AF_UNIX && address_of(local) == address_of(peer);
}

Fd connect_to(Fd fd, const sockaddr *to, socklen_t bytes, const Deadline &deadline) {
  if (!fd) return fd;
  int error = 0;
  if (connect(fd.get(), to, bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return Fd();
    socklen_t n = sizeof error;
    if (!wait_for(fd.get(), POLLOUT, deadline)) error = ETIMEDOUT;
    else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &n) != 0) error = errno;
  }
  if (!error && is_itself(fd.get())) error = ECONNREFUSED;
  if (error) fd.close();
  errno = error;
  return fd;
}

}  // namespace

Fd listen_tcp(const Address &at, Address *bound) {
  Fd fd = make(at.is_v4() ? AF_INET : AF_INET6);
  if (!fd) fail_errno("cannot make a socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage to;
  const socklen_t bytes = to_sockaddr(at, &to);
  if (bind(fd.get(), reinterpret_cast<sockaddr *>(&to), bytes) != 0)
    fail_errno("cannot bind to", at.str());
  if (listen(fd.get(), kBacklog) != 0) fail_errno("cannot listen at", at.str());
  *bound = local_address(fd.get());
  return fd;
}

Fd listen_unix(const std::string &abstract_name) {
  Fd fd = make(AF_UNIX);
  sockaddr_un to;
  const socklen_t bytes = to_sockaddr(abstract_name, &to);
  if (!fd || bind(fd.get(), reinterpret_cast<sockaddr *>(&to), bytes) != 0 ||
      listen(fd.get(), kBacklog) != 0)
    fail_errno("cannot listen at a UNIX socket");
  return fd;
}

Fd connect_tcp(const Address &to, const Deadline &deadline) {
  sockaddr_storage address;
  const socklen_t bytes = to_sockaddr(to, &address);
  Fd fd = connect_to(make(address.ss_family), reinterpret_cast<sockaddr *>(&address), bytes,
                     deadline);
  if (fd) set_options(fd.get());
  return fd;
}

Fd connect_unix(const std::string &abstract_name, const Deadline &deadline) {
  sockaddr_un address;
  const socklen_t bytes = to_sockaddr(abstract_name, &address);
  return connect_to(make(AF_UNIX), reinterpret_cast<sockaddr *>(&address), bytes, deadline);
}

// Sets options so that a host that vanishes is noticed after 20 to 25 s, but not a slow process,
// whose host answers.
void set_options(int fd) {
  const int on = 1, idle = 5, interval = 3, count = 5;
  const unsigned unanswered_ms = 20000;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

Address local_address(int fd) {
  sockaddr_storage local;
  socklen_t bytes = sizeof local;
  if (getsockname(fd, reinterpret_cast<sockaddr *>(&local), &bytes) != 0)
    fail_errno("cannot ask a socket for its address");
  return address_of(local);
}

Address address_towards(const Address &other) {
  sockaddr_storage to;
  const socklen_t bytes = to_sockaddr(other, &to);
  const Fd fd = make(to.ss_family, SOCK_DGRAM);  // nothing is sent: the system chooses the way
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr *>(&to), bytes) != 0)
    fail_errno("no way leads to", other.str());
  Address found = local_address(fd.get());
  found.port = 0;
  return found;
}

std::string peer_name(int fd) {
  sockaddr_storage peer;
  socklen_t bytes = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &bytes) != 0) return "somewhere";
  return peer.ss_family == AF_UNIX ? "this host" : address_of(peer).str();
}

bool wait_for(int fd, short events, const Deadline &deadline) {
  for (;;) {
    pollfd one = {fd, events, 0};
    const int n = poll(&one, 1, deadline.poll_ms());
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) fail_errno("cannot poll");
    if (deadline.passed()) return false;
  }
}

}  // namespace hccc::bootstrap
