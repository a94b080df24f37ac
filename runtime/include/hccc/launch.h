// launch.h: how a thread block enters a launch and leaves it.
//
// A rank may neither read a neighbour's buffers before the neighbour has entered the launch, nor
// leave while a neighbour may still touch its own. The first block of a rank meets the
// neighbours for all blocks of its rank.
#pragma once

HCCC_FN void hccc_program(hccc_block& b);
HCCC_FN int hccc_neighbour_count(int rank);
HCCC_FN int hccc_neighbour(int rank, int i);

constexpr int hccc_blocks_of_rank = HCCC_BLOCKS * HCCC_LANES;

HCCC_FN unsigned* hccc_own(const hccc_block& b, long long index) {
  return hccc_counter(b, b.rank, index);
}

// Tells all neighbours this launch's number in the group of counters at `group`, and waits until
// all of them have told theirs.
HCCC_FN bool hccc_meet(const hccc_block& b, long long group, int kind) {
  const int n = hccc_neighbour_count(b.rank);
  bool ok = true;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < n; i += hccc_threads)
    hccc_st_release(hccc_counter(b, hccc_neighbour(b.rank, i), group + b.rank), b.launch);
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); ok && i < n; i += hccc_threads) {
    const int peer = hccc_neighbour(b.rank, i);
    ok = hccc_wait(b, hccc_own(b, group + peer), b.launch, {kind, peer, -1, 0});
  }
  return !hccc_barrier_any(!ok);
}

// One thread waits on behalf of its block.
HCCC_FN bool hccc_wait_alone(const hccc_block& b, long long index, int kind) {
  bool ok = true;
  if (hccc_thread() == 0) ok = hccc_wait(b, hccc_own(b, index), b.launch, {kind, 0, -1, 0});
  return !hccc_barrier_any(!ok);
}

HCCC_FN bool hccc_wait_for_blocks(const hccc_block& b) {
  bool ok = true;
  HCCC_UNROLL(1)
  for (int i = 1 + hccc_thread(); ok && i < hccc_blocks_of_rank; i += hccc_threads) {
    const long long at = hccc_finished_at(hccc_this_shape) + i;
    ok = hccc_wait(b, hccc_own(b, at), b.launch, {HCCC_WAIT_FINISHED, i, -1, 0});
  }
  return !hccc_barrier_any(!ok);
}

HCCC_FN void hccc_enter(hccc_block& b, int index) {
  const unsigned* state = hccc_own(b, hccc_state_at(hccc_this_shape) + index);
  b.base = state[0];
  b.launch = state[1] + 1;
  if (index != 0) {
    b.stopped = !hccc_wait_alone(b, hccc_go_at(hccc_this_shape), HCCC_WAIT_GO);
    return;
  }
  b.stopped = !hccc_meet(b, hccc_ready_at(hccc_this_shape), HCCC_WAIT_READY);
  if (!b.stopped && hccc_thread() == 0)
    hccc_st_release(hccc_own(b, hccc_go_at(hccc_this_shape)), b.launch);
}

HCCC_FN void hccc_leave(hccc_block& b, int index) {
  hccc_barrier();
  if (b.stopped) return;
  if (hccc_thread() == 0) {
    unsigned* state = hccc_own(b, hccc_state_at(hccc_this_shape) + index);
    state[0] = b.base + b.p->batches;
    state[1] = b.launch;
    hccc_st_release(hccc_own(b, hccc_finished_at(hccc_this_shape) + index), b.launch);
  }
  if (index != 0 || !hccc_wait_for_blocks(b)) return;
  hccc_meet(b, hccc_done_at(hccc_this_shape), HCCC_WAIT_DONE);
}

// Blocks of a rank are numbered thread block by thread block, channel by channel.
HCCC_FN void hccc_run_block(const hccc_params& p, int local_rank, int index) {
  hccc_block b{};
  b.p = &p;
  b.rank = p.first_rank + local_rank;
  b.tb = index / HCCC_LANES;
  b.lane = index % HCCC_LANES;
  hccc_enter(b, index);
  if (!b.stopped) hccc_program(b);
  hccc_leave(b, index);
}
