// library.h: the calls of libhccc and of the device layer, which Python has loaded.
#pragma once

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <hccc_runtime.h>
#include <hcccrt.h>

#include <string>

namespace hccc_torch {

#define HCCC_TORCH_CALLS(CALL)                                                                  \
  CALL(hcccGetLastError) CALL(hcccCommInitRank) CALL(hcccCommSplit) CALL(hcccCommLoad) CALL(hcccCommCan) \
  CALL(hcccCommSetTimeout) CALL(hcccCommGetAsyncError) CALL(hcccCommDestroy) CALL(hcccCommAbort) \
  CALL(hcccRedOpCreatePreMulSum) CALL(hcccRedOpDestroy) CALL(hcccMemAlloc) CALL(hcccMemFree) CALL(hcccSetMemory) \
  CALL(hcccAllReduce) CALL(hcccAllGather)                                                        \
  CALL(hcccReduceScatter) CALL(hcccBroadcast) CALL(hcccReduce) CALL(hcccGather)                 \
  CALL(hcccScatter) CALL(hcccAllToAll) CALL(hcccAllGatherv)                         \
  CALL(hcccReduceScatterv) CALL(hcccAllToAllv) CALL(hcccGroupStart) CALL(hcccGroupEnd)          \
  CALL(hcccGroupCancel) CALL(hcccGroupNotify) CALL(hcccCommQuery) CALL(hcccCommLibrary) CALL(hcccSendTagged) CALL(hcccRecvTagged)
#define HCCC_TORCH_DEVICE_CALLS(CALL)                                                       \
  CALL(hcccrtGetPlatform) CALL(hcccrtSetPlatform) CALL(hcccrtSetPlatformAuto)               \
  CALL(hcccrtStreamCreateWithFlags) CALL(hcccrtStreamDestroy) CALL(hcccrtLaunchHostFunc)    \
  CALL(hcccrtGetErrorString)

struct Library {
#define MEMBER(name) decltype(&::name) name = nullptr;
  HCCC_TORCH_CALLS(MEMBER)
  HCCC_TORCH_DEVICE_CALLS(MEMBER)
#undef MEMBER

  void open(void *runtime, void *device_layer) {
#define FIND(of, call)                                                \
  call = reinterpret_cast<decltype(call)>(dlsym(of, #call));          \
  TORCH_CHECK(call != nullptr, "hccc: the library has no ", #call);
#define OF_RUNTIME(name) FIND(runtime, name)
#define OF_DEVICE_LAYER(name) FIND(device_layer, name)
    HCCC_TORCH_CALLS(OF_RUNTIME)
    HCCC_TORCH_DEVICE_CALLS(OF_DEVICE_LAYER)
#undef OF_RUNTIME
#undef OF_DEVICE_LAYER
#undef FIND
  }
};

inline Library &library() {
  static Library one;
  return one;
}

// Throws DistBackendError with hccc's text for anything but success.
inline void check(hcccResult_t result) {
  if (result == hcccSuccess) return;
  C10_THROW_ERROR(DistBackendError, std::string("hccc: ") + library().hcccGetLastError(nullptr));
}

// Has this thread's allocations and communicators be in memory of a platform, while it lives.
class InMemory {
 public:
  explicit InMemory(const char *platform, int device = 0) { check(library().hcccSetMemory(platform, device)); }
  ~InMemory() { library().hcccSetMemory(nullptr, 0); }
  InMemory(const InMemory &) = delete;
  InMemory &operator=(const InMemory &) = delete;
};

inline void check_device(hcccrtError_t error) {
  TORCH_CHECK(error == hcccrtSuccess, "hccc: a stream of the device layer failed: ",
              library().hcccrtGetErrorString(error));
}

}  // namespace hccc_torch
