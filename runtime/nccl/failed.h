// failed.h: what went wrong is thrown, until the C interface turns it into a result and a text.
#pragma once

#include <hccc_runtime.h>
#include <nccl.h>

#include <string>

namespace hccc_nccl {

struct Failed {
  ncclResult_t code;
  std::string text;
};

// NCCL's number of a result of libhccc's: the same, but for those that NCCL has not.
inline ncclResult_t result_of(hcccResult_t result) {
  return result <= hcccInProgress ? static_cast<ncclResult_t>(result) : ncclRemoteError;
}

}  // namespace hccc_nccl
