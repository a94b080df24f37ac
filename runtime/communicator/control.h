// control.h: a rank's control page, at the beginning of its arena: its current call and the state
// of its memory, which peers read.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace hccc {

// A call of a rank: plain numbers, which are copied word by word.
struct Called {
  uint64_t number = 0;     // from 1; 0: no call yet
  uint64_t signature = 0;  // of all arguments that ranks must agree on
  int64_t count = 0;       // -1: each block has its own
  int32_t type = 0, op = 0, root = -1, in_place = 0;  // type -1: a load, a split; of a message: root: the peer; op: the tag
  char collective[24] = {};
  char library[40] = {};  // "": of none: no collective
};

constexpr char SEND[] = "hcccSend", RECEIVE[] = "hcccRecv";  // messages, as Called has them

constexpr size_t CALLED_WORDS = sizeof(Called) / sizeof(uint64_t);
static_assert(sizeof(Called) % sizeof(uint64_t) == 0, "whole words");

// A Called that others may read while it is written.
using CalledWords = std::atomic<uint64_t>[CALLED_WORDS];

// What a rank calls, for the agreement on a call before a byte of it moves. There are two: no rank
// is more than one call ahead of another.
struct Offer {
  // Counts agreements, times 16; 1: some buffer is copied; 2: the input is told; 4: the rank may read
  // the others' memory; 8: its shared scratch is the call's. The rest is written before.
  std::atomic<uint64_t> turn;
  CalledWords called;
};

enum class Standing : uint32_t { JOINED = 0, LEFT = 1 };  // LEFT: it has destroyed its communicator

// Why a rank's communicator is lost, for the others of its host.
struct Told {
  std::atomic<uint32_t> there;  // 1: the rest is written, and stays
  int32_t code;
  char text[1016];
};

// Calls of a rank that are kept: on a GPU as many may be on their way.
constexpr size_t RECENT = 256;
constexpr int MOST_WINDOWS = 128;  // pieces of device memory that a rank shares

struct Control {
  std::atomic<uint32_t> turn;  // odd while `called` is written
  std::atomic<Standing> standing;
  std::atomic<uint32_t> beat;  // grows while the rank's monitor runs
  std::atomic<uint64_t> running;  // the number of the call that it is in; 0: none
  CalledWords called;
  std::atomic<uint64_t> signatures[RECENT];  // of the last calls, by their numbers
  Offer offers[2];
  std::atomic<uint32_t> shares_cores;  // the ranks of this host are more than there are cores for; before the first offer
  std::atomic<uint64_t> waits;       // for a send or receive: a packed one; 0: for none
  std::atomic<uint64_t> waits_count;  // its elements
  alignas(64) std::atomic<uint32_t> asleep;  // 1: the thread that moves its messages sleeps until who moves one has made it 0
  std::atomic<uint32_t> mapped[MOST_WINDOWS];  // peers that have mapped each piece of device memory
  std::atomic<uint32_t> maps;      // 1 + the rank whose memory this rank maps now; 0: none
  std::atomic<uint32_t> released;  // peers that have unmapped all memory of this rank
  Told told;
};

static_assert(sizeof(Control) <= 64 << 10, "a page of any machine");

// Writes the current call of this rank.
void publish(Control &control, const Called &called);
// The same of a call that differs from the last one in its number and signature only.
void publish(Control &control, uint64_t number, uint64_t signature);
// Reads the current call of a rank. Retries while it is written; the last try is taken as it is.
Called called_by(const Control &control);
void store(CalledWords &words, const Called &called);
Called load(const CalledWords &words);

}  // namespace hccc
