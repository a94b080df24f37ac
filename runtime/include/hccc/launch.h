// launch.h: how a thread block enters a launch and leaves it.
//
// A rank may neither read a neighbour's buffers before the neighbour has entered the launch, nor
// leave while a neighbour may still touch its own. The first block of a rank synchronises with the
// neighbours for all blocks of its rank.
#pragma once

#include "types.h"
#include "wait.h"
#if HCCC_GREETS
#include "packets.h"
#endif

HCCC_FN void hccc_program(hccc_block& b);

constexpr int hccc_blocks_of_rank = HCCC_BLOCKS * HCCC_CHANNELS;

// Tells whether the first block of a rank acts for this one.
HCCC_FN bool hccc_follows(int index) { return hccc_blocks_of_rank > 1 && index != 0; }

// Where a buffer lies among the windows of its rank. window: -1: in none.
struct hccc_found {
  int window;
  long long at;  // bytes past the window's beginning
};

// Notes that a window contains all of a buffer, if it does.
HCCC_FN void hccc_look_in(hccc_found& found, int window, const hccc_window& in, const void* buffer,
                          long long bytes) {
  const unsigned long long begin = reinterpret_cast<unsigned long long>(in.base);
  const unsigned long long past = reinterpret_cast<unsigned long long>(buffer) - begin;
  const unsigned long long room = static_cast<unsigned long long>(in.bytes);
  if (past <= room && static_cast<unsigned long long>(bytes) <= room - past)
    found = {window, static_cast<long long>(past)};
}

// Returns the address of a buffer that another rank describes; null where only the network reaches
// it.
HCCC_FN void* hccc_resolve(const hccc_rank& rank, int window, long long at) {
  const bool reached = (window >= 0) & (window < rank.n_windows) & (rank.flags != nullptr);
  if (!reached) return nullptr;
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

// Finds where this rank's buffers are, in each thread alike: the first windows that contain them.
// False: peers touch a buffer that lies in no window. All windows are looked at, from the last to
// the first, so that no load waits for the comparison before it.
HCCC_FN bool hccc_make_notice(hccc_notice& notice, const hccc_block& b, const hccc_local& local) {
  const hccc_rank own = b.p->ranks[b.rank];
  const long long bytes_in = hccc_buffer_length(b, HCCC_INPUT_BLOCKS(b.rank), 0);
  const long long bytes_out = hccc_buffer_length(b, HCCC_OUTPUT_BLOCKS(b.rank), 1);
  hccc_found input = {-1, 0}, output = {-1, 0};
  HCCC_UNROLL(4)
  for (int w = own.n_windows - 1; w >= 0; --w) {
    const hccc_window window = own.windows[w];
    hccc_look_in(input, w, window, local.input, bytes_in);
    hccc_look_in(output, w, window, local.output, bytes_out);
  }
  notice = {input.window, output.window, input.at, output.at, b.p->signature, hccc_scalar_of(local)};
  const bool lost_input = local.input && bytes_in && input.window < 0;
  const bool lost_output = local.output && bytes_out && output.window < 0;
  if (!HCCC_TOUCHES_PEERS || (!lost_input && !lost_output)) return true;
  if (hccc_thread() == 0)
    hccc_report(b, 0, 0, {HCCC_NOT_IN_WINDOW, lost_input ? 0 : 1, -1, 0});
  return false;
}

// Returns where a neighbour's flags are, this thread's first one's as `first` says: that is loaded before
// the block meets or waits, and not after.
HCCC_FN void* hccc_flags_of(const hccc_block& b, int neighbour, void* first) {
  return neighbour == hccc_thread() ? first : b.p->ranks[hccc_neighbour(b.rank, neighbour)].flags;
}

HCCC_FN void* hccc_first_flags(const hccc_block& b) {
  const int first = hccc_thread();
  return first < hccc_neighbour_count(b.rank) ? b.p->ranks[hccc_neighbour(b.rank, first)].flags : nullptr;
}

// Sends this rank's notice to a neighbour, whose flags are in memory at `flags`; it says that this rank has
// started. Over the network it goes from this rank's own memory.
HCCC_FN void hccc_send_notice(const hccc_block& b, [[maybe_unused]] int peer, [[maybe_unused]] void* flags,
                              const hccc_notice& notice) {
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
  unsigned* counter = hccc_counter_in(b, flags, line);
  *hccc_notice_at(counter) = notice;
  hccc_st_release(counter, b.launch);
}

// Notes where the buffers of a neighbour that has started are. False: it makes another call.
HCCC_FN bool hccc_note_peer(const hccc_block& b, int peer) {
  const hccc_notice notice = *hccc_notice_of(b, peer);
  const hccc_rank rank = b.p->ranks[peer];
  hccc_peer& found = const_cast<hccc_peer&>(b.peers[peer]);
  found.input = hccc_resolve(rank, notice.input_window, notice.input);
  found.output = hccc_resolve(rank, notice.output_window, notice.output);
  found.scalar = notice.scalar;
  if (notice.signature == b.p->signature || !notice.signature || !b.p->signature) return true;
  hccc_report(b, 0, 0, {HCCC_OTHER_CALL, peer, -1, 0});
  return false;
}

// Waits until all neighbours have raised their counters in the group at `group` to this launch.
// False: the launch is lost, or was `ok` in some thread not.
HCCC_FN bool hccc_await_neighbours(const hccc_block& b, long long group, int kind, bool ok = true) {
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); ok && i < hccc_neighbour_count(b.rank); i += hccc_threads) {
    const int peer = hccc_neighbour(b.rank, i);
    ok = hccc_wait(b, hccc_own(b, group + peer), b.launch, {kind, peer, -1, 0});
    if (ok && kind == HCCC_WAIT_READY) ok = hccc_note_peer(b, peer);
  }
  return !hccc_barrier_any(!ok);
}

// Synchronises the first block of a rank with its neighbours' at the start of a launch.
HCCC_FN bool hccc_start_together(const hccc_block& b, const hccc_local& local, bool lost) {
  hccc_notice notice;
  void* const first = hccc_first_flags(b);
  bool ok = hccc_make_notice(notice, b, local) && !lost;
  if (HCCC_NETWORK) hccc_note_begin(b);  // before its notice, which may wait for the proxy
  if (hccc_thread() == 0) {
    if (HCCC_NETWORK || HCCC_SWITCHED) *hccc_notice_of(b, b.rank) = notice;
    const_cast<hccc_peer&>(b.peers[b.rank]) = {local.input, local.output, notice.scalar};
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
    hccc_send_notice(b, hccc_neighbour(b.rank, i), hccc_flags_of(b, i, first), notice);
  if (!HCCC_NETWORK) hccc_note_begin(b);  // after its notice, which nothing delays
  // The fault record may lie in the host's memory, which is far: a thread that hardly ever has a
  // neighbour reads it while the others wait.
  ok = hccc_thread() != hccc_threads - 1 || !hccc_ld_relaxed(&b.p->fault->claimed);
  return hccc_await_neighbours(b, hccc_ready_at(hccc_this_shape), HCCC_WAIT_READY, ok);
}

// Synchronises them at its end: then no peer touches this rank's memory any more, nor its proxy.
// first: hccc_first_flags.
HCCC_FN bool hccc_finish_together(const hccc_block& b, [[maybe_unused]] void* first) {
  const long long done = hccc_done_at(hccc_this_shape);
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < hccc_neighbour_count(b.rank); i += hccc_threads)
#if HCCC_NETWORK
    hccc_raise(b, hccc_neighbour(b.rank, i), done + b.rank, b.launch);
#else
    hccc_st_release(hccc_counter_in(b, hccc_flags_of(b, i, first), done + b.rank), b.launch);
#endif
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
  if (hccc_blocks_of_rank == 1) return true;
  bool ok = true;
  HCCC_UNROLL(1)
  for (int i = 1 + hccc_thread(); ok && i < hccc_blocks_of_rank; i += hccc_threads) {
    const long long at = hccc_finished_at(hccc_this_shape) + i;
    ok = hccc_wait(b, hccc_own(b, at), b.launch, {HCCC_WAIT_FINISHED, i, -1, 0});
  }
  return !hccc_barrier_any(!ok);
}

#if HCCC_PACKETS > 0

// Where only packets cross between ranks, a block neither meets others when it begins nor when it
// ends: packets are numbered with their launch, its epoch, whose bits in a packet are never 0 and keep
// its parity when they wrap. Nor do its threads meet before the end. The fault record may lie in the host's memory, which
// is far from a GPU: there only waits look at it.
HCCC_FN unsigned hccc_next_epoch(unsigned last) {
  const unsigned next = last + 1;
  return next & hccc_epoch_mask ? next : next + 2;
}

HCCC_FN void hccc_enter(hccc_block& b, int, const hccc_local& local) {
  const hccc_state& state = *hccc_state_of(b);
  b.base = state.base;
  b.launch = hccc_next_epoch(state.launch);
  b.own = {local.input, local.output, hccc_scalar_of(local)};
  if (b.p->deadline != HCCC_FOR_EVER) b.begun = hccc_clock();
  b.ranks = b.p->ranks, b.count = static_cast<int>(b.p->count), b.part = static_cast<int>(b.p->part);
  const long long half = static_cast<long long>(b.launch & 1) * HCCC_CHANNELS + b.channel;
  b.slots_at = b.p->flags_at + hccc_packets_at(hccc_this_shape) + half * HCCC_PACKETS * hccc_slot_bytes;
  b.slots = b.flags + (b.slots_at - b.p->flags_at);
  b.stopped = state.lost || (!hccc_port_parallel && hccc_ld_relaxed(&b.p->fault->claimed));
}

HCCC_FN void hccc_leave(hccc_block& b, int) {
  const bool lost = hccc_barrier_any(b.stopped);
  if (hccc_thread() != 0) return;
  hccc_state* state = hccc_state_of(b);
  if (lost) {
    state->lost = 1;
  } else {
    state->base = b.base + b.p->batches;
    state->launch = b.launch;
  }
}

#else

// With a network these functions are long; without one, calls of them would make kernels spill.
#if HCCC_NETWORK
#define HCCC_LAUNCH_FN HCCC_NOINLINE
#else
#define HCCC_LAUNCH_FN HCCC_FN
#endif

// Where an earlier launch was lost, the first block sends no notice and lets no other go.
HCCC_LAUNCH_FN void hccc_enter(hccc_block& b, int index, const hccc_local& local) {
  const hccc_state& state = *hccc_state_of(b);
  const bool lost = state.lost != 0;
  b.base = state.base;
  b.launch = state.launch + 1;
  b.peers = reinterpret_cast<const hccc_peer*>(hccc_own(b, hccc_peers_at(hccc_this_shape)));
#if HCCC_NETWORK
  b.proxy_ring = hccc_usable_ring(local.proxy_ring);
#endif
  if (hccc_follows(index)) {
    hccc_note_begin(b);
    b.stopped = !hccc_wait_alone(b, hccc_go_at(hccc_this_shape), HCCC_WAIT_GO);
    return;
  }
  b.stopped = !hccc_start_together(b, local, lost);
  if (hccc_blocks_of_rank > 1 && !b.stopped && hccc_thread() == 0)
    hccc_st_release(hccc_own(b, hccc_go_at(hccc_this_shape)), b.launch);
}

HCCC_LAUNCH_FN void hccc_leave(hccc_block& b, int index) {
  void* const first = HCCC_NETWORK || hccc_follows(index) ? nullptr : hccc_first_flags(b);
  hccc_barrier();
  hccc_state* state = hccc_state_of(b);
  if (hccc_thread() == 0 && !b.stopped) {
    state->base = b.base + b.p->batches;
    state->launch = b.launch;
    // Nobody waits for the first block, and each release is a fence.
    if (hccc_follows(index))
      hccc_st_release(hccc_own(b, hccc_finished_at(hccc_this_shape) + index), b.launch);
  }
  if (hccc_follows(index)) return;
  const bool done = !b.stopped && hccc_wait_for_blocks(b) && hccc_finish_together(b, first);
  if (hccc_thread() == 0 && !done) state->lost = 1;
}

#endif

#if HCCC_SWITCHED

// Returns the multicast address of a place in a window of all ranks; null: there is none.
HCCC_FN void* hccc_at_all_ranks(const hccc_rank& own, bool alike, int window, long long at) {
  if (!alike || window < 0 || window >= own.n_windows || !own.multicast) return nullptr;
  const hccc_window all = own.windows[own.n_windows + window];
  return all.base ? static_cast<char*>(all.base) + at : nullptr;
}

// Finds the multicast addresses of this launch's buffers, in each block, once all ranks have said where
// theirs are: they must be at one place of one window.
HCCC_FN void hccc_find_multicast(hccc_block& b) {
  const int neighbours = hccc_neighbour_count(b.rank);
  const hccc_notice own = *hccc_notice_of(b, b.rank);
  bool inputs = neighbours == HCCC_RANKS - 1, outputs = inputs;
  HCCC_UNROLL(1)
  for (int i = hccc_thread(); i < neighbours; i += hccc_threads) {
    const hccc_notice other = *hccc_notice_of(b, hccc_neighbour(b.rank, i));
    inputs &= other.input_window == own.input_window && other.input == own.input;
    outputs &= other.output_window == own.output_window && other.output == own.output;
  }
  inputs = !hccc_barrier_any(!inputs);
  outputs = !hccc_barrier_any(!outputs);
  const hccc_rank rank = b.p->ranks[b.rank];
  b.all_inputs = hccc_at_all_ranks(rank, inputs, own.input_window, own.input);
  b.all_outputs = hccc_at_all_ranks(rank, outputs, own.output_window, own.output);
  hccc_meet_alias();
}

#endif

// Runs a block. Blocks of a rank are numbered thread block by thread block, channel by channel.
HCCC_FN void hccc_run_block(const hccc_params& p, int local_rank, int index) {
  hccc_block b{};
  b.p = hccc_place_params(p);
  b.rank = p.first_rank + local_rank;
  b.tb = index / HCCC_CHANNELS;
  b.channel = index % HCCC_CHANNELS;
  b.flags = static_cast<char*>(p.ranks[b.rank].flags) + p.flags_at;
  hccc_enter(b, index, hccc_local_of(p, local_rank));
#if HCCC_SWITCHED
  if (!b.stopped) hccc_find_multicast(b);
#endif
#if HCCC_GREETS
  if (!b.stopped && index == 0) hccc_greet(b);
#endif
  if (!b.stopped) hccc_program(b);
#if HCCC_SWITCHED
  hccc_meet_alias();
#endif
#if HCCC_GREETS
  if (!b.stopped && index == 0) b.stopped = !hccc_await_greetings(b);
#endif
  hccc_leave(b, index);
}
