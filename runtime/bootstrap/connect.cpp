// connect.cpp: connects a rank with the others: to the root first, then to rank 0's hub.
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "client.h"
#include "host.h"
#include "connect.h"
#include "root.h"

namespace hccc::bootstrap {
namespace {

const int64_t kRefused_ns = 2000000000;

void *run_hub(void *of) {
  static_cast<Hub *>(of)->run();
  return nullptr;
}

// Waits until the root reports that all ranks have met.
Met await_met(Link *root, const std::string &where, int peer, int n_ranks,
              const Deadline &deadline) {
  bool asked = false;
  Deadline until = deadline;
  for (;;) {
    Frame frame;
    try {
      frame = await(root, until, peer, where.c_str());
    } catch (const Failure &failure) {
      if (failure.code == kLost)
        fail(kLost, peer, "%s went before all ranks had met", where.c_str());
      if (failure.code != kTimedOut || asked) throw;
      asked = true;
      until = Deadline::in(1);
      root->send(encode(kQuery, 0, 0));
      root->flush();
      continue;
    }
    if (frame.kind == kMet) return decode_met(frame.payload);
    if (frame.kind == kFailed) throw decode_failure(frame.payload);
    if (frame.kind != kMissing) continue;
    const std::vector<int> missing = decode_ranks(frame.payload, n_ranks);
    if (missing.empty()) continue;  // all have joined meanwhile
    fail(kTimedOut, missing[0], "%s of %d did not come",
         name_ranks(missing).c_str(), n_ranks);
  }
}

// Throws where the root reports that rank 0 has gone, or has gone itself.
void check_rank_0(Link *root) {
  const bool open = root->read();
  for (Frame frame; root->next(&frame);)
    if (frame.kind == kDeparted && frame.aux == 0) throw decode_failure(frame.payload);
  if (!open) fail(kLost, 0, "rank 0 or the root went before all were connected");
}

}  // namespace

Link join(const std::function<Fd()> &connect, const Claim &claim, const Secret &secret,
          uint64_t most, const Deadline &deadline, int peer, const std::string &where) {
  for (int64_t pause_us = 2000;; pause_us = std::min<int64_t>(pause_us * 3 / 2, 200000)) {
    Fd fd = connect();
    const int error = errno;
    if (!fd && (error == EMFILE || error == ENFILE || error == ENOMEM))
      fail_errno("cannot connect");
    std::string why = fd ? "it closed the connection" : std::strerror(error);
    if (fd) {
      Link link = authenticate(std::move(fd), claim, secret, most, deadline, where);
      if (link) return link;
    }
    if (deadline.passed())
      fail(kTimedOut, peer, "%s does not answer: %s", where.c_str(), why.c_str());
    uint32_t random;
    random_bytes(&random, sizeof random);
    usleep(static_cast<useconds_t>(pause_us / 2 + random % pause_us));
  }
}

Client::Client(const hccc_unique_id &id, int n, int own, const Deadline &deadline)
    : n_ranks(n), rank(own), process_(getpid()), gone_(static_cast<size_t>(std::max(n, 0))) {
  if (n < 1 || n > HCCC_BOOTSTRAP_MAX_RANKS || rank < 0 || rank >= n)
    fail(kBadArgument, -1, "there is no rank %d of %d", rank, n);
  const Identity identity = read_id(id);
  secret = identity.secret;
  try {
    meet(identity, deadline);
    set_up(deadline);
    wait_for_root(identity);
  } catch (...) {
    close();
    throw;
  }
}

std::string name_of_root(const Identity &identity) {
  return (identity.at_rank_0 ? "rank 0's root at " : "the root at ") + identity.address.str();
}

// Returns an attempt to connect to the root. A root that listened before the id was made, or once
// was reached, refuses nobody while it runs: where it does, it has ended.
std::function<Fd()> to_root(const Identity &identity, const Deadline &deadline) {
  int64_t since = 0;
  bool was_there = identity.listening;
  return [&, since, was_there]() mutable {
    Fd fd = connect_tcp(identity.address, deadline.or_in(10));
    const int error = errno;
    was_there = was_there || fd;
    const bool refused = !fd && error == ECONNREFUSED && was_there;
    if (!refused) since = 0;
    else if (!since) since = now_ns();
    else if (now_ns() - since > kRefused_ns)
      fail(kLost, identity.at_rank_0 ? 0 : -1,
           "%s is not there: its process has ended, it gave up, or the address means another host "
           "here", name_of_root(identity).c_str());
    errno = error;
    return fd;
  };
}

void Client::meet(const Identity &identity, const Deadline &deadline) {
  Claim claim = {kToRoot, rank, n_ranks, job};
  const std::string at = name_of_root(identity);
  const int peer = identity.at_rank_0 ? 0 : -1;
  Link root = join(to_root(identity, deadline), claim, secret, 1 << 20, deadline, peer, at);
  std::string hub_at;
  Fd listener;
  if (rank == 0) {
    const Binding binding = choose_binding(local_address(root.fd()));
    Address reachable = binding.reachable, bound;
    listener = listen_tcp(binding.bind, &bound);
    reachable.port = bound.port;
    address = reachable;
    interface = interface_of(reachable);
    hub_at.assign(reinterpret_cast<const char *>(reachable.ip), 16);
    put(&hub_at, reachable.port);
  }
  root.send(encode(kJoin, 0, 0, hub_at));
  root.flush();  // where it cannot be sent, the root has closed, maybe with a failure to read
  Met met;
  try {
    met = await_met(&root, at, peer, n_ranks, deadline);
  } catch (const Failure &failure) {
    root.send(encode(kLeaving, 0, 0, encode(failure)));
    root.flush();
    shutdown(root.fd(), SHUT_WR);
    wait_for_report(identity);
    throw;
  }
  job = met.job;
  if (rank == 0) return start_hub(std::move(listener), std::move(root));
  claim = {kToHub, rank, n_ranks, job};
  const auto connect = [&] {
    check_rank_0(&root);
    return connect_tcp(met.hub, deadline.or_in(10));
  };
  link_ = join(connect, claim, secret, largest_answer(), deadline, 0, "rank 0 at " + met.hub.str());
  address = local_address(link_.fd());
  interface = interface_of(address);
  root.send(encode(kLeaving, 0, 0));
  root.flush();
}

void Client::start_hub(Fd listener, Link root) {
  int pair[2];
  Fd of_hub;
  Fd own = Fd::of([&] {
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    return socketpair(AF_UNIX, type, 0, pair) == 0 ? pair[0] : -1;
  });
  if (!own) fail_errno("cannot make a pair of sockets");
  of_hub = Fd(pair[1]);
  auto hub = std::make_unique<Hub>(std::move(listener), secret, job, n_ranks, std::move(of_hub),
                                   std::move(root));
  hub_thread_ = start_thread(run_hub, hub.get(), "hccc-hub");
  hub_ = std::move(hub);
  link_ = Link(std::move(own), largest_answer());
}

void Client::watch_link() {
  watch_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  pending_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  if (!watch_ || !pending_event_ ||
      epoll_ctl(watch_.get(), EPOLL_CTL_ADD, link_.fd(), &event) != 0 ||
      epoll_ctl(watch_.get(), EPOLL_CTL_ADD, pending_event_.get(), &event) != 0)
    fail_errno("cannot watch the connection");
}

// Exchanges hosts and processes of all ranks; the first call through the hub.
void Client::set_up(const Deadline &deadline) {
  watch_link();
  std::string own = host_identity();
  put<uint32_t>(&own, static_cast<uint32_t>(process_));
  const Gathered all = gather(kSetUp, own.data(), own.size(), deadline);
  std::map<std::string, int> hosts;
  for (int r = 0; r < n_ranks; ++r) {
    if (all.sizes[r] != own.size())
      fail(kRefused, r, "rank %d breaks the protocol", r);
    const char *p = all.data.data() + static_cast<size_t>(r) * own.size();
    const auto [host, added] = hosts.emplace(std::string(p, own.size() - 4), hosts.size());
    host_of.push_back(host->second);
    pid_of.push_back(get<int32_t>(p + own.size() - 4));
  }
}

}  // namespace hccc::bootstrap
