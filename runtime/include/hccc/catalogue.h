/* catalogue.h: picks the plan of a call out of several. Plain C, for the host.
 *
 * A catalogue has plans of one collective, each for a range of sizes. Each plan's counters go on
 * from launch to launch, so each plan has flags of its own; the flags of all plans follow each
 * other. Scratch holds nothing between launches, so plans share it. All ranks make a call with the
 * same count, dtype and in-placeness: they then pick the same plan.
 */
#ifndef HCCC_CATALOGUE_H
#define HCCC_CATALOGUE_H

#include "layout.h"

/* Calls of one kind from one size up to the next range of the kind, and the plan that runs them. */
typedef struct hccc_range {
  int in_place;    /* the kind: calls in place or out of place */
  int plan;
  int window;      /* of calls that name none; 0: the plan's own */
  int grain;       /* bytes; sets the micro-batch of calls that name none */
  long long begin; /* bytes of a block of `count` elements */
} hccc_range;

/* shapes: of every plan. ranges: ranges of a kind follow each other, the first begins at 0. */
typedef struct hccc_catalogue {
  int n_plans, n_ranges;
  const hccc_shape *const *shapes;
  const hccc_range *ranges;
} hccc_catalogue;

/* A plan and the arguments of its entry. */
typedef struct hccc_picked {
  int plan;
  hccc_comm comm;
  hccc_call call;
} hccc_picked;

/* Finds the range of a call with elements of `size` bytes; null: no plan serves such calls. */
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

/* Returns the shape of the range's plan, with the range's grain. */
static inline hccc_shape hccc_shape_of(const hccc_catalogue *c, const hccc_range *range) {
  hccc_shape shape = *c->shapes[range->plan];
  shape.grain = range->grain;
  return shape;
}

/* Returns the bytes from a rank's flags to those of a plan, for plan n_plans those of all plans;
 * -1: too many. */
static inline long long hccc_flags_of(const hccc_catalogue *c, int plan) {
  long long bytes = 0;
  int k;
  for (k = 0; k < plan; ++k) {
    const long long own = hccc_flag_bytes(*c->shapes[k]);
    bytes = own < 0 ? HCCC_MOST_BYTES + 1 : hccc_plus(bytes, own);
  }
  return hccc_bytes_or_error(bytes);
}

/* Returns the bytes of scratch at every rank for a call; -1: the call is refused. */
static inline long long hccc_scratch_of(const hccc_catalogue *c, const hccc_call *call, int size) {
  const hccc_range *range = hccc_range_of(c, call, size);
  if (!range) return -1;
  return hccc_scratch_bytes(hccc_shape_of(c, range), call->count, size, call->micro_batch_bytes);
}

/* Picks the plan of a call, and fills in what the caller left open. Returns an hccc_status. */
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
  if (!call->micro_batch_bytes && !c->shapes[range->plan]->packets)
    picked->call.micro_batch_bytes =
        hccc_sizes_of(hccc_shape_of(c, range), call->count, size, 0).micro * size;
  return HCCC_OK;
}

#endif
