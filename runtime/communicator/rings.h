// rings.h: what a rank's arena holds for messages: a ring of each sender, read by this rank alone.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace hccc {

constexpr size_t CELLS = 32;           // messages that a sender may be ahead of its receiver
constexpr size_t INLINE_BYTES = 40;    // of a message in its cell: one cache line goes over
constexpr size_t SLOT_BYTES = 2048;    // of a message beside its cell

// How the bytes of a message go: in its cell, in the slot of its cell, by a transfer, whose record
// is at an offset of the sender's heap, or, between hosts, as a message of the transport.
enum class How : uint16_t { INLINE, SLOT, TRANSFER, FAR };

// An announced message. The sender writes `turn` last.
struct alignas(64) Cell {
  std::atomic<uint32_t> turn;  // how often the cell was written
  int32_t tag;
  uint64_t bytes;
  uint16_t type;
  How how;
  uint32_t unused;
  char inside[INLINE_BYTES];  // the bytes, or the offset of a record
};
static_assert(sizeof(Cell) == 64, "a cache line");

struct Ring {
  alignas(64) std::atomic<uint64_t> taken;  // messages that the receiver has taken out
  Cell cells[CELLS];
  char slots[CELLS][SLOT_BYTES];
};

// Where the other rank finds a buffer.
enum class Where : uint32_t {
  AWAY,  // nowhere: neither in a heap nor in the same process; its owner has it at this address
  READ,  // the same, of a receiver that reads the sender's memory by the system
  HEAP,  // past the beginning of its owner's heap
  HERE   // at this address: both ranks are of one process
};
struct Buffer {
  Where place;
  uint64_t at;
};

enum class Stage : uint32_t { OFFERED, MATCHED, FINISHED, WITHDRAWN };

// The record of a transfer between two ranks of a host, in the sender's heap. Whoever reaches both
// buffers copies parts of it, both ranks at once where both do; where none does, the receiver reads
// the sender's memory, or else the sender copies into slots of its heap and the receiver out of them. The receiver's last access sets FINISHED.
struct alignas(64) Transfer {
  Buffer source;  // by the sender, before it is announced
  uint64_t at, secret;  // of this record in the sender's process, which a reader checks, and a random number
  alignas(64) std::atomic<Stage> stage;
  Buffer target;  // by the receiver, before MATCHED
  alignas(64) std::atomic<uint64_t> next;  // the first byte that nobody copies yet
  alignas(64) std::atomic<uint64_t> done;  // bytes that were copied
  alignas(64) std::atomic<uint64_t> filled;  // slots, by the sender
  uint64_t slots;                            // where they are in its heap, before the first is filled
  alignas(64) std::atomic<uint64_t> emptied;  // slots, by the receiver
};

}  // namespace hccc
