// library.h: UCX, looked for at its first use.
#pragma once

#include <string>

#include "ucp.h"

namespace hccc::transport {

namespace ucp {
struct Functions {
#define HCCC_UCP_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  HCCC_UCP_FUNCTIONS(HCCC_UCP_MEMBER)
#undef HCCC_UCP_MEMBER
};
}  // namespace ucp

struct Ucx : ucp::Functions {
  bool usable = false;
  unsigned major = 0, minor = 0, release = 0;
  std::string version;
  std::string text;  // path and version, or why there is none

  std::string meaning(ucp::Status status) const { return ucs_status_string(status); }
};

// Returns UCX of this process; looked for once.
const Ucx &ucx();

}  // namespace hccc::transport
