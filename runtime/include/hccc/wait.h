// wait.h: a thread's wait for a counter of its rank.
#pragma once

#include "deadline.h"

// Waits in this thread until the counter reaches `want`, or a packet's flag is that. False: the
// launch is lost.
HCCC_FN bool hccc_wait(const hccc_block& b, const unsigned* flag, unsigned want,
                       const hccc_cause& cause) {
  const bool exactly = HCCC_PACKETS > 0 && cause.kind == HCCC_WAIT_PACKET;
  if (!hccc_arrived(flag, want, exactly)) {
    hccc_pending_wait wait{};
    wait.flag = flag, wait.want = want, wait.exactly = exactly, wait.abort = &b.p->fault->claimed;
    wait.limit = hccc_limit(b, cause.kind), wait.period = b.p->period;
    unsigned extension = 0;  // the newest known
    do {
      const hccc_wait_state state = hccc_wait_once(wait);
      if (state == HCCC_WAITING) continue;
      const bool lost = state == HCCC_LAUNCH_LOST;
      const hccc_deadlines found = lost ? hccc_deadlines{extension, false} : hccc_poll_deadlines(b, cause.kind);
      if (found.extension != extension && !found.over && !hccc_waits_for_start(cause.kind)) {
        hccc_rearm(wait);
      } else if (state == HCCC_EXPIRED || lost || found.over) {
        // Of an aborted launch only a wait inside a primitive is worth a report.
        const unsigned have = hccc_ld_relaxed(flag) >> (exactly ? hccc_epoch_shift : 0);
        if (!lost || cause.prim >= 0) hccc_report(b, have, want, cause, lost ? HCCC_ABORT_REQUEST : 0);
        return false;
      }
      extension = found.extension;
    } while (!hccc_arrived(flag, want, exactly));
  }
  hccc_acquire_polled();
  return true;
}
