// hub.cpp: the hub, a thread of rank 0's process.
#include "hub.h"

#include <poll.h>

#include <algorithm>

namespace hccc::bootstrap {
namespace {

const uint64_t kMostContribution = HCCC_BOOTSTRAP_MAX_BYTES;

}  // namespace

const char *name_of(uint32_t call_kind) {
  const char *names[] = {"something", "open", "allgather", "allgatherv", "barrier", "share"};
  return names[call_kind < std::size(names) ? call_kind : 0];
}

Hub::Hub(Fd listener, const Secret &secret, const Job &job, int n_ranks, Fd own, Link root)
    : job_(job),
      root_(std::move(root)),
      acceptor_(std::move(listener), secret, kToHub),
      members_(static_cast<size_t>(n_ranks)) {
  members_[0].link = Link(std::move(own), kMostContribution);
  members_[0].joined = true;
}

void Hub::run() {
  try {
    serve();
  } catch (...) {
    close_all();
  }
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(attending_);
      if (!guest_.turn) {
        over_ = true;
        return;
      }
    }
    std::vector<pollfd> none;
    wait(&none, -1);
  }
}

bool Hub::attend(const hccc_bootstrap_guest *guest) {
  std::lock_guard<std::mutex> lock(attending_);
  if (over_) return false;
  guest_ = guest ? *guest : hccc_bootstrap_guest{};
  due_ = Deadline::in(0);
  return true;
}

void Hub::close_all() {
  root_.close();
  acceptor_.close();
  for (Member &m : members_) m.link.close();
}

void Hub::serve() {
  stop_accepting_if_complete();
  read_root();  // what arrived with its last report
  while (!members_[0].gone) step();
  if (root_) {  // some ranks are not connected yet
    const std::string &why = members_[0].why;
    root_.send(encode(kLeaving, 0, 0, why.empty() ? encode(absence()) : why));
    root_.flush();
  }
  // Sends the rest, with rank 0's departure.
  const Deadline soon = Deadline::in(1);
  for (;;) {
    std::vector<pollfd> set;
    for (Member &m : members_) {
      if (!m.joined || m.gone) continue;
      m.link.read();  // unread bytes would make the system discard unsent ones
      for (Frame ignored; m.link.next(&ignored);) {
      }
      if (m.link.flush() && m.link.unsent()) set.push_back({m.link.fd(), POLLOUT, 0});
    }
    if (set.empty() || soon.passed()) return;
    poll(set.data(), set.size(), soon.poll_ms());
  }
}

void Hub::step() {
  std::vector<pollfd> set;
  set.push_back({root_.fd(), POLLIN, 0});
  if (accepting_) acceptor_.watch(&set);
  const size_t n_others = set.size();
  for (const Member &m : members_) {
    const bool there = m.joined && !m.gone;
    set.push_back({there ? m.link.fd() : -1,
                   static_cast<short>(POLLIN | (m.link.unsent() ? POLLOUT : 0)), 0});
  }
  wait(&set, accepting_ ? acceptor_.poll_ms(60000) : -1);
  if (set[0].revents) read_root();
  if (accepting_) accept(&set[1]);
  for (size_t rank = 0; rank < members_.size(); ++rank)
    if (set[n_others + rank].revents) read_from(static_cast<int>(rank));
}

// Polls `set`, and does the guest's turn where it is due.
void Hub::wait(std::vector<pollfd> *set, int at_most_ms) {
  const size_t own = set->size();
  void *whose = nullptr;
  {
    std::lock_guard<std::mutex> lock(attending_);
    if (guest_.turn) {
      size_t n = 0;
      const pollfd *files = guest_.files(guest_.context, &n);
      set->insert(set->end(), files, files + n);
      whose = guest_.context;
      at_most_ms = due_.poll_ms(at_most_ms < 0 ? 60000 : at_most_ms);
    }
  }
  if (poll(set->data(), set->size(), at_most_ms) < 0)
    for (pollfd &one : *set) one.revents = 0;
  std::lock_guard<std::mutex> lock(attending_);
  if (!guest_.turn || guest_.context != whose) return;  // another guest's, or of nobody
  const bool ready = std::any_of(set->begin() + static_cast<long>(own), set->end(),
                                 [](const pollfd &one) { return one.revents != 0; });
  if (ready || due_.passed()) due_ = Deadline::in(guest_.turn(whose, set->data() + own) / 1e3);
}

void Hub::accept(const pollfd *polled) {
  std::vector<Arrival> arrived;
  acceptor_.step(polled, &arrived);
  for (Arrival &arrival : arrived) admit(&arrival);
  stop_accepting_if_complete();
}

// Closes the listener once all ranks have connected.
void Hub::stop_accepting_if_complete() {
  if (n_joined_ < static_cast<int>(members_.size())) return;
  accepting_ = false;
  acceptor_.close();
  root_.send(encode(kLeaving, 0, 0));
  root_.flush();
  root_.close();
}

void Hub::read_root() {
  const bool open = root_.read();
  for (Frame frame; root_.next(&frame);)
    if (frame.kind == kDeparted && frame.aux < members_.size() && !members_[frame.aux].joined)
      remove(static_cast<int>(frame.aux));
  if (!open) root_.close();
}

void Hub::admit(Arrival *arrival) {
  const int rank = arrival->claim.rank, n = static_cast<int>(members_.size());
  std::string wrong;
  if (arrival->claim.job != job_) wrong = "this is another job's";
  else if (arrival->claim.n_ranks != n || rank < 0 || rank >= n)
    wrong = text("there is no rank %d of %d", rank, arrival->claim.n_ranks);
  else if (members_[rank].joined || members_[rank].gone)
    wrong = text("rank %d is taken: another process is it", rank);
  if (!wrong.empty()) return refuse(std::move(arrival->fd), {kRefused, rank, wrong});
  Member &m = members_[rank];
  m.link = Link(std::move(arrival->fd), kMostContribution);
  m.joined = true;
  ++n_joined_;
  welcome(&m.link);
  for (int r = 0; r < n; ++r) {
    const Member &other = members_[r];
    if (other.gone)
      send(rank, encode(kDeparted, static_cast<uint32_t>(r), other.leaving, other.why));
  }
}

void Hub::read_from(int rank) {
  Member &m = members_[rank];
  const bool open = m.link.read() && m.link.flush();
  for (Frame frame; m.link.next(&frame);) take(rank, frame);
  if (!open || m.link.broken()) remove(rank);
}

void Hub::take(int rank, const Frame &frame) {
  switch (frame.kind) {
    case kContribution: return contribute(rank, frame);
    case kQuery:
      return send(rank, encode(kMissing, 0, frame.seq, encode(missing(frame.seq))));
    case kNotify: {
      if (frame.payload.size() > HCCC_BOOTSTRAP_MAX_MESSAGE) return;
      const Bytes message = encode(kMessage, static_cast<uint32_t>(rank), 0, frame.payload);
      for (int r = 0; r < static_cast<int>(members_.size()); ++r)
        if (r != rank) send(r, message);
      return;
    }
    case kProbe: return probe(rank);
    case kPong:
      members_[rank].pinged = 0;
      members_[rank].state = frame.seq;
      return;
    case kLeaving:
      members_[rank].leaving = true;
      members_[rank].why = frame.payload.substr(0, 512);
      return;
    default: return;
  }
}

// Reports for how long each rank has not answered, and asks those again that have.
void Hub::probe(int rank) {
  const int64_t now = now_ns();
  std::vector<Sign> signs;
  for (Member &m : members_) {
    const int64_t silent_ms = m.pinged ? (now - m.pinged) / 1000000 : 0;
    signs.push_back({m.gone ? UINT32_MAX : static_cast<uint32_t>(silent_ms), m.state});
  }
  send(rank, encode(kSigns, 0, 0, encode(signs)));
  for (int r = 0; r < static_cast<int>(members_.size()); ++r) {
    Member &m = members_[r];
    if (m.pinged || !m.joined || m.gone) continue;
    m.pinged = now;
    send(r, encode(kPing, 0, 0));
  }
}

void Hub::contribute(int rank, const Frame &frame) {
  Member &m = members_[rank];
  if (frame.seq != m.calls + 1) return m.link.mark_broken();
  ++m.calls;
  const auto [found, made] = calls_.try_emplace(frame.seq);
  Call &call = found->second;
  if (made) {
    call.kind = frame.aux;
    call.first = rank;
    call.parts.resize(members_.size());
    if (first_gone_ >= 0) fail_call(frame.seq, &call, absence());
  }
  call.parts[rank] = std::make_shared<const std::string>(frame.payload);
  ++call.n_parts;
  if (call.failed) {
    send(rank, call.failed);
  } else if (call.kind != frame.aux) {
    fail_call(frame.seq, &call,
              {kRefused, rank,
               text("rank %d calls %s where rank %d calls %s", rank, name_of(frame.aux), call.first,
                    name_of(call.kind))});
  } else if (call.n_parts == static_cast<int>(members_.size())) {
    complete(frame.seq, &call);
  }
  if (call.n_parts == static_cast<int>(members_.size())) calls_.erase(found);
}

void Hub::complete(uint64_t seq, Call *call) {
  std::string all;
  for (const Bytes &part : call->parts) put<uint64_t>(&all, part->size());
  for (const Bytes &part : call->parts) all += *part;
  const Bytes whole = encode(kGathered, call->kind, seq, all);
  for (int r = 0; r < static_cast<int>(members_.size()); ++r) send(r, whole);
}

void Hub::fail_call(uint64_t seq, Call *call, const Failure &failure) {
  call->failed = encode(kFailed, 0, seq, encode(failure));
  for (int r = 0; r < static_cast<int>(members_.size()); ++r) {
    if (call->parts[r]) send(r, call->failed);
    if (call->parts[r]) call->parts[r] = std::make_shared<const std::string>();
  }
}

// Removes a rank. Calls that it has made are completed; calls that it has not made fail. Where it
// left because of a failure, the others get that failure: it may name the rank that caused it.
void Hub::remove(int rank) {
  Member &m = members_[rank];
  m.gone = true;
  m.link.close();
  const auto weight = [](const Member &one) {
    return !one.leaving ? 2 : !one.why.empty() ? 1 : 0;
  };
  if (first_gone_ < 0 || weight(m) > weight(members_[first_gone_])) first_gone_ = rank;
  const Bytes gone = encode(kDeparted, static_cast<uint32_t>(rank), m.leaving, m.why);
  for (int r = 0; r < static_cast<int>(members_.size()); ++r) send(r, gone);
  for (auto &[seq, call] : calls_) {
    if (call.failed) continue;
    if (!call.parts[rank]) fail_call(seq, &call, absence());
    else if (!m.why.empty()) fail_call(seq, &call, decode_failure(m.why));
  }
}

// Sends to a rank. A broken connection is noticed by `read_from`.
void Hub::send(int rank, const Bytes &bytes) {
  Member &m = members_[rank];
  if (!m.joined || m.gone) return;
  m.link.send(bytes);
  m.link.flush();
}

// Returns the failure of the rank that has gone first: others may have left because of it.
Failure Hub::absence() const {
  const int rank = first_gone_;
  if (!members_[rank].why.empty()) return decode_failure(members_[rank].why);
  const char *format =
      members_[rank].leaving ? "rank %d has left" : "rank %d has gone without a word";
  return {kLost, rank, text(format, rank)};
}

std::vector<int> Hub::missing(uint64_t seq) const {
  std::vector<int> made;
  for (int r = 0; r < static_cast<int>(members_.size()); ++r)
    if (members_[r].calls < seq) made.push_back(r);
  return made;
}

}  // namespace hccc::bootstrap
