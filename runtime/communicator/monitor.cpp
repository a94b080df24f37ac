// monitor.cpp: the monitor's thread.
#include "monitor.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "forks.h"
#include "log.h"
#include "messages.h"
#include "signals.h"

namespace hccc {
namespace {

constexpr int PERIOD_MS = 100, REFUSED_PERIOD_MS = 2;

constexpr double GRACE_S = 0.8;  // after a deadline, to see who stands still
constexpr double LEAST_SILENCE_S = 1, SILENT_PART = 0.35;  // of a deadline: a rank that is silent stands still
constexpr double ASK_PART = 0.25, ASK_S = 1;  // of a deadline, and at most: then other hosts are asked
constexpr double ASK_PERIOD_S = 0.2, ASK_PER_RANK_S = 0.001;  // all ask rank 0, which answers with all

static_assert(sizeof(Called) <= sizeof(Notice::text), "a message has room for a call");

// Returns a descriptor of a process, readable when it has ended, the same for all communicators
// while it lives; null where the system gives none.
std::shared_ptr<const Descriptor> process_descriptor(int process) {
  static auto *opened = new std::map<int, std::weak_ptr<const Descriptor>>;  // outlives every thread
  std::lock_guard<std::mutex> lock(process_mutex());
  for (auto it = opened->begin(); it != opened->end();) it = it->second.expired() ? opened->erase(it) : std::next(it);
  std::weak_ptr<const Descriptor> &kept = (*opened)[process];
  std::shared_ptr<const Descriptor> found = kept.lock();
  if (found) {  // of an earlier process with this number, where that has ended
    pollfd ended = {found->get(), POLLIN, 0};
    if (poll(&ended, 1, 0) == 0) return found;
  }
  const int made = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (made < 0) return nullptr;
  kept = found = std::make_shared<const Descriptor>(made);
  return found;
}

}  // namespace

Monitor::Monitor(hccc_bootstrap *bootstrap, const Host &host, Failure &failure, int rank,
                 std::function<void()> watch, Refusals::Steps steps)
    : running(host.control(rank).running), bootstrap_(bootstrap), host_(host), failure_(failure), rank_(rank),
      watch_(std::move(watch)),
      liveness_(bootstrap, host, rank), refusals_(bootstrap, failure, rank, host.n_ranks(), std::move(steps)),
      several_hosts_(host.n_near() < host.n_ranks()),
      processes_(static_cast<size_t>(host.n_ranks())), left_(static_cast<size_t>(host.n_ranks())),
      last_calls_(static_cast<size_t>(host.n_ranks())),
      knows_last_call_(static_cast<size_t>(host.n_ranks())), compared_(static_cast<size_t>(host.n_ranks())) {
  for (int r = 0; r < host.n_ranks(); ++r)
    if (host.near(r) && host.process(r) != getpid())
      processes_[static_cast<size_t>(r)] = process_descriptor(host.process(r));
  const auto files_of = [](void *self, size_t *n) {
    const std::vector<pollfd> &files = static_cast<Monitor *>(self)->files();
    *n = files.size();
    return files.data();
  };
  const auto turn_of = [](void *self, const pollfd *polled) { return static_cast<Monitor *>(self)->turn(polled); };
  const hccc_bootstrap_guest guest = {this, files_of, turn_of};
  if (!hccc_bootstrap_attend(bootstrap, &guest)) start();
}

void Monitor::start() {
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop_.get() < 0) throw system_error("no event descriptor");
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error &error) {
    throw Error(hcccSystemError, std::string("no thread for the monitor: ") + error.what());
  }
}

Monitor::~Monitor() {
  if (!thread_.joinable()) {
    hccc_bootstrap_attend(bootstrap_, nullptr);
    return;
  }
  const uint64_t one = 1;
  const ssize_t written = write(stop_.get(), &one, sizeof one);
  static_cast<void>(written);
  thread_.join();
}

void Monitor::forsake() {
  processes_.clear();
  stop_ = Descriptor();
}

void notify_ranks(hccc_bootstrap *bootstrap, hcccResult_t code, const std::string &text) {
  Notice message{};
  message.code = code;
  strncpy(message.text, text.c_str(), sizeof message.text - 1);
  send(bootstrap, message);
}

void Monitor::notify(hcccResult_t code, const std::string &text) {
  share_failure();
  notify_ranks(bootstrap_, code, text);
}

void Monitor::leave() {
  share_failure();
  Control &own = host_.control(rank_);
  own.standing.store(Standing::LEFT, std::memory_order_release);
  if (!several_hosts_) return;
  Notice message{};
  const Called last = called_by(own);
  memcpy(message.text, &last, sizeof last);
  send(bootstrap_, message);
}

// Writes this rank's failure, if it has one, where the ranks of this host see it: that needs neither
// rank 0 nor any thread of this process.
void Monitor::share_failure() {
  Told &told = host_.control(rank_).told;
  const hcccResult_t code = failure_.code();
  std::lock_guard<std::mutex> lock(sharing_);
  if (code == hcccSuccess || told.there.load(std::memory_order_relaxed)) return;
  told.code = code;
  strncpy(told.text, failure_.text().c_str(), sizeof told.text - 1);
  told.there.store(1, std::memory_order_release);
}

// Takes over the failure of a rank of this host. False: it has none.
bool Monitor::adopt_failure(int rank) {
  if (rank == rank_ || !host_.near(rank)) return false;
  const Told &told = host_.control(rank).told;
  if (!told.there.load(std::memory_order_acquire)) return false;
  const bool known = told.code > hcccSuccess && told.code <= hcccAborted;
  const std::string text(told.text, strnlen(told.text, sizeof told.text));
  failure_.set(known ? static_cast<hcccResult_t>(told.code) : hcccRemoteError, text);
  return true;
}

void Monitor::run() {
  for (int period_ms = 0;;) {
    std::vector<pollfd> polled = files();
    polled.push_back({stop_.get(), POLLIN, 0});
    poll(polled.data(), polled.size(), period_ms);
    if (polled.back().revents) return;
    period_ms = turn(polled.data());
  }
}

const std::vector<pollfd> &Monitor::files() {
  files_ = {{hccc_bootstrap_poll_fd(bootstrap_), POLLIN, 0}};
  files_of_.clear();
  for (size_t r = 0; r < processes_.size(); ++r) {
    if (!processes_[r]) continue;
    files_.push_back({processes_[r]->get(), POLLIN, 0});
    files_of_.push_back(static_cast<int>(r));
  }
  return files_;
}

// Looks at everything once. polled: files(). Returns the milliseconds until the next time.
int Monitor::turn(const pollfd *polled) {
  liveness_.beat();
  read_messages();
  for (int r = 0; r < host_.n_ranks() && failure_.code() == hcccSuccess; ++r) adopt_failure(r);
  for (size_t k = 0; k < files_of_.size(); ++k)
    if (polled[1 + k].revents) handle_departure(files_of_[k], false);
  watch_();
  if (running.load(std::memory_order_acquire)) compare_calls();
  refusals_.step();
  check_deadline();
  failure_.confirm();
  share_failure();
  return failure_.refused() ? REFUSED_PERIOD_MS : PERIOD_MS;
}

void Monitor::read_messages() {
  int rank = -1, orderly = 0;
  while (hccc_bootstrap_next_departure(bootstrap_, &rank, &orderly)) handle_departure(rank, orderly);
  Notice message{};
  size_t bytes = sizeof message;
  for (; hccc_bootstrap_next_message(bootstrap_, &rank, &message, &bytes); bytes = sizeof message) {
    if (bytes != sizeof message) continue;
    if (message.code == hcccSuccess) {
      Called &last = last_calls_[static_cast<size_t>(rank)];
      memcpy(&last, message.text, sizeof last);
      last.collective[sizeof last.collective - 1] = last.library[sizeof last.library - 1] = '\0';
      knows_last_call_[static_cast<size_t>(rank)] = true;
      continue;
    }
    if (message.code < 0) {
      refusals_.take(rank, message);
      continue;
    }
    message.text[sizeof message.text - 1] = '\0';
    const bool known = message.code > hcccSuccess && message.code <= hcccAborted;
    failure_.set(known ? static_cast<hcccResult_t>(message.code) : hcccRemoteError, message.text);
  }
}

void Monitor::handle_departure(int rank, bool orderly) {
  const auto r = static_cast<size_t>(rank);
  if (rank < 0 || r >= left_.size() || rank == rank_ || left_[r]) return;
  left_[r] = true;
  liveness_.forget(rank);
  processes_[r].reset();
  const bool left = host_.near(rank) &&
                    host_.control(rank).standing.load(std::memory_order_acquire) == Standing::LEFT;
  HCCC_LOG(INFO, INIT, rank_, "rank %d is gone%s", rank, left || orderly ? ", as announced" : "");
  if (left || orderly || adopt_failure(rank)) return;
  failure_.set(hcccRemoteError, text_of("rank %d is gone: its process, %d, has ended", rank,
                                        host_.process(rank)));
}

// Finds ranks that have left, or make another call than this one, where ranks do not agree on calls.
void Monitor::compare_calls() {
  const Called own = called_by(host_.control(rank_));
  for (int r = 0; r < host_.n_ranks(); ++r) {
    if (r == rank_) continue;
    if (const uint64_t number = differs(r, own)) refusals_.refuse(number);
    if (!host_.near(r) && !knows_last_call_[static_cast<size_t>(r)]) continue;
    const bool left = !host_.near(r) || host_.control(r).standing.load(std::memory_order_acquire) == Standing::LEFT;
    const Called other = host_.near(r) ? called_by(host_.control(r)) : last_calls_[static_cast<size_t>(r)];
    if (left && adopt_failure(r)) return;
    if (running.load(std::memory_order_acquire) != own.number) return;
    // Ranks do not agree on calls of packets; nobody ends one that some rank does not make.
    if (host_.near(r) && !failure_.refused() && own.number > refusals_.settled() && other.number == own.number &&
        other.signature != own.signature)
      refusals_.refuse(own.number);
    if (!left || other.number >= own.number) continue;
    const std::string text = text_of("rank %d has left the communicator; its last call was ", r) + description(other) +
                             text_of("; rank %d calls ", rank_) + description(own);
    if (failure_.set(hcccInvalidUsage, text)) notify(hcccInvalidUsage, text);
  }
}

// Returns the number of a call that is another at another rank: ranks do not agree on all calls. 0: none. A refusal that ends meanwhile has made its numbers earlier ones.
uint64_t Monitor::differs(int rank, const Called &own) {
  if (failure_.refused()) return 0;
  if (!host_.near(rank)) return own.number > refusals_.settled() && liveness_.far_differs(rank, own) ? own.number : 0;
  return differs_near(rank, &compared_[static_cast<size_t>(rank)]);
}

// Compares the calls of a rank of this host after number *compared, and moves that on. Of more than half
// of those that are kept, the earlier may be overwritten meanwhile.
uint64_t Monitor::differs_near(int rank, uint64_t *compared) const {
  const Control &its = host_.control(rank), &own = host_.control(rank_);
  const uint64_t last = std::min(called_by(own).number, called_by(its).number);
  *compared = std::max({*compared, refusals_.settled(), last - std::min<uint64_t>(last, RECENT / 2)});
  while (*compared < last) {
    const size_t at = ++*compared % RECENT;
    if (its.signatures[at].load(std::memory_order_relaxed) != own.signatures[at].load(std::memory_order_relaxed))
      return *compared;
  }
  return 0;
}

void Monitor::refuse(uint64_t number) {
  for (int r = 0; r < host_.n_ranks(); ++r) {
    uint64_t compared = 0;
    const uint64_t earlier = r == rank_ || !host_.near(r) ? 0 : differs_near(r, &compared);
    if (earlier) number = std::min(number, earlier);
  }
  refusals_.refuse(number);
}

bool Monitor::ahead(int rank, uint64_t number) const {
  return (host_.near(rank) ? host_.control(rank).running.load(std::memory_order_acquire) : liveness_.far_running(rank)) > number;
}

bool Monitor::all_call(const Called &own) {
  if (failure_.refused()) return false;
  liveness_.ask();
  bool all = true;
  for (int r = 0; r < host_.n_ranks(); ++r) {
    if (r == rank_) continue;
    const bool near = host_.near(r);
    const uint64_t number = near ? called_by(host_.control(r)).number : liveness_.far_call(r);
    uint64_t compared = 0;
    if (near ? differs_near(r, &compared) != 0 : liveness_.far_differs(r, own) || number > own.number)
      return refuse(own.number), false;
    all = all && number >= own.number;
  }
  return all;
}

void Monitor::show(const Called &own) {
  if (!several_hosts_) return;
  Called told = own;
  const uint64_t runs = running.load(std::memory_order_acquire);
  // A rank may have come to a refused call by another one. Else the call that runs may have begun since `own` was read:
  // its number with an earlier call's signature would be one that differs.
  if (failure_.refused() && runs > own.number && runs != Refusals::NONE) told.number = runs;
  hccc_bootstrap_set_state(bootstrap_, shown(told, runs == told.number));
}

// Ends the running call at its deadline, with the ranks that stand still. The deadline is of all of
// the call, whatever its waits are for; it begins when the monitor first sees the call.
void Monitor::check_deadline() {
  const uint64_t number = running.load(std::memory_order_acquire);
  const auto now = Clock::now();
  show(called_by(host_.control(rank_)));
  if (number != watched_) watched_ = number, since_ = asked_ = now;
  const double limit = limit_s.load(std::memory_order_relaxed);
  ask_for_messages(now);
  if (!number || limit <= 0 || host_.on_gpu() || failure_.code() != hcccSuccess) return;
  const auto seconds = [now](Clock::time_point since) {
    return std::chrono::duration<double>(now - since).count();
  };
  const double waited = seconds(since_);
  const double period = std::max(ASK_PERIOD_S, ASK_PER_RANK_S * host_.n_ranks());
  if (several_hosts_ && waited > std::min(ASK_S, ASK_PART * limit) && seconds(asked_) > period)
    asked_ = now, liveness_.ask();
  if (waited < limit) return;
  const Called own = called_by(host_.control(rank_));
  std::string who = describe_late(own);
  if (who.empty() && waited < limit + GRACE_S) return;
  if (who.empty()) who = "no rank stands still or is behind";
  if (running.load(std::memory_order_acquire) != number) return;
  const std::string text = text_of("timed out after %g s: ", limit) + who + "; rank " +
                           std::to_string(rank_) + " calls " + description(own);
  if (failure_.set(hcccTimeout, text)) notify(hcccTimeout, text);
}

// Asks ranks of other hosts for signs of life while a send or receive waits.
void Monitor::ask_for_messages(Clock::time_point now) {
  const uint64_t turn = messaging.load(std::memory_order_acquire);
  if (turn != messages_watched_) messages_watched_ = turn, messages_since_ = now;
  if (!several_hosts_ || turn % 2 == 0) return;
  const auto seconds = [now](Clock::time_point since) { return std::chrono::duration<double>(now - since).count(); };
  const double period = std::max(ASK_PERIOD_S, ASK_PER_RANK_S * host_.n_ranks());
  if (seconds(messages_since_) > ASK_S / 2 && seconds(asked_) > period) asked_ = now, liveness_.ask();
}

std::string Monitor::describe_silent(double limit) const {
  return liveness_.describe_silent(std::min(LEAST_SILENCE_S, SILENT_PART * limit));
}

std::string Monitor::describe_late(const Called &own) const {
  const std::string silent = describe_silent(limit_s.load(std::memory_order_relaxed));
  if (!silent.empty()) return silent;
  uint64_t least = own.number;
  std::vector<int> behind;
  Called last;
  for (int r = 0; r < host_.n_ranks(); ++r) {
    if (r == rank_) continue;
    const Called other = host_.near(r) ? called_by(host_.control(r)) : Called{liveness_.far_call(r)};
    const bool known = host_.near(r) || other.number;
    if (!known || other.number > least || other.number == own.number) continue;
    if (other.number < least) behind.clear();
    behind.push_back(r);
    least = other.number, last = other;
  }
  if (behind.empty()) return "";
  const std::string waits = host_.near(behind.back()) ? described_wait(host_.control(behind.back()), behind.back()) : "";
  return names_of(behind) + text_of("%s not started the call: %s last was ", behind.size() == 1 ? " has" : " have",
                                    behind.size() == 1 ? "its" : "their") +
         (last.collective[0] ? description(last) : text_of("call %" PRIu64, last.number)) + (waits.empty() ? "" : ", and " + waits);
}

}  // namespace hccc
