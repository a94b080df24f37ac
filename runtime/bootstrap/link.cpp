// link.cpp: frames over a connection.
#include "link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "sockets.h"

namespace hccc::bootstrap {
namespace {

const size_t kHeader = 24;  // kind, aux: 4 bytes each; seq, length of the payload: 8 each

}  // namespace

Bytes encode(uint32_t kind, uint32_t aux, uint64_t seq, const std::string &payload) {
  auto made = std::make_shared<std::string>();
  made->reserve(kHeader + payload.size());
  put(made.get(), kind);
  put(made.get(), aux);
  put(made.get(), seq);
  put<uint64_t>(made.get(), payload.size());
  *made += payload;
  return made;
}

std::string encode(const Failure &failure) {
  std::string made;
  put<uint32_t>(&made, static_cast<uint32_t>(failure.code));
  put<uint32_t>(&made, static_cast<uint32_t>(failure.rank));
  return made + failure.message.substr(0, 255);
}

Failure decode_failure(const std::string &payload) {
  if (payload.size() < 8) return {kRefused, -1, "the other end refused"};
  const auto code = get<int32_t>(payload.data()), rank = get<int32_t>(payload.data() + 4);
  std::string message = payload.substr(8, 255);
  for (char &c : message)
    if (c < ' ' || c > '~') c = '?';
  const bool known = kTimedOut <= code && code <= kSystem;
  return {known ? code : kRefused, rank, std::move(message)};
}

std::string encode(const std::vector<int> &ranks) {
  std::string made;
  for (const int rank : ranks) put<uint32_t>(&made, static_cast<uint32_t>(rank));
  return made;
}

std::vector<int> decode_ranks(const std::string &payload, int n_ranks) {
  std::vector<int> made;
  for (size_t at = 0; at + 4 <= payload.size(); at += 4) {
    const auto rank = get<int32_t>(payload.data() + at);
    if (0 <= rank && rank < n_ranks) made.push_back(rank);
  }
  return made;
}

std::string encode(const std::vector<Sign> &signs) {
  std::string made;
  for (const Sign &one : signs) {
    put(&made, one.silent_ms);
    put(&made, one.state);
  }
  return made;
}

std::vector<Sign> decode_signs(const std::string &payload) {
  std::vector<Sign> made;
  for (size_t at = 0; at + 12 <= payload.size(); at += 12)
    made.push_back({get<uint32_t>(payload.data() + at), get<uint64_t>(payload.data() + at + 4)});
  return made;
}

bool Link::read(size_t most) {
  if (!fd_ || broken_) return false;
  const size_t part = 1 << 16;
  for (size_t total = 0; total < most;) {
    if (taken_) {
      in_.erase(0, taken_);
      taken_ = 0;
    }
    const size_t had = in_.size();
    in_.resize(had + part);
    const ssize_t n = recv(fd_.get(), &in_[had], part, MSG_DONTWAIT);
    const int error = errno;
    in_.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0) total += static_cast<size_t>(n);
    else if (n < 0 && error == EINTR) continue;
    else return n < 0 && (error == EAGAIN || error == EWOULDBLOCK);
    if (static_cast<size_t>(n) < part) return true;
  }
  return true;
}

bool Link::next(Frame *frame) {
  if (broken_ || in_.size() - taken_ < kHeader) return false;
  const char *p = in_.data() + taken_;
  const auto length = get<uint64_t>(p + 16);
  if (length > most_) {
    broken_ = true;
    return false;
  }
  if (in_.size() - taken_ < kHeader + length) return false;
  frame->kind = get<uint32_t>(p);
  frame->aux = get<uint32_t>(p + 4);
  frame->seq = get<uint64_t>(p + 8);
  frame->payload.assign(p + kHeader, length);
  taken_ += kHeader + length;
  return true;
}

bool Link::flush() {
  while (fd_ && !out_.empty()) {
    const std::string &first = *out_.front();
    const ssize_t n = ::send(fd_.get(), first.data() + sent_, first.size() - sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += static_cast<size_t>(n);
    if (sent_ == first.size()) {
      out_.pop_front();
      sent_ = 0;
    }
  }
  return bool{fd_};
}

Frame await(Link *link, const Deadline &deadline, int peer, const char *who) {
  Frame frame;
  for (bool open = true; !link->next(&frame); open = link->read()) {
    if (!open) fail(kLost, peer, "%s closed the connection", who);
    if (!wait_for(link->fd(), POLLIN, deadline))
      fail(kTimedOut, peer, "%s does not answer", who);
  }
  return frame;
}

void send_all(Link *link, Bytes bytes, const Deadline &deadline, int peer, const char *who) {
  link->send(std::move(bytes));
  for (;;) {
    if (!link->flush()) fail(kLost, peer, "%s closed the connection", who);
    if (!link->unsent()) return;
    if (!wait_for(link->fd(), POLLOUT, deadline))
      fail(kTimedOut, peer, "%s does not read", who);
  }
}

}  // namespace hccc::bootstrap
