/* trace.h: the record of a launch by kernels built with HCCC_TRACE. Plain C, for host and device.
 *
 * Kernels compiled with -DHCCC_TRACE write a record of every micro-batch of every primitive while
 * `hccc_tracing` points to a hccc_trace; without the macro they are the same as ever. On the host:
 *
 *     extern "C" hccc_trace *hccc_tracing;    in C, or dlsym(library, "hccc_tracing")
 *
 * Set it before a launch and clear it after: it is the library's, and read when a launch begins.
 * The entries, and the structures of hccc.h, are the same with the macro and without.
 *
 * A thread block keeps its last `slots` records: record k is at k modulo `slots`; `written` counts
 * all, and so shows how many are lost. Kernels must be able to write `written` and `records`: on a
 * GPU they lie in memory of the device or mapped to it. Counts go on from launch to launch.
 */
#ifndef HCCC_TRACE_H
#define HCCC_TRACE_H

#include "hccc.h"

/* One micro-batch of one primitive. Ticks of the kernels' clock: on the host nanoseconds of
 * CLOCK_MONOTONIC, which all processes of a machine share; of %globaltimer on NVIDIA; on AMD of the
 * constant-rate counter. */
typedef struct hccc_record {
  unsigned long long begin; /* it begins to wait */
  unsigned long long ready; /* its waits are over */
  unsigned long long end;   /* its data is moved, and no flag raised yet */
  unsigned primitive;       /* index inside the thread block, in the order of the plan */
  unsigned micro_batch;     /* counted in this launch */
} hccc_record;

/* Where records go: thread block `index` of rank r, numbered thread block by thread block, channel
 * by channel, has place (r - first_rank) * blocks + index. */
typedef struct hccc_trace {
  unsigned size;        /* sizeof(hccc_trace) */
  unsigned record_size; /* sizeof(hccc_record) */
  unsigned slots;       /* records of a thread block, a power of two; 0: nothing is recorded */
  int first_rank;       /* ranks recorded */
  int n_ranks;
  int blocks;                  /* places of a rank: thread blocks times channels, or more */
  unsigned long long *written; /* of every place, one every HCCC_TRACE_STRIDE */
  hccc_record *records;        /* of every place, `slots` of them */
} hccc_trace;

enum { HCCC_TRACE_STRIDE = 16 }; /* counts share no cache line */

/* Checks that a launch with `blocks` thread blocks times channels a rank can record there. Returns
 * an hccc_status. */
static inline int hccc_check_trace(const hccc_trace *trace, int blocks) {
  if (trace->size != sizeof *trace || trace->record_size != sizeof(hccc_record))
    return HCCC_BAD_ABI;
  if (trace->slots & (trace->slots - 1)) return HCCC_BAD_ARGUMENT;
  if (!trace->slots) return HCCC_OK;
  if (!trace->written || !trace->records || trace->n_ranks < 0) return HCCC_BAD_ARGUMENT;
  return trace->blocks >= blocks ? HCCC_OK : HCCC_BAD_ARGUMENT;
}

#endif
