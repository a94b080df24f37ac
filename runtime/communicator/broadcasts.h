// broadcasts.h: short Broadcasts within a host. The root writes the bytes into a ring of its arena, from which all others
// take them, and goes on before they have come.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "staging.h"

namespace hccc {

constexpr size_t PIECES = 32;            // that a root is ahead of the last of the others, and so calls
constexpr size_t PIECE_BYTES = 8 << 10;  // of one beside its head
constexpr size_t HEAD_BYTES = 48;        // of one in its head: one cache line goes over
constexpr size_t MOST_AHEAD = 16 << 10;  // of a Broadcast on which ranks do not agree before

// What the root says of a piece. It writes `turn` last.
struct alignas(64) PieceHead {
  std::atomic<uint64_t> turn;  // which of its pieces it is, from 1
  uint64_t signature;          // of the call
  char inside[HEAD_BYTES];     // the bytes, where they fit
};
static_assert(sizeof(PieceHead) == 64, "a cache line");

// How many pieces a rank has taken of a root.
struct alignas(64) Taken {
  std::atomic<uint64_t> pieces;
};

// A rank's part of its arena: its ring, and behind it what it has taken of each root.
struct BroadcastRing {
  PieceHead heads[PIECES];
  char slots[PIECES][PIECE_BYTES];

  Taken &taken_of(int root) { return reinterpret_cast<Taken *>(this + 1)[root]; }
  static size_t bytes(size_t n_ranks) { return sizeof(BroadcastRing) + n_ranks * sizeof(Taken); }
};

// One rank's end of all rings.
class Broadcasts {
 public:
  // rings: of each rank, as it is mapped here.
  Broadcasts(std::vector<BroadcastRing *> rings, int rank) : rings_(std::move(rings)), rank_(rank), received_(rings_.size()) {}

  // Writes the bytes of a call. wait: is called while some rank has not taken what was there before, and may throw.
  template <class Wait>
  void send(const char *from, size_t bytes, uint64_t signature, const Wait &wait) {
    BroadcastRing &own = ring(rank_);
    size_t at = 0;
    do {
      while (sent_ - taken_ >= PIECES && (taken_ = taken_by_all(), sent_ - taken_ >= PIECES)) wait();
      const size_t place = sent_ % PIECES, length = std::min(bytes - at, PIECE_BYTES);
      PieceHead &head = own.heads[place];
      head.signature = signature;
      copy_piece(bytes <= HEAD_BYTES ? head.inside : own.slots[place], from + at, length);
      head.turn.store(++sent_, std::memory_order_release);
      at += length;
    } while (at < bytes);
  }

  // Takes the bytes of a call of a root. wait: is called while they are not there, and may throw. False: the root has
  // made another call; nothing of that is read.
  template <class Wait>
  bool receive(int root, char *to, size_t bytes, uint64_t signature, const Wait &wait) {
    BroadcastRing &its = ring(root);
    uint64_t &received = received_[static_cast<size_t>(root)];
    size_t at = 0;
    do {
      const size_t place = received % PIECES, length = std::min(bytes - at, PIECE_BYTES);
      const PieceHead &head = its.heads[place];
      while (head.turn.load(std::memory_order_acquire) != received + 1) wait();
      if (head.signature != signature) return false;
      copy_piece(to + at, bytes <= HEAD_BYTES ? head.inside : its.slots[place], length);
      ring(rank_).taken_of(root).pieces.store(++received, std::memory_order_release);
      at += length;
    } while (at < bytes);
    return true;
  }

  // Empties the own ring, and forgets what was taken, when no rank is in a call.
  void reset();

 private:
  BroadcastRing &ring(int rank) const { return *rings_[static_cast<size_t>(rank)]; }
  static void copy_piece(char *to, const char *from, size_t bytes) { copy_message(to, from, bytes, bytes); }
  uint64_t taken_by_all() const;

  const std::vector<BroadcastRing *> rings_;
  const int rank_;
  uint64_t sent_ = 0, taken_ = 0;  // of the own ring: pieces, and how many all have taken, as far as is known
  std::vector<uint64_t> received_;  // of each root
};

}  // namespace hccc
