/* hcccrt.h: one interface to the runtimes of CUDA, of HIP and of the CPU. Plain C.
 *
 * Generated from runtime/device/calls.toml; docs/device-layer.md is its page. Names are CUDA's and
 * HIP's with `hcccrt` for `cuda` and `hip` (HetCCL-SNU §4.2, Fig. 10). Neither runtime is linked: the
 * one that a platform needs is looked for when the platform is first used.
 *
 * Handles, device pointers and kernels belong to the platform that made them, and on CUDA and HIP are
 * those of the runtime: use them while the calling thread has that platform.
 */
#ifndef HCCCRT_H
#define HCCCRT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HCCCRT_API __attribute__((visibility("default")))

/* What every call returns. Codes from 100000 are 100000 + a code of CUDA, from 200000 are
 * 200000 + a code of HIP, for which there is none here. */
typedef enum hcccrtError {
  hcccrtSuccess = 0, /* no error */
  hcccrtErrorInvalidValue = 1, /* an argument has a value that it cannot have */
  hcccrtErrorMemoryAllocation = 2, /* there is not enough memory */
  hcccrtErrorInitializationError = 3, /* the platform could not be started, or a process that was forked after it was uses it */
  hcccrtErrorInvalidConfiguration = 9, /* the device cannot have such a grid or such blocks */
  hcccrtErrorInvalidDevicePointer = 17, /* a pointer is not to memory of the device layer */
  hcccrtErrorInvalidMemcpyDirection = 21, /* there is no such direction to copy in */
  hcccrtErrorInsufficientDriver = 35, /* the driver is missing, or older than the runtime */
  hcccrtErrorInvalidDeviceFunction = 98, /* a function is no kernel of the device */
  hcccrtErrorNoDevice = 100, /* the platform has no device */
  hcccrtErrorInvalidDevice = 101, /* there is no device of this number, or a device stands where another must */
  hcccrtErrorDeviceUninitialized = 201, /* the device has no context */
  hcccrtErrorMapBufferObjectFailed = 205, /* memory of another process could not be mapped: that process has ended, freed it, or belongs to another user */
  hcccrtErrorNoKernelImageForDevice = 209, /* a kernel was not compiled for the device */
  hcccrtErrorECCUncorrectable = 214, /* memory of the device has an error that cannot be corrected */
  hcccrtErrorUnsupportedLimit = 215, /* the device has no such limit */
  hcccrtErrorPeerAccessUnsupported = 217, /* a device cannot reach memory of the other */
  hcccrtErrorOperatingSystem = 304, /* the operating system refused something */
  hcccrtErrorInvalidResourceHandle = 400, /* a handle is of nothing that there is, or of another device */
  hcccrtErrorIllegalState = 401, /* something is not in a state in which this can be done */
  hcccrtErrorSymbolNotFound = 500, /* something named was not found */
  hcccrtErrorNotReady = 600, /* work that was asked about has not completed; no failure, and not kept as the last error */
  hcccrtErrorIllegalAddress = 700, /* a kernel touched memory that it must not; the device is lost until it is reset */
  hcccrtErrorLaunchOutOfResources = 701, /* a kernel needs more registers or shared memory than the device has */
  hcccrtErrorLaunchTimeout = 702, /* a kernel ran too long; the device is lost until it is reset */
  hcccrtErrorPeerAccessAlreadyEnabled = 704, /* access to the peer was enabled before */
  hcccrtErrorPeerAccessNotEnabled = 705, /* access to the peer is not enabled */
  hcccrtErrorContextIsDestroyed = 709, /* the device's context is gone */
  hcccrtErrorAssert = 710, /* an assertion in a kernel failed; the device is lost until it is reset */
  hcccrtErrorHostMemoryAlreadyRegistered = 712, /* host memory is registered already */
  hcccrtErrorHostMemoryNotRegistered = 713, /* host memory is not registered */
  hcccrtErrorLaunchFailure = 719, /* a kernel failed; the device is lost until it is reset */
  hcccrtErrorCooperativeLaunchTooLarge = 720, /* the blocks of a cooperative launch cannot run at once */
  hcccrtErrorNotPermitted = 800, /* this cannot be done here, as inside a host function */
  hcccrtErrorNotSupported = 801, /* the platform has no such call, flag or attribute */
  hcccrtErrorSystemNotReady = 802, /* the system's fabric has not been started */
  hcccrtErrorStreamCaptureUnsupported = 900, /* this cannot be done while a stream is captured */
  hcccrtErrorStreamCaptureInvalidated = 901, /* an earlier error ended the capture */
  hcccrtErrorStreamCaptureMerge = 902, /* two captures would have become one */
  hcccrtErrorStreamCaptureUnmatched = 903, /* a capture was not begun in this stream */
  hcccrtErrorStreamCaptureUnjoined = 904, /* work of another stream was not joined to the one in which the capture began */
  hcccrtErrorStreamCaptureIsolation = 905, /* captured work would have depended on work outside the capture */
  hcccrtErrorStreamCaptureImplicit = 906, /* the default stream would have waited for a stream that is captured */
  hcccrtErrorCapturedEvent = 907, /* an event was last recorded in a capture */
  hcccrtErrorStreamCaptureWrongThread = 908, /* another thread began the capture */
  hcccrtErrorUnknown = 999, /* an unknown error */
  hcccrtErrorPlatformUnavailable = 9001 /* the platform is not on this machine: hcccrtGetPlatformMessage says why */
} hcccrtError_t;

/* Whose runtime calls go to. */
typedef enum hcccrtPlatform {
  hcccrtPlatformNone = 0, /* none chosen yet */
  hcccrtPlatformCPU = 1, /* the CPU implementation, always there */
  hcccrtPlatformCUDA = 2, /* NVIDIA's runtime */
  hcccrtPlatformHIP = 3 /* AMD's runtime */
} hcccrtPlatform_t;

/* From where to where memory is copied. */
typedef enum hcccrtMemcpyKind {
  hcccrtMemcpyHostToHost = 0, /* within the host */
  hcccrtMemcpyHostToDevice = 1, /* host to device */
  hcccrtMemcpyDeviceToHost = 2, /* device to host */
  hcccrtMemcpyDeviceToDevice = 3, /* device to device, of one or of two */
  hcccrtMemcpyDefault = 4 /* as the pointers say */
} hcccrtMemcpyKind_t;

/* What a pointer is to. */
typedef enum hcccrtMemoryType {
  hcccrtMemoryTypeUnregistered = 0, /* memory that the device layer does not know */
  hcccrtMemoryTypeHost = 1, /* host memory allocated or registered here */
  hcccrtMemoryTypeDevice = 2, /* device memory, also that of another process */
  hcccrtMemoryTypeManaged = 3 /* memory of host and device */
} hcccrtMemoryType_t;

/* How a stream is. */
typedef enum hcccrtStreamFlag {
  hcccrtStreamDefault = 0, /* ordered with the default stream */
  hcccrtStreamNonBlocking = 1 /* not ordered with the default stream */
} hcccrtStreamFlag_t;

/* How an event is. */
typedef enum hcccrtEventFlag {
  hcccrtEventDefault = 0, /* takes the time */
  hcccrtEventBlockingSync = 1, /* who waits sleeps (on the CPU always) */
  hcccrtEventDisableTiming = 2, /* takes no time */
  hcccrtEventInterprocess = 4, /* for other processes; only with EventDisableTiming */
  hcccrtEventReleaseToSystem = 0x40000000 /* releases to all devices and the host */
} hcccrtEventFlag_t;

/* How host memory is allocated. */
typedef enum hcccrtHostAllocFlag {
  hcccrtHostAllocDefault = 0, /* page-locked */
  hcccrtHostAllocPortable = 1, /* for all devices */
  hcccrtHostAllocMapped = 2, /* devices address it */
  hcccrtHostAllocWriteCombined = 4, /* the host writes it only */
  hcccrtHostAllocNumaUser = 0x20000000, /* where the caller's NUMA policy says */
  hcccrtHostAllocCoherent = 0x40000000 /* coherent while kernels run */
} hcccrtHostAllocFlag_t;

/* How host memory is registered. */
typedef enum hcccrtHostRegisterFlag {
  hcccrtHostRegisterDefault = 0, /* page-locked */
  hcccrtHostRegisterPortable = 1, /* for all devices */
  hcccrtHostRegisterMapped = 2, /* devices address it */
  hcccrtHostRegisterIoMemory = 4, /* it is memory of another device */
  hcccrtHostRegisterReadOnly = 8 /* devices read it only */
} hcccrtHostRegisterFlag_t;

/* Who reaches managed memory. */
typedef enum hcccrtMemAttachFlag {
  hcccrtMemAttachGlobal = 1, /* every stream of every device */
  hcccrtMemAttachHost = 2 /* the host, until it is attached otherwise */
} hcccrtMemAttachFlag_t;

/* What kind of device memory is allocated. On CUDA all device memory is coherent, so that all
 * but signals are plain. */
typedef enum hcccrtExtMallocFlag {
  hcccrtExtMallocDefault = 0, /* plain */
  hcccrtExtMallocFinegrained = 1, /* coherent while kernels run */
  hcccrtExtMallocSignal = 2, /* 8 bytes for one signal */
  hcccrtExtMallocUncached = 3 /* bypasses the device's caches */
} hcccrtExtMallocFlag_t;

/* How memory of another process is opened. */
typedef enum hcccrtIpcMemFlag {
  hcccrtIpcMemLazyEnablePeerAccess = 1 /* peer access is enabled where it is needed */
} hcccrtIpcMemFlag_t;

/* By what memory that can be shared goes to another process. The greater, the better. */
typedef enum hcccrtHandleKind {
  hcccrtHandleLegacy = 1, /* as hcccrtIpcGetMemHandle: bytes */
  hcccrtHandleDescriptor = 2, /* a descriptor of the operating system, which the processes of a host pass to each other */
  hcccrtHandleFabric = 4 /* bytes, for all processes of an NVLink fabric that have its channel */
} hcccrtHandleKind_t;

/* What can be limited on a device. */
typedef enum hcccrtLimit {
  hcccrtLimitStackSize = 0, /* bytes of stack of a thread; on the CPU of workers that start later */
  hcccrtLimitPrintfFifoSize = 1, /* bytes for what kernels print */
  hcccrtLimitMallocHeapSize = 2 /* bytes that kernels may allocate */
} hcccrtLimit_t;

/* What can be set of a kernel. */
typedef enum hcccrtFuncAttribute {
  hcccrtFuncAttributeMaxDynamicSharedMemorySize = 8, /* the most bytes of shared memory that a launch may ask for */
  hcccrtFuncAttributePreferredSharedMemoryCarveout = 9 /* the share of shared memory, in percent; a hint */
} hcccrtFuncAttribute_t;

/* What a thread may not do while streams are captured. */
typedef enum hcccrtStreamCaptureMode {
  hcccrtStreamCaptureModeGlobal = 0, /* unsafe calls of all threads are refused */
  hcccrtStreamCaptureModeThreadLocal = 1, /* unsafe calls of the capturing thread are refused */
  hcccrtStreamCaptureModeRelaxed = 2 /* none are refused */
} hcccrtStreamCaptureMode_t;

/* Whether a stream is captured. */
typedef enum hcccrtStreamCaptureStatus {
  hcccrtStreamCaptureStatusNone = 0, /* it is not */
  hcccrtStreamCaptureStatusActive = 1, /* it is */
  hcccrtStreamCaptureStatusInvalidated = 2 /* it was until an error */
} hcccrtStreamCaptureStatus_t;

/* What joins two devices. */
typedef enum hcccrtLinkType {
  hcccrtLinkTypeHyperTransport = 0, /* HyperTransport */
  hcccrtLinkTypeQPI = 1, /* QPI */
  hcccrtLinkTypePCIe = 2, /* PCI Express */
  hcccrtLinkTypeInfiniBand = 3, /* InfiniBand */
  hcccrtLinkTypeXGMI = 4, /* XGMI */
  hcccrtLinkTypeMemory = 100 /* the same memory: devices of the CPU */
} hcccrtLinkType_t;

/* What may be asked about a device, as a number. */
typedef enum hcccrtDeviceAttr {
  hcccrtDevAttrMaxThreadsPerBlock = 1, /* threads of a block, at most */
  hcccrtDevAttrMaxBlockDimX = 2, /* width of a block, at most */
  hcccrtDevAttrMaxBlockDimY = 3, /* height of a block, at most */
  hcccrtDevAttrMaxBlockDimZ = 4, /* depth of a block, at most */
  hcccrtDevAttrMaxGridDimX = 5, /* width of a grid, at most */
  hcccrtDevAttrMaxGridDimY = 6, /* height of a grid, at most */
  hcccrtDevAttrMaxGridDimZ = 7, /* depth of a grid, at most */
  hcccrtDevAttrMaxSharedMemoryPerBlock = 8, /* bytes of shared memory of a block */
  hcccrtDevAttrWarpSize = 10, /* threads of a warp */
  hcccrtDevAttrMaxRegistersPerBlock = 12, /* registers of a block */
  hcccrtDevAttrClockRate = 13, /* kHz */
  hcccrtDevAttrMultiProcessorCount = 16, /* multiprocessors, compute units; on the CPU processors that the process may use */
  hcccrtDevAttrIntegrated = 18, /* its memory is the host's */
  hcccrtDevAttrCanMapHostMemory = 19, /* it addresses host memory */
  hcccrtDevAttrComputeMode = 20, /* who may use it */
  hcccrtDevAttrConcurrentKernels = 31, /* it runs several kernels at once */
  hcccrtDevAttrPciBusId = 33, /* PCI bus */
  hcccrtDevAttrPciDeviceId = 34, /* PCI device */
  hcccrtDevAttrMemoryClockRate = 36, /* kHz */
  hcccrtDevAttrGlobalMemoryBusWidth = 37, /* bits */
  hcccrtDevAttrL2CacheSize = 38, /* bytes */
  hcccrtDevAttrMaxThreadsPerMultiProcessor = 39, /* threads resident on a multiprocessor */
  hcccrtDevAttrAsyncEngineCount = 40, /* copy engines */
  hcccrtDevAttrUnifiedAddressing = 41, /* one address space with the host */
  hcccrtDevAttrPciDomainId = 50, /* PCI domain */
  hcccrtDevAttrComputeCapabilityMajor = 75, /* compute capability before the point */
  hcccrtDevAttrComputeCapabilityMinor = 76, /* compute capability after the point */
  hcccrtDevAttrStreamPrioritiesSupported = 78, /* streams have priorities */
  hcccrtDevAttrMaxSharedMemoryPerMultiprocessor = 81, /* bytes of shared memory of a multiprocessor */
  hcccrtDevAttrManagedMemory = 83, /* it has managed memory */
  hcccrtDevAttrHostNativeAtomicSupported = 86, /* host and device share atomics */
  hcccrtDevAttrPageableMemoryAccess = 88, /* it reads memory that nobody registered */
  hcccrtDevAttrConcurrentManagedAccess = 89, /* managed memory at the same time as the host */
  hcccrtDevAttrCooperativeLaunch = 95, /* it has cooperative launches */
  hcccrtDevAttrMaxSharedMemoryPerBlockOptin = 97, /* bytes of shared memory that a kernel may be given */
  hcccrtDevAttrHostRegisterSupported = 99, /* host memory can be registered */
  hcccrtDevAttrGPUDirectRDMASupported = 116, /* NICs reach its memory */
  hcccrtDevAttrWallClockRate = 10017, /* kHz of the counter that kernels read */
  hcccrtDevAttrFineGrainSupport = 10016 /* it has fine-grained memory */
} hcccrtDeviceAttr_t;

/* A queue of work that runs in order. 0 is the default stream. On CUDA and HIP it is their
 * handle: their streams can be passed as they are. */
typedef struct hcccrtStream_st *hcccrtStream_t;
/* A point in a stream. */
typedef struct hcccrtEvent_st *hcccrtEvent_t;
/* Work and what it waits for, to be launched as a whole. */
typedef struct hcccrtGraph_st *hcccrtGraph_t;
/* A graph that can be launched. */
typedef struct hcccrtGraphExec_st *hcccrtGraphExec_t;
/* One piece of work of a graph. */
typedef struct hcccrtGraphNode_st *hcccrtGraphNode_t;

/* A function of the host that is called in a stream. */
typedef void (*hcccrtHostFn_t)(void *user_data);

/* Blocks of a grid, or threads of a block. */
typedef struct hcccrtDim3 {
  unsigned x;
  unsigned y;
  unsigned z;
} hcccrtDim3;

/* Memory of a process, as bytes that can be sent to another of the same machine and platform. */
typedef struct hcccrtIpcMemHandle_t {
  char reserved[64];
} hcccrtIpcMemHandle_t;

/* What a device is. */
typedef struct hcccrtDeviceProp {
  char name[256];
  char arch[64]; /* sm_90, gfx942, the machine's name for the CPU */
  size_t totalGlobalMem; /* bytes */
  size_t sharedMemPerBlock; /* bytes */
  int major; /* compute capability */
  int minor;
  int multiProcessorCount;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int clockRate; /* kHz; 0: not known */
  int memoryClockRate; /* kHz; 0: not known */
  int memoryBusWidth; /* bits; 0: not known */
  int l2CacheSize; /* bytes; 0: not known */
  int pciDomainID;
  int pciBusID;
  int pciDeviceID;
  int integrated;
  int canMapHostMemory;
  int unifiedAddressing;
  int managedMemory;
  int cooperativeLaunch;
} hcccrtDeviceProp;

/* What a pointer is to. */
typedef struct hcccrtPointerAttributes {
  hcccrtMemoryType_t type;
  int device; /* where it was allocated or registered; -1 where nobody knows */
  void *devicePointer; /* as the device addresses it; null: not at all */
  void *hostPointer; /* as the host addresses it; null: not at all */
} hcccrtPointerAttributes;

/* What a kernel is. */
typedef struct hcccrtFuncAttributes {
  size_t sharedSizeBytes; /* static shared memory of a block */
  size_t constSizeBytes;
  size_t localSizeBytes; /* of a thread */
  int maxThreadsPerBlock;
  int numRegs;
  int binaryVersion;
  int maxDynamicSharedSizeBytes;
  int preferredShmemCarveout;
} hcccrtFuncAttributes;

/* What a host node of a graph calls. */
typedef struct hcccrtHostNodeParams {
  hcccrtHostFn_t fn;
  void *userData;
} hcccrtHostNodeParams;

/* Where a block of a kernel of the CPU is, and its shared memory, which is zero when it begins. */
typedef struct hcccrtCpuBlock {
  hcccrtDim3 grid_dim, block_dim, block_idx;
  void *shared; /* static and dynamic shared memory, aligned to 64 bytes */
  size_t shared_bytes;
} hcccrtCpuBlock;

#define HCCCRT_CPU_KERNEL 0x68636b31u /* the first word of every hcccrtCpuKernel */

/* A kernel of the CPU; its address is what hcccrtLaunchKernel takes. Static, as kernels are. */
typedef struct hcccrtCpuKernel {
  unsigned magic; /* HCCCRT_CPU_KERNEL */
  int max_threads_per_block; /* 0: as many as the device allows */
  int (*fn)(const hcccrtCpuBlock *block, void **arguments);
  size_t shared_bytes; /* static shared memory of a block */
  int n_arguments;
  const size_t *argument_bytes; /* the size of each: they are copied at the launch */
} hcccrtCpuKernel;

/* ---- Platforms ----
 * A platform is chosen per thread, as a device is. A thread that chooses none has the
 * process's: what HCCC_PLATFORM names (cpu, cuda, hip), else CUDA where it has a device, else
 * HIP, else the CPU; found once.
 */

/* The platforms that this machine has: bit `1 << hcccrtPlatformX` of each. */
HCCCRT_API hcccrtError_t hcccrtGetAvailablePlatforms(unsigned *mask);

/* The platform of the calling thread's later calls. hcccrtErrorPlatformUnavailable changes
 * nothing. */
HCCCRT_API hcccrtError_t hcccrtSetPlatform(hcccrtPlatform_t platform);

/* The calling thread takes the process's platform again. */
HCCCRT_API hcccrtError_t hcccrtSetPlatformAuto(void);

/* The platform that the calling thread's calls go to. */
HCCCRT_API hcccrtError_t hcccrtGetPlatform(hcccrtPlatform_t *platform);

/* What was found of a platform: the library and its version, or why it cannot be used. At most
 * `bytes` with the final zero. */
HCCCRT_API hcccrtError_t hcccrtGetPlatformMessage(hcccrtPlatform_t platform, char *text, int bytes);

/* ---- Errors ----
 * Every call but these keeps what it returns as its thread's last error, unless it is
 * hcccrtSuccess or hcccrtErrorNotReady. A device that is lost returns the same error from every
 * call until hcccrtDeviceReset.
 */

/* What an error means. Never null, never to be freed. */
HCCCRT_API const char *hcccrtGetErrorString(hcccrtError_t error);

/* The thread's last error, which is then forgotten. That of a lost device stays. */
HCCCRT_API hcccrtError_t hcccrtGetLastError(void);

/* The thread's last error, which is kept. */
HCCCRT_API hcccrtError_t hcccrtPeekAtLastError(void);

/* ---- Devices ----
 * The CPU has as many devices as HCCC_CPU_DEVICES says (1 to 64; by default 1), all with the
 * same processors and memory.
 */

/* How many devices the platform has. */
HCCCRT_API hcccrtError_t hcccrtGetDeviceCount(int *count);

/* The calling thread's device, 0 until it is set. */
HCCCRT_API hcccrtError_t hcccrtGetDevice(int *device);

/* The device of the calling thread's later calls. */
HCCCRT_API hcccrtError_t hcccrtSetDevice(int device);

/* One number about a device. */
HCCCRT_API hcccrtError_t hcccrtDeviceGetAttribute(int *value, hcccrtDeviceAttr_t attr, int device);

/* What a device is. Numbers that a runtime does not have are 0. */
HCCCRT_API hcccrtError_t hcccrtGetDeviceProperties(hcccrtDeviceProp *properties, int device);

/* A device's PCI address, `0000:3b:00.0`. Those of CPU devices are in the domain ffff, which no
 * machine has. */
HCCCRT_API hcccrtError_t hcccrtDeviceGetPCIBusId(char *id, int bytes, int device);

/* The device at a PCI address. */
HCCCRT_API hcccrtError_t hcccrtDeviceGetByPCIBusId(int *device, const char *id);

/* Whether a device can address memory of another; 0 for itself. */
HCCCRT_API hcccrtError_t hcccrtDeviceCanAccessPeer(int *can, int device, int peer);

/* The calling thread's device may address memory of the peer from now on. flags: 0. */
HCCCRT_API hcccrtError_t hcccrtDeviceEnablePeerAccess(int peer, unsigned flags);

/* Sets a limit of the device. */
HCCCRT_API hcccrtError_t hcccrtDeviceSetLimit(hcccrtLimit_t limit, size_t value);

/* Waits for all work of the device. */
HCCCRT_API hcccrtError_t hcccrtDeviceSynchronize(void);

/* Ends all work of the device, which begins anew: its memory, streams, events and graphs are
 * gone, its lost state too. On the CPU work that has not begun is dropped, and no thread, file
 * or mapping of the device is left. */
HCCCRT_API hcccrtError_t hcccrtDeviceReset(void);

/* What joins two devices, hcccrtLinkTypeX, and over how many hops. */
HCCCRT_API hcccrtError_t hcccrtExtGetLinkTypeAndHopCount(
    int device, int peer, unsigned *link_type, unsigned *hops);

/* ---- Memory ----
 * Device memory of the CPU is shared memory, so that hcccrtIpcGetMemHandle works. Pointers are
 * aligned to 256 bytes at least on every platform.
 */

/* Device memory. 0 bytes: null. */
HCCCRT_API hcccrtError_t hcccrtMalloc(void **pointer, size_t bytes);

/* Device memory of one kind, hcccrtExtMallocX. */
HCCCRT_API hcccrtError_t hcccrtExtMallocWithFlags(void **pointer, size_t bytes, unsigned flags);

/* Memory of host and device. */
HCCCRT_API hcccrtError_t hcccrtMallocManaged(void **pointer, size_t bytes, unsigned flags);

/* Frees device or managed memory; null is nothing. On the CPU it waits for all work of the
 * device that the memory is of. */
HCCCRT_API hcccrtError_t hcccrtFree(void *pointer);

/* Page-locked host memory (CUDA's name). */
HCCCRT_API hcccrtError_t hcccrtMallocHost(void **pointer, size_t bytes);

/* Frees host memory, whichever of the calls allocated it (CUDA's name); null is nothing. */
HCCCRT_API hcccrtError_t hcccrtFreeHost(void *pointer);

/* Page-locked host memory of one kind (CUDA's name). */
HCCCRT_API hcccrtError_t hcccrtHostAlloc(void **pointer, size_t bytes, unsigned flags);

/* The same (HIP's name). */
HCCCRT_API hcccrtError_t hcccrtHostMalloc(void **pointer, size_t bytes, unsigned flags);

/* Frees host memory (HIP's name). */
HCCCRT_API hcccrtError_t hcccrtHostFree(void *pointer);

/* Host memory that was allocated elsewhere becomes page-locked and, where the device can,
 * addressable. */
HCCCRT_API hcccrtError_t hcccrtHostRegister(void *pointer, size_t bytes, unsigned flags);

/* Undoes hcccrtHostRegister of the same pointer. */
HCCCRT_API hcccrtError_t hcccrtHostUnregister(void *pointer);

/* How the device addresses host memory. flags: 0. */
HCCCRT_API hcccrtError_t hcccrtHostGetDevicePointer(
    void **device_pointer, void *host_pointer, unsigned flags);

/* What a pointer is to; any pointer may be asked about. */
HCCCRT_API hcccrtError_t hcccrtPointerGetAttributes(
    hcccrtPointerAttributes *attributes, const void *pointer);

/* Copies in the default stream and waits. */
HCCCRT_API hcccrtError_t hcccrtMemcpy(
    void *to, const void *from, size_t bytes, hcccrtMemcpyKind_t kind);

/* Copies in a stream. Host memory that is not page-locked may be used again when the call
 * returns. */
HCCCRT_API hcccrtError_t hcccrtMemcpyAsync(
    void *to, const void *from, size_t bytes, hcccrtMemcpyKind_t kind, hcccrtStream_t stream);

/* Sets bytes of device memory in the default stream. */
HCCCRT_API hcccrtError_t hcccrtMemset(void *pointer, int value, size_t bytes);

/* Sets bytes of device memory in a stream. */
HCCCRT_API hcccrtError_t hcccrtMemsetAsync(
    void *pointer, int value, size_t bytes, hcccrtStream_t stream);

/* ---- Memory of other processes ----
 * A handle is of the whole allocation that a pointer lies in; opened, it gives the allocation's
 * first byte. On the CPU both processes must be the same user's and see each other's process
 * numbers.
 */

/* A handle of device memory, to be sent to other processes. The memory must not be freed while
 * they have it open. */
HCCCRT_API hcccrtError_t hcccrtIpcGetMemHandle(hcccrtIpcMemHandle_t *handle, void *pointer);

/* Maps memory of another process. */
HCCCRT_API hcccrtError_t hcccrtIpcOpenMemHandle(
    void **pointer, hcccrtIpcMemHandle_t handle, unsigned flags);

/* Ends what hcccrtIpcOpenMemHandle began; as often as that was called. */
HCCCRT_API hcccrtError_t hcccrtIpcCloseMemHandle(void *pointer);

/* ---- Memory that is shared by the best handle ----
 * Whole allocations that other processes map, by whichever handles a device has: CUDA's are
 * those of its driver's virtual memory, whose memory lives until the last process lets go of
 * it, where driver and device have it, HIP's legacy ones alone, for its virtual memory cannot
 * be told to be uncached on every version. What several devices touch while kernels run can be
 * touched here.
 */

/* The kinds of handles that memory of a device can have: bits of hcccrtHandleX. Fabric handles
 * only where one can be made. */
HCCCRT_API hcccrtError_t hcccrtExtGetHandleKinds(unsigned *kinds, int device);

/* Memory of the thread's device that has handles of one kind. `bytes`: at least so many; gets
 * how many there are. */
HCCCRT_API hcccrtError_t hcccrtExtMallocShared(void **pointer, size_t *bytes, unsigned kind);

/* The handle of what hcccrtExtMallocShared returned. `descriptor`: one to be closed by the
 * caller, and the bytes say nothing; -1: the bytes are the handle. */
HCCCRT_API hcccrtError_t hcccrtExtGetSharedHandle(
    hcccrtIpcMemHandle_t *handle, int *descriptor, void *pointer);

/* Maps such memory of another process, whole, for the thread's device. `bytes`: as
 * hcccrtExtMallocShared gave them. The descriptor stays the caller's. */
HCCCRT_API hcccrtError_t hcccrtExtOpenSharedHandle(
    void **pointer, const hcccrtIpcMemHandle_t *handle, int descriptor, size_t bytes,
    unsigned kind);

/* Gives back what hcccrtExtMallocShared or hcccrtExtOpenSharedHandle returned. */
HCCCRT_API hcccrtError_t hcccrtExtFreeShared(void *pointer);

/* ---- Streams ----
 * The default stream is CUDA's legacy one: its work waits for all earlier work of the device's
 * other streams and later work of these waits for it, unless they are hcccrtStreamNonBlocking.
 * On the CPU every stream has a thread, started with its first work, that sleeps when there is
 * none.
 */

/* A stream of the thread's device. */
HCCCRT_API hcccrtError_t hcccrtStreamCreate(hcccrtStream_t *stream);

/* A stream, as the flags say. */
HCCCRT_API hcccrtError_t hcccrtStreamCreateWithFlags(hcccrtStream_t *stream, unsigned flags);

/* A stream on some compute units: bit i of the 32-bit words for unit i; on the CPU the
 * processors that the process may use. */
HCCCRT_API hcccrtError_t hcccrtExtStreamCreateWithCUMask(
    hcccrtStream_t *stream, unsigned words, const unsigned *mask);

/* Gives a stream back. What is in it is done first; the call does not wait for that. */
HCCCRT_API hcccrtError_t hcccrtStreamDestroy(hcccrtStream_t stream);

/* hcccrtErrorNotReady while there is work in a stream. */
HCCCRT_API hcccrtError_t hcccrtStreamQuery(hcccrtStream_t stream);

/* Waits for all work of a stream. */
HCCCRT_API hcccrtError_t hcccrtStreamSynchronize(hcccrtStream_t stream);

/* Later work of a stream waits for an event as it was last recorded, of any device. flags: 0. */
HCCCRT_API hcccrtError_t hcccrtStreamWaitEvent(
    hcccrtStream_t stream, hcccrtEvent_t event, unsigned flags);

/* Calls a function of the host in a stream. It must not call the device layer: on the CPU that
 * returns hcccrtErrorNotPermitted. */
HCCCRT_API hcccrtError_t hcccrtLaunchHostFunc(
    hcccrtStream_t stream, hcccrtHostFn_t fn, void *user_data);

/* ---- Events ----
 * An event that was never recorded counts as completed.
 */

/* An event of the thread's device. */
HCCCRT_API hcccrtError_t hcccrtEventCreate(hcccrtEvent_t *event);

/* An event, as the flags say. */
HCCCRT_API hcccrtError_t hcccrtEventCreateWithFlags(hcccrtEvent_t *event, unsigned flags);

/* The event is at the end of what is in the stream now, which must be of the event's device. */
HCCCRT_API hcccrtError_t hcccrtEventRecord(hcccrtEvent_t event, hcccrtStream_t stream);

/* hcccrtErrorNotReady until the event has been reached. */
HCCCRT_API hcccrtError_t hcccrtEventQuery(hcccrtEvent_t event);

/* Waits until the event has been reached. */
HCCCRT_API hcccrtError_t hcccrtEventSynchronize(hcccrtEvent_t event);

/* The time between two events that take it. */
HCCCRT_API hcccrtError_t hcccrtEventElapsedTime(
    float *milliseconds, hcccrtEvent_t start, hcccrtEvent_t stop);

/* Gives an event back. Who waits for it goes on waiting. */
HCCCRT_API hcccrtError_t hcccrtEventDestroy(hcccrtEvent_t event);

/* ---- Kernels ----
 * A kernel of the CPU is an hcccrtCpuKernel, whose address is passed as `function`: a function
 * that is called once for each block, one block after another, in the stream's thread. It
 * returns 0, or the device is lost with hcccrtErrorLaunchFailure. Arguments are copied when it
 * is launched.
 */

/* Launches a kernel; arguments[i] is the address of argument i. */
HCCCRT_API hcccrtError_t hcccrtLaunchKernel(
    const void *function, hcccrtDim3 grid, hcccrtDim3 block, void **arguments,
    size_t shared_bytes, hcccrtStream_t stream);

/* Launches a kernel between two events, either of which may be null. flags: 0; 1 on HIP lets it
 * overtake. */
HCCCRT_API hcccrtError_t hcccrtExtLaunchKernel(
    const void *function, hcccrtDim3 grid, hcccrtDim3 block, void **arguments,
    size_t shared_bytes, hcccrtStream_t stream, hcccrtEvent_t start, hcccrtEvent_t stop,
    int flags);

/* What a kernel is. */
HCCCRT_API hcccrtError_t hcccrtFuncGetAttributes(
    hcccrtFuncAttributes *attributes, const void *function);

/* Sets what a kernel may have. */
HCCCRT_API hcccrtError_t hcccrtFuncSetAttribute(
    const void *function, hcccrtFuncAttribute_t attribute, int value);

/* ---- Graphs ----
 * What is put into a stream between hcccrtStreamBeginCapture and hcccrtStreamEndCapture does
 * not run but becomes a graph; streams that wait for its events join the capture. The CPU runs
 * a graph's nodes one after another, in an order that keeps what they wait for.
 */

/* Begins to capture a stream, which must not be the default stream. */
HCCCRT_API hcccrtError_t hcccrtStreamBeginCapture(
    hcccrtStream_t stream, hcccrtStreamCaptureMode_t mode);

/* Ends a capture in the stream in which it began; null where it failed. */
HCCCRT_API hcccrtError_t hcccrtStreamEndCapture(hcccrtStream_t stream, hcccrtGraph_t *graph);

/* Whether a stream is captured, into what, and the nodes that its next work will wait for,
 * until it gets any. All but status may be null. */
HCCCRT_API hcccrtError_t hcccrtStreamGetCaptureInfo_v2(
    hcccrtStream_t stream, hcccrtStreamCaptureStatus_t *status, unsigned long long *id,
    hcccrtGraph_t *graph, const hcccrtGraphNode_t **dependencies, size_t *n_dependencies);

/* Sets what the calling thread may do while streams are captured, and returns what it was. */
HCCCRT_API hcccrtError_t hcccrtThreadExchangeStreamCaptureMode(hcccrtStreamCaptureMode_t *mode);

/* Adds a call of a host function to a graph, also to one that is being captured. */
HCCCRT_API hcccrtError_t hcccrtGraphAddHostNode(
    hcccrtGraphNode_t *node, hcccrtGraph_t graph, const hcccrtGraphNode_t *dependencies,
    size_t n_dependencies, const hcccrtHostNodeParams *params);

/* Makes a graph as it is now ready to be launched. flags: 0. */
HCCCRT_API hcccrtError_t hcccrtGraphInstantiate(
    hcccrtGraphExec_t *exec, hcccrtGraph_t graph, unsigned long long flags);

/* Launches a graph in a stream. Launches of one exec follow each other. */
HCCCRT_API hcccrtError_t hcccrtGraphLaunch(hcccrtGraphExec_t exec, hcccrtStream_t stream);

/* Gives an exec back; a launch that runs goes on. */
HCCCRT_API hcccrtError_t hcccrtGraphExecDestroy(hcccrtGraphExec_t exec);

/* Gives a graph back; its execs stay. */
HCCCRT_API hcccrtError_t hcccrtGraphDestroy(hcccrtGraph_t graph);

#ifdef __cplusplus
}
#endif
#endif
