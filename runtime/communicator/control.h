// control.h: what a rank shares with its peers besides flags and scratch, at the beginning of its
// arena: what it calls, for who finds that others do not come.
#pragma once

#include <stdint.h>

#include <atomic>

namespace hccc {

// One call as a rank makes it. Plain numbers: it is read while it may be written.
struct Called {
  uint64_t number = 0;     // calls before it, and this one
  uint64_t signature = 0;  // of all that ranks must agree on
  int64_t count = 0;
  int32_t type = 0, op = 0, root = -1, in_place = 0;
  char collective[24] = {};
  char library[40] = {};
};

enum class Standing : uint32_t { JOINED = 0, LEFT = 1 };  // LEFT: it has destroyed its communicator

constexpr int MOST_WINDOWS = 128;  // pieces of device memory that a rank shows its peers

struct Control {
  std::atomic<uint32_t> turn;  // odd while `called` is written
  std::atomic<Standing> standing;
  Called called;
  std::atomic<uint64_t> kinds[2];  // of calls that may be cut: their number, and whether this rank copies
  std::atomic<uint32_t> mapped[MOST_WINDOWS];  // of this rank's device memory: how many peers have mapped it
  std::atomic<uint32_t> let_go;  // peers that have ended all their mappings of this rank's memory
};

static_assert(sizeof(Control) <= 4096, "one page");

void publish(Control &control, const Called &called);
// What a rank calls now. Tries again while it is written; the last try is taken as it is.
Called called_by(const Control &control);

}  // namespace hccc
