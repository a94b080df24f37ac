// refusals.cpp: the ranks' way back from a call that differs at one of them.
#include "refusals.h"

#include <string.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace hccc {
namespace {

static_assert(sizeof(AtRest) <= sizeof(Notice::text), "a notice has room for it");

struct Refused {
  uint64_t refusal, number;
};

struct AllWithdrawn {
  uint64_t refusal, n;
  Withdrawn all[14];
};
static_assert(sizeof(AllWithdrawn) <= sizeof(Notice::text), "a notice has room for it");

template <class Body>
Notice notice_of(int32_t code, const Body &body) {
  Notice made{};
  made.code = code;
  memcpy(made.text, &body, sizeof body);
  return made;
}

template <class Body>
Body body_of(const Notice &notice) {
  Body found;
  memcpy(&found, notice.text, sizeof found);
  return found;
}

// Returns whether one of two calls is a message to or from the rank of the other.
bool meets(const Called &one, size_t rank, const Called &other, size_t other_rank) {
  const auto to = [](const Called &message, size_t peer) {
    return message.type >= 0 && !message.library[0] && (message.root == HCCC_ANY_SOURCE || static_cast<size_t>(message.root) == peer);
  };
  return to(one, other_rank) || to(other, rank);
}

}  // namespace

Refusals::Refusals(hccc_bootstrap *bootstrap, Failure &failure, int rank, int n_ranks, Steps steps)
    : bootstrap_(bootstrap), failure_(failure), rank_(static_cast<size_t>(rank)), steps_(std::move(steps)),
      at_rest_(static_cast<size_t>(n_ranks)), reset_(static_cast<size_t>(n_ranks)) {}

void Refusals::refuse(uint64_t number) {
  const bool lowest = note(number);
  if (failure_.refuse() || lowest) send(bootstrap_, notice_of(REFUSED, Refused{failure_.refusals() + 1, number}));
}

void Refusals::tell_withdrawn(const std::vector<Withdrawn> &all) {
  for (size_t at = 0; at < all.size();) {
    AllWithdrawn some{failure_.refusals() + 1, 0, {}};
    while (at < all.size() && some.n < std::size(some.all)) some.all[some.n++] = all[at++];
    send(bootstrap_, notice_of(WITHDRAWN, some));
  }
}

// Notes the number of a call that differs. False: an earlier one is known.
bool Refusals::note(uint64_t number) {
  uint64_t known = number_.load();
  while (number < known)
    if (number_.compare_exchange_weak(known, number)) return true;
  return false;
}

// What is about an earlier refusal comes too late: every rank has noticed that one. The first of the next may come with
// the last of this one.
void Refusals::take(int rank, const Notice &notice) {
  const auto r = static_cast<size_t>(rank);
  const auto refusal = body_of<uint64_t>(notice);  // first in each body
  if (refusal == failure_.refusals() + 2) step();
  if (refusal != failure_.refusals() + 1) return;
  if (notice.code == REFUSED) note(body_of<Refused>(notice).number);
  failure_.refuse();
  if (notice.code == AT_REST) {
    at_rest_[r] = body_of<AtRest>(notice);
    for (Called &one : at_rest_[r].called)
      one.collective[sizeof one.collective - 1] = one.library[sizeof one.library - 1] = '\0';
  }
  if (notice.code == RESET) reset_[r] = refusal;
  if (notice.code != WITHDRAWN) return;
  const auto some = body_of<AllWithdrawn>(notice);
  for (size_t k = 0; k < std::min<size_t>(some.n, std::size(some.all)); ++k)
    if (static_cast<size_t>(some.all[k].to) == rank_) steps_.drop(rank, some.all[k]);
}

void Refusals::step() {
  if (!failure_.refused() || failure_.code() != hcccSuccess) return;
  const uint64_t refusal = failure_.refusals() + 1;
  if (reset_[rank_] != refusal) {
    tell_rest();
    if (!all_at_rest() || !steps_.reset()) return;
    reset_[rank_] = refusal;
    send(bootstrap_, notice_of(RESET, refusal));
  }
  if (std::count(reset_.begin(), reset_.end(), refusal) != static_cast<long>(reset_.size())) return;
  for (const AtRest &one : at_rest_) {
    settled_ = std::max<uint64_t>(settled_, one.number);
    agreements_ = std::max<uint64_t>(agreements_, one.agreements);
  }
  number_ = NONE;
  failure_.resume(difference());
}

// Tells all ranks that this one is at rest, again when it has received something since.
void Refusals::tell_rest() {
  AtRest own;
  if (!steps_.rest(own, number_)) return;
  own.refusal = failure_.refusals() + 1;
  AtRest &told = at_rest_[rank_];
  if (told.refusal == own.refusal && told.received == own.received) return;
  told = own;
  send(bootstrap_, notice_of(AT_REST, own));
}

// Returns whether no launch runs at any rank, and nothing is on its way between hosts: a rank at rest
// sends nothing more.
bool Refusals::all_at_rest() const {
  uint32_t on_their_way = 0;
  for (const AtRest &one : at_rest_) {
    if (one.refusal != failure_.refusals() + 1) return false;
    on_their_way += one.sent - one.received;
  }
  return !on_their_way;
}

// Says which two calls differ, in the same words at every rank. A rank that has not come to the call,
// or was done with its part, has another number.
std::string Refusals::difference() const {
  std::string text = "ranks have made calls that differ";
  std::tuple<bool, uint64_t, bool> best;  // calls that differ in more than in place; the last call; a message and its peer's
  const size_t n = 2 * at_rest_.size();
  const auto called = [&](size_t k) -> const Called & { return at_rest_[k / 2].called[k % 2]; };
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b) {
      const Called &one = called(a), &other = called(b);
      const bool differ = one.signature != other.signature;
      const std::tuple<bool, uint64_t, bool> found(differ, one.number, meets(one, a / 2, other, b / 2));
      if (one.number != other.number || (!differ && one.in_place == other.in_place) || found <= best) continue;
      best = found;
      text = text_of("rank %zu calls ", b / 2) + description(other) + text_of("; rank %zu calls ", a / 2) + description(one);
    }
  return text;
}

}  // namespace hccc
