// table.h: the calls that a platform answers, as a table of functions. Generated from calls.toml.
#pragma once

#include "../include/hcccrt.h"

namespace hcccrt {

// A null entry is a call that the platform does not have.
struct Table {
  hcccrtError_t (*GetLastError)(void);
  hcccrtError_t (*PeekAtLastError)(void);
  hcccrtError_t (*GetDeviceCount)(int *);
  hcccrtError_t (*GetDevice)(int *);
  hcccrtError_t (*SetDevice)(int);
  hcccrtError_t (*DeviceGetAttribute)(int *, hcccrtDeviceAttr_t, int);
  hcccrtError_t (*GetDeviceProperties)(hcccrtDeviceProp *, int);
  hcccrtError_t (*DeviceGetPCIBusId)(char *, int, int);
  hcccrtError_t (*DeviceGetByPCIBusId)(int *, const char *);
  hcccrtError_t (*DeviceCanAccessPeer)(int *, int, int);
  hcccrtError_t (*DeviceEnablePeerAccess)(int, unsigned);
  hcccrtError_t (*DeviceSetLimit)(hcccrtLimit_t, size_t);
  hcccrtError_t (*DeviceSynchronize)(void);
  hcccrtError_t (*DeviceReset)(void);
  hcccrtError_t (*ExtGetLinkTypeAndHopCount)(int, int, unsigned *, unsigned *);
  hcccrtError_t (*Malloc)(void **, size_t);
  hcccrtError_t (*ExtMallocWithFlags)(void **, size_t, unsigned);
  hcccrtError_t (*MallocManaged)(void **, size_t, unsigned);
  hcccrtError_t (*Free)(void *);
  hcccrtError_t (*MallocHost)(void **, size_t);
  hcccrtError_t (*FreeHost)(void *);
  hcccrtError_t (*HostAlloc)(void **, size_t, unsigned);
  hcccrtError_t (*HostMalloc)(void **, size_t, unsigned);
  hcccrtError_t (*HostFree)(void *);
  hcccrtError_t (*HostRegister)(void *, size_t, unsigned);
  hcccrtError_t (*HostUnregister)(void *);
  hcccrtError_t (*HostGetDevicePointer)(void **, void *, unsigned);
  hcccrtError_t (*PointerGetAttributes)(hcccrtPointerAttributes *, const void *);
  hcccrtError_t (*Memcpy)(void *, const void *, size_t, hcccrtMemcpyKind_t);
  hcccrtError_t (*MemcpyAsync)(void *, const void *, size_t, hcccrtMemcpyKind_t, hcccrtStream_t);
  hcccrtError_t (*Memset)(void *, int, size_t);
  hcccrtError_t (*MemsetAsync)(void *, int, size_t, hcccrtStream_t);
  hcccrtError_t (*IpcGetMemHandle)(hcccrtIpcMemHandle_t *, void *);
  hcccrtError_t (*IpcOpenMemHandle)(void **, hcccrtIpcMemHandle_t, unsigned);
  hcccrtError_t (*IpcCloseMemHandle)(void *);
  hcccrtError_t (*ExtGetHandleKinds)(unsigned *, int);
  hcccrtError_t (*ExtMallocShared)(void **, size_t *, unsigned);
  hcccrtError_t (*ExtGetSharedHandle)(hcccrtIpcMemHandle_t *, int *, void *);
  hcccrtError_t (*ExtOpenSharedHandle)(void **, const hcccrtIpcMemHandle_t *, int, size_t, unsigned);
  hcccrtError_t (*ExtFreeShared)(void *);
  hcccrtError_t (*StreamCreate)(hcccrtStream_t *);
  hcccrtError_t (*StreamCreateWithFlags)(hcccrtStream_t *, unsigned);
  hcccrtError_t (*ExtStreamCreateWithCUMask)(hcccrtStream_t *, unsigned, const unsigned *);
  hcccrtError_t (*StreamDestroy)(hcccrtStream_t);
  hcccrtError_t (*StreamQuery)(hcccrtStream_t);
  hcccrtError_t (*StreamSynchronize)(hcccrtStream_t);
  hcccrtError_t (*StreamWaitEvent)(hcccrtStream_t, hcccrtEvent_t, unsigned);
  hcccrtError_t (*LaunchHostFunc)(hcccrtStream_t, hcccrtHostFn_t, void *);
  hcccrtError_t (*EventCreate)(hcccrtEvent_t *);
  hcccrtError_t (*EventCreateWithFlags)(hcccrtEvent_t *, unsigned);
  hcccrtError_t (*EventRecord)(hcccrtEvent_t, hcccrtStream_t);
  hcccrtError_t (*EventQuery)(hcccrtEvent_t);
  hcccrtError_t (*EventSynchronize)(hcccrtEvent_t);
  hcccrtError_t (*EventElapsedTime)(float *, hcccrtEvent_t, hcccrtEvent_t);
  hcccrtError_t (*EventDestroy)(hcccrtEvent_t);
  hcccrtError_t (*LaunchKernel)(const void *, hcccrtDim3, hcccrtDim3, void **, size_t, hcccrtStream_t);
  hcccrtError_t (*ExtLaunchKernel)(const void *, hcccrtDim3, hcccrtDim3, void **, size_t, hcccrtStream_t, hcccrtEvent_t, hcccrtEvent_t, int);
  hcccrtError_t (*FuncGetAttributes)(hcccrtFuncAttributes *, const void *);
  hcccrtError_t (*FuncSetAttribute)(const void *, hcccrtFuncAttribute_t, int);
  hcccrtError_t (*StreamBeginCapture)(hcccrtStream_t, hcccrtStreamCaptureMode_t);
  hcccrtError_t (*StreamEndCapture)(hcccrtStream_t, hcccrtGraph_t *);
  hcccrtError_t (*StreamGetCaptureInfo_v2)(hcccrtStream_t, hcccrtStreamCaptureStatus_t *, unsigned long long *, hcccrtGraph_t *, const hcccrtGraphNode_t **, size_t *);
  hcccrtError_t (*ThreadExchangeStreamCaptureMode)(hcccrtStreamCaptureMode_t *);
  hcccrtError_t (*GraphAddHostNode)(hcccrtGraphNode_t *, hcccrtGraph_t, const hcccrtGraphNode_t *, size_t, const hcccrtHostNodeParams *);
  hcccrtError_t (*GraphInstantiate)(hcccrtGraphExec_t *, hcccrtGraph_t, unsigned long long);
  hcccrtError_t (*GraphLaunch)(hcccrtGraphExec_t, hcccrtStream_t);
  hcccrtError_t (*GraphExecDestroy)(hcccrtGraphExec_t);
  hcccrtError_t (*GraphDestroy)(hcccrtGraph_t);
};

}  // namespace hcccrt
