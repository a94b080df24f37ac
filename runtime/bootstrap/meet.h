// meet.h: connecting with what may not be there yet.
#pragma once

#include <functional>

#include "handshake.h"

namespace hccc::bootstrap {

// Connects (`connect`: one attempt, errno where it fails) and introduces itself, again and again
// until the deadline. Throws what `introduce` does, TIMEOUT naming `peer`.
Link join(const std::function<Fd()> &connect, const Claim &claim, const Secret &secret,
          uint64_t most, const Deadline &deadline, int peer, const std::string &where);

}  // namespace hccc::bootstrap
