/* hccc.h: the interface between a host program and a generated collective. Plain C.
 *
 * A generated `<name>.h` declares, for each dtype and reduction it was built with,
 *
 *     int <name>_cpu_<dtype>_<op>(const hccc_comm *, const hccc_call *);
 *     int <name>_cuda_<dtype>_<op>(const hccc_comm *, const hccc_call *, cudaStream_t);
 *                                                                            (HIP alike)
 *
 * `hccc_comm` is made once and lists every rank's memory as far as the caller reaches it;
 * `hccc_call` is one launch. The functions launch the ranks [first_rank, first_rank + n_local) and
 * return an hccc_status. A CPU launch returns when those ranks are done; a GPU launch is
 * asynchronous, and all tables and the fault record lie in memory that the device reads.
 *
 * Memory. A rank has flags and scratch (<name>_flag_bytes, <name>_scratch_bytes), and windows: user
 * memory that peers may touch, at the same offsets from its beginning for all of them. Windows are
 * exchanged once. At every launch a rank sends its neighbours the offsets of the call's buffers in
 * its windows, so a call with other tensors needs no new exchange. Buffers that no peer touches
 * (all of a staged plan) need no window; any other buffer that does not lie in a window, with all
 * of its blocks, is a fault. A buffer that a proxy reads counts as touched. Ranks of one process
 * have one window, all memory: HCCC_ALL_MEMORY.
 *
 * Peers reach each other by memory or by network. A peer that only the network reaches has null
 * flags in the caller's table; transfers to it go through a proxy (network.h). A plan is made for
 * one or the other: it never reads memory over the network.
 *
 * On AMD, memory that several devices share (flags, scratch, windows) must be fine-grained or
 * uncached (gpu_memory.h allocates it): with plain hipMalloc, waits may hang and data be stale.
 * `submitted` of a proxy ring may be plain memory; its `entries`, `taken` and `completed` are host
 * memory mapped to the device.
 *
 * Collectives. Buffers are made of blocks of `count` elements, as in NCCL; in bytes, `count` times
 * the size of the dtype. A buffer of 0 blocks may be null. n: ranks; r: the own rank.
 *
 *   collective      blocks sent  received     the result of rank r, block by block
 *   Allreduce       1            1            the reduction of all ranks' blocks
 *   Reducescatter   n            1            the reduction of block r of all ranks
 *   Reduce          1            1 at root    at the root, the reduction of all ranks' blocks
 *   Broadcast       1 at root    1            the root's block
 *   Allgather       1            n            the blocks of ranks 0, 1, ...
 *   Gather          1            n at root    at the root, the blocks of ranks 0, 1, ...
 *   Scatter         n at root    1            block r of the root
 *   Alltoall        n            n            block r of ranks 0, 1, ...
 *   SendRecv        1            1            the block of rank r - 1; that of the last at rank 0
 *   custom          b            b            as in its source; b: chunks of a rank
 *
 * Uneven. Allgatherv, Reducescatterv, Gatherv, Scatterv and Alltoallv are the collectives above with
 * blocks that have lengths of their own, 0 to `count` elements, which every rank knows at the call:
 * `blocks` of hccc_call, the same words at all ranks. n: ranks; b: n * n for Alltoallv, else n.
 *
 *     b words           the length of each block in elements: of Alltoallv from rank s to rank d at
 *                       s * n + d; of the others of rank r at r
 *     n x 2 x n words   where in the send (0) and the receive buffer (1) of each rank each of its
 *                       blocks begins, in elements; 0 where there is no such block
 *     n x 2 words       the elements of the send and the receive buffer of each rank
 *
 * Sizes follow from `count`, so that the table may be written on a device, by an earlier kernel of
 * the stream. A length that is negative counts as 0, and one above `count` as `count`; CPU launches
 * refuse both. Blocks of a receive buffer must not overlap. In place, an own block has one place in
 * both buffers, and Alltoallv one place and length for block j sent to and received from rank j.
 *
 * Dtypes: int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 float8e4m3
 * float8e5m2 int16 uint16 bool complex64 complex128. Shorter floats than float32 are reduced in
 * float32 (or as the library's README.md says) and rounded once, to nearest even, when they are
 * stored. The 8-bit types are those of the OCP standard, NCCL's and `__nv_fp8_*`; too
 * large values and infinities are then stored as the largest finite value, as CUDA does by default.
 * A NaN is then stored as 0x7f, of 16-bit types as 0x7fff. Where data only moves, its bits stay.
 *
 * Reductions: sum prod min max avg band bor bxor land lor premul_sum. avg is the sum divided by n,
 * once, at its end; for integers it truncates. band, bor and bxor combine bits, land and lor give 0
 * or 1: they are for integers and bool. A bool is a byte, true where it is not 0, and 0 or 1 once it
 * is reduced: sum and max are lor, prod and min are land; it has no avg. Complex numbers are two
 * floats, real and imaginary part; they have sum, prod and avg. premul_sum is the sum of what each
 * rank gives times its own scalar (`scalar` of hccc_local): for integers, which wrap, and floats. A
 * program may have reductions of its own, whose names are in `<name>.h`.
 *
 * In place (`in_place` of hccc_call), input and output of a rank are the same memory:
 *   input == output + r blocks    Allgather, Gather
 *   output == input + r blocks    Reducescatter, Scatter
 *   input == output               all others
 * Out of place they must not overlap. A rank without one of the two has only the other.
 *
 * `flags` must be zeroed once when it is allocated and never again: its counters go on from
 * launch to launch. One set of flags and scratch serves one launch at a time, in the same order at
 * all ranks: concurrent streams need communicators of their own. Two kernels that wait for their
 * peers and do not fit on a device together may wait for ever when ranks launch them in different
 * orders.
 *
 * Faults. A wait that passes its deadline writes the fault record and the launch is lost. The
 * record sticks: every later launch of the communicator returns HCCC_TIMEOUT, or on a GPU does
 * nothing, until hccc_reset_fault. Before that, no launch may be running at any rank, and the flags
 * of all ranks and their proxy rings, with all counters, must be zeroed. To make running launches
 * leave, set `claimed` from 0 to HCCC_ABORT_REQUEST: a wait inside a primitive that finds it there
 * describes itself and sets 1. A proxy of proxy.h is stopped, reset when its rings are zero, and
 * started again.
 */
#ifndef HCCC_H
#define HCCC_H

#include "network.h"

#define HCCC_ABI 12 /* grows with every change of this file, network.h or layout.h */

enum hccc_status {
  HCCC_OK = 0,
  HCCC_TIMEOUT = 1,      /* a wait passed its deadline, now or in an earlier launch that was not
                          * reset: see hccc_fault */
  HCCC_BAD_ARGUMENT = 2, /* a null table, a negative size or time, ranks out of range, no flags at a
                          * rank or at a neighbour of its memory domain, no usable proxy ring where
                          * the network is needed */
  HCCC_NO_MEMORY = 3,    /* stacks or threads could not be had */
  HCCC_TOO_LARGE = 4,    /* the grid does not fit on the device at once, or a size of the launch
                          * does not fit its type: layout.h, HCCC_MOST_* */
  HCCC_DEVICE = 5,       /* the driver refused: see its last error */
  HCCC_NOT_BUILT = 6,    /* the library was built without this dtype or op: CMake's HCCC_DTYPES and
                          * HCCC_OPS */
  HCCC_BAD_ABI = 7       /* a structure of another HCCC_ABI, by its size or number */
};

/* What a block waited for, or what else ended a launch. */
enum hccc_wait_kind {
  HCCC_WAIT_NONE = 0,
  HCCC_WAIT_FLAG = 1,    /* an earlier primitive */
  HCCC_WAIT_MESSAGE = 2, /* a message in a queue */
  HCCC_WAIT_CREDIT = 3,  /* a free slot in a queue */
  HCCC_WAIT_READY = 4,   /* a neighbour to start this launch; flag is its rank */
  HCCC_WAIT_GO = 5,      /* the own rank's first block to have synchronised with all neighbours */
  HCCC_WAIT_FINISHED = 6,/* another block of the own rank; flag is its index */
  HCCC_WAIT_DONE = 7,    /* a neighbour to finish this launch; flag is its rank */
  HCCC_WAIT_PROXY = 8,   /* the proxy to take or to complete transfers */
  HCCC_NOT_IN_WINDOW = 9,/* no wait: peers touch a buffer (flag 0 input, 1 output) that does not
                          * lie within one of its rank's windows */
  HCCC_ABORTED = 10,     /* no wait: the caller ended the launch */
  HCCC_NO_PROXY = 11,    /* no wait: only the network reaches a rank, flag, and there is no proxy
                          * ring, or one that hccc_check_proxy_ring refuses */
  HCCC_UNMAPPED = 12,    /* no wait: the caller's table has no memory of a rank, flag, that the plan
                          * has in the own memory domain */
  HCCC_OTHER_CALL = 13,  /* no wait: a neighbour, flag, has started a call of another signature */
  HCCC_WAIT_PACKET = 14  /* packets of a rank, flag, in the packet slot that micro_batch names */
};

/* Memory of a rank that its peers may touch. base: the caller's address, ignored where only the
 * network reaches the rank. */
typedef struct hccc_window {
  void *base;
  long long bytes;
} hccc_window;

#define HCCC_ALL_MEMORY {0, 0x7fffffffffffffffLL}

/* The memory of one rank, as far as the caller reaches it. */
typedef struct hccc_rank {
  void *flags;   /* 128-byte aligned; null: only the network reaches the rank */
  void *scratch; /* 16-byte aligned; may be null when the layout needs none */
  const hccc_window *windows;
  int n_windows;
  int multicast; /* of the caller's own rank: 1 where as many entries of `windows` follow its
                  * windows, each a multicast address of the window of that number of all ranks; its
                  * base is null where there is none. 0: no entries follow */
} hccc_rank;

/* The state that goes on from launch to launch. Made once; the tables and the memory that they
 * point to must stay while a launch runs. */
typedef struct hccc_comm {
  unsigned size;      /* sizeof(hccc_comm) */
  unsigned abi;       /* HCCC_ABI */
  unsigned rank_size; /* sizeof(hccc_rank) */
  int n_ranks;
  const hccc_rank *ranks;   /* every rank of the collective */
  struct hccc_fault *fault; /* processes that launch together may share it; zeroed once */
  long long flags_at;       /* bytes from each rank's flags to those of this collective, a multiple
                             * of 128, the same at all ranks: where several share an allocation */
} hccc_comm;

#define HCCC_COMM_INIT {sizeof(hccc_comm), HCCC_ABI, sizeof(hccc_rank), 0, 0, 0, 0}

/* One rank launched here. */
typedef struct hccc_local {
  void *input;  /* send buffer, aligned to the dtype (16 bytes is fastest) */
  void *output; /* receive buffer, likewise */
  const hccc_proxy_ring *proxy_ring; /* null where memory reaches every neighbour */
  unsigned long long scalar; /* of premul_sum: the bits of a value of the dtype, in its lowest bytes; */
  const void *scalar_at;     /* or where it is, in memory that the launch reads; null: in `scalar` */
} hccc_local;

/* A launch that can be made again, with other buffers, scalars and another signature: what a launch on
 * the CPU finds out and checks before it begins is then found out once. Only where but packets cross between
 * ranks, as buffers then need lie in no window. Memory and tables of the communicator must be where they were. */
typedef struct hccc_again {
  int (*run)(struct hccc_again *again, const hccc_local *local, unsigned long long signature);
  int workers, oversubscribed; /* of the call */
  long long params[32];        /* the launch's own */
} hccc_again;

/* One launch: HCCC_CALL_INIT, then `count`, `n_local`, `local` and other fields as needed. */
typedef struct hccc_call {
  unsigned size;               /* sizeof(hccc_call) */
  unsigned local_size;         /* sizeof(hccc_local) */
  long long count;             /* elements in a block, as in NCCL */
  long long micro_batch_bytes; /* 0: hccc_default_micro_batch */
  double timeout_s;            /* how long one wait may last; 0 or infinite: for ever. Where
                                * join_timeout_s is longer, time in which the awaited rank itself
                                * waits for another rank to start does not count */
  double join_timeout_s;       /* how long other ranks may take to start; 0: for ever */
  double deadline_s;           /* how long the launch may last from its beginning, all its waits
                                * together: looked at while it waits; 0: for ever */
  int in_place;                /* input and output lie as "In place" above says */
  int window;                  /* micro-batches per window; 0: all of them */
  int workers;                 /* CPU threads; 0: as many as are useful */
  int first_rank;              /* ranks launched here */
  int n_local;
  int oversubscribed;          /* on the CPU, more threads than cores: waits yield, not spin */
  const hccc_local *local;     /* n_local of them, in host memory if it is one, else as `ranks` */
  unsigned long long signature; /* of the call: ranks compare it when they start; 0: they do not */
  const long long *blocks; /* the table of an uneven collective, in memory that the launch reads;
                            * null: every block has `count` elements. "Uneven" above */
  hccc_again *again;       /* is filled in by a launch of one rank that ends well and can be made again;
                            * null: nobody asks */
} hccc_call;

#define HCCC_CALL_INIT {sizeof(hccc_call), sizeof(hccc_local), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* The fault record: the first wait that passed its deadline. `claimed` is 0 when there is no fault;
 * else every waiting block leaves. */
enum { HCCC_ABORT_REQUEST = 2 /* `claimed` of a launch that is to leave */ };

typedef struct hccc_fault {
  unsigned claimed;
  int rank;
  int thread_block;
  int channel;
  int primitive; /* index inside the thread block; -1 outside all primitives */
  unsigned micro_batch;
  int flag;
  unsigned want;
  unsigned have;
  int kind; /* enum hccc_wait_kind */
} hccc_fault;

/* Clears a fault; on a GPU, copy a zeroed record over it. "Faults" above has the other steps. */
static inline void hccc_reset_fault(hccc_fault *fault) {
  const hccc_fault none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  *fault = none;
}

#endif
