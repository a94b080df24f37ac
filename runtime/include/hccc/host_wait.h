// host_wait.h: the counters of a wait, read on the host.
#pragma once

#include "wait_state.h"

static inline bool hccc_wait_over(const hccc_pending_wait& wait) {
  const unsigned have = __atomic_load_n(wait.flag, __ATOMIC_RELAXED);
  return wait.exactly ? have == wait.want : static_cast<int>(have - wait.want) >= 0;
}

static inline bool hccc_wait_aborted(const hccc_pending_wait& wait) {
  return __atomic_load_n(wait.abort, __ATOMIC_RELAXED) != 0;
}
