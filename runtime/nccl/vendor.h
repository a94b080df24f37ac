// vendor.h: the vendor's own library, which makes calls that hccc has no library of kernels for.
#pragma once

#include <nccl.h>

#include <string>

namespace hccc_nccl {

// Functions that it has in any version of 2; then those that it may lack.
#define HCCC_VENDOR_CALLS(CALL)                                                                             \
  CALL(ncclGetVersion) CALL(ncclGetUniqueId) CALL(ncclGetErrorString) CALL(ncclCommInitRank)                \
  CALL(ncclCommDestroy) CALL(ncclCommAbort) CALL(ncclCommGetAsyncError) CALL(ncclGroupStart)                \
  CALL(ncclGroupEnd) CALL(ncclAllReduce) CALL(ncclReduceScatter) CALL(ncclReduce) CALL(ncclBroadcast)       \
  CALL(ncclAllGather)
#define HCCC_VENDOR_MAY_HAVE(CALL)                                                                          \
  CALL(ncclGetLastError) CALL(ncclCommFinalize) CALL(ncclSend) CALL(ncclRecv) CALL(ncclGather)              \
  CALL(ncclScatter) CALL(ncclAlltoAll) CALL(ncclAllToAll) CALL(ncclAllToAllv)                               \
  CALL(ncclRedOpCreatePreMulSum) CALL(ncclRedOpDestroy)

struct Vendor {
#define MEMBER(name) decltype(&::name) name = nullptr;
  HCCC_VENDOR_CALLS(MEMBER)
  HCCC_VENDOR_MAY_HAVE(MEMBER)
#undef MEMBER
  int version = 0;

  // Returns which of the two it is, as tables of times name it: of them RCCL alone has ncclAllToAllv.
  const char *name() const { return ncclAllToAllv ? "rccl" : "nccl"; }
};

// Returns the library that HCCC_NCCL_FALLBACK names, loaded once; null: none is named. Throws Failed
// where it cannot serve.
const Vendor *vendor();

// Throws what a function of the vendor's has returned, unless that is success.
void vendors(ncclResult_t result);

}  // namespace hccc_nccl
