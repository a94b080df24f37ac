// messages.cpp: matching and progress of sends and receives.
#include "messages.h"

#include <hccc/backoff.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "libraries.h"

namespace hccc {
namespace {

constexpr unsigned SPINS = 200;  // turns of a wait before it gives its core away
constexpr size_t COPIED_A_TURN = 64, MOST_COPIED = 1 << 20;  // bytes
constexpr unsigned TURNS = 64;                    // between looks at failures while messages move
constexpr unsigned long long LOOK_NS = 1000000;   // between looks at ranks that are waited for
constexpr unsigned long long AWAKE_NS = 100000;   // of a wait, before it sleeps: tens of switches between ranks
constexpr unsigned long long REASON_NS = 2000000000;  // in which a failure's reason comes
constexpr unsigned long long FAR_NS = 1000000000;  // without a message, before one between hosts is taken to be late for good
constexpr double NS = 1e-9;

std::string elements(uint64_t count, int type) {
  const char *name = name_of_type(type);
  return text_of("%llu %s", static_cast<unsigned long long>(count), name ? name : "?");
}

std::string with_tag(int tag) {
  if (tag == MOVED_TAG) return " of a collective";
  if (tag <= TOLD_TAG) return " of its blocks";
  return tag == HCCC_ANY_TAG ? " with any tag" : text_of(" with tag %d", tag);
}

bool takes(const Message &receive, int source, int tag) {
  return (receive.peer == HCCC_ANY_SOURCE || receive.peer == source) &&
         (receive.tag == HCCC_ANY_TAG ? tag > TOLD_TAG : receive.tag == tag);
}

}  // namespace

std::string description(const Message &message, int rank) {
  const std::string what = elements(message.count, message.type) + with_tag(message.tag);
  if (message.sends) return text_of("rank %d sends ", rank) + what + text_of(" to rank %d", message.peer);
  const std::string text = text_of("rank %d receives %s", rank, message.exact ? "" : "up to ") + what;
  return text + (message.peer == HCCC_ANY_SOURCE ? " from any rank" : text_of(" from rank %d", message.peer));
}

uint64_t packed(const Message &message) {
  return 1 | uint64_t{message.sends} << 1 | uint64_t{message.exact} << 2 | static_cast<uint64_t>(message.type) << 3 |
         static_cast<uint64_t>(message.peer + 1) << 11 |
         static_cast<uint64_t>(int64_t{message.tag} + 1) << 32;
}

// Returns the error of a message that does not go on, which names it unless the reason does.
static Error failed(const Failure &failure, const Message &message, int rank) {
  const std::string text = failure.text(), own = description(message, rank);
  return {failure.code(), text.find(own) == std::string::npos ? text + "; " + own : text};
}

std::string described_wait(const Control &control, int rank) {
  const uint64_t word = control.waits.load(std::memory_order_acquire);
  if (!word) return "";
  Message message;
  message.sends = word >> 1 & 1, message.exact = word >> 2 & 1;
  message.type = static_cast<int>(word >> 3 & 0xff);
  message.peer = static_cast<int>(word >> 11 & 0x1fffff) - 1;
  message.tag = static_cast<int>(static_cast<int64_t>(word >> 32) - 1);
  message.count = control.waits_count.load(std::memory_order_relaxed);
  return description(message, rank);
}

Messages::Messages(const Host &host, const Registrations &registrations, const Failure &failure,
                   hccc_transport *far, int rank, bool oversubscribed, Ahead ahead)
    : host_(host), failure_(failure), far_(far), rank_(rank), oversubscribed_(oversubscribed),
      sleeps_(oversubscribed && !far), ahead_(std::move(ahead)),
      parts_(host, registrations, rank), peers_(static_cast<size_t>(host.n_ranks())) {
  for (int r = 0; r < host.n_ranks(); ++r)
    if (host.near(r)) {
      Peer &peer = peers_[static_cast<size_t>(r)];
      peer.in = &host.ring(r, rank), peer.out = &host.ring(rank, r);
    }
}

Messages::~Messages() {
  forget();
  std::for_each(early_.begin(), early_.end(), drop);
}

void Messages::drop(const Early &early) {
  if (early.envelope.how != How::FAR) return;
  hccc_transport_message *message;
  memcpy(&message, early.inside.data(), sizeof message);
  hccc_transport_free(message);
}

void Messages::drop_told(uint64_t but) {
  const auto kept = std::stable_partition(early_.begin(), early_.end(), [&](const Early &one) {
    return one.envelope.tag > TOLD_TAG || one.envelope.tag == told_tag(but);
  });
  std::for_each(kept, early_.end(), drop);
  early_.erase(kept, early_.end());
}

// Drops messages between hosts that a failed call has left behind.
void Messages::forget() {
  const auto drop = [](hccc_transport_message *&one) {
    if (one) hccc_transport_free(std::exchange(one, nullptr));
  };
  for (Sending &one : sending_) drop(one.far);
  for (Receiving &one : receiving_) drop(one.far);
  for (hccc_transport_message *&one : unsent_) drop(one);
  unsent_.clear();
}

void Messages::cancel() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (far_ && !lost_) {
    hccc_transport_cancel(far_);
    forget();
  }
  lost_ = true;
  changed_.notify_all();
}

void Messages::check_own(const Message *messages, size_t n) const {
  std::vector<const Message *> receives;
  const Message *const end = messages + n;
  if (std::none_of(messages, end, [&](const Message &one) { return one.peer == rank_; })) return;
  for (const Message *at = messages; at != end; ++at) {
    const Message &one = *at;
    if (!one.sends && (one.peer == rank_ || one.peer == HCCC_ANY_SOURCE)) receives.push_back(&one);
  }
  const auto refuse = [&](const Message &one) {
    throw Error(hcccInvalidUsage, description(one, rank_) + ", itself: the other end must be in the same group");
  };
  for (const Message *at = messages; at != end; ++at) {
    const Message &one = *at;
    if (!one.sends || one.peer != rank_) continue;
    const auto found = std::find_if(receives.begin(), receives.end(),
                                    [&](const Message *receive) { return takes(*receive, rank_, one.tag); });
    if (found == receives.end()) refuse(one);
    receives.erase(found);
  }
  for (const Message *one : receives)
    if (one->peer == rank_) refuse(*one);
}

void Messages::begin(Exchange &exchange) {
  exchange.open = exchange.n, exchange.done = !exchange.n;
  std::lock_guard<std::mutex> lock(mutex_);
  if (exchange.done) return;
  begun_.push_back(&exchange);
  any_begun_.store(true, std::memory_order_release);
  wake(rank_);
}

void Messages::complete(Exchange &exchange, const Silent &silent) {
  size_t before = 0;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return exchange.done || lost_ || !moved_; });
    if (exchange.done) return;
    if (lost_) throw failed(failure_, *exchange.messages, rank_);
    moved_ = true;
    before = take_begun();
  }
  post_from(before);
  move_all(exchange, silent);
  std::lock_guard<std::mutex> lock(mutex_);
  moved_ = false;
  changed_.notify_all();
}

// Sleeps until another rank has moved something, or another thread begun an exchange; not if either has. Who yields
// instead looks like one that computes: the scheduler leaves a core to those that wait, and two that compute share one.
// Returns whether anything moved.
bool Messages::sleep(bool all) {
  std::atomic<uint32_t> &asleep = host_.control(rank_).asleep;
  asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // who looks at it later has moved nothing that step() does not see
  const bool moved = step(all);
  if (!moved && !any_begun_.load(std::memory_order_acquire)) {
    const timespec longest = {0, LOOK_NS};
    syscall(SYS_futex, &asleep, FUTEX_WAIT, 1, &longest, nullptr, 0);
  }
  asleep.store(0, std::memory_order_relaxed);
  return moved;
}

// Wakes a rank of this host, for which something was moved.
void Messages::wake(int rank) const {
  if (!sleeps_) return;
  std::atomic<uint32_t> &asleep = host_.control(rank).asleep;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep.load(std::memory_order_relaxed) && asleep.exchange(0, std::memory_order_relaxed))
    syscall(SYS_futex, &asleep, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Moves the messages of all exchanges until those of its own are done.
void Messages::move_all(Exchange &own, const Silent &silent) {
  if (const hcccResult_t code = failure_.code()) throw Error(code, failure_.text());
  hccc_backoff backoff = {true, 0};
  unsigned idle = 0, spins = turns_to_spin(), turns = 0;
  unsigned long long start = 0, idle_since = 0, looked = 0;
  bool all = false;  // rings of ranks that send what nobody receives yet: their later messages may match
  while (own.open) {
    if (any_begun_.load(std::memory_order_acquire)) {
      size_t before = 0;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        before = take_begun();
      }
      post_from(before), spins = turns_to_spin();
    }
    const bool moved = step(all);
    if (any_done_) remove_done(own);
    if (!own.open) break;
    if (moved) {
      idle = 0, idle_since = 0;
      if (++turns % TURNS) continue;
    } else if (!oversubscribed_ && ++idle < spins) {
      hccc_pause();
      continue;
    } else if (sleeps_ && idle_since && hccc_clock() - idle_since > AWAKE_NS) {
      if (sleep(all)) idle_since = 0;
    } else {
      hccc_back_off(backoff);
    }
    const unsigned long long now = hccc_clock();
    if (!start) start = looked = now;
    if (now - looked > LOOK_NS) {
      look(now, idle_since ? now - idle_since : 0, silent);
      all = true, looked = now;
    }
    if (moved) continue;
    if (!idle_since) idle_since = now;
    if (!sleeps_) hccc_sleep_for_part(now - idle_since);
  }
  if (any_done_) remove_done(own);  // a look for reasons to end takes in messages, too
  if (start) host_.control(rank_).waits.store(0, std::memory_order_relaxed);
}

// Adds the messages of exchanges that have begun to those that move, with the lock. Returns the place of the first
// receive that is new.
size_t Messages::take_begun() {
  const size_t before = receiving_.size();
  for (Exchange *one : begun_) {
    exchanges_.push_back(one);
    open_ += one->n;
    for (size_t k = 0; k < one->n; ++k) {
      const Message &message = one->messages[k];
      if (message.sends) {
        sending_.push_back({one, &message, Phase::WAITING, {nullptr, message.at, message.bytes, nullptr}, nullptr});
        continue;
      }
      any_source_ = any_source_ || message.peer == HCCC_ANY_SOURCE;
      receiving_.push_back({one, &message, Phase::WAITING, {nullptr, message.at, message.bytes, -1}, {}, nullptr});
    }
  }
  begun_.clear();
  any_begun_.store(false, std::memory_order_relaxed);
  if (!told_withdrawn_.empty()) apply_withdrawn();
  return before;
}

// Gives receives, from a place on, the messages that came before them.
void Messages::post_from(size_t place) {
  if (!early_.empty())
    for (size_t k = place; k < receiving_.size(); ++k) post(receiving_[k]);
}

// Notes that a message of an exchange is done.
void Messages::ended(Exchange &exchange, const Message &message) {
  if (message.done) message.done(message.argument);
  closed(exchange);
}

// Notes that nothing more comes of a message.
void Messages::closed(Exchange &exchange) {
  --open_;
  if (!--exchange.open) any_done_ = true;
}

// Removes exchanges that are done, and tells the threads that wait for them: `own` is of this thread, which knows.
void Messages::remove_done(const Exchange &own) {
  const auto done = [](const auto &one) { return !one.in->open; };
  sending_.erase(std::remove_if(sending_.begin(), sending_.end(), done), sending_.end());
  receiving_.erase(std::remove_if(receiving_.begin(), receiving_.end(), done), receiving_.end());
  any_source_ = std::any_of(receiving_.begin(), receiving_.end(),
                            [](const Receiving &one) { return one.of->peer == HCCC_ANY_SOURCE; });
  any_done_ = false;
  const auto middle = std::partition(exchanges_.begin(), exchanges_.end(), [](Exchange *one) { return one->open; });
  if (std::any_of(middle, exchanges_.end(), [&own](const Exchange *one) { return one != &own; })) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::for_each(middle, exchanges_.end(), [](Exchange *one) { one->done = true; });
    changed_.notify_all();
  }
  exchanges_.erase(middle, exchanges_.end());
}

// Returns the turns that a wait spins: at least as long as a peer takes for a part. What goes between hosts no peer
// copies, and a network takes longer than it is worth to spin.
unsigned Messages::turns_to_spin() const {
  size_t longest = 0;
  const auto copied = [this](const Message &one) {
    return one.peer == HCCC_ANY_SOURCE || host_.near(one.peer) ? one.bytes : 0;
  };
  for (const Sending &one : sending_) longest = std::max(longest, copied(*one.of));
  for (const Receiving &one : receiving_) longest = std::max(longest, copied(*one.of));
  const auto copying = static_cast<unsigned>(std::min(longest, MOST_COPIED) / COPIED_A_TURN);
  return SPINS + copying;
}

// Makes one turn of all open sends and receives. Returns whether anything moved.
bool Messages::step(bool all) {
  bool moved = false;
  ++turn_;
  for (Sending &one : sending_) {
    if (one.phase >= Phase::DONE) continue;
    moved = (one.phase == Phase::WAITING ? announce(one) : move(one)) || moved;
  }
  if (far_) moved = drain_far() || moved;
  if (all || any_source_)
    for (int r = 0; r < host_.n_ranks(); ++r) moved = drain(r, all) || moved;
  for (Receiving &one : receiving_) {
    if (one.phase == Phase::WAITING && !all && !any_source_) moved = drain(one.of->peer, false) || moved;
    if (one.phase == Phase::MOVING) moved = move(one) || moved;
  }
  return moved;
}

bool Messages::move(Sending &sending) {
  bool ended = false;
  const bool moved = sending.far ? (ended = arrived(sending.far, *sending.of))
                                 : parts_.move(sending.moves, sending.of->peer, &ended);
  if (moved) wake(sending.of->peer);
  if (ended) sending.phase = Phase::DONE, this->ended(*sending.in, *sending.of);
  return moved;
}

bool Messages::move(Receiving &receiving) {
  bool ended = false;
  const bool moved = receiving.far ? (ended = arrived(receiving.far, *receiving.of))
                                   : parts_.move(receiving.moves, &ended);
  if (moved) wake(receiving.from.source);
  if (ended) finish(receiving);
  return moved;
}

// Returns whether a message between hosts is done; it is freed then. Throws Error where it failed.
bool Messages::arrived(hccc_transport_message *&far, const Message &message) const {
  const int state = hccc_transport_state(far);
  if (!state) return false;
  hccc_transport_free(std::exchange(far, nullptr));
  if (state > 0) return true;
  const unsigned long long start = hccc_clock();
  while (failure_.code() == hcccSuccess && hccc_clock() - start < REASON_NS) usleep(1000);
  if (failure_.code()) throw failed(failure_, message, rank_);
  throw Error(hcccRemoteError, "the other end has left, or its host is cut off: " + description(message, rank_));
}

// Writes a message into its receiver's ring. False: there is no room, or an earlier message waits.
bool Messages::announce(Sending &sending) {
  const Message &message = *sending.of;
  Peer &peer = peers_[static_cast<size_t>(message.peer)];
  if (!peer.out) {
    sending.far = hccc_transport_send(far_, message.peer, message.tag, message.type, message.at, message.bytes);
    sending.phase = Phase::MOVING, sending.place = peer.sent++;
    return true;
  }
  if (peer.blocked == turn_) return false;
  if (peer.sent - peer.taken >= CELLS) peer.taken = peer.out->taken.load(std::memory_order_acquire);
  if (peer.sent - peer.taken >= CELLS) return peer.blocked = turn_, false;
  const size_t at = peer.sent % CELLS;
  Cell &cell = peer.out->cells[at];
  cell.tag = message.tag, cell.bytes = message.bytes, cell.type = static_cast<uint16_t>(message.type);
  sending.phase = Phase::DONE;
  if (message.bytes <= INLINE_BYTES) {
    cell.how = How::INLINE;
    if (message.bytes) memcpy(cell.inside, message.at, message.bytes);
  } else if (message.bytes <= SLOT_BYTES) {
    cell.how = How::SLOT;
    memcpy(peer.out->slots[at], message.at, message.bytes);
  } else {
    cell.how = How::TRANSFER;
    const uint64_t record = parts_.begin(sending.moves, message.peer);
    memcpy(cell.inside, &record, sizeof record);
    sending.phase = Phase::MOVING;
  }
  sending.place = peer.sent++;
  cell.turn.store(static_cast<uint32_t>(sending.place / CELLS + 1), std::memory_order_release);
  wake(message.peer);
  if (sending.phase == Phase::DONE) ended(*sending.in, message);
  return true;
}

// Returns whether a receive waits for a message of a source.
bool Messages::awaits(int source) const {
  return std::any_of(receiving_.begin(), receiving_.end(), [&](const Receiving &one) {
    return one.phase == Phase::WAITING && (one.of->peer == source || one.of->peer == HCCC_ANY_SOURCE);
  });
}

Messages::Receiving *Messages::receive_of(const Envelope &envelope) {
  for (Receiving &one : receiving_)
    if (one.phase == Phase::WAITING && takes(*one.of, envelope.source, envelope.tag)) return &one;
  return nullptr;
}

// Takes messages out of a source's ring while a receive waits for one, or `all` of them.
bool Messages::drain(int source, bool all) {
  Peer &peer = peers_[static_cast<size_t>(source)];
  if (!peer.in) return false;
  bool moved = false;
  for (;;) {
    if (!all && !awaits(source)) return moved;
    const size_t at = peer.received % CELLS;
    const Cell &cell = peer.in->cells[at];
    if (cell.turn.load(std::memory_order_acquire) != static_cast<uint32_t>(peer.received / CELLS + 1)) return moved;
    const Envelope envelope = {source, cell.tag, cell.type, cell.bytes, cell.how};
    const char *inside = cell.how == How::SLOT ? peer.in->slots[at] : cell.inside;
    Receiving *receiving = receive_of(envelope);
    if (drops_ && dropped(source, peer.received)) {
      // It is nobody's.
    } else if (receiving) {
      deliver(*receiving, envelope, inside);
    } else {
      const size_t kept = cell.how == How::TRANSFER ? sizeof(uint64_t) : cell.bytes;
      early_.push_back({envelope, peer.received, {inside, inside + kept}});
    }
    peer.in->taken.store(++peer.received, std::memory_order_release);
    wake(source);
    moved = true;
  }
}

// Takes in all messages that have come from other hosts.
bool Messages::drain_far() {
  hccc_transport_envelope found;
  bool moved = false;
  while (hccc_transport_message *message = hccc_transport_next(far_, &found)) {
    const Envelope envelope = {found.rank, found.tag, found.type, found.bytes, How::FAR};
    char inside[sizeof message];
    memcpy(inside, &message, sizeof message);
    const uint64_t place = peers_[static_cast<size_t>(found.rank)].received++;
    if (drops_ && dropped(found.rank, place)) hccc_transport_free(message);
    else if (Receiving *receiving = receive_of(envelope)) deliver(*receiving, envelope, inside);
    else early_.push_back({envelope, place, {inside, inside + sizeof inside}});
    moved = true;
  }
  return moved;
}

// Returns whether a message was withdrawn by its source.
bool Messages::dropped(int source, uint64_t place) const {
  const auto &all = peers_[static_cast<size_t>(source)].withdrawn;
  return std::any_of(all.begin(), all.end(), [&](const Withdrawn &one) { return place - one.first < one.n; });
}

std::vector<Withdrawn> Messages::take_withdrawn() {
  std::lock_guard<std::mutex> lock(mutex_);
  telling_ = true;
  return std::exchange(withdrawn_, {});
}

void Messages::have_told_withdrawn() {
  std::lock_guard<std::mutex> lock(mutex_);
  telling_ = false;
}

bool Messages::busy() {
  std::lock_guard<std::mutex> lock(mutex_);
  return moved_ || telling_ || !begun_.empty() || !withdrawn_.empty();
}

void Messages::drop_later(int source, const Withdrawn &withdrawn) {
  std::lock_guard<std::mutex> lock(mutex_);
  told_withdrawn_.emplace_back(source, withdrawn);
}

// Drops what was withdrawn and is here, and notes what is yet to come. With the lock.
void Messages::apply_withdrawn() {
  for (const auto &[source, one] : told_withdrawn_) peers_[static_cast<size_t>(source)].withdrawn.push_back(one);
  told_withdrawn_.clear();
  const auto kept = std::stable_partition(early_.begin(), early_.end(), [&](const Early &one) {
    return !dropped(one.envelope.source, one.place);
  });
  std::for_each(kept, early_.end(), drop);
  early_.erase(kept, early_.end());
  drops_ = false;
  for (Peer &peer : peers_) {
    auto &all = peer.withdrawn;
    all.erase(std::remove_if(all.begin(), all.end(), [&](const Withdrawn &one) { return one.first + one.n <= peer.received; }),
              all.end());
    drops_ = drops_ || !all.empty();
  }
}

void Messages::drop_withdrawn() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (lost_ || moved_) return;  // who moves messages does it with the next that begin
    moved_ = true;
    apply_withdrawn();
  }
  const unsigned long long start = hccc_clock();
  const auto ended = [](hccc_transport_message *one) {
    const bool is = hccc_transport_state(one) != 0;
    if (is) hccc_transport_free(one);
    return is;
  };
  do {
    for (int r = 0; r < host_.n_ranks(); ++r) drain(r, true);
    if (far_) drain_far();
    unsent_.erase(std::remove_if(unsent_.begin(), unsent_.end(), ended), unsent_.end());
  } while (!unsent_.empty() && hccc_clock() - start < REASON_NS);
  std::lock_guard<std::mutex> lock(mutex_);
  apply_withdrawn();
  moved_ = false;
  changed_.notify_all();
}

// Gives a receive the first message of those that came before it.
void Messages::post(Receiving &receiving) {
  const auto found = std::find_if(early_.begin(), early_.end(), [&](const Early &early) {
    return takes(*receiving.of, early.envelope.source, early.envelope.tag);
  });
  if (found == early_.end()) return;
  deliver(receiving, found->envelope, found->inside.data());
  early_.erase(found);
}

// Gives a message to a receive. False: it was withdrawn meanwhile, and is nobody's.
bool Messages::deliver(Receiving &receiving, const Envelope &envelope, const char *inside) {
  const Message &message = *receiving.of;
  const bool fits = message.exact ? envelope.bytes == message.bytes : envelope.bytes <= message.bytes;
  if (!fits || envelope.type != message.type) {
    Message sent;
    sent.sends = true, sent.type = envelope.type, sent.peer = rank_, sent.tag = envelope.tag;
    sent.count = envelope.bytes / static_cast<size_t>(bytes_of_type(envelope.type));
    throw Error(hcccInvalidUsage, description(sent, envelope.source) + "; " + description(message, rank_));
  }
  receiving.from = envelope;
  if (envelope.how == How::FAR) {
    memcpy(&receiving.far, inside, sizeof receiving.far);
    receiving.phase = Phase::MOVING;
    hccc_transport_fetch(receiving.far, message.at);
    return true;
  }
  if (envelope.how != How::TRANSFER) {
    if (envelope.bytes) memcpy(message.at, inside, envelope.bytes);
    finish(receiving);
    return true;
  }
  uint64_t record;
  memcpy(&record, inside, sizeof record);
  receiving.moves.source = envelope.source, receiving.moves.bytes = envelope.bytes;
  if (!parts_.join(receiving.moves, record)) return receiving.moves = {nullptr, message.at, message.bytes, -1}, false;
  receiving.phase = Phase::MOVING;
  return true;
}

void Messages::finish(Receiving &receiving) {
  const Message &message = *receiving.of;
  receiving.phase = Phase::DONE;
  if (message.status)
    *message.status = {receiving.from.source, receiving.from.tag,
                       receiving.from.bytes / static_cast<size_t>(bytes_of_type(message.type))};
  ended(*receiving.in, message);
}

// Returns the first message that is not done, of an exchange or of all.
const Message &Messages::first_open(const Exchange *of) const {
  const auto open = [of](const auto &one) { return one.phase != Phase::DONE && (!of || one.in == of); };
  for (const Receiving &one : receiving_)
    if (open(one)) return *one.of;
  for (const Sending &one : sending_)
    if (open(one)) return *one.of;
  return *(receiving_.empty() ? sending_[0].of : receiving_[0].of);
}

// Returns whether the rank that a send or receive waits for has left in order. Its messages came
// before that, but what it does not take nobody will. One that left as it is lost says why itself.
bool Messages::gone(const Message &message) const {
  const auto left = [&](int rank) {
    if (rank == rank_) return message.peer == HCCC_ANY_SOURCE;
    if (!host_.near(rank)) return hccc_transport_has_left(far_, rank) != 0;
    const Control &control = host_.control(rank);
    return control.standing.load(std::memory_order_acquire) == Standing::LEFT &&
           !control.told.there.load(std::memory_order_acquire);
  };
  if (message.peer != HCCC_ANY_SOURCE) return left(message.peer);
  for (int r = 0; r < host_.n_ranks(); ++r)
    if (!left(r)) return false;
  return true;
}

// Returns a message that waits for a rank which waits in a call for this one; null: there is none. What that rank sent
// before is here: within a host as it stands, between hosts as nothing has come for so long.
const Message *Messages::waits_for_a_later_call(unsigned long long idle) {
  const auto late_for = [&](int rank) { return rank != rank_ && (host_.near(rank) || idle > FAR_NS) && ahead_(rank); };
  const auto late = [&](const Message &message) {
    if (message.peer != HCCC_ANY_SOURCE) return late_for(message.peer);
    for (int r = 0; r < host_.n_ranks(); ++r)
      if (r != rank_ && !late_for(r)) return false;
    return host_.n_ranks() > 1;
  };
  const auto find = [&]() -> const Message * {
    for (const Receiving &one : receiving_)
      if (one.phase == Phase::WAITING && late(*one.of)) return one.of;
    for (const Sending &one : sending_) {
      const bool offered = one.phase == Phase::MOVING && (one.far || Parts::waits(one.moves));
      if ((one.phase == Phase::WAITING || offered) && late(*one.of)) return one.of;
    }
    return nullptr;
  };
  if (!find()) return nullptr;
  while (step(true)) continue;
  return find();
}

// Withdraws all exchanges: what both ranks move already is moved; what was sent and not received, of an exchange that is
// not done, its receiver drops.
void Messages::withdraw() {
  unsigned long long since = hccc_clock();
  const auto moves = [&] {
    bool any = false;
    for (Sending &one : sending_) {
      if (one.phase != Phase::MOVING) continue;
      if (one.far) unsent_.push_back(std::exchange(one.far, nullptr)), one.phase = Phase::WITHDRAWN;
      else if (parts_.withdraw(one.moves)) one.phase = Phase::WITHDRAWN;
      else any = true;
    }
    return any || std::any_of(receiving_.begin(), receiving_.end(), [](const Receiving &one) { return one.phase == Phase::MOVING; });
  };
  while (moves()) {
    if (step(true)) since = hccc_clock();
    if (hccc_clock() - since > REASON_NS) throw Error(hcccTimeout, "a message that moves while another is refused does not end");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (Exchange *one : exchanges_) one->withdrawn = one->open != 0;
  for (Sending &one : sending_) {
    if (!one.in->withdrawn) continue;
    if (one.phase != Phase::DONE) closed(*one.in);
    one.phase = Phase::DONE;
    if (one.place == UNSENT) continue;
    const auto last = std::find_if(withdrawn_.rbegin(), withdrawn_.rend(), [&](const Withdrawn &its) { return its.to == one.of->peer; });
    if (last != withdrawn_.rend() && last->first + last->n == one.place) ++last->n;
    else withdrawn_.push_back({one.place, 1, one.of->peer});
  }
  for (Receiving &one : receiving_) {
    if (one.in->withdrawn && one.phase != Phase::DONE) closed(*one.in);
    if (one.in->withdrawn) one.phase = Phase::DONE;
  }
}

// Ends an exchange of an uneven call that is refused. What moves of it does not wait for other ranks.
void Messages::withdraw_told(Exchange &exchange) {
  const auto in = [&](Phase phase) {
    return [&exchange, phase](const auto &one) { return one.in == &exchange && one.phase == phase; };
  };
  const unsigned long long start = hccc_clock();
  while (std::any_of(sending_.begin(), sending_.end(), in(Phase::MOVING)) ||
         std::any_of(receiving_.begin(), receiving_.end(), in(Phase::MOVING))) {
    step(true);
    if (hccc_clock() - start > REASON_NS) throw Error(hcccTimeout, "what ranks tell of an uneven call, which is refused, does not come");
  }
  const auto drop_waiting = [&](auto &all) {
    for (auto &one : all)
      if (in(Phase::WAITING)(one)) one.phase = Phase::DONE, closed(exchange);
  };
  drop_waiting(sending_), drop_waiting(receiving_);
  exchange.withdrawn = true;
}

// Looks, about once a millisecond, for reasons to end: failures, ranks that have left, the deadline.
void Messages::look(unsigned long long now, unsigned long long idle, const Silent &silent) {
  const auto told = std::find_if(exchanges_.begin(), exchanges_.end(), [](Exchange *one) { return one->told && one->open; });
  if (failure_.refused() && told != exchanges_.end()) return withdraw_told(**told);
  const Message &first = first_open();
  Control &own = host_.control(rank_);
  own.waits_count.store(first.count, std::memory_order_relaxed);
  own.waits.store(packed(first), std::memory_order_release);
  if (failure_.code()) throw failed(failure_, first, rank_);
  if (const Message *late = waits_for_a_later_call(idle)) {
    refused_ = *late;
    return withdraw();
  }
  const auto check = [&](const Message &message) {
    if (!gone(message)) return;
    const size_t before = open_;
    while (step(true)) continue;
    if (open_ != before) return;  // it had sent before it left
    const std::string who = message.peer == HCCC_ANY_SOURCE ? "all other ranks have" : text_of("rank %d has", message.peer);
    throw Error(hcccInvalidUsage, who + " left the communicator; " + description(message, rank_));
  };
  for (const Sending &one : sending_)
    if (one.phase != Phase::DONE) check(*one.of);
  for (const Receiving &one : receiving_)
    if (one.phase != Phase::DONE) check(*one.of);
  for (Exchange *one : exchanges_) {
    if (!one->since) one->since = now;
    if (one->open && one->timeout_s > 0 && static_cast<double>(now - one->since) * NS > one->timeout_s)
      expire(*one, silent());
  }
}

// Says what a rank does that this one waits for.
std::string Messages::state_of(int rank) const {
  if (!host_.near(rank)) return text_of("rank %d is on another host", rank);
  const std::string waits = described_wait(host_.control(rank), rank);
  if (!waits.empty()) return waits;
  const Called last = called_by(host_.control(rank));
  const std::string none = text_of("rank %d is in no send or receive, ", rank);
  return none + (last.number ? "its last collective was " + description(last) : "and has made no collective yet");
}

void Messages::expire(const Exchange &exchange, const std::string &silent) const {
  const Message &first = first_open(&exchange);
  std::string who = silent;
  if (who.empty() && first.peer != HCCC_ANY_SOURCE && first.peer != rank_) who = state_of(first.peer);
  if (who.empty()) who = "no rank stands still";
  const std::string more = exchange.open > 1 ? text_of(", and %zu more of its group are not done", exchange.open - 1) : "";
  throw Error(hcccTimeout,
              text_of("timed out after %g s: ", exchange.timeout_s) + description(first, rank_) + more + "; " + who);
}

}  // namespace hccc
