// port_gpu.h: what CUDA and HIP share: blocks of HCCC_THREADS threads that spin. port.h includes it
// after the functions of the platform.
#pragma once

#include "wait_state.h"

#define HCCC_BODY "gpu_body.h"
#define HCCC_PACKETS_BODY "gpu_packets.h"

constexpr unsigned hccc_epoch_bits = 16;  // of a launch's number, in packets
constexpr bool hccc_port_parallel = true;
constexpr int hccc_threads = HCCC_THREADS;

// A unit holds one block, whose threads then have registers for twice the loads in flight (gpu_body.h);
// or two, where a device may have less units than blocks: all ranks are on it, or a rank has many. Calls
// of packets are short, and have few blocks.
#ifndef HCCC_BLOCKS_PER_UNIT
#if HCCC_PACKETS > 0
#define HCCC_BLOCKS_PER_UNIT (1LL * HCCC_RANKS * HCCC_BLOCKS * HCCC_CHANNELS > 128 ? 2 : 1)
#else
#define HCCC_BLOCKS_PER_UNIT (!HCCC_SYSTEM_SCOPE || HCCC_BLOCKS * HCCC_CHANNELS > 64 ? 2 : 1)
#endif
#endif
constexpr int hccc_blocks_per_unit = HCCC_THREADS <= 512 ? HCCC_BLOCKS_PER_UNIT : 1;

HCCC_FN void hccc_rearm(hccc_pending_wait& wait) { wait.start = hccc_clock(); }

// Spins at first, then sleeps; reads the clock and the abort word every 1,024 turns.
HCCC_FN hccc_wait_state hccc_wait_once(hccc_pending_wait& wait) {
  if (++wait.spins > 64) hccc_pause();
  if (wait.spins % 1024) return HCCC_WAITING;
  if (hccc_ld_relaxed(wait.abort)) return HCCC_LAUNCH_LOST;
  const unsigned long long now = hccc_clock();
  if (wait.start == 0) wait.start = wait.polled = now;
  if (now - wait.start > wait.limit) return HCCC_EXPIRED;
  if (now - wait.polled <= wait.period) return HCCC_WAITING;
  wait.polled = now;
  return HCCC_LOOK;
}
