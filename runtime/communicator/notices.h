// notices.h: what the ranks' monitors tell each other, over the connections by which they met.
#pragma once

#include <stdint.h>

#include "../bootstrap/include/hccc_bootstrap.h"

namespace hccc {

// Of a rank: why it is lost (code: hcccResult_t), that it leaves, with its last call (hcccSuccess), or
// what is about a call that is refused (below).
struct Notice {
  int32_t code;
  char text[252];
};
static_assert(sizeof(Notice) <= HCCC_BOOTSTRAP_MAX_MESSAGE, "the size of a message");

// A call differs at some rank; a rank has no launch any more; it has zeroed its flags; it has withdrawn messages.
enum : int32_t { REFUSED = -1, AT_REST = -2, RESET = -3, WITHDRAWN = -4 };

// Messages of a rank to another that are withdrawn, by how many it had sent it before.
struct Withdrawn {
  uint64_t first;
  uint32_t n;
  int32_t to;
};

inline void send(hccc_bootstrap *bootstrap, const Notice &notice) {
  hccc_bootstrap_notify(bootstrap, &notice, sizeof notice);
}

}  // namespace hccc
