// share.cpp: descriptors for the ranks of a host (SCM_RIGHTS). The lowest rank of the host listens
// at an abstract UNIX socket, gets everybody's descriptors and passes them on.
#include "share.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "connect.h"

namespace hccc::bootstrap {
namespace {

const size_t kName = 16, kBundle = 12;  // a bundle: rank, which of its descriptors are there

union Control {
  cmsghdr aligned;
  char bytes[CMSG_SPACE(sizeof(int) * HCCC_BOOTSTRAP_MAX_SHARED)];
};

struct Share {
  Client *client;
  int n_own;
  int *fds;
  Deadline deadline;
  std::vector<int> local;  // the ranks of this host

  int *of(int rank) const { return fds + static_cast<ptrdiff_t>(rank) * n_own; }
};

void send_bundle(const Share &s, int to, int of_rank, int peer) {
  std::string data;
  uint64_t there = 0;
  std::vector<int> given;
  for (int i = 0; i < s.n_own; ++i) {
    if (s.of(of_rank)[i] < 0) continue;
    there |= uint64_t{1} << i;
    given.push_back(s.of(of_rank)[i]);
  }
  put<uint32_t>(&data, static_cast<uint32_t>(of_rank));
  put(&data, there);
  iovec part = {&data[0], data.size()};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!given.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * given.size());
    cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * given.size());
    std::memcpy(CMSG_DATA(c), given.data(), sizeof(int) * given.size());
  }
  for (;;) {
    const ssize_t n = sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(kBundle)) return;
    if (n >= 0 || errno == EPIPE || errno == ECONNRESET)
      fail(kLost, peer, "rank %d gave up sharing descriptors", peer);
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK, many = errno == ETOOMANYREFS;
    if (!full && !many) fail_errno("cannot pass descriptors on");
    if (many) usleep(1000);  // too many are under way to others
    if (many ? s.deadline.passed() : !wait_for(to, POLLOUT, s.deadline))
      fail(kTimedOut, peer, "rank %d does not take descriptors", peer);
  }
}

std::vector<int> rights_of(msghdr *message) {
  std::vector<int> made;
  for (cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    made.resize(made.size() + n);
    std::memcpy(made.data() + made.size() - n, CMSG_DATA(c), n * sizeof(int));
  }
  return made;
}

// Receives the bundle of rank `of_rank` from `peer`.
void receive_bundle(const Share &s, int from, int of_rank, int peer) {
  char data[kBundle];
  iovec part = {data, sizeof data};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t n;
  for (;;) {
    if (!wait_for(from, POLLIN, s.deadline))
      fail(kTimedOut, peer, "rank %d shares no descriptors", peer);
    n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n >= 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) break;
  }
  if (n <= 0) fail(kLost, peer, "rank %d gave up sharing descriptors", peer);
  const std::vector<int> got = rights_of(&message);
  const auto there = n == static_cast<ssize_t>(kBundle) ? get<uint64_t>(data + 4) : 0;
  const auto expected = static_cast<size_t>(__builtin_popcountll(there));
  const bool whole = n == static_cast<ssize_t>(kBundle) && get<int32_t>(data) == of_rank &&
                     (s.n_own == 64 || there >> s.n_own == 0);
  if (!whole || got.size() != expected || message.msg_flags & MSG_CTRUNC) {
    for (const int fd : got) ::close(fd);
    fail(kSystem, of_rank, "the descriptors of rank %d did not arrive: %s", of_rank,
         whole ? "this process may have no more (ulimit -n)" : "the protocol was broken");
  }
  auto next = got.begin();
  for (int i = 0; i < s.n_own; ++i)
    if (there >> i & 1) s.of(of_rank)[i] = *next++;
}

// Waits until all other ranks of the host are connected. Returns them in order of `local`, its own
// place empty.
std::vector<Fd> accept_all(const Share &s, Fd listener) {
  const Client &client = *s.client;
  Acceptor acceptor(std::move(listener), client.secret, kToShare);
  std::vector<Fd> made(s.local.size());
  for (size_t n = 1; n < s.local.size();) {
    std::vector<pollfd> set;
    acceptor.watch(&set);
    poll(set.data(), set.size(), acceptor.poll_ms(s.deadline.poll_ms()));
    std::vector<Arrival> arrived;
    acceptor.step(set.data(), &arrived);
    for (Arrival &a : arrived) {
      const auto found = std::find(s.local.begin() + 1, s.local.end(), a.claim.rank);
      const auto place = static_cast<size_t>(found - s.local.begin());
      if (found == s.local.end() || made[place] || a.claim.job != client.job) {
        refuse(std::move(a.fd), {kRefused, a.claim.rank, "this rank is taken"});
        continue;
      }
      Link link(std::move(a.fd), 0);
      welcome(&link);
      made[place] = link.take_fd();
      ++n;
    }
    if (n == s.local.size() || !s.deadline.passed()) continue;
    std::vector<int> missing;
    for (size_t i = 1; i < made.size(); ++i)
      if (!made[i]) missing.push_back(s.local[i]);
    fail(kTimedOut, missing[0], "%s did not come to share descriptors%s",
         name_ranks(missing).c_str(), acceptor.dropped().c_str());
  }
  return made;
}

void lead(const Share &s, Fd listener) {
  const std::vector<Fd> peers = accept_all(s, std::move(listener));
  for (size_t i = 1; i < peers.size(); ++i)
    receive_bundle(s, peers[i].get(), s.local[i], s.local[i]);
  for (size_t i = 1; i < peers.size(); ++i)
    for (const int of_rank : s.local)
      if (of_rank != s.local[i]) send_bundle(s, peers[i].get(), of_rank, s.local[i]);
}

void follow(const Share &s, const std::string &name) {
  const int leader = s.local[0];
  const Claim claim = {kToShare, s.client->rank, s.client->n_ranks, s.client->job};
  const Link link = join([&] { return connect_unix(name, s.deadline); }, claim, s.client->secret,
                         1 << 12, s.deadline, leader, text("rank %d", leader));
  send_bundle(s, link.fd(), s.client->rank, leader);
  for (const int of_rank : s.local)
    if (of_rank != s.client->rank) receive_bundle(s, link.fd(), of_rank, leader);
}

// Throws the same failure at all ranks where any failed: the first cause, before failures that it
// caused at other ranks.
void check_all(const Share &s, const std::vector<std::string> &results) {
  int worst = -1;
  Failure why;
  for (int r = 0; r < s.client->n_ranks; ++r) {
    if (results[r].empty()) continue;
    const Failure its = decode_failure(results[r]);
    if (worst >= 0 && (why.code != kLost || its.code == kLost)) continue;
    worst = r;
    why = its;
  }
  if (worst < 0) return;
  why.message = text("rank %d: %s", worst, why.message.c_str());
  if (why.rank < 0) why.rank = worst;
  s.client->leave_because(why);
  throw why;
}

std::vector<std::string> gather(const Share &s, const std::string &own, const Deadline &deadline) {
  const auto all = s.client->gather(kShare, own.data(), own.size(), deadline);
  std::vector<std::string> made;
  size_t at = 0;
  for (const size_t size : all.sizes) {
    made.push_back(all.data.substr(at, size));
    at += size;
  }
  return made;
}

// Runs `work` and returns its failure, encoded; "": none.
template <class Work>
std::string failure_of(const Work &work) {
  try {
    work();
  } catch (const Failure &failure) {
    return encode(failure);
  }
  return "";
}

// Agrees with all ranks on the number of descriptors and the leaders' sockets; returns the name of
// this host's.
std::string agree(const Share &s, const int *own_fds, const std::string &own_name, Fd *listener) {
  std::string own = own_name;
  own.resize(kName);
  put<uint32_t>(&own, static_cast<uint32_t>(s.n_own));
  own += failure_of([&] {
    if (!own_name.empty()) *listener = listen_unix(own_name);
    for (int i = 0; i < s.n_own; ++i) {
      if (own_fds[i] < 0) continue;
      int &made = s.of(s.client->rank)[i];
      made = fcntl(own_fds[i], F_DUPFD_CLOEXEC, 3);
      if (made < 0) fail_errno("cannot duplicate a descriptor");
    }
  });
  std::vector<std::string> results = gather(s, own, s.deadline);
  const std::string name = results[s.local[0]].substr(0, kName);
  for (int r = 0; r < s.client->n_ranks; ++r)
    if (results[r].size() < kName + 4 || results[r].compare(kName, 4, results[0], kName, 4) != 0)
      fail(kRefused, r, "rank %d shares another number of descriptors than rank 0", r);
  for (std::string &one : results) one.erase(0, kName + 4);
  check_all(s, results);
  return name;
}

void exchange(const Share &s, const int *own_fds) {
  std::string own_name;
  if (s.client->rank == s.local[0] && s.local.size() > 1) {
    own_name.resize(kName);
    random_bytes(&own_name[0], kName);
  }
  Fd listener;
  const std::string name = agree(s, own_fds, own_name, &listener);
  const std::string own = failure_of([&] {
    if (listener) lead(s, std::move(listener));
    else if (s.local.size() > 1) follow(s, name);
  });
  check_all(s, gather(s, own, s.deadline.passed() ? Deadline::in(0.5) : s.deadline));
}

}  // namespace

void share(Client *client, const int *own_fds, int n_own, int *fds, const Deadline &deadline) {
  if (n_own < 0 || n_own > HCCC_BOOTSTRAP_MAX_SHARED)
    fail(kBadArgument, client->rank, "%d descriptors: one rank may share %d", n_own,
         HCCC_BOOTSTRAP_MAX_SHARED);
  Share s = {client, n_own, fds, deadline, {}};
  for (int r = 0; r < client->n_ranks; ++r)
    if (client->host_of[r] == client->host_of[client->rank]) s.local.push_back(r);
  const size_t n = static_cast<size_t>(client->n_ranks) * static_cast<size_t>(n_own);
  std::fill_n(fds, n, -1);
  try {
    exchange(s, own_fds);
  } catch (...) {
    for (size_t i = 0; i < n; ++i)
      if (fds[i] >= 0) ::close(std::exchange(fds[i], -1));
    throw;
  }
}

}  // namespace hccc::bootstrap
