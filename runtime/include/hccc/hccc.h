/* hccc.h: what a host program gives to a generated collective and gets back. Plain C.
 *
 * A generated `<name>.h` declares, for each dtype and reduction it was built with,
 *
 *     int <name>_cpu_<dtype>_<op>(const hccc_rank *ranks, const hccc_call *, hccc_fault *);
 *     int <name>_cuda_<dtype>_<op>(const hccc_rank *ranks, const hccc_call *, hccc_fault *,
 *                                  cudaStream_t);      (HIP alike)
 *
 * `ranks` has one entry for every rank of the collective, as seen from the caller: its own
 * memory and its peers'. On a GPU the table and the fault record lie in device memory.
 * The functions launch the ranks [first_rank, first_rank + n_local) and return an hccc_status.
 * A CPU launch returns when those ranks are done; a GPU launch is asynchronous.
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
 * launch to launch. After HCCC_TIMEOUT zero the flags of all ranks before the next launch.
 */
#ifndef HCCC_H
#define HCCC_H

#define HCCC_ABI 1

enum hccc_status {
  HCCC_OK = 0,
  HCCC_TIMEOUT = 1,      /* a wait passed its deadline: hccc_fault says which */
  HCCC_BAD_ARGUMENT = 2, /* a null table, a negative size or time, ranks out of range */
  HCCC_NO_MEMORY = 3,    /* stacks or threads could not be had */
  HCCC_TOO_LARGE = 4,    /* the grid does not fit on the device at once, or a size of the launch
                          * does not fit its type: layout.h, HCCC_MOST_* */
  HCCC_DEVICE = 5,       /* the driver refused; ask it for its last error */
  HCCC_NOT_BUILT = 6     /* the library was built without this dtype or op: CMake's HCCC_DTYPES and
                          * HCCC_OPS */
};

/* What a block was waiting for. */
enum hccc_wait_kind {
  HCCC_WAIT_NONE = 0,
  HCCC_WAIT_FLAG = 1,    /* an earlier primitive */
  HCCC_WAIT_MESSAGE = 2, /* a message in a queue */
  HCCC_WAIT_CREDIT = 3,  /* a free slot in a queue */
  HCCC_WAIT_READY = 4,   /* a neighbour to start this launch; flag is its rank */
  HCCC_WAIT_GO = 5,      /* the own rank's first block to have met all neighbours */
  HCCC_WAIT_FINISHED = 6,/* another block of the own rank; flag is its index */
  HCCC_WAIT_DONE = 7     /* a neighbour to finish this launch; flag is its rank */
};

/* Where one rank's memory is. */
typedef struct hccc_rank {
  void *input;   /* send buffer, aligned to the dtype (16 bytes is fastest) */
  void *output;  /* receive buffer, likewise */
  void *scratch; /* 16-byte aligned; may be null when the layout needs none */
  void *flags;   /* 128-byte aligned */
} hccc_rank;

/* One launch. Zero-initialise, then set `count`, `n_local` and whatever else differs. */
typedef struct hccc_call {
  long long count;             /* elements in a block, as in NCCL */
  long long micro_batch_bytes; /* 0: hccc_default_micro_batch */
  double timeout_s;            /* how long one wait may last; 0: 30 s; may be infinite */
  int in_place;                /* input and output lie as "In place" above says */
  int window;                  /* micro-batches per window; 0: all of them */
  int workers;                 /* CPU threads; 0: as many as are useful */
  int first_rank;              /* ranks launched here */
  int n_local;
} hccc_call;

/* The first wait that passed its deadline. `claimed` is 0 when there is none; once it is 1 every
 * block that waits gives up. Processes that launch one collective together may share a record. */
typedef struct hccc_fault {
  unsigned claimed;
  int rank;
  int thread_block;
  int lane;
  int primitive; /* index inside the thread block; -1 outside all primitives */
  unsigned micro_batch;
  int flag;
  unsigned want;
  unsigned have;
  int kind; /* enum hccc_wait_kind */
} hccc_fault;

#endif
