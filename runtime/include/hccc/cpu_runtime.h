// cpu_runtime.h: launches the ranks of a call on the host. Include it after the program.
#pragma once

#include "launch.h"
#include "team.h"
#include "tracing.h"

// Bytes of all ranks' blocks together up to which waking another core does not pay.
constexpr double hccc_small_launch = 4 << 20;

static inline int hccc_least(int a, int b) { return a < b ? a : b; }

static inline int hccc_choose_workers(const hccc_call* call, int blocks) {
  if (HCCC_THREADS_AS_BLOCKS) return blocks;
  if (call->workers > 0) return hccc_least(call->workers, blocks);
  const double bytes = double(call->count) * sizeof(hccc_T) * call->n_local;
  return bytes <= hccc_small_launch ? 1 : hccc_least(hccc_cores(), blocks);
}

// Checks that every rank launched here has flags, and a proxy ring where it needs the network.
// Returns an hccc_status.
static inline int hccc_check_tables(const hccc_comm* comm, const hccc_call* call) {
  for (int l = 0; l < call->n_local; ++l) {
    const int rank = call->first_rank + l;
    const hccc_proxy_ring* ring = call->local[l].proxy_ring;
    bool network = false;
    for (int i = 0; i < hccc_neighbour_count(rank); ++i) {
      const int peer = hccc_neighbour(rank, i);
      if (hccc_is_unmapped(comm->ranks, rank, peer)) return HCCC_BAD_ARGUMENT;
      network = network || !comm->ranks[peer].flags;
    }
    if (!comm->ranks[rank].flags || (network && (!HCCC_NETWORK || !ring))) return HCCC_BAD_ARGUMENT;
    for (int peer = 0; HCCC_GREETS && peer < HCCC_RANKS; ++peer)
      if (!comm->ranks[peer].flags) return HCCC_BAD_ARGUMENT;
    const int bad = HCCC_NETWORK && ring ? hccc_check_proxy_ring(ring) : HCCC_OK;
    if (bad) return bad;
  }
  return HCCC_OK;
}

// Runs block `index` of a launch; blocks are numbered rank by rank.
static void hccc_cpu_block(void* params, int index) {
  hccc_run_block(*static_cast<const hccc_params*>(params), index / hccc_blocks_of_rank,
                 index % hccc_blocks_of_rank);
}

// Runs blocks that nothing has to be checked for any more. Returns an hccc_status.
static inline int hccc_cpu_run(hccc_params* p, int blocks, int workers, bool oversubscribed) {
  const unsigned* lost = &p->fault->claimed;
  if (__atomic_load_n(lost, __ATOMIC_ACQUIRE)) return HCCC_TIMEOUT;
  const int status = hccc_run_team(hccc_cpu_block, p, blocks, workers, oversubscribed);
  if (status != HCCC_OK) return status;
  return __atomic_load_n(lost, __ATOMIC_ACQUIRE) ? HCCC_TIMEOUT : HCCC_OK;
}

#if HCCC_PACKETS > 0 && !defined HCCC_TRACE

static_assert(sizeof(hccc_params) <= sizeof(hccc_again::params), "parameters of a launch fit");

static int hccc_cpu_run_again(hccc_again* again, const hccc_local* local, unsigned long long signature) {
  hccc_params p;
  __builtin_memcpy(&p, again->params, sizeof p);
  p.one = *local, p.signature = signature;
  return hccc_cpu_run(&p, hccc_blocks_of_rank, again->workers, again->oversubscribed);
}

#endif

// Runs ranks [first_rank, first_rank + n_local) to their ends. Returns an hccc_status.
static inline int hccc_cpu_launch(const hccc_comm* comm, const hccc_call* call) {
  int bad = hccc_check_call(hccc_this_shape, sizeof(hccc_T), comm, call);
  if (!bad) bad = hccc_check_tables(comm, call);
  if (!bad) bad = hccc_check_lengths(call->blocks, HCCC_UNEVEN, call->count);
  if (bad) return bad;
  if (__atomic_load_n(&comm->fault->claimed, __ATOMIC_ACQUIRE)) return HCCC_TIMEOUT;
  hccc_params p = hccc_params_of(hccc_this_shape, sizeof(hccc_T), comm, call, 1e9);
#ifdef HCCC_TRACE
  bad = hccc_trace_into(&p, hccc_blocks_of_rank);
  if (bad) return bad;
#endif
  const int blocks = call->n_local * hccc_blocks_of_rank;
  const int workers = hccc_choose_workers(call, blocks);
  const int status = hccc_cpu_run(&p, blocks, workers, call->oversubscribed);
#if HCCC_PACKETS > 0 && !defined HCCC_TRACE
  if (status == HCCC_OK && call->again && call->n_local == 1) {
    *call->again = {hccc_cpu_run_again, workers, call->oversubscribed, {}};
    __builtin_memcpy(call->again->params, &p, sizeof p);
  }
#endif
  return status;
}
