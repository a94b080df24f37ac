// client.cpp: collective calls, departures and messages of a rank. It has no thread: callers read.
#include "client.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "sockets.h"

namespace hccc::bootstrap {
namespace {

const size_t kMostMessages = 65536;  // unread messages
const double kAnswer_s = 0.7;        // in which the hub says who is missing, after a deadline

void raise_event(const Fd &event) {
  if (!event) return;  // nobody waits for it
  const uint64_t one = 1;
  while (write(event.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void lower_event(const Fd &event) {
  uint64_t count;
  while (read(event.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace

Client::~Client() {
  close();
  wipe(secret.data(), secret.size());
}

// Makes a collective call and returns the hub's answer; throws its failure.
Frame Client::call(CallKind kind, const void *own, size_t bytes, const Deadline &deadline) {
  if (bytes > HCCC_BOOTSTRAP_MAX_BYTES)
    fail(kBadArgument, rank, "%zu bytes: one rank may give %u", bytes,
         HCCC_BOOTSTRAP_MAX_BYTES);
  uint64_t seq;
  // The event exists during calls only, so that a communicator at rest has few descriptors.
  struct Closing {
    Client *client;
    ~Closing() {
      std::lock_guard<std::mutex> lock(client->lock_);
      client->answer_event_.close();
    }
  } const closing{this};
  {
    std::lock_guard<std::mutex> lock(lock_);
    seq = ++seq_;
    answered_ = knows_missing_ = false;
    answer_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!answer_event_) fail_errno("no event descriptor");
    const auto *data = static_cast<const char *>(own);
    link_.send(encode(kContribution, kind, seq, bytes ? std::string(data, bytes) : std::string()));
    link_.flush();
  }
  Deadline until = deadline;
  for (bool asked = false;;) {
    bool unsent = false;
    {
      std::lock_guard<std::mutex> lock(lock_);
      drain();
      if (answered_ && answer_.kind == kFailed) throw decode_failure(answer_.payload);
      if (answered_) return std::move(answer_);
      if (knows_missing_ || (asked && until.passed())) fail_late(kind);
      if (lost_) throw hub_loss();
      link_.flush();
      if (until.passed()) {
        asked = true;
        until = Deadline::in(kAnswer_s);
        link_.send(encode(kQuery, 0, seq));
        link_.flush();
      }
      unsent = link_.unsent();
    }
    pollfd set[2] = {{link_.fd(), static_cast<short>(POLLIN | (unsent ? POLLOUT : 0)), 0},
                     {answer_event_.get(), POLLIN, 0}};
    if (poll(set, 2, until.poll_ms()) < 0 && errno != EINTR) fail_errno("cannot poll");
  }
}

Client::Gathered Client::gather(CallKind kind, const void *own, size_t bytes,
                                const Deadline &deadline) {
  std::lock_guard<std::mutex> one(calling_);
  Frame frame;
  why_.clear();
  try {
    frame = call(kind, own, bytes, deadline);
  } catch (const Failure &failure) {
    leave_because(failure);
    throw;
  }
  Gathered made;
  const std::string &all = frame.payload;
  const size_t header = 8 * static_cast<size_t>(n_ranks);
  size_t total = header;
  for (int r = 0; r < n_ranks && all.size() >= header; ++r) {
    made.sizes.push_back(get<uint64_t>(all.data() + 8 * r));
    if (made.sizes.back() > all.size() - total) total = SIZE_MAX;
    if (total != SIZE_MAX) total += made.sizes.back();
  }
  if (total != all.size()) fail(kRefused, 0, "rank 0 breaks the protocol");
  made.data = all.substr(header);
  return made;
}

void Client::leave_because(const Failure &failure) { why_ = encode(failure); }

void Client::give_up(const std::string &why) {
  std::lock_guard<std::mutex> one(calling_);
  if (why_.empty()) leave_because({kLost, rank, text("rank %d gave up: ", rank) + why});
}

void Client::fail_late(CallKind kind) {
  silent_ = !knows_missing_;
  if (silent_)
    fail(kTimedOut, 0, "rank 0 does not answer (%s)", name_of(kind));
  if (missing_.empty()) fail(kTimedOut, -1, "%s took too long", name_of(kind));
  fail(kTimedOut, missing_[0], "%s of %d did not call %s in time",
       name_ranks(missing_).c_str(), n_ranks, name_of(kind));
}

// Reads and handles all frames that have arrived. Under the lock, as the functions that it calls.
void Client::drain() {
  if (lost_) return;
  if (link_.unsent()) link_.flush();
  const bool open = link_.read();
  for (Frame frame; link_.next(&frame);) take(&frame);
  if (!open || link_.broken()) mark_lost();
  update_pending_event();
}

void Client::take(Frame *frame) {
  const auto about = static_cast<int>(frame->aux);
  const bool known = 0 <= about && about < n_ranks;
  if ((frame->kind == kGathered || frame->kind == kFailed) && frame->seq == seq_) {
    answer_ = std::move(*frame);
    answered_ = true;
    raise_event(answer_event_);
  } else if (frame->kind == kMissing && frame->seq == seq_) {
    missing_ = decode_ranks(frame->payload, n_ranks);
    knows_missing_ = true;
    raise_event(answer_event_);
  } else if (frame->kind == kDeparted && known && !gone_[about]) {
    add_departure({about, frame->seq != 0}, frame->payload);
  } else if (frame->kind == kMessage && known && messages_.size() < kMostMessages &&
             frame->payload.size() <= HCCC_BOOTSTRAP_MAX_MESSAGE) {
    messages_.push_back({about, std::move(frame->payload)});
  } else if (frame->kind == kPing) {
    link_.send(encode(kPong, 0, state_));
    link_.flush();
  } else if (frame->kind == kSigns) {
    signs_ = decode_signs(frame->payload);
    asked_ = 0;
  }
}

// Marks the hub, and with it rank 0, as gone. Its descriptor stays open: callers may poll it.
void Client::mark_lost() {
  lost_ = true;
  if (watch_) epoll_ctl(watch_.get(), EPOLL_CTL_DEL, link_.fd(), nullptr);
  raise_event(answer_event_);
  if (!gone_[0]) add_departure({0, false}, "");
}

void Client::add_departure(const Departure &one, const std::string &why) {
  gone_[one.rank] = true;
  const auto weight = [](bool orderly, const std::string &its) {
    return !orderly ? 2 : !its.empty() ? 1 : 0;
  };
  if (first_gone_.rank < 0 || weight(one.orderly, why) > weight(first_gone_.orderly, why_gone_)) {
    first_gone_ = one;
    why_gone_ = why;
  }
  departures_.push_back(one);
}

// Returns why the hub has gone: rank 0 may have left because another rank ended.
Failure Client::hub_loss() const {
  if (!why_gone_.empty()) return decode_failure(why_gone_);
  return {kLost, first_gone_.rank,
          text(first_gone_.orderly ? "rank %d has left" : "rank %d has gone without a word",
               first_gone_.rank)};
}

void Client::update_pending_event() {
  if (!pending_event_) return;
  if (departures_.empty() && messages_.empty()) lower_event(pending_event_);
  else raise_event(pending_event_);
}

bool Client::next_departure(Departure *one) {
  std::lock_guard<std::mutex> lock(lock_);
  drain();
  if (departures_.empty()) return false;
  *one = departures_.front();
  departures_.pop_front();
  update_pending_event();
  return true;
}

bool Client::next_message(Message *one) {
  std::lock_guard<std::mutex> lock(lock_);
  drain();
  if (messages_.empty()) return false;
  *one = std::move(messages_.front());
  messages_.pop_front();
  update_pending_event();
  return true;
}

std::vector<Sign> Client::signs() {
  std::lock_guard<std::mutex> lock(lock_);
  drain();
  if (lost_) return {};
  const int64_t now = now_ns();
  std::vector<Sign> found = signs_;
  found.resize(static_cast<size_t>(n_ranks));
  const auto hub_ms = static_cast<uint32_t>(asked_ ? (now - asked_) / 1000000 : 0);
  found[0].silent_ms = std::max(hub_ms, found[0].silent_ms);
  if (!asked_) {
    asked_ = now;
    link_.send(encode(kProbe, 0, 0));
    link_.flush();
  }
  return found;
}

void Client::notify(const void *data, size_t bytes) {
  const std::string message(static_cast<const char *>(data), bytes);
  const Deadline soon = Deadline::in(1);
  for (bool queued = false;; queued = true) {
    {
      std::lock_guard<std::mutex> lock(lock_);
      if (lost_) return;
      if (!queued) link_.send(encode(kNotify, 0, 0, message));
      if (!link_.flush() || !link_.unsent()) return;
    }
    // Later calls send the rest. The hub's thread would wait for itself.
    if (hub_ && pthread_equal(hub_thread_, pthread_self())) return;
    if (!wait_for(link_.fd(), POLLOUT, soon)) return;
  }
}

bool Client::attend(const hccc_bootstrap_guest *guest) {
  if (!hub_ || !hub_->attend(guest)) return false;
  std::lock_guard<std::mutex> lock(lock_);
  link_.send(encode(kWake, 0, 0));
  link_.flush();
  return true;
}

// Leaves, and waits a moment for the hub's answer, so that nothing that it sent is lost; not for a
// hub that has not answered before.
void Client::close() {
  if (!link_ || in_child()) return;
  const Deadline soon = Deadline::in(silent_ ? 0 : 1);
  try {
    send_all(&link_, encode(kLeaving, 0, 0, why_), soon, 0, "rank 0");
    shutdown(link_.fd(), SHUT_WR);
    while (wait_for(link_.fd(), POLLIN, soon) && link_.read())
      for (Frame ignored; link_.next(&ignored);) {
      }
  } catch (const Failure &) {
    // The hub has gone already.
  }
  link_.close();
  if (hub_) pthread_join(hub_thread_, nullptr);
  hub_.reset();
}

}  // namespace hccc::bootstrap
