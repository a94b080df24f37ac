// proxy_ring.h: submits transfers to the proxy of the own rank (network.h says what it promises).
#pragma once

#include "block.h"

HCCC_FN const hccc_local& hccc_local_of(const hccc_params& p, int local_rank) {
  return p.local ? p.local[local_rank] : p.one;
}

// Returns whether this rank addresses the memory of another; else only the network reaches it.
HCCC_FN bool hccc_reaches(const hccc_block& b, int rank) {
  return !HCCC_NETWORK || b.p->ranks[rank].flags != nullptr;
}

#if HCCC_NETWORK
HCCC_FN int hccc_memory_domain(int rank);
#else
HCCC_FN int hccc_memory_domain(int) { return 0; }
#endif

// Returns whether a peer of the own memory domain is missing in the caller's table.
HCCC_FN bool hccc_is_unmapped(const hccc_rank* ranks, int rank, int peer) {
  return !ranks[peer].flags && hccc_memory_domain(peer) == hccc_memory_domain(rank);
}

// Returns where a counter is in the flags of any rank, in bytes.
HCCC_FN long long hccc_bytes_of_counter(const hccc_block& b, long long index) {
  return b.p->flags_at + index * HCCC_FLAG_STRIDE;
}

#if HCCC_NETWORK

// Returns the ring, or null where it cannot be used.
HCCC_FN const hccc_proxy_ring* hccc_usable_ring(const hccc_proxy_ring* ring) {
  const bool usable = ring && hccc_check_proxy_ring(ring) == HCCC_OK;
  return usable ? ring : nullptr;
}

// Waits until a counter of the proxy reaches `want`. False: the launch is lost. A proxy waits for
// nobody, so its deadline needs no extensions; and sending them would submit more transfers.
HCCC_FN bool hccc_wait_for_proxy(const hccc_block& b, const unsigned* counter, unsigned want,
                                 int peer) {
  hccc_pending_wait wait{};
  wait.flag = counter, wait.want = want, wait.abort = &b.p->fault->claimed;
  wait.limit = b.p->timeout, wait.period = b.p->period;
  while (!hccc_arrived(counter, want)) {
    const hccc_wait_state state = hccc_wait_once(wait);
    const bool over = state == HCCC_EXPIRED || (state == HCCC_LOOK && hccc_is_over(b));
    if (over) hccc_report(b, hccc_ld_relaxed(counter), want, {HCCC_WAIT_PROXY, peer, -1, 0});
    if (over || state == HCCC_LAUNCH_LOST) return false;
  }
  hccc_acquire_polled();
  return true;
}

// Submits a transfer, by one thread after its block has met: what the block stored is visible
// before the descriptor is. Does nothing where the launch is lost. Out of line: a transfer takes
// µs, and its fields many registers.
HCCC_NOINLINE void hccc_submit(const hccc_block& b, const hccc_transfer& t) {
  if (!b.proxy_ring) return hccc_report(b, 0, 0, {HCCC_NO_PROXY, t.peer, -1, 0});
  const hccc_proxy_ring& ring = *b.proxy_ring;
  const unsigned turn = hccc_count(ring.submitted);
  if (!hccc_wait_for_proxy(b, ring.taken, turn - ring.length + 1, t.peer)) return;
  hccc_transfer* entry = ring.entries + (turn & (ring.length - 1));
  entry->peer = t.peer;
  entry->source_window = t.source_window;
  entry->target_window = t.target_window;
  entry->source = t.source;
  entry->target = t.target;
  entry->bytes = t.bytes;
  entry->counter = t.counter;
  entry->value = t.value;
  entry->tb = t.tb;
  entry->channel = t.channel;
  hccc_st_release(&entry->turn, turn + 1);
}

// Describes a transfer of no bytes that raises a counter of a peer.
HCCC_FN hccc_transfer hccc_counter_transfer(const hccc_block& b, int peer, long long counter,
                                            unsigned value) {
  hccc_transfer t{};
  t.peer = peer;
  t.counter = hccc_bytes_of_counter(b, counter);
  t.value = value;
  t.tb = b.tb;
  t.channel = b.channel;
  return t;
}

#endif

// Raises a counter of any rank, by one thread, after all that this rank has submitted for it.
HCCC_FN void hccc_raise(const hccc_block& b, int rank, long long counter, unsigned value) {
#if HCCC_NETWORK
  if (!hccc_reaches(b, rank)) {
    hccc_transfer t = hccc_counter_transfer(b, rank, counter, value);
    t.tb = -1;
    return hccc_submit(b, t);
  }
#endif
  hccc_st_release(hccc_counter(b, rank, counter), value);
}
