/* hccc_runtime.h: collectives between processes, compiled by hccc. Plain C.
 *
 * The names are NCCL's with `hccc` for `nccl`, and mean the same; numbers of data types and
 * reductions are NCCL's. A communicator has a number of ranks, each in a process or thread of its
 * own, which meet by an hcccUniqueId or by the variables of torchrun, mpirun and srun. Collectives
 * run libraries of kernels, which `hccc algo.rccl -o kernels/` emits and a C++ compiler builds: every
 * rank loads the same libraries in the same order. Where none does a call, a standard one is made.
 *
 *     hcccUniqueId id;                                     // at rank 0, sent to the others
 *     hcccGetUniqueId(&id);
 *     hcccComm_t comm;
 *     hcccCommInitRank(&comm, n_ranks, id, rank);          // or hcccCommInitEnvironment(&comm)
 *     hcccCommLoad(comm, "kernels/build/liballreduce.so"); // one of your own, or a standard one is made
 *     float *x;
 *     hcccMemAlloc((void **)&x, bytes);                    // memory that peers reach: nothing is copied
 *     hcccAllReduce(x, x, count, hcccFloat32, hcccSum, comm, NULL);
 *     hcccMemFree(x);
 *     hcccCommDestroy(comm);
 *
 * Calls. All ranks make the same calls in the same order. Collective, root, type and size pick the
 * library, the last loaded of those that fit, and its plan; where ranks share memory a library of
 * Broadcast or Reduce fits any root. It is an error at every rank when a
 * rank makes another call, ends, or does not make the call within HCCC_TIMEOUT seconds (600; 0: no
 * limit). After such an error the communicator is lost: hcccGetLastError says why, every call
 * returns the error, hcccCommDestroy or hcccCommAbort ends it, and a new one can be made. Contents
 * of buffers are then undefined. But on the CPUs of one host ranks agree on a call before a byte
 * moves: where one makes another call, every rank gets hcccInvalidUsage for its own, and nothing is
 * lost. A call that is refused for its arguments, or as no library is loaded and built for it, is
 * no call: nothing is lost, here or at other ranks, and the right call can be made instead.
 *
 * In place. Some ranks may call in place and others not: there, where one plan serves both, or on
 * the CPUs of one host, whose ranks in place then copy their input.
 *
 * Standard libraries. Where no loaded library does a call's collective, for its root, type and
 * reduction, on CPUs, rank 0 runs `hccc standard`, of several hosts the first rank of each: it makes
 * one of built-in algorithms, proves and builds it; the other ranks wait for that. It is kept in the
 * user's cache ($XDG_CACHE_HOME/hccc/standard), where later calls and processes find it. A platform
 * wheel has brought many, beside this library: they serve where the cache has none. Where none can
 * be made (no hccc, no compiler) the call returns hcccInvalidUsage at every rank, with the reason,
 * and nothing is lost. A call in a stream has its library made when the stream comes to it.
 *
 * Streams. `stream` is a stream of the device layer's CPU platform (hcccrt.h, an hcccrtStream_t):
 * the call is checked, put into the stream, and runs when the stream reaches it.
 * hcccCommGetAsyncError and every later call return errors that happen then. Calls of one
 * communicator run in the order in which they were made, whatever their streams, but sends and
 * receives, which only begin in it; calls of different communicators run concurrently. A stream that is captured puts the call into its graph. Null: the
 * call returns when this rank's part is done; it is ordered with the communicator's other calls,
 * and with no stream.
 *
 * Memory. hcccMemAlloc allocates memory that the processes of a host share, so that kernels of one
 * rank read and write buffers of another. Other memory is copied to such memory and back
 * (HCCC_DEBUG=INFO reports that), unless all ranks are threads of one process. A process must not
 * end, nor other memory than that of hcccMemAlloc be freed, while a call uses it.
 *
 * GPUs. With HCCC_PLATFORM=cuda or hip, or HCCC_HEAP=device, hcccMemAlloc allocates memory of the
 * calling thread's device, shared by the device's best kind of handle (HCCC_HANDLES), and a
 * communicator uses that device. It runs libraries for the device's platform: `stream` is then the
 * platform's own, null its default stream, and a call returns when it is in the stream. Buffers may
 * be any memory of the device; memory not from hcccMemAlloc is copied. All ranks are on one host.
 *
 * Hosts. Ranks of other hosts are reached by UCX, which is loaded at run time
 * (docs/network-transport.md), with libraries that were compiled for a cluster of nodes.
 *
 * Threads. A communicator serves one collective at a time; other threads wait. Sends and receives of
 * several threads go on together. One thread may have
 * several ranks, with calls in streams or groups. hcccCommAbort may be called from any thread, at
 * any time. Children of fork() have no part in their parent's communicators:
 * calls return hcccInvalidUsage, hcccCommDestroy and hcccCommAbort free what the child has of it,
 * hcccMemFree does nothing, and the parent notices none of that. A child can make its own.
 *
 * Environment. HCCC_DEBUG (VERSION, WARN, INFO, TRACE), HCCC_DEBUG_SUBSYS (a list of INIT, COLL,
 * MEM, NET, ALL; ^ means all but these), HCCC_DEBUG_FILE (%h the host, %p the process),
 * HCCC_TIMEOUT, HCCC_HEAP (host, device), HCCC_HEAP_BYTES (most memory of hcccMemAlloc; all of the
 * machine's), HCCC_HANDLES (fabric, descriptor, legacy), HCCC_SCRATCH_BYTES (of a device's
 * communicator), HCCC_CPU_WORKERS (threads of a call; the cores divided by the ranks of the host),
 * HCCC_STANDARD (0: no standard libraries), HCCC_PREBUILT (0: none of the package), HCCC_COMMAND
 * (what makes them; `hccc`), HCCC_CLUSTER (a file of `hccc profile`, by whose figures they are
 * chosen),
 * HCCC_VENDOR, HCCC_VENDOR_LIBRARY (a vendor's library for the calls it is faster at: docs/vendors.md),
 * HCCC_PEER_READS (0: receives do not read the sender's memory by process_vm_readv),
 * HCCC_NETWORK (devices that UCX uses; the interface where the ranks have met, and RDMA devices).
 */
#ifndef HCCC_RUNTIME_H
#define HCCC_RUNTIME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HCCC_RUNTIME_VERSION 200 /* 0.2.0 */

typedef enum {
  hcccSuccess = 0,
  hcccUnhandledDeviceError = 1,
  hcccSystemError = 2,     /* the system refused: memory, threads, files */
  hcccInternalError = 3,   /* a bug of hccc */
  hcccInvalidArgument = 4, /* an argument makes no sense; the communicator stays usable */
  hcccInvalidUsage = 5,    /* ranks make different calls; or no library fits, and nothing is lost */
  hcccRemoteError = 6,     /* another rank is gone, or aborted */
  hcccInProgress = 7,
  hcccTimeout = 8,         /* a rank did not make or finish a call in time */
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
  hcccInt16 = 12, /* from here on NCCL has no such types, nor such reductions */
  hcccUint16 = 13,
  hcccBool = 14,
  hcccComplex64 = 15,
  hcccComplex128 = 16,
  hcccNumTypes = 17
} hcccDataType_t;

typedef enum {
  hcccSum = 0,
  hcccProd = 1,
  hcccMax = 2,
  hcccMin = 3,
  hcccAvg = 4,
  hcccBand = 5,
  hcccBor = 6,
  hcccBxor = 7,
  hcccLand = 8,
  hcccLor = 9,
  hcccPreMulSum = 10, /* of hcccCommCan; calls take one of hcccRedOpCreatePreMulSum */
  hcccNumOps = 11,
  hcccMaxRedOp = 0x7fffffff /* hcccRedOpNamed and hcccRedOpCreatePreMulSum make others */
} hcccRedOp_t;

typedef struct hcccComm *hcccComm_t;

/* The meeting place of the ranks. It contains a secret: send it by a way that others cannot read.
 * */
typedef struct hcccUniqueId {
  char internal[128];
} hcccUniqueId;

hcccResult_t hcccGetVersion(int *version);
const char *hcccGetErrorString(hcccResult_t result);

/* Returns the last error of a communicator, or, for null, of this thread's calls. Valid until this
 * thread's next call. Never null. */
const char *hcccGetLastError(hcccComm_t comm);

/* Makes an id, at one rank, whose process the others then connect to. */
hcccResult_t hcccGetUniqueId(hcccUniqueId *id);

/* Make a communicator. All ranks call one of these, and wait for each other, HCCC_TIMEOUT at most.
 * */
hcccResult_t hcccCommInitRank(hcccComm_t *comm, int n_ranks, hcccUniqueId id, int rank);
hcccResult_t hcccCommInitEnvironment(hcccComm_t *comm);

/* Makes all ranks of a communicator in this process: comms[r] is rank r's. devices: of each, null
 * for 0; on the CPU only hcccCommCuDevice returns them. */
hcccResult_t hcccCommInitAll(hcccComm_t *comms, int n_ranks, const int *devices);

/* Makes a communicator for the ranks of each color, in the order of keys, then ranks. All ranks
 * call it; those of HCCC_SPLIT_NOCOLOR get null. It has no libraries yet. config: null. */
#define HCCC_SPLIT_NOCOLOR (-1)
typedef struct hcccConfig hcccConfig_t;
hcccResult_t hcccCommSplit(hcccComm_t comm, int color, int key, hcccComm_t *made,
                           const hcccConfig_t *config);

/* Loads a library of kernels, a shared library for this machine; or a job over several vendors' libraries, from the
 * table that `hccc compile JOB -o FILE` writes, which goes before all libraries. All ranks load the same. Whose library
 * serves a rank of a job HCCC_VENDOR and HCCC_VENDOR_LIBRARY say (docs/jobs.md). A job's call waits for what
 * its stream had before, and returns when this rank's part is done. */
hcccResult_t hcccCommLoad(hcccComm_t comm, const char *path);

/* Says what there is for a call, without making or loading anything: a library that is loaded; a
 * standard one in this user's cache or of the package; none, but the call would have it made; or
 * nothing. collective: "Allreduce", "Broadcast" ...; root: -1 where there is none. */
typedef enum { hcccCanNot = 0, hcccCanMake = 1, hcccCanLoad = 2, hcccCanNow = 3 } hcccCan_t;
hcccResult_t hcccCommCan(hcccComm_t comm, const char *collective, int root, hcccDataType_t type,
                         hcccRedOp_t op, hcccCan_t *answer);

/* Makes a reduction that adds what each rank gives times its own scalar, of an integer or floating-point type; a rank
 * may give another scalar than others. It belongs to the communicator, and to calls of this type. A scalar that is
 * immediate is read now; one of the device's memory (on the CPU any memory) when a call runs. */
typedef enum { hcccScalarDevice = 0, hcccScalarHostImmediate = 1 } hcccScalarResidence_t;
hcccResult_t hcccRedOpCreatePreMulSum(hcccRedOp_t *op, void *scalar, hcccDataType_t type,
                                      hcccScalarResidence_t residence, hcccComm_t comm);
/* Ends it; calls that were made before keep it. */
hcccResult_t hcccRedOpDestroy(hcccRedOp_t op, hcccComm_t comm);

/* Returns the reduction of a name: one of those above, or one of a program's own (`hccc compile --op`) that a
 * library has which this process has loaded. The same at all ranks; nothing is to be freed. */
hcccResult_t hcccRedOpNamed(hcccRedOp_t *op, const char *name);

/* Sets the words of the command that makes standard libraries, up to a null; null: HCCC_COMMAND, or
 * `hccc`. */
hcccResult_t hcccSetCommand(const char *const *words);

hcccResult_t hcccCommCount(hcccComm_t comm, int *count);
hcccResult_t hcccCommUserRank(hcccComm_t comm, int *rank);
hcccResult_t hcccCommCuDevice(hcccComm_t comm, int *device);
/* Returns the platform of its libraries: "cpu", "cuda" or "hip". */
hcccResult_t hcccCommPlatform(hcccComm_t comm, const char **platform);
/* Returns the host of each rank, numbered in the order of their lowest ranks, and, unless it is null,
 * whether some rank's memory is a device's. */
hcccResult_t hcccCommHosts(hcccComm_t comm, int *host_of_rank, int *any_device);
/* Returns the name of the library that its last collective ran by, as HCCC_DEBUG=INFO reports it of
 * each; "" before the first. It lives as long as the communicator. */
hcccResult_t hcccCommLibrary(hcccComm_t comm, const char **name);

/* Gathers bytes of all ranks, in host memory, by the connections through which they have met; all
 * call it. data: bytes_each of every rank, by rank; this rank's are there. */
hcccResult_t hcccCommGatherBytes(hcccComm_t comm, void *data, size_t bytes_each);

/* Returns the error of a communicator that is lost, or once that of a call in a stream that all ranks
 * refused, else hcccSuccess, without waiting. */
hcccResult_t hcccCommGetAsyncError(hcccComm_t comm, hcccResult_t *error);

/* Returns hcccInProgress while a call is in a stream or runs, else hcccSuccess, or the error of a
 * communicator that is lost, without waiting. made, done: the numbers of calls made and done,
 * without those of graphs; they end in the order in which they were made. Either may be null. */
hcccResult_t hcccCommQuery(hcccComm_t comm, unsigned long long *made, unsigned long long *done);

/* Sets how many seconds a call may wait for a rank, from the next call on; 0: no limit. */
hcccResult_t hcccCommSetTimeout(hcccComm_t comm, double seconds);

/* Sets the bytes of a micro-batch and the micro-batches of a window, from the next call on; 0: the
 * plan's. The same at all ranks. */
hcccResult_t hcccCommSetCut(hcccComm_t comm, long long micro_batch_bytes, int window);

/* Waits for all calls in streams; no further call may be made. */
hcccResult_t hcccCommFinalize(hcccComm_t comm);

/* Ends a communicator that no thread uses, after its calls in streams. It does not wait for other
 * ranks. */
hcccResult_t hcccCommDestroy(hcccComm_t comm);

/* Ends its calls at once, as hcccCommAbort does, in whatever thread, and leaves the communicator to be destroyed. */
hcccResult_t hcccCommStop(hcccComm_t comm);

/* Ends a communicator at once: running calls return hcccAborted, here and at every rank; streams
 * skip calls that have not begun. */
hcccResult_t hcccCommAbort(hcccComm_t comm);

/* Group a thread's calls of collectives, hcccCommInitRank, hcccCommInitEnvironment, hcccCommLoad
 * and hcccCommSplit: the end makes them together, as one thread with several ranks needs, and
 * returns the first error. A communicator made in a group exists after its end. Of nested groups
 * the outermost counts. Where a call in a group fails, none of the group is made, and the end
 * returns that error. hcccGroupCancel ends all open groups without making their calls. */
hcccResult_t hcccGroupStart(void);
hcccResult_t hcccGroupEnd(void);
hcccResult_t hcccGroupCancel(void);

/* Ends the open group without making its calls: hcccGroupMake makes them, in whatever thread, once, and returns as
 * hcccGroupEnd would. So a thread need not wait for them. Where a call in the group has failed it is cancelled. */
typedef struct hcccGroup *hcccGroup_t;
hcccResult_t hcccGroupDetach(hcccGroup_t *group);
hcccResult_t hcccGroupMake(hcccGroup_t group);

/* Has a function be called for each send and receive that this thread makes from now on in the open group, when that
 * is done; others of the group may not be. It is called in whatever thread moves messages, soon returns, and calls
 * nothing of this library. It is not called for what fails: the group's end returns that. Null: no function. */
hcccResult_t hcccGroupNotify(void (*function)(void *argument), void *argument);

/* Register a buffer that calls will use, and deregister it before it is freed. The same range has
 * the same handle, until it was deregistered as often as registered; other overlapping ranges are
 * refused. HCCC_DEBUG=INFO reports how peers reach the buffer: memory of hcccMemAlloc without
 * copies, other memory as calls do without registration. */
hcccResult_t hcccCommRegister(hcccComm_t comm, void *buffer, size_t bytes, void **handle);
hcccResult_t hcccCommDeregister(hcccComm_t comm, void *handle);

/* Sets the device layer of the CPU's streams, a handle of dlopen. Null: the one in this library. */
hcccResult_t hcccSetDeviceLayer(void *library);

/* Has this thread's hcccMemAlloc, and communicators that it makes or splits from now on, have the memory of a
 * device: of "cuda" or "hip", by its number; or the host's: "cpu". Null: what HCCC_HEAP says, and of a split
 * communicator its parent's, as before. So a process may have communicators of both. */
hcccResult_t hcccSetMemory(const char *platform, int device);

/* Allocate zeroed memory that peers reach, aligned to 4,096 bytes, and free it. hcccMemFree returns
 * at once, and the memory is used again when the calls that this process made before have ended, in
 * whatever streams; that of captured calls when their communicators end. hcccMemAlloc waits for
 * that where there is no other room. */
hcccResult_t hcccMemAlloc(void **pointer, size_t bytes);
hcccResult_t hcccMemFree(void *pointer);

/* Make collective calls, with NCCL's buffers: `count` is the elements of a block, which is a whole
 * buffer in AllReduce, Broadcast and Reduce, what one rank sends in AllGather and Gather, receives
 * in ReduceScatter and Scatter, and exchanges with each other rank in AllToAll. In place is as in
 * NCCL. */
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

/* Make uneven collective calls, with MPI's arguments: every block has a length of its own, zero too,
 * and a place in its buffer, both in elements; places null: one block after another. AllGatherv and
 * Gatherv receive a block of each rank, Scatterv and ReduceScatterv send one for each, AllToAllv both;
 * arguments of blocks that a rank does not have (of Gatherv and Scatterv anywhere but at the root) are ignored. The
 * arrays are read before the function returns; on a GPU they may lie in memory of the device, and the function then
 * waits until the stream comes to it, so that earlier work of the stream may write them.
 *
 * Before a byte moves, ranks tell each other their lengths. Where two ends of a block say different
 * ones, every rank gets hcccInvalidUsage, which names both, and nothing is lost (in a stream by
 * hcccCommGetAsyncError). Blocks that are received and overlap, or overlap what is sent
 * in another way than in place, and blocks beyond an allocation of hcccMemAlloc are refused with
 * hcccInvalidArgument. In place, a block that a rank keeps has one place in both buffers, and
 * AllToAllv one place and length for what is sent to a rank and received from it. On a GPU the call
 * returns when all ranks have told their lengths and it is in the stream, which must not be captured. */
hcccResult_t hcccAllGatherv(const void *send, size_t send_count, void *receive, const size_t *receive_counts,
                            const size_t *places, hcccDataType_t type, hcccComm_t comm, void *stream);
hcccResult_t hcccReduceScatterv(const void *send, const size_t *counts, const size_t *places, void *receive,
                                hcccDataType_t type, hcccRedOp_t op, hcccComm_t comm, void *stream);
hcccResult_t hcccGatherv(const void *send, size_t send_count, void *receive, const size_t *receive_counts,
                         const size_t *places, hcccDataType_t type, int root, hcccComm_t comm, void *stream);
hcccResult_t hcccScatterv(const void *send, const size_t *send_counts, const size_t *places, void *receive,
                          size_t receive_count, hcccDataType_t type, int root, hcccComm_t comm, void *stream);
hcccResult_t hcccAllToAllv(const void *send, const size_t *send_counts, const size_t *send_places, void *receive,
                           const size_t *receive_counts, const size_t *receive_places, hcccDataType_t type,
                           hcccComm_t comm, void *stream);

/* Send elements to another rank of the communicator, and receive them. A send and a receive belong
 * together by peer and tag (0 without one), in the order in which they are made; both ends have the
 * same type and count, of a tagged receive at most its count. Otherwise it is an error at both
 * ranks, which names both, and the communicator is lost. Small messages (2,048 bytes; between hosts UCX
 * decides) are sent before they are received, longer ones wait for their receiver. All sends and receives of a group
 * and a communicator go on together, as one call, in one stream, and with those of other streams and
 * threads: one that waits for its other end keeps no later one; what a rank sends to itself it
 * receives in the same group. Only the two ranks take part: collectives do not count them, but are
 * ordered with them within a rank. It is an error by HCCC_TIMEOUT where one rank waits in a
 * collective for another that waits in a send or receive for the first. */
hcccResult_t hcccSend(const void *buffer, size_t count, hcccDataType_t type, int peer, hcccComm_t comm,
                      void *stream);
hcccResult_t hcccRecv(void *buffer, size_t count, hcccDataType_t type, int peer, hcccComm_t comm,
                      void *stream);

/* The same with a tag, from 0 on. A receive may take any source and any tag; status, which may be
 * null, says what came, when the receive is done: after a group's end, or in its stream's turn. */
#define HCCC_ANY_SOURCE (-1)
#define HCCC_ANY_TAG (-1)
typedef struct {
  int source, tag;
  size_t count;
} hcccStatus_t;
hcccResult_t hcccSendTagged(const void *buffer, size_t count, hcccDataType_t type, int peer, int tag,
                            hcccComm_t comm, void *stream);
hcccResult_t hcccRecvTagged(void *buffer, size_t count, hcccDataType_t type, int peer, int tag,
                            hcccStatus_t *status, hcccComm_t comm, void *stream);

/* Runs a library by its name, of any collective, SendRecv and custom ones too. `op` matters where
 * it reduces. */
hcccResult_t hcccRun(const char *library, const void *send, void *receive, size_t count,
                     hcccDataType_t type, hcccRedOp_t op, hcccComm_t comm, void *stream);

#ifdef __cplusplus
}
#endif

#endif
