// connect.h: connects to a peer that may not listen yet.
#pragma once

#include <functional>

#include "handshake.h"

namespace hccc::bootstrap {

// Tries to connect (`connect`: one attempt, errno where it fails) and to authenticate, until the
// deadline. Throws as `authenticate`, and TIMEOUT naming `peer`.
Link join(const std::function<Fd()> &connect, const Claim &claim, const Secret &secret,
          uint64_t most, const Deadline &deadline, int peer, const std::string &where);

}  // namespace hccc::bootstrap
