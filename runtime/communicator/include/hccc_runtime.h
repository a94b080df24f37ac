/* hccc_runtime.h: collectives between processes, compiled by hccc. Plain C.
 *
 * The names are NCCL's with `hccc` for `nccl`, and mean the same; numbers of data types and
 * reductions are NCCL's. A communicator is a number of ranks, each in a process or thread of its own,
 * that meet by an hcccUniqueId or by what torchrun, mpirun and srun put into the environment. It runs
 * libraries of kernels, which `hccc algo.rccl -o kernels/` emits and a C++ compiler builds: every rank
 * loads the same ones, in one order.
 *
 *     hcccUniqueId id;                                     // at rank 0, told to the others
 *     hcccGetUniqueId(&id);
 *     hcccComm_t comm;
 *     hcccCommInitRank(&comm, n_ranks, id, rank);          // or hcccCommInitEnvironment(&comm)
 *     hcccCommLoad(comm, "kernels/build/liballreduce.so");
 *     float *x;
 *     hcccMemAlloc((void **)&x, bytes);                    // memory that peers reach: nothing is copied
 *     hcccAllReduce(x, x, count, hcccFloat32, hcccSum, comm, NULL);
 *     hcccMemFree(x);
 *     hcccCommDestroy(comm);
 *
 * Calls. All ranks make the same calls in the same order. Which plan of which library runs is picked
 * by collective, root, type and size: the library that was loaded last of those that fit. A rank that
 * calls anything else, and a rank that ends, is an error at every rank, as is one that does not come
 * within HCCC_TIMEOUT seconds (600; 0: however long). After an error the communicator is lost:
 * hcccGetLastError says why, every call returns the error, hcccCommDestroy or hcccCommAbort ends
 * it, and a new one can be made. Contents of buffers are then undefined.
 *
 * Streams. `stream` is a stream of the device layer's CPU platform (hcccrt.h, an hcccrtStream_t): the
 * call is checked, put into the stream, and runs when the stream comes to it. What goes wrong then is
 * told by hcccCommGetAsyncError and every later call. Calls of one communicator run in the order in
 * which they were made, whatever their streams; those of different communicators at the same time. A
 * stream that is captured puts the call into its graph. Null: the call returns when this rank's part is
 * done; it is ordered with the communicator's other calls, and with no stream.
 *
 * Memory. What hcccMemAlloc returns is shared by the processes of a host, so kernels of one rank read
 * and write buffers of another. Other memory is copied into such memory and back (HCCC_DEBUG=INFO
 * says so), unless all ranks are threads of one process. A buffer must not be freed, nor a process end,
 * while a call uses it.
 *
 * GPUs. With HCCC_PLATFORM=cuda or hip, or HCCC_HEAP=device, what hcccMemAlloc returns is memory of the
 * device that the calling thread has set, shared by the best handles that it has (HCCC_HANDLES), and a
 * communicator is of that device. It runs libraries for the device's platform: `stream` is then the platform's
 * own, null its default stream, and a call returns when it is in the stream. Buffers may be any memory of
 * the device; what is not of hcccMemAlloc is copied. Ranks are of one host.
 *
 * Hosts. Ranks of other hosts are reached by UCX, which is looked for at run time (docs/network-transport.md),
 * and by libraries that were compiled for a cluster of nodes.
 *
 * Threads. A communicator serves one call at a time; other threads wait. One thread may have several
 * ranks, with calls in streams or groups. hcccCommAbort may be called
 * from any thread, at any time. Children of fork() must not use what their parent made.
 *
 * Environment. HCCC_DEBUG (VERSION, WARN, INFO, TRACE), HCCC_DEBUG_SUBSYS (a list of INIT, COLL, MEM,
 * NET, ALL; ^ means all but these), HCCC_DEBUG_FILE (%h the host, %p the process), HCCC_TIMEOUT,
 * HCCC_HEAP (host, device), HCCC_HEAP_BYTES (most memory of hcccMemAlloc; what the machine has), HCCC_HANDLES
 * (fabric, descriptor, legacy), HCCC_SCRATCH_BYTES (of a device's communicator), HCCC_CPU_WORKERS (threads of a
 * call; as many as the ranks of the host leave cores).
 */
#ifndef HCCC_RUNTIME_H
#define HCCC_RUNTIME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HCCC_RUNTIME_VERSION 100 /* 0.1.0 */

typedef enum {
  hcccSuccess = 0,
  hcccUnhandledDeviceError = 1,
  hcccSystemError = 2,     /* the system refused: memory, threads, files */
  hcccInternalError = 3,   /* a bug of hccc */
  hcccInvalidArgument = 4, /* what was given makes no sense; the communicator goes on */
  hcccInvalidUsage = 5,    /* ranks call different things, or no library fits */
  hcccRemoteError = 6,     /* another rank is gone, or gave up */
  hcccInProgress = 7,
  hcccTimeout = 8,         /* a rank did not come, or did not go on, in time */
  hcccAborted = 9          /* hcccCommAbort, here or at another rank */
} hcccResult_t;

typedef enum {
  hcccInt8 = 0,
  hcccUint8 = 1,
  hcccInt32 = 2,
  hcccUint32 = 3,
  hcccInt64 = 4,
  hcccUint64 = 5,
  hcccFloat16 = 6,
  hcccFloat32 = 7,
  hcccFloat64 = 8,
  hcccBfloat16 = 9,
  hcccFloat8e4m3 = 10,
  hcccFloat8e5m2 = 11,
  hcccNumTypes = 12
} hcccDataType_t;

typedef enum {
  hcccSum = 0,
  hcccProd = 1,
  hcccMax = 2,
  hcccMin = 3,
  hcccAvg = 4,
  hcccNumOps = 5
} hcccRedOp_t;

typedef struct hcccComm *hcccComm_t;

/* Whoever has it can join: it holds a secret. Send it by a way that others cannot read. */
typedef struct hcccUniqueId {
  char internal[128];
} hcccUniqueId;

hcccResult_t hcccGetVersion(int *version);
const char *hcccGetErrorString(hcccResult_t result);

/* The last error of a communicator, or, of null, of this thread's calls. Valid until this thread's next
 * call. Never null. */
const char *hcccGetLastError(hcccComm_t comm);

/* At one rank. The others meet there while this process lives. */
hcccResult_t hcccGetUniqueId(hcccUniqueId *id);

/* All ranks call one of these, and wait for each other, HCCC_TIMEOUT at most. */
hcccResult_t hcccCommInitRank(hcccComm_t *comm, int n_ranks, hcccUniqueId id, int rank);
hcccResult_t hcccCommInitEnvironment(hcccComm_t *comm);

/* All ranks of a communicator, in this process: comms[r] is rank r's. devices: of each, null for 0;
 * on the CPU it is nothing but what hcccCommCuDevice then returns. */
hcccResult_t hcccCommInitAll(hcccComm_t *comms, int n_ranks, const int *devices);

/* All ranks call it: those of one color get a communicator of their own, in the order of keys, then
 * ranks; those of HCCC_SPLIT_NOCOLOR get null. It has no libraries yet. config: null. */
#define HCCC_SPLIT_NOCOLOR (-1)
typedef struct hcccConfig hcccConfig_t;
hcccResult_t hcccCommSplit(hcccComm_t comm, int color, int key, hcccComm_t *made,
                           const hcccConfig_t *config);

/* Adds a library of kernels, a shared library for this machine. All ranks load the same. */
hcccResult_t hcccCommLoad(hcccComm_t comm, const char *path);

hcccResult_t hcccCommCount(hcccComm_t comm, int *count);
hcccResult_t hcccCommUserRank(hcccComm_t comm, int *rank);
hcccResult_t hcccCommCuDevice(hcccComm_t comm, int *device);
/* What its libraries are for: "cpu", "cuda" or "hip". */
hcccResult_t hcccCommPlatform(hcccComm_t comm, const char **platform);

/* Whether the communicator is lost, without waiting for anything. */
hcccResult_t hcccCommGetAsyncError(hcccComm_t comm, hcccResult_t *error);

/* hcccInProgress while a call is in a stream or runs, hcccSuccess while none is, the error of a
 * communicator that is lost. made, done: how many calls were made and are done, those of graphs not
 * counted; they end in the order in which they were made. Either may be null. Waits for nothing. */
hcccResult_t hcccCommQuery(hcccComm_t comm, unsigned long long *made, unsigned long long *done);

/* Seconds that a rank may be waited for, from the next call on; 0: however long. */
hcccResult_t hcccCommSetTimeout(hcccComm_t comm, double seconds);

/* How finely calls are cut, from the next one on: bytes of a micro-batch and micro-batches of a window;
 * 0: as the plan has it. The same at all ranks. */
hcccResult_t hcccCommSetCut(hcccComm_t comm, long long micro_batch_bytes, int window);

/* No call may be made any more; waits for those that are in streams. */
hcccResult_t hcccCommFinalize(hcccComm_t comm);

/* Ends a communicator that no thread uses, when what is in streams is done. A rank need not wait for
 * others to do so. */
hcccResult_t hcccCommDestroy(hcccComm_t comm);

/* Ends it at once: calls that run return hcccAborted, here and at every rank; streams pass over those
 * that have not begun. */
hcccResult_t hcccCommAbort(hcccComm_t comm);

/* Between the two, a thread's calls of collectives, hcccCommInitRank, hcccCommInitEnvironment,
 * hcccCommLoad and hcccCommSplit are noted; the end makes them all at once, which one thread with
 * several ranks needs, and returns the first error. A communicator made in a group is there after its
 * end. Groups may be nested: the outermost counts. Where a call in a group fails, nothing of the group
 * is done, and the end returns that error. hcccGroupCancel ends all open groups without doing anything. */
hcccResult_t hcccGroupStart(void);
hcccResult_t hcccGroupEnd(void);
hcccResult_t hcccGroupCancel(void);

/* Says that calls will use a buffer. Handles are of ranges: the same range has the same handle, and is
 * forgotten when it was deregistered as often as it was registered; ranges that overlap are refused.
 * HCCC_DEBUG=INFO says how peers reach the buffer: memory of hcccMemAlloc without copies, other memory
 * as calls do without registration. Deregister before the memory is freed. */
hcccResult_t hcccCommRegister(hcccComm_t comm, void *buffer, size_t bytes, void **handle);
hcccResult_t hcccCommDeregister(hcccComm_t comm, void *handle);

/* Streams of the CPU are those of another device layer than the one in this library: what dlopen
 * returned of it. Null: of this one. */
hcccResult_t hcccSetDeviceLayer(void *library);

/* Memory that peers reach, at a multiple of 4,096 bytes. Zeroed. */
hcccResult_t hcccMemAlloc(void **pointer, size_t bytes);
hcccResult_t hcccMemFree(void *pointer);

/* Collectives, with NCCL's buffers: `count` is that of a block, which is all of both buffers in
 * AllReduce, Broadcast and Reduce, what one rank sends in AllGather and Gather, receives in
 * ReduceScatter and Scatter, and exchanges with each other in AllToAll. In place is where NCCL has it. */
hcccResult_t hcccAllReduce(const void *send, void *receive, size_t count, hcccDataType_t type,
                           hcccRedOp_t op, hcccComm_t comm, void *stream);
hcccResult_t hcccAllGather(const void *send, void *receive, size_t send_count, hcccDataType_t type,
                           hcccComm_t comm, void *stream);
hcccResult_t hcccReduceScatter(const void *send, void *receive, size_t receive_count,
                               hcccDataType_t type, hcccRedOp_t op, hcccComm_t comm, void *stream);
hcccResult_t hcccBroadcast(const void *send, void *receive, size_t count, hcccDataType_t type,
                           int root, hcccComm_t comm, void *stream);
hcccResult_t hcccBcast(void *buffer, size_t count, hcccDataType_t type, int root, hcccComm_t comm,
                       void *stream);
hcccResult_t hcccReduce(const void *send, void *receive, size_t count, hcccDataType_t type,
                        hcccRedOp_t op, int root, hcccComm_t comm, void *stream);
hcccResult_t hcccGather(const void *send, void *receive, size_t count, hcccDataType_t type, int root,
                        hcccComm_t comm, void *stream);
hcccResult_t hcccScatter(const void *send, void *receive, size_t count, hcccDataType_t type, int root,
                         hcccComm_t comm, void *stream);
hcccResult_t hcccAllToAll(const void *send, void *receive, size_t count, hcccDataType_t type,
                          hcccComm_t comm, void *stream);

/* The collective of a library by its name, whatever it is: SendRecv and custom ones too. `op` is
 * looked at where it reduces. */
hcccResult_t hcccRun(const char *library, const void *send, void *receive, size_t count,
                     hcccDataType_t type, hcccRedOp_t op, hcccComm_t comm, void *stream);

#ifdef __cplusplus
}
#endif

#endif
