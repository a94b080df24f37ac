// Runs a program under ThreadSanitizer: every block is a thread, several launches back to back.
// Exit code 0 and no report: every access is ordered.
#include "ring.inc"

#include <stdio.h>
#include <stdlib.h>

#include "hccc/cpu_runtime.h"

int main() {
  const long long count = 3000;
  const hccc_window window = HCCC_ALL_MEMORY;
  hccc_rank ranks[HCCC_RANKS];
  hccc_local local[HCCC_RANKS];
  for (int r = 0; r < HCCC_RANKS; ++r) {
    local[r] = {calloc(count, sizeof(hccc_T)), calloc(count, sizeof(hccc_T)), nullptr};
    const long long bytes = hccc_flag_bytes(hccc_this_shape);
    char* flags = static_cast<char*>(aligned_alloc(HCCC_FLAG_STRIDE, bytes));
    for (long long i = 0; i < bytes; ++i) flags[i] = 0;
    ranks[r] = {flags, nullptr, &window, 1, 0};
  }
  hccc_fault fault{};
  hccc_comm comm = HCCC_COMM_INIT;
  comm.n_ranks = HCCC_RANKS;
  comm.ranks = ranks;
  comm.fault = &fault;
  hccc_call call = HCCC_CALL_INIT;
  call.count = count;
  call.n_local = HCCC_RANKS;
  call.local = local;
  call.micro_batch_bytes = 1024;
  for (int launch = 0; launch < 6; ++launch) {
    call.window = launch % 3;
    if (hccc_cpu_launch(&comm, &call) != HCCC_OK) return 2;
  }
  puts("done");
  return 0;
}
