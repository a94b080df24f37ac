// host.h: the identity of this process's host.
#pragma once

#include <string>

namespace hccc::bootstrap {

// Returns 32 bytes, the same for two processes where they can share memory, as far as can be known.
std::string host_identity();

}  // namespace hccc::bootstrap
