// runtime.h: the functions of libhccc, which lies beside this library.
#pragma once

#include <hccc_runtime.h>
#include <hcccrt.h>

#include <string>

namespace hccc_nccl {

#define HCCC_NCCL_CALLS(CALL)                                                                           \
  CALL(hcccGetLastError) CALL(hcccGetErrorString) CALL(hcccGetUniqueId) CALL(hcccSetCommand)            \
  CALL(hcccCommInitRank) CALL(hcccCommSplit) CALL(hcccCommLoad) CALL(hcccCommCan)                       \
  CALL(hcccCommGatherBytes) CALL(hcccCommCount) CALL(hcccCommUserRank) CALL(hcccCommCuDevice)           \
  CALL(hcccCommPlatform) CALL(hcccCommGetAsyncError) CALL(hcccCommFinalize) CALL(hcccCommDestroy)       \
  CALL(hcccCommAbort) CALL(hcccCommRegister) CALL(hcccCommDeregister) CALL(hcccGroupStart)              \
  CALL(hcccGroupEnd) CALL(hcccGroupCancel) CALL(hcccGroupDetach) CALL(hcccGroupMake) CALL(hcccCommStop) CALL(hcccMemAlloc) CALL(hcccMemFree) CALL(hcccAllReduce)     \
  CALL(hcccAllGather) CALL(hcccReduceScatter) CALL(hcccBroadcast) CALL(hcccReduce) CALL(hcccGather)     \
  CALL(hcccScatter) CALL(hcccAllToAll) CALL(hcccAllToAllv) CALL(hcccSend) CALL(hcccRecv)                \
  CALL(hcccSendTagged) CALL(hcccRecvTagged) CALL(hcccRedOpCreatePreMulSum) CALL(hcccRedOpDestroy)      \
  CALL(hcccCommQuery) CALL(hcccrtGetDevice) CALL(hcccrtSetDevice)

struct Runtime {
#define MEMBER(name) decltype(&::name) name = nullptr;
  HCCC_NCCL_CALLS(MEMBER)
#undef MEMBER
};

// Returns libhccc's functions, loaded once. Throws Failed where it is not there.
const Runtime &runtime();

}  // namespace hccc_nccl
