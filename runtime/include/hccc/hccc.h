/* hccc.h: what a host program gives to a generated collective and gets back. Plain C.
 *
 * A generated `<name>.h` declares, for each dtype and reduction it was built with,
 *
 *     int <name>_cpu_<dtype>_<op>(const hccc_comm *, const hccc_call *);
 *     int <name>_cuda_<dtype>_<op>(const hccc_comm *, const hccc_call *, cudaStream_t);
 *                                                                            (HIP alike)
 *
 * `hccc_comm` is made once and says what of every rank's memory the caller reaches; `hccc_call` is
 * one launch. The functions launch the ranks [first_rank, first_rank + n_local) and return an
 * hccc_status. A CPU launch returns when those ranks are done; a GPU launch is asynchronous, and
 * what they point to, the fault record too, lies in memory that the device reads.
 *
 * Memory. A rank has flags and scratch (<name>_flag_bytes, <name>_scratch_bytes), and windows: user
 * memory that peers may touch, at the same offsets from its beginning for everybody. They are
 * exchanged once. Where a call's buffers are in its windows, a rank tells its neighbours at every
 * launch, so that a call with other tensors needs nothing from other ranks. Buffers that no peer
 * touches (all of a staged plan's) need no window; others that do not lie within one, all of their
 * blocks, are a fault. What a proxy puts from a buffer of its own rank counts as touched. Ranks of
 * one process have one window, all memory: HCCC_ALL_MEMORY.
 *
 * Peers reach each other by memory or by network. For those it reaches by network only, the
 * caller's table has null flags; their thread blocks' transfers go through a proxy (network.h).
 * Which of the two a plan allows its generator decided: it never reads memory over the network.
 *
 * On AMD, what several devices share (flags, scratch, windows) must be fine-grained or uncached
 * memory (gpu_memory.h allocates it): plain hipMalloc may hang and read what is stale. `handed` of a
 * door may be plain memory; its ring, `taken` and `completed` are host memory mapped to the device.
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
 *   custom          b            b            what its source says; b: chunks of a rank
 *
 * Dtypes: int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 float8e4m3
 * float8e5m2. Shorter floats than float32 are reduced in float32 and rounded once, to nearest even,
 * when they are stored. The 8-bit ones are those of the OCP standard, NCCL's and `__nv_fp8_*`; what
 * is too large for them, infinities too, is then stored as their largest finite value, and a NaN as
 * 0x7f, as CUDA does by default. Where data only moves, its bits stay.
 *
 * Reductions: sum prod min max avg. avg is the sum divided by n, once, at its end; for integers it
 * truncates.
 *
 * In place (`in_place` of hccc_call), input and output of a rank are the same memory:
 *   input == output + r blocks    Allgather, Gather
 *   output == input + r blocks    Reducescatter, Scatter
 *   input == output               all others
 * Out of place they must not overlap. Where one of the two is not there, nothing is asked of it.
 *
 * `flags` must be zeroed once when it is allocated and never again: its counters go on from
 * launch to launch. One set of flags and scratch serves one launch at a time, in one order of
 * launches that is the same at all ranks: give concurrent streams communicators of their own. Two
 * kernels that wait for their peers and do not fit on a device together may wait for ever when
 * ranks launch them in different orders.
 *
 * Faults. A wait that passes its deadline writes the fault record and the launch is lost. The
 * record sticks: every later launch of the communicator returns HCCC_TIMEOUT, or on a GPU does
 * nothing, until hccc_reset_fault. Before that, no launch may be running at any rank, and flags of
 * all ranks and the counters and rings of their doors must be zeroed. To make running launches
 * leave, set `claimed` from 0 to HCCC_LEAVE: a wait inside a primitive that sees it describes itself
 * and sets 1. A proxy of proxy.h is stopped, reset when its
 * rings are zero, and started again.
 */
#ifndef HCCC_H
#define HCCC_H

#include "network.h"

#define HCCC_ABI 5 /* counts up with every change of what is in this file, network.h or layout.h */

enum hccc_status {
  HCCC_OK = 0,
  HCCC_TIMEOUT = 1,      /* a wait passed its deadline, now or in an earlier launch that nobody
                          * reset: hccc_fault says which */
  HCCC_BAD_ARGUMENT = 2, /* a null table, a negative size or time, ranks out of range, no flags at a rank
                          * or at a neighbour of its memory domain, ranks of the network without a
                          * door or with one that has no ring */
  HCCC_NO_MEMORY = 3,    /* stacks or threads could not be had */
  HCCC_TOO_LARGE = 4,    /* the grid does not fit on the device at once, or a size of the launch
                          * does not fit its type: layout.h, HCCC_MOST_* */
  HCCC_DEVICE = 5,       /* the driver refused; ask it for its last error */
  HCCC_NOT_BUILT = 6,    /* the library was built without this dtype or op: CMake's HCCC_DTYPES and
                          * HCCC_OPS */
  HCCC_BAD_ABI = 7       /* a structure of another HCCC_ABI: its size or number is not this one's */
};

/* What a block was waiting for, or what else ended a launch. */
enum hccc_wait_kind {
  HCCC_WAIT_NONE = 0,
  HCCC_WAIT_FLAG = 1,    /* an earlier primitive */
  HCCC_WAIT_MESSAGE = 2, /* a message in a queue */
  HCCC_WAIT_CREDIT = 3,  /* a free slot in a queue */
  HCCC_WAIT_READY = 4,   /* a neighbour to start this launch; flag is its rank */
  HCCC_WAIT_GO = 5,      /* the own rank's first block to have met all neighbours */
  HCCC_WAIT_FINISHED = 6,/* another block of the own rank; flag is its index */
  HCCC_WAIT_DONE = 7,    /* a neighbour to finish this launch; flag is its rank */
  HCCC_WAIT_PROXY = 8,   /* the proxy to take or to complete transfers */
  HCCC_NOT_IN_WINDOW = 9,/* no wait: peers touch a buffer (flag 0 input, 1 output) that does not
                          * lie within one of its rank's windows */
  HCCC_ABORTED = 10,     /* no wait: somebody else ended it */
  HCCC_NO_DOOR = 11,     /* no wait: a rank of the network, flag, and no door to it, or one that
                          * hccc_check_door refuses */
  HCCC_CUT_OFF = 12,     /* no wait: the caller's table has no memory of a rank, flag, that is in
                          * the own memory domain for the plan */
  HCCC_OTHER_CALL = 13   /* no wait: a neighbour, flag, has started a call of another signature */
};

/* Memory of a rank that its peers may touch. base: as the caller sees it, ignored where the rank is
 * reached by network only. */
typedef struct hccc_window {
  void *base;
  long long bytes;
} hccc_window;

#define HCCC_ALL_MEMORY {0, 0x7fffffffffffffffLL}

/* What the caller reaches of one rank. */
typedef struct hccc_rank {
  void *flags;   /* 128-byte aligned; null: reached by network only */
  void *scratch; /* 16-byte aligned; may be null when the layout needs none */
  const hccc_window *windows;
  int n_windows;
  int reserved;
} hccc_rank;

/* What goes on from launch to launch. Made once; ranks, and what they point to, must not change
 * while a launch runs. */
typedef struct hccc_comm {
  unsigned size;      /* sizeof(hccc_comm) */
  unsigned abi;       /* HCCC_ABI */
  unsigned rank_size; /* sizeof(hccc_rank) */
  int n_ranks;
  const hccc_rank *ranks;   /* every rank of the collective, as the caller reaches it */
  struct hccc_fault *fault; /* processes that launch together may share it; zeroed once */
  long long flags_at;       /* bytes from each rank's flags to those of this collective, a multiple
                             * of 128, the same at all ranks: where several share an allocation */
} hccc_comm;

#define HCCC_COMM_INIT {sizeof(hccc_comm), HCCC_ABI, sizeof(hccc_rank), 0, 0, 0, 0}

/* One rank launched here. */
typedef struct hccc_local {
  void *input;           /* send buffer, aligned to the dtype (16 bytes is fastest) */
  void *output;          /* receive buffer, likewise */
  const hccc_door *door; /* null where every neighbour is reached by memory */
} hccc_local;

/* One launch. HCCC_CALL_INIT, then set `count`, `n_local`, `local` and whatever else differs. */
typedef struct hccc_call {
  unsigned size;               /* sizeof(hccc_call) */
  unsigned local_size;         /* sizeof(hccc_local) */
  long long count;             /* elements in a block, as in NCCL */
  long long micro_batch_bytes; /* 0: hccc_default_micro_batch */
  double timeout_s;            /* how long one wait may last; 0 or infinite: for ever. Time in which
                                * a rank that is waited for waits itself for one that has not
                                * started does not count */
  double join_timeout_s;       /* how long other ranks may take to start; 0: for ever */
  int in_place;                /* input and output lie as "In place" above says */
  int window;                  /* micro-batches per window; 0: all of them */
  int workers;                 /* CPU threads; 0: as many as are useful */
  int first_rank;              /* ranks launched here */
  int n_local;
  int crowded;                 /* on the CPU, others need its cores: waits give way, not spin */
  const hccc_local *local;     /* n_local of them, in host memory if it is one, else as `ranks` */
  unsigned long long signature; /* of what is called: ranks compare it when they meet; 0: they do not */
} hccc_call;

#define HCCC_CALL_INIT {sizeof(hccc_call), sizeof(hccc_local), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* What ended a launch: the first wait that passed its deadline. `claimed` is 0 when there is none;
 * once it is not, every block that waits gives up. */
enum { HCCC_LEAVE = 2 };

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

/* Forgets a fault; on a GPU, copy a zeroed record over it. See "Faults" above for what else. */
static inline void hccc_reset_fault(hccc_fault *fault) {
  const hccc_fault none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  *fault = none;
}

#endif
