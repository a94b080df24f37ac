/* library.h: the description that a library of kernels exports. Plain C.
 *
 * Each target's library exports `<name>_<target>_library`, which returns its description, and
 * `hccc_this_library`, which returns the same without the name being known. Of several libraries
 * linked into one, the latter returns the description of any of them.
 *
 * Libraries for GPUs also export `hccc_load_kernels`, which loads all kernels of the library onto
 * the current device and returns an hccc_status. Without it CUDA loads a kernel when it is first
 * launched, and may then wait for kernels that run: one that waits for this launch would never end.
 */
#ifndef HCCC_LIBRARY_H
#define HCCC_LIBRARY_H

#include "catalogue.h"

/* The entry that `<name>.h` declares. stream: a cudaStream_t or hipStream_t, null on the CPU. */
typedef int hccc_launch_function(const hccc_comm *comm, const hccc_call *call, const char *dtype,
                                 const char *op, void *stream);

typedef struct hccc_library {
  unsigned size; /* sizeof(hccc_library) */
  unsigned abi;  /* HCCC_ABI */
  const char *name;
  const char *compiler;      /* the version of hccc that emitted it */
  const char *target;        /* "cpu", "cuda" or "hip" */
  const char *collective;    /* "Allreduce", ..., as hccc.h has them */
  const char *own_ops;       /* the names of the program's own reductions, a blank between two */
  int n_ranks;
  int root;                  /* of rooted collectives; -1 of others */
  int reduces;               /* whether `op` has a meaning */
  int touches_peers;         /* whether peers touch a rank's buffers, which then lie in windows */
  unsigned long long digest; /* of the plans and their ranges: the same at all ranks of a launch */
  const int *domain;         /* the memory domain of each rank, from 0; null: one for all. Between
                              * domains there is only the network */
  const hccc_catalogue *catalogue; /* of a library of one plan too */
  int (*input_blocks)(int rank);   /* blocks of `count` elements */
  int (*output_blocks)(int rank);
  hccc_launch_function *launch;
} hccc_library;

typedef const hccc_library *hccc_library_function(void);
typedef int hccc_load_function(void);

#endif
