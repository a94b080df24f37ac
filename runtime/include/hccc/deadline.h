// deadline.h: how long a wait may last, and extensions of deadlines for ranks that start late.
//
// A rank may start later than others; waits for it, and for ranks that wait for it, must not expire
// meanwhile. A rank that waits for another to start sends its neighbours, once a period, a number
// that grows: an extension. A wait that finds a new one restarts its deadline and forwards it, so
// extensions follow the waits. They end when all ranks have started, and deadlines then run. Where
// ranks may not start later than a wait may last, there are no extensions: every wait ends in time.
//
// A launch may have a deadline too, of all its waits together. Waits look at it once a period, those
// for ranks to start do not need to: they are the first of their launch.
#pragma once

#include "proxy_ring.h"

HCCC_FN int hccc_neighbour_count(int rank);
HCCC_FN int hccc_neighbour(int rank, int i);

// Returns whether the wait is for a rank to start, not for a running rank to do something.
HCCC_FN bool hccc_waits_for_start(int kind) {
  return kind == HCCC_WAIT_READY || kind == HCCC_WAIT_GO;
}

// Returns the limit of a wait, in ticks. Where packets are awaited, a rank that has not started looks
// like one that is slow. Waits for whole blocks last a little longer than those for
// data, so that the wait that others depend on is the one reported.
HCCC_FN unsigned long long hccc_limit(const hccc_block& b, int kind) {
  unsigned long long limit = hccc_waits_for_start(kind) ? b.p->join_timeout : b.p->timeout;
  if (HCCC_PACKETS > 0 && limit < b.p->join_timeout) limit = b.p->join_timeout;
  const bool data = kind <= HCCC_WAIT_READY || kind == HCCC_WAIT_PROXY || kind == HCCC_WAIT_PACKET;
  return data || limit == HCCC_FOR_EVER ? limit : limit + limit / 32;
}

// Returns where the own memory holds the extensions of rank `from`.
HCCC_FN unsigned* hccc_extension_line(const hccc_block& b, int from) {
  return hccc_own(b, hccc_extension_at(hccc_this_shape) + from);
}

// Returns the newest extension that this rank has received or sent.
HCCC_FN unsigned hccc_newest_extension(const hccc_block& b) {
  unsigned newest = hccc_ld_relaxed(hccc_extension_line(b, b.rank));
  HCCC_UNROLL(1)
  for (int i = 0; i < hccc_neighbour_count(b.rank); ++i) {
    const unsigned received = hccc_ld_relaxed(hccc_extension_line(b, hccc_neighbour(b.rank, i)));
    newest = hccc_reached(newest, received) ? newest : received;
  }
  return newest;
}

// Sends an extension to all neighbours. Ignores failures: the launch may be lost already.
HCCC_FN void hccc_send_extension(const hccc_block& b, unsigned number) {
  hccc_st_relaxed(hccc_extension_line(b, b.rank), number);
  HCCC_UNROLL(1)
  for (int i = 0; i < hccc_neighbour_count(b.rank); ++i)
    hccc_raise(b, hccc_neighbour(b.rank, i), hccc_extension_at(hccc_this_shape) + b.rank, number);
}

// The state of a long wait's deadlines.
struct hccc_deadlines {
  unsigned extension;  // the newest, which is forwarded; 0: there are none
  bool over;           // the launch's deadline has passed
};

// Looks at extensions and the deadline; a wait for a rank to start sends a newer extension. Rare, so
// out of line, and with a copy of the block, which keeps the caller's in registers.
HCCC_NOINLINE hccc_deadlines hccc_poll_deadlines(hccc_block b, int kind) {
  const bool over = !hccc_waits_for_start(kind) && hccc_is_over(b);
  if (HCCC_PACKETS > 0 || b.p->join_timeout <= b.p->timeout) return {0, over};
  const unsigned newest = hccc_newest_extension(b);
  const unsigned number = kind == HCCC_WAIT_READY ? newest + 1 : newest;
  if (number != hccc_ld_relaxed(hccc_extension_line(b, b.rank))) hccc_send_extension(b, number);
  return {newest, over};
}
