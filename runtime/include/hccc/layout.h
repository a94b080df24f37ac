/* layout.h: how many bytes, and what lies where. Plain C, for host and device.
 *
 * A block of `count` elements is cut into `sub` chunks, a chunk into `lanes` parts of `part`
 * elements, a part into micro-batches of `micro` elements. A part and a micro-batch are whole
 * numbers of 16 bytes, so only the last part of a block is short, and may be empty.
 *
 *     scratch:  [scratch slots: chunk each][stage slots: chunk each]
 *               [queues x lanes x slots: micro each]
 *     flags, one counter every 128 bytes:
 *               [lanes x flags][ready: ranks][done: ranks][go]
 *               [finished: blocks x lanes][state: blocks x lanes]
 */
#ifndef HCCC_LAYOUT_H
#define HCCC_LAYOUT_H

#include "hccc.h"

#if defined(__HIP__)
#define HCCC_BOTH static inline __attribute__((host, device))
#elif defined(__CUDACC__)
#define HCCC_BOTH static inline __host__ __device__
#else
#define HCCC_BOTH static inline
#endif

enum {
  HCCC_ALIGNMENT = 16,                 /* bytes of the widest load */
  HCCC_FLAG_STRIDE = 128,              /* bytes between flags: no two share a cache line */
  HCCC_SMALLEST_DEFAULT = 4 << 10,     /* bytes of a micro-batch that the call leaves open */
  HCCC_LARGEST_DEFAULT = 4 << 20,
  HCCC_LARGEST_MICRO_BATCH = 1 << 30   /* bytes: offsets inside one fit 32 bits */
};

/* What a generated collective is made of: the HCCC_* constants of the same names. */
typedef struct hccc_shape {
  int ranks, sub, lanes, blocks, flags, scratch, stage, queues, slots;
  int grain; /* bytes: how finely calls are cut that name no micro-batch */
} hccc_shape;

/* One launch's sizes, in elements of `size` bytes. */
typedef struct hccc_sizes {
  long long part;
  long long micro;
  long long batches; /* micro-batches in a part */
} hccc_sizes;

HCCC_BOTH long long hccc_round_up(long long n, long long to) { return (n + to - 1) / to * to; }

/* The micro-batch of a call that names none: the power of two next to the square root of the
 * part's bytes times the grain (compiler/ir/micro_batch.py says why). */
HCCC_BOTH long long hccc_default_micro_batch(long long part_bytes, int grain) {
  const double wanted = (double)part_bytes * grain;
  long long micro = HCCC_SMALLEST_DEFAULT;
  while (micro < HCCC_LARGEST_DEFAULT && 2.0 * (double)micro * (double)micro < wanted) micro *= 2;
  return micro;
}

HCCC_BOTH hccc_sizes hccc_sizes_of(hccc_shape shape, long long count, int size,
                                   long long micro_batch_bytes) {
  const long long step = HCCC_ALIGNMENT / size;
  const long long pieces = (long long)shape.sub * shape.lanes;
  hccc_sizes sizes;
  sizes.part = hccc_round_up((count + pieces - 1) / pieces, step);
  if (micro_batch_bytes <= 0) 
    micro_batch_bytes = hccc_default_micro_batch(sizes.part * size, shape.grain);
  if (micro_batch_bytes > HCCC_LARGEST_MICRO_BATCH) micro_batch_bytes = HCCC_LARGEST_MICRO_BATCH;
  sizes.micro = hccc_round_up(micro_batch_bytes, HCCC_ALIGNMENT) / size;
  if (sizes.micro > sizes.part) sizes.micro = sizes.part;
  sizes.batches = sizes.micro ? (sizes.part + sizes.micro - 1) / sizes.micro : 0;
  return sizes;
}

/* Bytes of a rank's scratch memory. */
HCCC_BOTH long long hccc_scratch_bytes(hccc_shape shape, long long count, int size,
                                       long long micro_batch_bytes) {
  const hccc_sizes s = hccc_sizes_of(shape, count, size, micro_batch_bytes);
  const long long chunks = (long long)(shape.scratch + shape.stage) * shape.lanes * s.part;
  const long long messages = (long long)shape.queues * shape.lanes * shape.slots * s.micro;
  return (chunks + messages) * size;
}

/* Bytes of a user buffer of so many blocks (a collective's input or output at one rank). */
HCCC_BOTH long long hccc_buffer_bytes(long long blocks, long long count, int size) {
  return blocks * count * size;
}

/* Where the groups of counters begin, in counters. */
HCCC_BOTH long long hccc_ready_at(hccc_shape s) { return (long long)s.lanes * s.flags; }
HCCC_BOTH long long hccc_done_at(hccc_shape s) { return hccc_ready_at(s) + s.ranks; }
HCCC_BOTH long long hccc_go_at(hccc_shape s) { return hccc_done_at(s) + s.ranks; }
HCCC_BOTH long long hccc_finished_at(hccc_shape s) { return hccc_go_at(s) + 1; }
HCCC_BOTH long long hccc_state_at(hccc_shape s) {
  return hccc_finished_at(s) + (long long)s.blocks * s.lanes;
}

/* Bytes of a rank's flags. They do not depend on the message. */
HCCC_BOTH long long hccc_flag_bytes(hccc_shape s) {
  return (hccc_state_at(s) + (long long)s.blocks * s.lanes) * HCCC_FLAG_STRIDE;
}

/* The kernel's argument, passed by value: everything about a launch that all blocks share. */
typedef struct hccc_params {
  const hccc_rank *ranks; /* all of the collective's ranks */
  hccc_fault *fault;
  long long count;            /* elements */
  long long part;             /* elements */
  unsigned long long timeout; /* ticks of the device's clock */
  unsigned micro;             /* elements */
  unsigned batches;           /* micro-batches in this launch */
  unsigned window;            /* micro-batches in a window, at least 1 */
  int first_rank;
  int in_place;
} hccc_params;

HCCC_BOTH hccc_params hccc_params_of(hccc_shape shape, int size, const hccc_rank *ranks,
                                     const hccc_call *call, hccc_fault *fault,
                                     double ticks_per_second) {
  const hccc_sizes s = hccc_sizes_of(shape, call->count, size, call->micro_batch_bytes);
  const double timeout = call->timeout_s > 0 ? call->timeout_s : 30;
  hccc_params p;
  p.ranks = ranks;
  p.fault = fault;
  p.count = call->count;
  p.part = s.part;
  p.timeout = (unsigned long long)(timeout * ticks_per_second);
  p.micro = (unsigned)s.micro;
  p.batches = (unsigned)s.batches;
  p.window = call->window > 0 ? (unsigned)call->window : s.batches ? (unsigned)s.batches : 1u;
  p.first_rank = call->first_rank;
  p.in_place = call->in_place != 0;
  return p;
}

/* Whether a call can be launched at all. */
HCCC_BOTH int hccc_check_call(hccc_shape shape, const hccc_rank *ranks, const hccc_call *call,
                              const hccc_fault *fault) {
  if (!ranks || !call || !fault || call->count < 0 || call->window < 0) return HCCC_BAD_ARGUMENT;
  if (call->first_rank < 0 || call->n_local < 1) return HCCC_BAD_ARGUMENT;
  return call->n_local <= shape.ranks - call->first_rank ? HCCC_OK : HCCC_BAD_ARGUMENT;
}

#endif
