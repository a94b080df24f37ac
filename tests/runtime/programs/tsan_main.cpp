// Runs a program under ThreadSanitizer: every block is a thread, several launches back to back.
// Exit code 0 and no report: every access is ordered.
#include "ring.inc"

#include <stdio.h>
#include <stdlib.h>

#include "hccc/cpu_runtime.h"

int main() {
  const long long count = 3000;
  hccc_rank ranks[HCCC_RANKS];
  for (hccc_rank& r : ranks) {
    r.input = calloc(count, sizeof(hccc_T));
    r.output = calloc(count, sizeof(hccc_T));
    r.scratch = nullptr;
    r.flags = aligned_alloc(HCCC_FLAG_STRIDE, hccc_flag_bytes(hccc_this_shape));
    for (long long i = 0; i < hccc_flag_bytes(hccc_this_shape); ++i)
      static_cast<char*>(r.flags)[i] = 0;
  }
  hccc_call call{};
  call.count = count;
  call.n_local = HCCC_RANKS;
  call.micro_batch_bytes = 1024;
  for (int launch = 0; launch < 6; ++launch) {
    hccc_fault fault;
    call.window = launch % 3;
    if (hccc_cpu_launch(ranks, &call, &fault) != HCCC_OK) return 2;
  }
  puts("done");
  return 0;
}
