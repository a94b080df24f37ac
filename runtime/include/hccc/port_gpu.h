// port_gpu.h: what CUDA and HIP share: blocks of HCCC_THREADS threads that spin.
#pragma once

#define HCCC_BODY "gpu_body.h"

constexpr bool hccc_port_parallel = true;
constexpr int hccc_threads = HCCC_THREADS;

// Two resident blocks hide each other's waits, as long as a thread keeps 64 registers.
constexpr int hccc_blocks_per_unit = HCCC_THREADS <= 512 ? 2 : 1;

// LOOK: a period has passed.
enum hccc_verdict { HCCC_KEEP_WAITING, HCCC_EXPIRED, HCCC_GIVE_UP, HCCC_LOOK };

// One wait in progress.
struct hccc_patience {
  const unsigned* flag;
  unsigned want;
  const unsigned* abort;
  unsigned long long limit, period;  // ticks
  unsigned long long start, looked;
  unsigned spins;
};

HCCC_FN void hccc_start_again(hccc_patience& p) { p.start = hccc_clock(); }

// Spins cheaply first, then sleeps; looks at the clock and the abort word every 1,024 turns.
HCCC_FN hccc_verdict hccc_be_patient(hccc_patience& p) {
  if (++p.spins > 64) hccc_pause();
  if (p.spins % 1024) return HCCC_KEEP_WAITING;
  if (hccc_ld_relaxed(p.abort)) return HCCC_GIVE_UP;
  const unsigned long long now = hccc_clock();
  if (p.start == 0) p.start = p.looked = now;
  if (now - p.start > p.limit) return HCCC_EXPIRED;
  if (now - p.looked <= p.period) return HCCC_KEEP_WAITING;
  p.looked = now;
  return HCCC_LOOK;
}
