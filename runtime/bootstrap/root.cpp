// root.cpp: the root registers every rank, then sends all of them the address of rank 0's hub.
#include "root.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace hccc::bootstrap {
namespace {

const uint64_t kMostJoin = 512;
const double kReportFailure_s = 30;  // for reports of a failure to late ranks
const double kRootTimeout_s = 600;

class Root;

// The roots of this process. Never destroyed: roots may end while the process does. A child of fork
// has none of its parent's.
struct Roots {
  const pid_t process = getpid();
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<Root *> running;
};

Roots &roots() {
  static std::atomic<Roots *> made{new Roots};
  Roots *found = made;
  if (found->process == getpid()) return *found;
  auto *own = new Roots;
  if (made.compare_exchange_strong(found, own)) return *own;
  delete own;
  return *found;
}

class Root {
 public:
  Root(Fd listener, const Identity &identity, double timeout_s, std::function<void()> ended)
      : address(identity.address),
        stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        acceptor_(std::move(listener), identity.secret, kToRoot),
        timeout_s_(timeout_s),
        ended_(std::move(ended)) {}

  void run();

  const Address address;
  const Fd stop;  // readable: another root needs this address

 private:
  struct Member {
    Link link;
    bool joined = false, leaving = false, gone = false, readable = false;
  };

  void step();
  void wait(std::vector<pollfd> *set, int at_most_ms);
  void admit(Arrival *arrival);
  void read_from(int rank, Member *member);
  void wait_until_connected();
  void report_failure(const Failure &failure);
  void drop_closed();
  std::vector<int> missing() const;
  void broadcast(const Bytes &bytes);

  Acceptor acceptor_;
  const double timeout_s_;
  Deadline deadline_ = Deadline::never();  // until the first rank has registered
  std::function<void()> ended_;
  int n_ranks_ = 0, first_ = -1;
  std::map<int, Member> members_;
  Address hub_ = {};
};

void Root::run() {
  try {
    while (!n_ranks_ || !missing().empty()) step();
  } catch (const Failure &failure) {
    broadcast(encode(kFailed, 0, 0, encode(failure)));
    report_failure(failure);
    if (ended_) ended_();
    return;
  }
  acceptor_.close();
  if (ended_) ended_();
  Met met = {{}, hub_};
  random_bytes(met.job.data(), met.job.size());
  broadcast(encode(kMet, 0, 0, encode(met)));
  wait_until_connected();
}

void Root::step() {
  std::vector<pollfd> set;
  set.push_back({stop.get(), POLLIN, 0});
  acceptor_.watch(&set);
  wait(&set, acceptor_.poll_ms(deadline_.poll_ms()));
  for (auto &[rank, member] : members_)
    if (member.readable) read_from(rank, &member);
  for (auto &[rank, member] : members_)
    if (member.gone) fail(kLost, rank, "rank %d left before all ranks had met", rank);
  std::vector<Arrival> arrived;
  acceptor_.step(&set[1], &arrived);
  for (Arrival &arrival : arrived) admit(&arrival);
  if (set[0].revents) fail(kLost, -1, "the process with the root has given up");
  if (!deadline_.passed() || (n_ranks_ && missing().empty())) return;
  const std::vector<int> gone = missing();
  fail(kTimedOut, gone.empty() ? -1 : gone[0], "%s of %d did not come%s",
       name_ranks(gone).c_str(), n_ranks_, acceptor_.dropped().c_str());
}

// Polls `set` and the members' connections.
void Root::wait(std::vector<pollfd> *set, int at_most_ms) {
  const size_t n = set->size();
  for (auto &[rank, member] : members_)
    set->push_back({member.link.fd(),
                    static_cast<short>(POLLIN | (member.link.unsent() ? POLLOUT : 0)), 0});
  const int n_ready = poll(set->data(), set->size(), at_most_ms);
  size_t i = n;
  for (auto &[rank, member] : members_) member.readable = (*set)[i++].revents && n_ready > 0;
  if (n_ready < 0)
    for (pollfd &one : *set) one.revents = 0;
}

void Root::admit(Arrival *arrival) {
  const int rank = arrival->claim.rank, n = arrival->claim.n_ranks;
  std::string wrong;
  if (n < 1 || n > HCCC_BOOTSTRAP_MAX_RANKS || rank < 0 || rank >= n)
    wrong = text("there is no rank %d of %d", rank, n);
  else if (n_ranks_ && n != n_ranks_)
    wrong = text("rank %d says that there are %d ranks, rank %d that there are %d", rank, n, first_,
                 n_ranks_);
  else if (members_.count(rank))
    wrong = text("rank %d is taken: another process is it", rank);
  if (!wrong.empty()) return refuse(std::move(arrival->fd), {kRefused, rank, wrong});
  if (!n_ranks_) {
    n_ranks_ = n;
    first_ = rank;
  }
  deadline_ = Deadline::of(timeout_s_);
  Member &member = members_[rank];
  member.link = Link(std::move(arrival->fd), kMostJoin);
  welcome(&member.link);
}

void Root::read_from(int rank, Member *member) {
  const bool open = member->link.read() && member->link.flush();
  for (Frame frame; member->link.next(&frame);) {
    if (frame.kind == kJoin) {
      member->joined = true;
      if (rank == 0 && frame.payload.size() == 18) {
        std::memcpy(hub_.ip, frame.payload.data(), 16);
        hub_.port = get<uint16_t>(frame.payload.data() + 16);
      }
    } else if (frame.kind == kQuery) {
      member->link.send(encode(kMissing, 0, 0, encode(missing())));
      member->link.flush();
    } else if (frame.kind == kLeaving) {
      member->leaving = member->gone = true;
      if (!frame.payload.empty()) throw decode_failure(frame.payload);
    }
  }
  member->gone |= !open || member->link.broken();
  if (member->gone && !member->leaving)
    fail(kLost, rank, "rank %d went before all ranks had met", rank);
}

// Waits until all ranks report that they are connected to the hub. Reports ranks that end before
// that: any rank to rank 0's hub, rank 0 to all ranks.
void Root::wait_until_connected() {
  while (!members_.empty() && !deadline_.passed()) {
    std::vector<pollfd> set;
    wait(&set, deadline_.poll_ms());
    for (auto it = members_.begin(); it != members_.end();) {
      const int rank = it->first;
      try {
        if (it->second.readable) read_from(rank, &it->second);
      } catch (const Failure &failure) {
        const Bytes gone = encode(kDeparted, static_cast<uint32_t>(rank), 0, encode(failure));
        for (auto &[other, member] : members_) {
          if (rank != 0 && other != 0) continue;
          member.link.send(gone);
          member.link.flush();
        }
      }
      it = it->second.gone ? members_.erase(it) : std::next(it);
    }
  }
}

// Reports a failure to ranks that register later, until every rank knows of it. Ranks close their
// connections first: closing one with unread bytes would discard the report.
void Root::report_failure(const Failure &failure) {
  const Deadline until = Deadline::in(kReportFailure_s);
  std::set<int> informed;  // or gone
  if (0 <= failure.rank && failure.rank < n_ranks_) informed.insert(failure.rank);
  for (const auto &[rank, member] : members_) informed.insert(rank);
  while ((static_cast<int>(informed.size()) < n_ranks_ || !members_.empty()) && !until.passed()) {
    std::vector<pollfd> set = {{stop.get(), POLLIN, 0}};
    acceptor_.watch(&set);
    wait(&set, acceptor_.poll_ms(until.poll_ms()));
    if (set[0].revents) return;
    drop_closed();
    std::vector<Arrival> arrived;
    acceptor_.step(&set[1], &arrived);
    for (Arrival &arrival : arrived) {
      informed.insert(arrival.claim.rank);
      refuse(std::move(arrival.fd), failure);
    }
  }
}

// Drops members that have closed their connections, and ignores all frames.
void Root::drop_closed() {
  for (auto it = members_.begin(); it != members_.end();) {
    Link &link = it->second.link;
    bool open = !it->second.readable || (link.read() && link.flush());
    for (Frame ignored; link.next(&ignored);) {
    }
    open = open && !link.broken();
    it = open ? std::next(it) : members_.erase(it);
  }
}

std::vector<int> Root::missing() const {
  std::vector<int> made;
  for (int rank = 0; rank < n_ranks_; ++rank) {
    const auto found = members_.find(rank);
    if (found == members_.end() || !found->second.joined) made.push_back(rank);
  }
  return made;
}

void Root::broadcast(const Bytes &bytes) {
  const Deadline soon = Deadline::in(5);
  for (auto &[rank, member] : members_) {
    try {
      send_all(&member.link, bytes, soon, rank, "a rank");
    } catch (const Failure &) {
      // It has gone: the hub will report that.
    }
  }
}

void *run_root(void *of) {
  std::unique_ptr<Root> root(static_cast<Root *>(of));
  try {
    root->run();
  } catch (...) {
    // Out of memory: its connections close, which every rank notices.
  }
  Roots &r = roots();
  std::lock_guard<std::mutex> lock(r.mutex);
  r.running.erase(std::find(r.running.begin(), r.running.end(), root.get()));
  root.reset();
  r.ended.notify_all();
  return nullptr;
}

// Waits for the end of the root at an address, for so many seconds at most; under the lock.
void wait_for_end(std::unique_lock<std::mutex> *lock, const Address &address, bool stop,
                  int seconds) {
  Roots &r = roots();
  r.ended.wait_for(*lock, std::chrono::seconds(seconds), [&] {
    bool none = true;
    for (Root *root : r.running) {
      if (!(root->address == address)) continue;
      none = false;
      const uint64_t one = 1;
      if (stop && write(root->stop.get(), &one, sizeof one) < 0) continue;
    }
    return none;
  });
}

}  // namespace

double root_timeout() {
  return variable("HCCC_TIMEOUT") ? environment_timeout() : kRootTimeout_s;
}

void start_root(Fd listener, const Identity &identity, double timeout_s,
                std::function<void()> ended) {
  auto root = std::make_unique<Root>(std::move(listener), identity, timeout_s, std::move(ended));
  std::lock_guard<std::mutex> lock(roots().mutex);
  roots().running.push_back(root.get());
  try {
    pthread_detach(start_thread(run_root, root.get(), "hccc-root"));
    root.release();
  } catch (...) {
    roots().running.pop_back();
    throw;
  }
}

void wait_for_root(const Identity &identity) {
  std::unique_lock<std::mutex> lock(roots().mutex);
  wait_for_end(&lock, identity.address, false, 2);
}

void wait_for_report(const Identity &identity) {
  std::unique_lock<std::mutex> lock(roots().mutex);
  wait_for_end(&lock, identity.address, false, 1);
}

void stop_root(const Identity &identity) {
  std::unique_lock<std::mutex> lock(roots().mutex);
  wait_for_end(&lock, identity.address, true, 2);
}

std::string encode(const Met &met) {
  std::string made(met.job.data(), met.job.size());
  made.append(reinterpret_cast<const char *>(met.hub.ip), 16);
  put(&made, met.hub.port);
  return made;
}

Met decode_met(const std::string &payload) {
  Met met = {};
  if (payload.size() != 34) fail(kRefused, -1, "the root breaks the protocol");
  std::memcpy(met.job.data(), payload.data(), 16);
  std::memcpy(met.hub.ip, payload.data() + 16, 16);
  met.hub.port = get<uint16_t>(payload.data() + 32);
  return met;
}

}  // namespace hccc::bootstrap
