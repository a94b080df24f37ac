#include "ring.inc"
#include "hccc/cpu_runtime.h"

extern "C" int launch(const hccc_rank* ranks, const hccc_call* call, hccc_fault* fault) {
  return hccc_cpu_launch(ranks, call, fault);
}
