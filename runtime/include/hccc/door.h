// door.h: handing transfers to the proxy of the own rank (network.h says what it promises).
#pragma once

HCCC_FN const hccc_local& hccc_local_of(const hccc_params& p, int local_rank) {
  return p.local ? p.local[local_rank] : p.one;
}

// Whether this rank can address the memory of another; else only the network reaches it.
HCCC_FN bool hccc_reaches(const hccc_block& b, int rank) {
  return !HCCC_NETWORK || b.p->ranks[rank].flags != nullptr;
}

#if HCCC_NETWORK
HCCC_FN int hccc_memory_domain(int rank);
#else
HCCC_FN int hccc_memory_domain(int) { return 0; }
#endif

// Whether the caller's table has no memory of a rank that this one puts into or gets from.
HCCC_FN bool hccc_is_cut_off(const hccc_rank* ranks, int rank, int peer) {
  return !ranks[peer].flags && hccc_memory_domain(peer) == hccc_memory_domain(rank);
}

// Where a counter is in the flags of any rank, in bytes.
HCCC_FN long long hccc_bytes_of_counter(const hccc_block& b, long long index) {
  return b.p->flags_at + index * HCCC_FLAG_STRIDE;
}

#if HCCC_NETWORK

// Null for no door and for one that cannot be used.
HCCC_FN const hccc_door* hccc_usable(const hccc_door* door) {
  const bool usable = door && hccc_check_door(door) == HCCC_OK;
  return usable ? door : nullptr;
}

// Until a counter of the proxy has got so far. A proxy waits for nobody, so there is no news to look
// for; who looks for them comes here, and would hand over more. False: the launch is lost.
HCCC_FN bool hccc_wait_for_proxy(const hccc_block& b, const unsigned* counter, unsigned want,
                                 int peer) {
  hccc_patience wait{};
  wait.flag = counter, wait.want = want, wait.abort = &b.p->fault->claimed;
  wait.limit = b.p->timeout, wait.period = HCCC_FOR_EVER;
  while (!hccc_arrived(counter, want)) {
    const hccc_verdict verdict = hccc_be_patient(wait);
    if (verdict == HCCC_EXPIRED)
      hccc_report(b, hccc_ld_relaxed(counter), want, {HCCC_WAIT_PROXY, peer, -1, 0});
    if (verdict == HCCC_EXPIRED || verdict == HCCC_GIVE_UP) return false;
  }
  hccc_ld_acquire(counter);
  return true;
}

// One thread, after its block has met: what the block stored is visible before the descriptor is.
// Nothing happens where the launch is lost. Out of line: a transfer takes µs, and its fields many
// registers.
HCCC_NOINLINE void hccc_hand_over(const hccc_block& b, const hccc_transfer& t) {
  if (!b.door) return hccc_report(b, 0, 0, {HCCC_NO_DOOR, t.peer, -1, 0});
  const hccc_door& door = *b.door;
  const unsigned turn = hccc_count(door.handed);
  if (!hccc_wait_for_proxy(b, door.taken, turn - door.length + 1, t.peer)) return;
  hccc_transfer* entry = door.ring + (turn & (door.length - 1));
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

// A transfer of nothing, by this block, that raises a counter of a peer.
HCCC_FN hccc_transfer hccc_only_raise(const hccc_block& b, int peer, long long counter,
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

// Raises a counter of any rank, by one thread, after all that this rank has handed over for it.
HCCC_FN void hccc_raise(const hccc_block& b, int rank, long long counter, unsigned value) {
#if HCCC_NETWORK
  if (!hccc_reaches(b, rank)) {
    hccc_transfer t = hccc_only_raise(b, rank, counter, value);
    t.tb = -1;
    return hccc_hand_over(b, t);
  }
#endif
  hccc_st_release(hccc_counter(b, rank, counter), value);
}
