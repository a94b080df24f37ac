/* catalogue.h: which of several plans a call runs, and how. Plain C, for the host.
 *
 * A catalogue has plans of one collective and says which serves which sizes. Each plan's counters
 * go on from launch to launch, so each has flags of its own: those of all plans follow each other.
 * Scratch holds nothing between launches, so they share it. All ranks must make a call with the
 * same count, dtype and in-placeness, as ever: they then take the same plan.
 */
#ifndef HCCC_CATALOGUE_H
#define HCCC_CATALOGUE_H

#include "layout.h"

/* What serves calls of one kind from some size on, to where the next of the kind begins. */
typedef struct hccc_range {
  int in_place;    /* the kind */
  int plan;
  int window;      /* of calls that name none; 0: the plan's own */
  int grain;       /* bytes: how finely calls are cut that name no micro-batch */
  long long begin; /* bytes of a block of `count` elements */
} hccc_range;

/* shapes: of every plan; ranges: those of a kind follow each other, the first begins at 0. */
typedef struct hccc_catalogue {
  int n_plans, n_ranges;
  const hccc_shape *const *shapes;
  const hccc_range *ranges;
} hccc_catalogue;

/* What the plan's own entry is to be called with. */
typedef struct hccc_picked {
  int plan;
  hccc_comm comm;
  hccc_call call;
} hccc_picked;

/* The range that has a call, of elements of `size` bytes; null where none serves such calls. */
static inline const hccc_range *hccc_range_of(const hccc_catalogue *c, const hccc_call *call,
                                              int size) {
  const hccc_range *found = 0;
  int i;
  if (call->count < 0 || size < 1) return 0;
  for (i = 0; i < c->n_ranges; ++i) {
    const hccc_range *range = &c->ranges[i];
    if (range->in_place == (call->in_place != 0) &&
        hccc_times(call->count, size) >= range->begin)
      found = range;
  }
  return found;
}

/* The plan's shape, cut as finely as the range says. */
static inline hccc_shape hccc_shape_of(const hccc_catalogue *c, const hccc_range *range) {
  hccc_shape shape = *c->shapes[range->plan];
  shape.grain = range->grain;
  return shape;
}

/* Bytes from a rank's flags to those of a plan; of plan n_plans, of all; -1 for too many. */
static inline long long hccc_flags_of(const hccc_catalogue *c, int plan) {
  long long bytes = 0;
  int k;
  for (k = 0; k < plan; ++k) {
    const long long own = hccc_flag_bytes(*c->shapes[k]);
    bytes = own < 0 ? HCCC_MOST_BYTES + 1 : hccc_plus(bytes, own);
  }
  return hccc_told(bytes);
}

/* Bytes of scratch at every rank for one call; -1 for one that is refused. */
static inline long long hccc_scratch_of(const hccc_catalogue *c, const hccc_call *call, int size) {
  const hccc_range *range = hccc_range_of(c, call, size);
  if (!range) return -1;
  return hccc_scratch_bytes(hccc_shape_of(c, range), call->count, size, call->micro_batch_bytes);
}

/* Finds the plan of a call, and fills in what the caller left open. Returns an hccc_status. */
static inline int hccc_pick_plan(const hccc_catalogue *c, const hccc_comm *comm,
                                 const hccc_call *call, int size, hccc_picked *picked) {
  const hccc_range *range;
  int bad;
  if (!comm || !call) return HCCC_BAD_ARGUMENT;
  bad = hccc_check_abi(comm, call);
  if (bad) return bad;
  range = hccc_range_of(c, call, size);
  if (!range || comm->flags_at < 0) return HCCC_BAD_ARGUMENT;
  picked->plan = range->plan;
  picked->comm = *comm;
  picked->comm.flags_at = hccc_plus(comm->flags_at, hccc_flags_of(c, range->plan));
  picked->call = *call;
  if (!call->window) picked->call.window = range->window;
  if (!call->micro_batch_bytes)
    picked->call.micro_batch_bytes =
        hccc_sizes_of(hccc_shape_of(c, range), call->count, size, 0).micro * size;
  return HCCC_OK;
}

#endif
