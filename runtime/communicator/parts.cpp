// parts.cpp: transfers of long messages.
#include "parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "error.h"
#include "staging.h"

namespace hccc {
namespace {

constexpr size_t LEAST_PART = 64 << 10, MOST_PART = 512 << 10;
constexpr size_t SLOTS = 4, SLOT = 64 << 10;
constexpr size_t MOST_READ = 1 << 20;     // at a time: failures and other messages are looked after in between
constexpr size_t FILLED_FIRST = 4 << 10;  // bytes up to which a copy costs less than another meeting

// Returns whether HCCC_PEER_READS lets ranks read each other's memory by the system.
bool may_read() {
  const char *wanted = getenv("HCCC_PEER_READS");
  return !wanted || strcmp(wanted, "0");
}

// Returns the bytes that a rank copies at a time: both ranks get some.
size_t part_of(size_t bytes) {
  return std::min(MOST_PART, std::max(LEAST_PART, bytes / 16 / LEAST_PART * LEAST_PART));
}

}  // namespace

Parts::Parts(const Host &host, const Registrations &registrations, int rank)
    : host_(host), registrations_(registrations), rank_(rank), reads_(static_cast<size_t>(host.n_ranks())) {
  if (!may_read() || getrandom(&secret_, sizeof secret_, 0) != sizeof secret_) secret_ = 0;
  for (int r = 0; r < host.n_ranks(); ++r) here_.push_back(host.near(r) && host.process(r) == getpid());
}

Parts::~Parts() {
  for (void *one : taken_) host_.heap().give(one);
}

bool Parts::reads_memory() const { return secret_ && std::find(reads_.begin(), reads_.end(), Reads::NO) == reads_.end(); }

Buffer Parts::place_of(const char *at, size_t bytes, int other) const {
  if (here_[static_cast<size_t>(other)]) return {Where::HERE, reinterpret_cast<uint64_t>(at)};
  if (registrations_.reach_of(at, bytes) == Reach::HEAP)
    return {Where::HEAP, static_cast<uint64_t>(at - host_.heap().base())};
  return {Where::AWAY, reinterpret_cast<uint64_t>(at)};
}

// Returns where another rank's buffer is in this process; null: nowhere.
char *Parts::found(const Buffer &buffer, int owner) const {
  if (buffer.place == Where::HERE) return reinterpret_cast<char *>(buffer.at);
  return buffer.place == Where::HEAP ? host_.heap_of(owner) + buffer.at : nullptr;
}

Transfer *Parts::take_record() {
  if (records_.empty()) {
    taken_.push_back(host_.heap().take(page_bytes()));
    Transfer *all = static_cast<Transfer *>(taken_.back());
    for (size_t k = 0; k < page_bytes() / sizeof(Transfer); ++k) records_.push_back(new (all + k) Transfer());
  }
  Transfer *made = records_.back();
  records_.pop_back();
  return made;
}

char *Parts::take_slots() {
  if (slots_.empty()) {
    taken_.push_back(host_.heap().take(SLOTS * SLOT));
    slots_.push_back(static_cast<char *>(taken_.back()));
  }
  char *made = slots_.back();
  slots_.pop_back();
  return made;
}

uint64_t Parts::begin(Sender &sender, int peer) {
  Transfer &record = *(sender.record = take_record());
  record.source = place_of(sender.from, sender.bytes, peer);
  if (record.source.place == Where::AWAY && sender.bytes <= FILLED_FIRST) {
    sender.slots = take_slots();
    memcpy(sender.slots, sender.from, sender.bytes);
    sender.from = sender.slots;
    record.source = {Where::HEAP, static_cast<uint64_t>(sender.slots - host_.heap().base())};
  }
  record.at = reinterpret_cast<uint64_t>(&record), record.secret = secret_;
  for (std::atomic<uint64_t> *one : {&record.next, &record.done, &record.filled, &record.emptied})
    one->store(0, std::memory_order_relaxed);
  record.stage.store(Stage::OFFERED, std::memory_order_release);
  return static_cast<uint64_t>(reinterpret_cast<char *>(&record) - host_.heap().base());
}

bool Parts::withdraw(Sender &sender) {
  Stage offered = Stage::OFFERED;
  if (!sender.record->stage.compare_exchange_strong(offered, Stage::WITHDRAWN)) return false;
  end(sender);
  return true;
}

bool Parts::join(Receiver &receiver, uint64_t record) {
  receiver.record = reinterpret_cast<Transfer *>(host_.heap_of(receiver.source) + record);
  if (receiver.record->stage.load(std::memory_order_acquire) != Stage::OFFERED) return false;
  receiver.record->target = place_of(receiver.to, receiver.bytes, receiver.source);
  Buffer &target = receiver.record->target;
  const bool apart = target.place == Where::AWAY && receiver.record->source.place == Where::AWAY;
  if (apart && reads_memory_of(receiver)) target.place = Where::READ;
  Stage offered = Stage::OFFERED;
  return receiver.record->stage.compare_exchange_strong(offered, Stage::MATCHED);
}

// Copies the next part that nobody copies.
bool Parts::copy_part(Transfer &record, char *to, const char *from, size_t bytes) {
  const size_t part = part_of(bytes);
  if (record.next.load(std::memory_order_relaxed) >= bytes) return false;
  const uint64_t at = record.next.fetch_add(part, std::memory_order_relaxed);
  if (at >= bytes) return false;
  const size_t length = std::min<size_t>(part, bytes - at);
  copy_message(to + at, from + at, length, bytes);
  record.done.fetch_add(length, std::memory_order_release);
  return true;
}

// Returns whether this rank may read the sender's memory by the system: whether what it finds in the
// process with that number, which may be another's where processes are numbered apart, is the record.
bool Parts::reads_memory_of(const Receiver &receiver) {
  Reads &known = reads_[static_cast<size_t>(receiver.source)];
  if (known != Reads::UNKNOWN) return known == Reads::YES;
  const Transfer &record = *receiver.record;
  uint64_t found[2] = {};
  const iovec own = {found, sizeof found};
  const iovec other = {reinterpret_cast<void *>(record.at + offsetof(Transfer, at)), sizeof found};
  const bool read = process_vm_readv(host_.process(receiver.source), &own, 1, &other, 1, 0) == sizeof found;
  const bool same = secret_ && record.secret && found[0] == record.at && found[1] == record.secret;
  known = read && same ? Reads::YES : Reads::NO;
  return known == Reads::YES;
}

// Reads the next part of a buffer that is in no heap from the sender's process.
bool Parts::read_part(Receiver &receiver) {
  Transfer &record = *receiver.record;
  const size_t at = record.done.load(std::memory_order_relaxed), rest = std::min(receiver.bytes - at, MOST_READ);
  const iovec own = {receiver.to + at, rest};
  const iovec other = {reinterpret_cast<void *>(record.source.at + at), rest};
  const ssize_t got = process_vm_readv(host_.process(receiver.source), &own, 1, &other, 1, 0);
  if (got < 0 && errno == ESRCH) return false;  // the rank has died, which the monitor notices
  if (got <= 0) throw system_error(text_of("rank %d cannot read the buffer that rank %d sends", rank_, receiver.source));
  record.done.store(at + static_cast<size_t>(got), std::memory_order_release);
  return true;
}

bool Parts::fill_slot(Sender &sender) {
  Transfer &record = *sender.record;
  const uint64_t filled = record.filled.load(std::memory_order_relaxed);
  if (filled * SLOT >= sender.bytes) return false;
  if (filled - record.emptied.load(std::memory_order_acquire) >= SLOTS) return false;
  if (!sender.slots) {
    sender.slots = take_slots();
    record.slots = static_cast<uint64_t>(sender.slots - host_.heap().base());
  }
  const size_t at = filled * SLOT;
  copy(sender.slots + filled % SLOTS * SLOT, sender.from + at, std::min(SLOT, sender.bytes - at));
  record.filled.store(filled + 1, std::memory_order_release);
  return true;
}

bool Parts::empty_slot(Receiver &receiver) {
  Transfer &record = *receiver.record;
  const uint64_t emptied = record.emptied.load(std::memory_order_relaxed);
  if (emptied == record.filled.load(std::memory_order_acquire)) return false;
  const size_t at = emptied * SLOT, length = std::min(SLOT, receiver.bytes - at);
  copy(receiver.to + at, host_.heap_of(receiver.source) + record.slots + emptied % SLOTS * SLOT, length);
  record.done.store(at + length, std::memory_order_relaxed);
  record.emptied.store(emptied + 1, std::memory_order_release);
  return true;
}

bool Parts::move(Sender &sender, int peer, bool *ended) {
  Transfer &record = *sender.record;
  const Stage stage = record.stage.load(std::memory_order_acquire);
  if (stage == Stage::OFFERED) return false;
  if (stage == Stage::FINISHED) {
    end(sender);
    return *ended = true;
  }
  if (char *to = found(record.target, peer)) return copy_part(record, to, sender.from, sender.bytes);
  return record.source.place == Where::AWAY && record.target.place == Where::AWAY && fill_slot(sender);
}

bool Parts::move(Receiver &receiver, bool *ended) {
  Transfer &record = *receiver.record;
  bool moved;
  if (const char *from = found(record.source, receiver.source))
    moved = copy_part(record, receiver.to, from, receiver.bytes);
  else if (record.target.place == Where::READ)
    moved = read_part(receiver);
  else
    moved = record.target.place == Where::AWAY && empty_slot(receiver);
  if (record.done.load(std::memory_order_acquire) < receiver.bytes) return moved;
  record.stage.store(Stage::FINISHED, std::memory_order_release);
  return *ended = true;
}

void Parts::end(Sender &sender) {
  records_.push_back(sender.record);
  if (sender.slots) slots_.push_back(sender.slots);
  sender.record = nullptr, sender.slots = nullptr;
}

}  // namespace hccc
