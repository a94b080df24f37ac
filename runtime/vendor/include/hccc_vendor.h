/* hccc_vendor.h: the table of functions of a vendor's library of collectives. Plain C.
 *
 * An engine fills the table: `nccl` (NCCL or RCCL), `mpi` (MPICH, Intel MPI and other libraries of
 * MPI's ABI; no mpirun is needed), `oneccl`, and `own`, hccc's standard collectives. The shape is
 * NCCL's. docs/vendors.md says what each library can do.
 *
 *     const hccc_vendor *v;
 *     hccc_vendor_load("mpich", NULL, &v);              // or hccc_vendor_error() says why not
 *     char id[HCCC_VENDOR_ID_BYTES];      
 *     if (rank == 0) v->unique_id(id);                                // sent to the others
 *     hccc_vendor_comm *comm;
 *     v->init_rank(&comm, n_ranks, id, rank, 60.0);
 *     v->all_reduce(x, y, count, hcccFloat32, hcccSum, comm, NULL);
 *     v->destroy(comm);
 *
 * Arguments. Types, reductions and results are those of hccc_runtime.h, and so are counts, blocks and
 * what in place means, for every engine: where a library has it otherwise, the engine copies (but no
 * AllToAll in a stream, which is refused in place). Buffers
 * are the host's memory, or, with HCCC_VENDOR_STREAM, that of the device which the thread has set. Those of
 * `own` are of the kind that the thread makes communicators of; of a device its calls are in streams, too,
 * which `wait` waits for, and it does not send and receive.
 *
 * Calls. All ranks of a communicator make the same calls in the same order, one thread at a time.
 * Without HCCC_VENDOR_STREAM a call returns when this rank's part is done, and `stream` is null;
 * with it, the call is then in the stream, and `wait` returns when the stream has done it. Sends and
 * receives between group_start and group_end of a thread go on together, at the end.
 *
 * Faults. A call that is not done after `timeout` seconds (0: no limit) returns hcccTimeout, and one
 * of a communicator that another thread aborts hcccAborted. Such an error, and any that the library
 * itself reports, is of the communicator: no further call is made, and `abort` ends it. Without
 * HCCC_VENDOR_STOPS the library's own thread may still be inside the call and touch its buffers until
 * the process ends. hcccInvalidArgument and hcccInvalidUsage are refusals before anything moved, and
 * cost nothing.
 */
#ifndef HCCC_VENDOR_H
#define HCCC_VENDOR_H

#include <stddef.h>

#include "hccc_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HCCC_VENDOR_ABI 1
#define HCCC_VENDOR_ID_BYTES 128

enum {
  HCCC_VENDOR_STREAM = 1,   /* calls are put into streams of a device */
  HCCC_VENDOR_STOPS = 2,    /* after an error the library touches no buffer of the call any more */
  HCCC_VENDOR_ONE_WORLD = 4 /* a process has one communicator of init_rank; others are split from it */
};

enum {
  HCCC_VENDOR_ALL_REDUCE = 0,
  HCCC_VENDOR_BROADCAST = 1,
  HCCC_VENDOR_REDUCE = 2,
  HCCC_VENDOR_ALL_GATHER = 3,
  HCCC_VENDOR_REDUCE_SCATTER = 4,
  HCCC_VENDOR_ALL_TO_ALL = 5,
  HCCC_VENDOR_GATHER = 6,
  HCCC_VENDOR_SCATTER = 7,
  HCCC_VENDOR_SEND = 8, /* and receive */
  HCCC_VENDOR_NUM_CALLS = 9
};

typedef struct hccc_vendor_comm hccc_vendor_comm;

typedef struct hccc_vendor {
  int abi;             /* HCCC_VENDOR_ABI */
  const char *engine;  /* "nccl", "mpi", "oneccl", "own" */
  const char *name;    /* of the library and its version: "MPICH 5.0.2" */
  const char *library; /* the file that was loaded; "" of `own` */
  size_t id_bytes;     /* HCCC_VENDOR_ID_BYTES */
  unsigned flags;      /* HCCC_VENDOR_STREAM ... */

  /* Returns 1 where a call does a type and a reduction (ignored where nothing is reduced), else 0. */
  int (*can)(int call, hcccDataType_t type, hcccRedOp_t op);
  /* Returns the text of this thread's last error; never null. */
  const char *(*last_error)(void);

  /* Makes an id, at one rank, in whose process the ranks then meet: by hccc's rendezvous, which carries
   * the library's own id and tells who has gone. It contains a secret. */
  hcccResult_t (*unique_id)(void *id);
  hcccResult_t (*init_rank)(hccc_vendor_comm **made, int n_ranks, const void *id, int rank, double timeout);
  /* Makes a communicator of the ranks of each color, in the order of keys, then ranks; those of
   * HCCC_SPLIT_NOCOLOR get null. */
  hcccResult_t (*split)(hccc_vendor_comm *comm, int color, int key, hccc_vendor_comm **made);
  hcccResult_t (*count)(hccc_vendor_comm *comm, int *n_ranks);
  hcccResult_t (*user_rank)(hccc_vendor_comm *comm, int *rank);
  hcccResult_t (*set_timeout)(hccc_vendor_comm *comm, double timeout);
  /* Ends a communicator that no thread uses; collective in some libraries. */
  hcccResult_t (*destroy)(hccc_vendor_comm *comm);
  /* Makes running calls return, from any thread, and no later one begin. `destroy` follows, waits
   * for no rank then, and frees what it can. */
  hcccResult_t (*abort)(hccc_vendor_comm *comm);
  /* Returns the error of a communicator that is lost, else hcccSuccess, without waiting. */
  hcccResult_t (*async_error)(hccc_vendor_comm *comm, hcccResult_t *error);
  /* Returns when a stream has done its calls; where there are no streams, at once. */
  hcccResult_t (*wait)(hccc_vendor_comm *comm, void *stream);

  hcccResult_t (*all_reduce)(const void *send, void *receive, size_t count, hcccDataType_t type, hcccRedOp_t op,
                             hccc_vendor_comm *comm, void *stream);
  hcccResult_t (*broadcast)(const void *send, void *receive, size_t count, hcccDataType_t type, int root,
                            hccc_vendor_comm *comm, void *stream);
  hcccResult_t (*reduce)(const void *send, void *receive, size_t count, hcccDataType_t type, hcccRedOp_t op,
                         int root, hccc_vendor_comm *comm, void *stream);
  hcccResult_t (*all_gather)(const void *send, void *receive, size_t send_count, hcccDataType_t type,
                             hccc_vendor_comm *comm, void *stream);
  hcccResult_t (*reduce_scatter)(const void *send, void *receive, size_t receive_count, hcccDataType_t type,
                                 hcccRedOp_t op, hccc_vendor_comm *comm, void *stream);
  hcccResult_t (*send)(const void *buffer, size_t count, hcccDataType_t type, int peer, hccc_vendor_comm *comm,
                       void *stream);
  hcccResult_t (*recv)(void *buffer, size_t count, hcccDataType_t type, int peer, hccc_vendor_comm *comm,
                       void *stream);
  hcccResult_t (*group_start)(void);
  hcccResult_t (*group_end)(void);

  /* Null where the library has none. count: elements of a block. */
  hcccResult_t (*all_to_all)(const void *send, void *receive, size_t count, hcccDataType_t type,
                             hccc_vendor_comm *comm, void *stream);
  hcccResult_t (*gather)(const void *send, void *receive, size_t count, hcccDataType_t type, int root,
                         hccc_vendor_comm *comm, void *stream);
  hcccResult_t (*scatter)(const void *send, void *receive, size_t count, hcccDataType_t type, int root,
                          hccc_vendor_comm *comm, void *stream);

  /* Makes a collective that differs from the communicator's last one in its buffers only, without the checks of that.
   * begin: hcccInvalidUsage: nothing has begun, and the function of the call is to be used; else `end` follows, until it
   * does not return hcccInProgress. soon: to return that after tens of microseconds. */
  hcccResult_t (*begin)(int call, const void *send, void *receive, size_t count, hcccDataType_t type, hcccRedOp_t op,
                        int root, hccc_vendor_comm *comm);
  hcccResult_t (*end)(int soon, hccc_vendor_comm *comm);
} hccc_vendor;

/* Loads the library of a vendor, once in a process, and checks that it is one. vendor: "nccl", "rccl",
 * "mpich", "impi", "mpi", "oneccl" or "own". library: its file; null: HCCC_VENDOR_LIBRARY, else its
 * documented name, as the loader finds it. A process loads one library of a vendor; `own` is always
 * there beside it. hccc_vendor_error has the text of this thread's last error. */
hcccResult_t hccc_vendor_load(const char *vendor, const char *library, const hccc_vendor **made);
const char *hccc_vendor_error(void);

#ifdef __cplusplus
}
#endif
#endif
