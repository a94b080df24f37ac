/* layout.h as plain C, for the test that compares it with layout.py. */
#include "hccc/layout.h"

void sizes(const hccc_shape *s, long long count, int size, long long micro, long long *out) {
  const hccc_sizes cut = hccc_sizes_of(*s, count, size, micro);
  out[0] = cut.part;
  out[1] = cut.micro;
  out[2] = cut.batches;
  out[3] = hccc_scratch_bytes(*s, count, size, micro);
  out[4] = hccc_flag_bytes(*s);
  out[5] = hccc_ready_at(*s);
  out[6] = hccc_done_at(*s);
  out[7] = hccc_go_at(*s);
  out[8] = hccc_finished_at(*s);
  out[9] = hccc_state_at(*s);
}

/* What hccc_check_call says of a call of `n_local` ranks. */
int checked(const hccc_shape *s, int size, const hccc_call *call) {
  const hccc_rank rank = {0, 0, 0, 0};
  const hccc_fault fault = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  return hccc_check_call(*s, size, &rank, call, &fault);
}

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
}
