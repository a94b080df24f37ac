// cpu_calls.h: the calls that the CPU answers, all that a platform may. Generated from calls.toml.
#pragma once

#include "table.h"

namespace hcccrt::cpu {

hcccrtError_t GetLastError(void);
hcccrtError_t PeekAtLastError(void);
hcccrtError_t GetDeviceCount(int *count);
hcccrtError_t GetDevice(int *device);
hcccrtError_t SetDevice(int device);
hcccrtError_t DeviceGetAttribute(int *value, hcccrtDeviceAttr_t attr, int device);
hcccrtError_t GetDeviceProperties(hcccrtDeviceProp *properties, int device);
hcccrtError_t DeviceGetPCIBusId(char *id, int bytes, int device);
hcccrtError_t DeviceGetByPCIBusId(int *device, const char *id);
hcccrtError_t DeviceCanAccessPeer(int *can, int device, int peer);
hcccrtError_t DeviceEnablePeerAccess(int peer, unsigned flags);
hcccrtError_t DeviceSetLimit(hcccrtLimit_t limit, size_t value);
hcccrtError_t DeviceSynchronize(void);
hcccrtError_t DeviceReset(void);
hcccrtError_t ExtGetLinkTypeAndHopCount(int device, int peer, unsigned *link_type, unsigned *hops);
hcccrtError_t Malloc(void **pointer, size_t bytes);
hcccrtError_t ExtMallocWithFlags(void **pointer, size_t bytes, unsigned flags);
hcccrtError_t MallocManaged(void **pointer, size_t bytes, unsigned flags);
hcccrtError_t Free(void *pointer);
hcccrtError_t MallocHost(void **pointer, size_t bytes);
hcccrtError_t FreeHost(void *pointer);
hcccrtError_t HostAlloc(void **pointer, size_t bytes, unsigned flags);
hcccrtError_t HostMalloc(void **pointer, size_t bytes, unsigned flags);
hcccrtError_t HostFree(void *pointer);
hcccrtError_t HostRegister(void *pointer, size_t bytes, unsigned flags);
hcccrtError_t HostUnregister(void *pointer);
hcccrtError_t HostGetDevicePointer(void **device_pointer, void *host_pointer, unsigned flags);
hcccrtError_t PointerGetAttributes(hcccrtPointerAttributes *attributes, const void *pointer);
hcccrtError_t Memcpy(void *to, const void *from, size_t bytes, hcccrtMemcpyKind_t kind);
hcccrtError_t MemcpyAsync(void *to, const void *from, size_t bytes, hcccrtMemcpyKind_t kind, hcccrtStream_t stream);
hcccrtError_t Memset(void *pointer, int value, size_t bytes);
hcccrtError_t MemsetAsync(void *pointer, int value, size_t bytes, hcccrtStream_t stream);
hcccrtError_t IpcGetMemHandle(hcccrtIpcMemHandle_t *handle, void *pointer);
hcccrtError_t IpcOpenMemHandle(void **pointer, hcccrtIpcMemHandle_t handle, unsigned flags);
hcccrtError_t IpcCloseMemHandle(void *pointer);
hcccrtError_t ExtGetHandleKinds(unsigned *kinds, int device);
hcccrtError_t ExtMallocShared(void **pointer, size_t *bytes, unsigned kind);
hcccrtError_t ExtGetSharedHandle(hcccrtIpcMemHandle_t *handle, int *descriptor, void *pointer);
hcccrtError_t ExtOpenSharedHandle(void **pointer, const hcccrtIpcMemHandle_t *handle, int descriptor, size_t bytes, unsigned kind);
hcccrtError_t ExtFreeShared(void *pointer);
hcccrtError_t StreamCreate(hcccrtStream_t *stream);
hcccrtError_t StreamCreateWithFlags(hcccrtStream_t *stream, unsigned flags);
hcccrtError_t ExtStreamCreateWithCUMask(hcccrtStream_t *stream, unsigned words, const unsigned *mask);
hcccrtError_t StreamDestroy(hcccrtStream_t stream);
hcccrtError_t StreamQuery(hcccrtStream_t stream);
hcccrtError_t StreamSynchronize(hcccrtStream_t stream);
hcccrtError_t StreamWaitEvent(hcccrtStream_t stream, hcccrtEvent_t event, unsigned flags);
hcccrtError_t LaunchHostFunc(hcccrtStream_t stream, hcccrtHostFn_t fn, void *user_data);
hcccrtError_t EventCreate(hcccrtEvent_t *event);
hcccrtError_t EventCreateWithFlags(hcccrtEvent_t *event, unsigned flags);
hcccrtError_t EventRecord(hcccrtEvent_t event, hcccrtStream_t stream);
hcccrtError_t EventQuery(hcccrtEvent_t event);
hcccrtError_t EventSynchronize(hcccrtEvent_t event);
hcccrtError_t EventElapsedTime(float *milliseconds, hcccrtEvent_t start, hcccrtEvent_t stop);
hcccrtError_t EventDestroy(hcccrtEvent_t event);
hcccrtError_t LaunchKernel(const void *function, hcccrtDim3 grid, hcccrtDim3 block, void **arguments, size_t shared_bytes, hcccrtStream_t stream);
hcccrtError_t ExtLaunchKernel(const void *function, hcccrtDim3 grid, hcccrtDim3 block, void **arguments, size_t shared_bytes, hcccrtStream_t stream, hcccrtEvent_t start, hcccrtEvent_t stop, int flags);
hcccrtError_t FuncGetAttributes(hcccrtFuncAttributes *attributes, const void *function);
hcccrtError_t FuncSetAttribute(const void *function, hcccrtFuncAttribute_t attribute, int value);
hcccrtError_t StreamBeginCapture(hcccrtStream_t stream, hcccrtStreamCaptureMode_t mode);
hcccrtError_t StreamEndCapture(hcccrtStream_t stream, hcccrtGraph_t *graph);
hcccrtError_t StreamGetCaptureInfo_v2(hcccrtStream_t stream, hcccrtStreamCaptureStatus_t *status, unsigned long long *id, hcccrtGraph_t *graph, const hcccrtGraphNode_t **dependencies, size_t *n_dependencies);
hcccrtError_t ThreadExchangeStreamCaptureMode(hcccrtStreamCaptureMode_t *mode);
hcccrtError_t GraphAddHostNode(hcccrtGraphNode_t *node, hcccrtGraph_t graph, const hcccrtGraphNode_t *dependencies, size_t n_dependencies, const hcccrtHostNodeParams *params);
hcccrtError_t GraphInstantiate(hcccrtGraphExec_t *exec, hcccrtGraph_t graph, unsigned long long flags);
hcccrtError_t GraphLaunch(hcccrtGraphExec_t exec, hcccrtStream_t stream);
hcccrtError_t GraphExecDestroy(hcccrtGraphExec_t exec);
hcccrtError_t GraphDestroy(hcccrtGraph_t graph);

constexpr Table calls = {
    GetLastError,
    PeekAtLastError,
    GetDeviceCount,
    GetDevice,
    SetDevice,
    DeviceGetAttribute,
    GetDeviceProperties,
    DeviceGetPCIBusId,
    DeviceGetByPCIBusId,
    DeviceCanAccessPeer,
    DeviceEnablePeerAccess,
    DeviceSetLimit,
    DeviceSynchronize,
    DeviceReset,
    ExtGetLinkTypeAndHopCount,
    Malloc,
    ExtMallocWithFlags,
    MallocManaged,
    Free,
    MallocHost,
    FreeHost,
    HostAlloc,
    HostMalloc,
    HostFree,
    HostRegister,
    HostUnregister,
    HostGetDevicePointer,
    PointerGetAttributes,
    Memcpy,
    MemcpyAsync,
    Memset,
    MemsetAsync,
    IpcGetMemHandle,
    IpcOpenMemHandle,
    IpcCloseMemHandle,
    ExtGetHandleKinds,
    ExtMallocShared,
    ExtGetSharedHandle,
    ExtOpenSharedHandle,
    ExtFreeShared,
    StreamCreate,
    StreamCreateWithFlags,
    ExtStreamCreateWithCUMask,
    StreamDestroy,
    StreamQuery,
    StreamSynchronize,
    StreamWaitEvent,
    LaunchHostFunc,
    EventCreate,
    EventCreateWithFlags,
    EventRecord,
    EventQuery,
    EventSynchronize,
    EventElapsedTime,
    EventDestroy,
    LaunchKernel,
    ExtLaunchKernel,
    FuncGetAttributes,
    FuncSetAttribute,
    StreamBeginCapture,
    StreamEndCapture,
    StreamGetCaptureInfo_v2,
    ThreadExchangeStreamCaptureMode,
    GraphAddHostNode,
    GraphInstantiate,
    GraphLaunch,
    GraphExecDestroy,
    GraphDestroy,
};

}  // namespace hcccrt::cpu
