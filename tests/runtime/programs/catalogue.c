/* catalogue.h as plain C, for the test that compares it with picks.py: of the header of a catalogue
 * that is called both, with 4-byte elements unless said. */
#include "both.h"

int plan_of(const hccc_call *call, int size) { return both_plan_of(call, size); }
long long scratch_bytes(const hccc_call *call, int size) { return both_scratch_bytes(call, size); }
long long flag_bytes(void) { return both_flag_bytes(); }

/* What hccc_pick_plan returns, and what the entry of the plan would be called with. */
int picked(const hccc_comm *comm, const hccc_call *call, int size, long long *out) {
  hccc_picked found;
  const int status = hccc_pick_plan(&both_catalogue, comm, call, size, &found);
  if (status) return status;
  out[0] = found.plan;
  out[1] = found.comm.flags_at;
  out[2] = found.call.window;
  out[3] = found.call.micro_batch_bytes;
  out[4] = found.call.count == call->count && found.call.local == call->local &&
           found.comm.ranks == comm->ranks && found.call.in_place == call->in_place;
  return status;
}
