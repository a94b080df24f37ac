/* layout.h as plain C, for the test that compares it with layout.py. */
#include "hccc/catalogue.h"
#include "hccc/layout.h"
#include "hccc/trace.h"

#include <string.h>

void sizes(const hccc_shape *s, long long count, int size, long long micro, long long *out) {
  const hccc_sizes cut = hccc_sizes_of(*s, count, size, micro);
  out[0] = cut.part;
  out[1] = cut.micro;
  out[2] = cut.batches;
  out[3] = hccc_scratch_bytes(*s, count, size, micro);
  out[4] = hccc_flag_bytes(*s);
  out[5] = hccc_ready_at(*s);
  out[6] = hccc_done_at(*s);
  out[7] = hccc_extension_at(*s);
  out[8] = hccc_go_at(*s);
  out[9] = hccc_finished_at(*s);
  out[10] = hccc_state_at(*s);
  out[11] = hccc_peers_at(*s);
  out[12] = hccc_packets_at(*s);
}

/* Whether a fault that has been reset, whatever was in it, says nothing. */
int reset(void) {
  const hccc_fault none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  hccc_fault fault;
  memset(&fault, 255, sizeof fault);
  hccc_reset_fault(&fault);
  return memcmp(&fault, &none, sizeof fault) == 0;
}

/* What hccc_check_call says of a call of `n_local` ranks. */
int checked(const hccc_shape *s, int size, const hccc_call *given) {
  const hccc_rank rank = {0, 0, 0, 0, 0};
  const hccc_local local = {0, 0, 0, 0, 0};
  hccc_fault fault = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  hccc_comm comm = HCCC_COMM_INIT;
  hccc_call call = *given;
  comm.n_ranks = s->ranks;
  comm.ranks = &rank;
  comm.fault = &fault;
  call.local = &local;
  return hccc_check_call(*s, size, &comm, &call);
}

/* The same of structures whose size or number is another. which: of comm 0 its size, 1 its number, 2
 * its ranks' size; of the call 3 its size, 4 its ranks' size. */
int checked_abi(const hccc_shape *s, int which) {
  const hccc_rank rank = {0, 0, 0, 0, 0};
  const hccc_local local = {0, 0, 0, 0, 0};
  hccc_fault fault = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  hccc_comm comm = HCCC_COMM_INIT;
  hccc_call call = HCCC_CALL_INIT;
  comm.n_ranks = call.n_local = s->ranks;
  comm.ranks = &rank;
  comm.fault = &fault;
  call.local = &local;
  if (which == 0) comm.size += 8;
  if (which == 1) comm.abi -= 1;
  if (which == 2) comm.rank_size += 8;
  if (which == 3) call.size -= 8;
  if (which == 4) call.local_size += 8;
  return hccc_check_call(*s, 4, &comm, &call);
}

/* What hccc_check_call says of a call of one rank with these tables. */
int checked_tables(const hccc_comm *comm, const hccc_call *call) {
  const hccc_shape shape = {2, 1, 1, 1, 0, 0, 0, 0, 0, 1, 4096, 0, 0};
  return hccc_check_call(shape, 4, comm, call);
}

int checked_ring(const hccc_proxy_ring *ring) { return hccc_check_proxy_ring(ring); }

int checked_lengths(const long long *blocks, int lengths, long long count) {
  return hccc_check_lengths(blocks, lengths, count);
}

long long scratch(const hccc_shape *s, long long count, int size) {
  return hccc_scratch_bytes(*s, count, size, 0);
}

void params_of(const hccc_shape *s, const hccc_comm *comm, const hccc_call *call, hccc_params *out) {
  *out = hccc_params_of(*s, 4, comm, call, 1e9);
}

/* The plan that is picked, or minus the status: of calls out of place plan 0, from 100 bytes on plan 1,
 * which has all calls in place. The last range is none: it is not counted. */
int picked(const hccc_comm *comm, const hccc_call *call, int size) {
  static const hccc_shape shape = {2, 1, 1, 1, 0, 0, 0, 0, 0, 1, 4096, 0, 0};
  static const hccc_shape *const shapes[] = {&shape, &shape};
  static const hccc_range ranges[] = {{0, 0, 0, 1, 0}, {0, 1, 0, 1, 100}, {1, 1, 0, 1, 0}, {0, 5, 0, 1, 0}};
  const hccc_catalogue catalogue = {2, 3, shapes, ranges};
  hccc_picked found;
  const int status = hccc_pick_plan(&catalogue, comm, call, size, &found);
  return status ? -status : found.plan;
}

long long plus(long long a, long long b) { return hccc_plus(a, b); }

long long times(long long a, long long b) { return hccc_times(a, b); }

long long buffer_bytes(long long blocks, long long count, int size) {
  return hccc_buffer_bytes(blocks, count, size);
}

unsigned long long ticks(double seconds, double per_second) {
  return hccc_ticks(seconds, per_second);
}

void limits(long long *out) {
  out[0] = HCCC_MOST_BATCHES;
  out[1] = HCCC_MOST_QUEUED_BATCHES;
  out[2] = HCCC_MOST_BLOCKS;
  out[3] = HCCC_MOST_BYTES;
  out[4] = HCCC_MOST_USER_BLOCKS;
}

void structure_sizes(int *out) {
  out[0] = sizeof(hccc_rank);
  out[1] = sizeof(hccc_call);
  out[2] = sizeof(hccc_fault);
  out[3] = sizeof(hccc_params);
  out[4] = sizeof(hccc_comm);
  out[5] = sizeof(hccc_local);
  out[6] = sizeof(hccc_window);
  out[7] = sizeof(hccc_transfer);
  out[8] = sizeof(hccc_proxy_ring);
  out[9] = sizeof(hccc_peer);
  out[10] = sizeof(hccc_trace);
  out[11] = sizeof(hccc_record);
  out[12] = HCCC_TRACE_STRIDE;
  out[13] = HCCC_ABI;
}
