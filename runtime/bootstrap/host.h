// host.h: which host a process is on.
#pragma once

#include <string>

namespace hccc::bootstrap {

// 32 bytes, the same for two processes where they can share memory, by all that can be known.
std::string host_identity();

}  // namespace hccc::bootstrap
