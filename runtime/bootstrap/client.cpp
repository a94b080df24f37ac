// client.cpp: collective calls, news and messages of one rank. No thread: who calls reads.
#include "client.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "sockets.h"

namespace hccc::bootstrap {
namespace {

const size_t kMostHeard = 65536;  // messages that nobody asks for

void raise_event(const Fd &event) {
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

// What the hub answers to a call; throws what failed.
Frame Client::call(CallKind kind, const void *own, size_t bytes, const Deadline &deadline) {
  if (bytes > HCCC_BOOTSTRAP_MAX_BYTES)
    fail(kBadArgument, rank, "%zu bytes: one rank may give %u", bytes,
         HCCC_BOOTSTRAP_MAX_BYTES);
  uint64_t seq;
  {
    std::lock_guard<std::mutex> lock(lock_);
    seq = ++seq_;
    answered_ = knows_missing_ = false;
    lower_event(answer_event_);
    const auto *data = static_cast<const char *>(own);
    link_.send(encode(kPart, kind, seq, bytes ? std::string(data, bytes) : std::string()));
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
      if (lost_) throw absent_hub();
      link_.flush();
      if (until.passed()) {
        asked = true;
        until = Deadline::in(1);
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

void Client::fail_late(CallKind kind) const {
  if (!knows_missing_)
    fail(kTimedOut, 0, "rank 0 does not answer (%s)", name_of(kind));
  if (missing_.empty()) fail(kTimedOut, -1, "%s took too long", name_of(kind));
  fail(kTimedOut, missing_[0], "%s of %d did not call %s in time",
       name_ranks(missing_).c_str(), n_ranks, name_of(kind));
}

// Reads what has come. Under the lock, as what it calls.
void Client::drain() {
  if (lost_) return;
  const bool open = link_.read();
  for (Frame frame; link_.next(&frame);) take(&frame);
  if (!open || link_.broken()) lose();
  tell_watch();
}

void Client::take(Frame *frame) {
  const auto about = static_cast<int>(frame->aux);
  const bool known = 0 <= about && about < n_ranks;
  if ((frame->kind == kWhole || frame->kind == kFailed) && frame->seq == seq_) {
    answer_ = std::move(*frame);
    answered_ = true;
    raise_event(answer_event_);
  } else if (frame->kind == kMissing && frame->seq == seq_) {
    missing_ = decode_ranks(frame->payload, n_ranks);
    knows_missing_ = true;
    raise_event(answer_event_);
  } else if (frame->kind == kGone && known && !gone_[about]) {
    add_news({about, frame->seq != 0}, frame->payload);
  } else if (frame->kind == kHeard && known && frame->payload.size() <= HCCC_BOOTSTRAP_MAX_TELL &&
             heard_.size() < kMostHeard) {
    heard_.push_back({about, std::move(frame->payload)});
  }
}

// The hub has gone, and rank 0 with it; its descriptor stays open for those that poll it.
void Client::lose() {
  lost_ = true;
  if (watch_) epoll_ctl(watch_.get(), EPOLL_CTL_DEL, link_.fd(), nullptr);
  raise_event(answer_event_);
  if (!gone_[0]) add_news({0, false}, "");
}

void Client::add_news(const News &one, const std::string &why) {
  gone_[one.rank] = true;
  const auto weight = [](bool orderly, const std::string &its) {
    return !orderly ? 2 : !its.empty() ? 1 : 0;
  };
  if (first_gone_.rank < 0 || weight(one.orderly, why) > weight(first_gone_.orderly, why_gone_)) {
    first_gone_ = one;
    why_gone_ = why;
  }
  news_.push_back(one);
}

// Where others went without a word, rank 0 may have left because of that.
Failure Client::absent_hub() const {
  if (!why_gone_.empty()) return decode_failure(why_gone_);
  return {kLost, first_gone_.rank,
          text(first_gone_.orderly ? "rank %d has left" : "rank %d has gone without a word",
               first_gone_.rank)};
}

void Client::tell_watch() {
  if (!news_event_) return;
  if (news_.empty() && heard_.empty()) lower_event(news_event_);
  else raise_event(news_event_);
}

bool Client::news(News *one) {
  std::lock_guard<std::mutex> lock(lock_);
  drain();
  if (news_.empty()) return false;
  *one = news_.front();
  news_.pop_front();
  tell_watch();
  return true;
}

bool Client::heard(Heard *one) {
  std::lock_guard<std::mutex> lock(lock_);
  drain();
  if (heard_.empty()) return false;
  *one = std::move(heard_.front());
  heard_.pop_front();
  tell_watch();
  return true;
}

void Client::tell(const void *data, size_t bytes) {
  const std::string said(static_cast<const char *>(data), bytes);
  const Deadline soon = Deadline::in(1);
  for (bool queued = false;; queued = true) {
    {
      std::lock_guard<std::mutex> lock(lock_);
      if (lost_) return;
      if (!queued) link_.send(encode(kTell, 0, 0, said));
      if (!link_.flush() || !link_.unsent()) return;
    }
    // What goes not at once is sent by later calls.
    if (!wait_for(link_.fd(), POLLOUT, soon)) return;
  }
}

// Says goodbye, and waits a moment for the hub's answer, so that nothing is lost that it sent.
void Client::close() {
  if (!link_ || in_child()) return;
  const Deadline soon = Deadline::in(1);
  try {
    send_all(&link_, encode(kBye, 0, 0, why_), soon, 0, "rank 0");
    shutdown(link_.fd(), SHUT_WR);
    while (wait_for(link_.fd(), POLLIN, soon) && link_.read())
      for (Frame ignored; link_.next(&ignored);) {
      }
  } catch (const Failure &) {
    // The hub has gone.
  }
  link_.close();
  if (has_hub_) pthread_join(hub_, nullptr);
  has_hub_ = false;
}

}  // namespace hccc::bootstrap
