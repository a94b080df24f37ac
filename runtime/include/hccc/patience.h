// patience.h: a wait that takes long: deadlines, and which delays are nobody's fault.
//
// A rank may start later than others. Who waits for it, or for a rank that waits for it, is not to
// give up: while a rank waits for another to start, it now and then tells its neighbours a number
// that grows, and whoever waits and hears a new one starts its deadline again and passes it on. So
// the news follows the waits. It stops when all ranks have started, and deadlines then run.
#pragma once

HCCC_FN int hccc_neighbour_count(int rank);
HCCC_FN int hccc_neighbour(int rank, int i);

HCCC_FN unsigned* hccc_late_line(const hccc_block& b, int from) {
  return hccc_counter(b, b.rank, hccc_late_at(hccc_this_shape) + from);
}

// The newest number that this rank has heard, or told itself.
HCCC_FN unsigned hccc_heard(const hccc_block& b) {
  unsigned newest = hccc_ld_relaxed(hccc_late_line(b, b.rank));
  HCCC_UNROLL(1)
  for (int i = 0; i < hccc_neighbour_count(b.rank); ++i) {
    const unsigned told = hccc_ld_relaxed(hccc_late_line(b, hccc_neighbour(b.rank, i)));
    newest = hccc_reached(newest, told) ? newest : told;
  }
  return newest;
}

// Other ranks may be lost already, and the launch with them; there is no use in saying so here.
HCCC_FN void hccc_tell_late(const hccc_block& b, unsigned number) {
  hccc_st_relaxed(hccc_late_line(b, b.rank), number);
  HCCC_UNROLL(1)
  for (int i = 0; i < hccc_neighbour_count(b.rank); ++i)
    hccc_raise(b, hccc_neighbour(b.rank, i), hccc_late_at(hccc_this_shape) + b.rank, number);
}

// The newest number, passed on; a wait for a rank to start makes it a newer one. Rare, so out of
// line, and with a copy of the block: what is in the caller's registers should stay there.
HCCC_NOINLINE unsigned hccc_look(hccc_block b, int kind) {
  const unsigned heard = hccc_heard(b);
  const unsigned number = kind == HCCC_WAIT_READY ? heard + 1 : heard;
  if (number != hccc_ld_relaxed(hccc_late_line(b, b.rank))) hccc_tell_late(b, number);
  return heard;
}
