// cpu_runtime.h: launches the ranks of a call on the host. Include it after the program.
#pragma once

#include "team.h"

// Work too small to repay waking another core, in bytes of all ranks' blocks together.
constexpr double hccc_small_launch = 4 << 20;

static inline int hccc_least(int a, int b) { return a < b ? a : b; }

static inline int hccc_choose_workers(const hccc_call* call, int blocks) {
  if (HCCC_THREADS_AS_BLOCKS) return blocks;
  if (call->workers > 0) return hccc_least(call->workers, blocks);
  const double bytes = double(call->count) * sizeof(hccc_T) * call->n_local;
  return bytes <= hccc_small_launch ? 1 : hccc_least(hccc_cores(), blocks);
}

// Block `index` of a launch; ranks one after the other.
static void hccc_cpu_block(void* params, int index) {
  hccc_run_block(*static_cast<const hccc_params*>(params), index / hccc_blocks_of_rank,
                 index % hccc_blocks_of_rank);
}

// Runs ranks [first_rank, first_rank + n_local) to their ends. Returns an hccc_status.
static inline int hccc_cpu_launch(const hccc_rank* ranks, const hccc_call* call,
                                  hccc_fault* fault) {
  const int bad = hccc_check_call(hccc_this_shape, sizeof(hccc_T), ranks, call, fault);
  if (bad) return bad;
  *fault = hccc_fault{};
  hccc_params p = hccc_params_of(hccc_this_shape, sizeof(hccc_T), ranks, call, fault, 1e9);
  const int blocks = call->n_local * hccc_blocks_of_rank;
  const int status = hccc_run_team(hccc_cpu_block, &p, blocks, hccc_choose_workers(call, blocks));
  if (status != HCCC_OK) return status;
  return fault->claimed ? HCCC_TIMEOUT : HCCC_OK;
}
