// launch.h: how a thread block enters a launch and leaves it.
//
// A rank may neither read a neighbour's buffers before the neighbour has entered the launch, nor
// leave while a neighbour may still touch its own. The first block of a rank synchronises with the
// neighbours for all blocks of its rank.
#pragma once

#include "types.h"
#include "wait.h"

HCCC_FN void hccc_program(hccc_block& b);

constexpr int hccc_blocks_of_rank = HCCC_BLOCKS * HCCC_CHANNELS;

HCCC_FN unsigned* hccc_own(const hccc_block& b, long long index) {
  return hccc_counter(b, b.rank, index);
}

// Finds the window of a rank that contains all of a buffer, and the buffer's offset in it; -1:
// none.
HCCC_FN int hccc_find_window(const hccc_rank& rank, const void* buffer, long long bytes,
                             long long* at) {
  for (int w = 0; w < rank.n_windows; ++w) {
    const unsigned long long begin = reinterpret_cast<unsigned long long>(rank.windows[w].base);
    const unsigned long long past = reinterpret_cast<unsigned long long>(buffer) - begin;
    const unsigned long long room = static_cast<unsigned long long>(rank.windows[w].bytes);
    *at = static_cast<long long>(past);
    if (past <= room && static_cast<unsigned long long>(bytes) <= room - past) return w;
  }
  *at = 0;
  return -1;
}

// Returns the address of a buffer that another rank describes; null where only the network reaches
// it.
HCCC_FN void* hccc_resolve(const hccc_rank& rank, int window, long long at) {
  if (window < 0 || window >= rank.n_windows || !rank.flags) return nullptr;
  const unsigned long long base = reinterpret_cast<unsigned long long>(rank.windows[window].base);
  return reinterpret_cast<void*>(base + static_cast<unsigned long long>(at));
}

// Returns the bytes of a user buffer of this rank, the send (0) or the receive buffer (1).
HCCC_FN long long hccc_buffer_length(const hccc_block& b, int blocks, [[maybe_unused]] int which) {
  long long elements = blocks * b.p->count;
#if HCCC_UNEVEN
  constexpr long long sizes = HCCC_UNEVEN + 2LL * HCCC_RANKS * HCCC_RANKS;
  if (b.p->blocks) elements = b.p->blocks[sizes + 2LL * b.rank + which];
#endif
  return elements * static_cast<long long>(sizeof(hccc_T));
}

// Returns the bits of the scalar of a rank launched here.
HCCC_FN unsigned long long hccc_scalar_of(const hccc_local& local) {
  constexpr int size = sizeof(hccc_T) < 8 ? sizeof(hccc_T) : 8;
  if (!hccc_op::multiplies || !local.scalar_at) return local.scalar;
  return *static_cast<const hccc_word_of<size>::word*>(local.scalar_at);
}

// Writes this rank's notice, where its buffers are, into its own memory; by one thread. False:
// peers touch a buffer that lies in no window.
HCCC_FN bool hccc_write_notice(const hccc_block& b, const hccc_local& local) {
  const hccc_rank& own = b.p->ranks[b.rank];
  hccc_notice* notice = hccc_notice_from(b, b.rank, b.rank);
  const long long input = hccc_buffer_length(b, HCCC_INPUT_BLOCKS(b.rank), 0);
  const long long output = hccc_buffer_length(b, HCCC_OUTPUT_BLOCKS(b.rank), 1);
  notice->input_window = hccc_find_window(own, local.input, input, &notice->input);
  notice->output_window = hccc_find_window(own, local.output, output, &notice->output);
  notice->signature = b.p->signature;
  notice->scalar = hccc_scalar_of(local);
  const bool lost_input = local.input && input && notice->input_window < 0;
  const bool lost_output = local.output && output && notice->output_window < 0;
  if (!HCCC_TOUCHES_PEERS || (!lost_input && !lost_output)) return true;
  hccc_report(b, 0, 0, {HCCC_NOT_IN_WINDOW, lost_input ? 0 : 1, -1, 0});
  return false;
}

// Sends this rank's notice to a neighbour, which says that it has started.
HCCC_FN void hccc_send_notice(const hccc_block& b, int peer) {
  const long long line = hccc_ready_at(hccc_this_shape) + b.rank;
#if HCCC_NETWORK
  if (!hccc_reaches(b, peer)) {
    hccc_transfer t = hccc_counter_transfer(b, peer, line, b.launch);
    t.source_window = t.target_window = HCCC_WINDOW_FLAGS;
    t.source = t.target = hccc_bytes_of_counter(b, line) + HCCC_NOTICE_AT;
    t.bytes = sizeof(hccc_notice);
    t.tb = -1;
    return hccc_submit(b, t);
  }
#endif
  *hccc_notice_from(b, peer, b.rank) = *hccc_notice_from(b, b.rank, b.rank);
  hccc_st_release(hccc_counter(b, peer, line), b.launch);
}

// Notes where the buffers of a neighbour that has started are. False: it makes another call.
HCCC_FN bool hccc_note_peer(const hccc_block& b, int peer) {
  const hccc_notice notice = *hccc_notice_from(b, b.rank, peer);
  const hccc_rank& rank = b.p->ranks[peer];
  hccc_peer& found = const_cast<hccc_peer&>(b.peers[peer]);
  found.input = hccc_resolve(rank, notice.input_window, notice.input);
  found.output = hccc_resolve(rank, notice.output_window, notice.output);
  found.scalar = notice.scalar;
  if (notice.signature == b.p->signature || !notice.signature || !b.p->signature) return true;
  hccc_report(b, 0, 0, {HCCC_OTHER_CALL, peer, -1, 0});
  return false;
}

// Waits until all neighbours have raised their counters in the group at `group` to this launch.
HCCC_FN bool hccc_await_neighbours(const hccc_block& b, long long group, int kind) {
  bool ok = true;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); ok && i < hccc_neighbour_count(b.rank); i += hccc_threads) {
    const int peer = hccc_neighbour(b.rank, i);
    ok = hccc_wait(b, hccc_own(b, group + peer), b.launch, {kind, peer, -1, 0});
    if (ok && kind == HCCC_WAIT_READY) ok = hccc_note_peer(b, peer);
  }
  return !hccc_barrier_any(!ok);
}

// Synchronises the first block of a rank with its neighbours' at the start of a launch.
HCCC_FN bool hccc_start_together(const hccc_block& b, const hccc_local& local) {
  bool ok = true;
  if (hccc_thread() == 0) {
    ok = hccc_write_notice(b, local);
    const_cast<hccc_peer&>(b.peers[b.rank]) = {local.input, local.output, hccc_scalar_of(local)};
  }
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); ok && i < hccc_neighbour_count(b.rank); i += hccc_threads) {
    const int peer = hccc_neighbour(b.rank, i);
    ok = !hccc_is_unmapped(b.p->ranks, b.rank, peer);
    if (!ok) hccc_report(b, 0, 0, {HCCC_UNMAPPED, peer, -1, 0});
  }
  if (hccc_barrier_any(!ok)) return false;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < hccc_neighbour_count(b.rank); i += hccc_threads)
    hccc_send_notice(b, hccc_neighbour(b.rank, i));
  return hccc_await_neighbours(b, hccc_ready_at(hccc_this_shape), HCCC_WAIT_READY);
}

// Synchronises them at its end: then no peer touches this rank's memory any more, nor its proxy.
HCCC_FN bool hccc_finish_together(const hccc_block& b) {
  const long long done = hccc_done_at(hccc_this_shape);
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < hccc_neighbour_count(b.rank); i += hccc_threads)
    hccc_raise(b, hccc_neighbour(b.rank, i), done + b.rank, b.launch);
  bool ok = hccc_await_neighbours(b, done, HCCC_WAIT_DONE);
#if HCCC_NETWORK
  if (ok && b.proxy_ring && hccc_thread() == 0) {
    const unsigned submitted = hccc_ld_relaxed(b.proxy_ring->submitted);
    ok = hccc_wait_for_proxy(b, b.proxy_ring->completed, submitted, b.rank);
  }
  ok = !hccc_barrier_any(!ok);
#endif
  return ok;
}

// Waits in one thread on behalf of its block.
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

// Returns whether an earlier launch was lost and its fault was not reset.
HCCC_FN bool hccc_is_lost(const hccc_block& b) {
  const bool lost = hccc_thread() == 0 && hccc_ld_relaxed(&b.p->fault->claimed);
  return hccc_barrier_any(lost);
}

// With a network these functions are long; without one, calls of them would make kernels spill.
#if HCCC_NETWORK
#define HCCC_LAUNCH_FN HCCC_NOINLINE
#else
#define HCCC_LAUNCH_FN HCCC_FN
#endif

HCCC_LAUNCH_FN void hccc_enter(hccc_block& b, int index, const hccc_local& local) {
  b.stopped = hccc_is_lost(b);
  if (b.stopped) return;
  const unsigned* state = hccc_own(b, hccc_state_at(hccc_this_shape) + index);
  b.base = state[0];
  b.launch = state[1] + 1;
  b.peers = reinterpret_cast<const hccc_peer*>(hccc_own(b, hccc_peers_at(hccc_this_shape)));
#if HCCC_NETWORK
  b.proxy_ring = hccc_usable_ring(local.proxy_ring);
#endif
  if (index != 0) {
    b.stopped = !hccc_wait_alone(b, hccc_go_at(hccc_this_shape), HCCC_WAIT_GO);
    return;
  }
  b.stopped = !hccc_start_together(b, local);
  if (!b.stopped && hccc_thread() == 0)
    hccc_st_release(hccc_own(b, hccc_go_at(hccc_this_shape)), b.launch);
}

HCCC_LAUNCH_FN void hccc_leave(hccc_block& b, int index) {
  hccc_barrier();
  if (b.stopped) return;
  if (hccc_thread() == 0) {
    unsigned* state = hccc_own(b, hccc_state_at(hccc_this_shape) + index);
    state[0] = b.base + b.p->batches;
    state[1] = b.launch;
    hccc_st_release(hccc_own(b, hccc_finished_at(hccc_this_shape) + index), b.launch);
  }
  if (index == 0 && hccc_wait_for_blocks(b)) hccc_finish_together(b);
}

// Runs a block. Blocks of a rank are numbered thread block by thread block, channel by channel.
HCCC_FN void hccc_run_block(const hccc_params& p, int local_rank, int index) {
  hccc_block b{};
  b.p = &p;
  b.rank = p.first_rank + local_rank;
  b.tb = index / HCCC_CHANNELS;
  b.channel = index % HCCC_CHANNELS;
  hccc_enter(b, index, hccc_local_of(p, local_rank));
  if (!b.stopped) hccc_program(b);
  hccc_leave(b, index);
}
