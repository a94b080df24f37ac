// tracing.h: the trace of a library that was built with HCCC_TRACE (trace.h).
#pragma once

#include "layout.h"

#ifdef HCCC_TRACE

// One variable for all translation units of a library, found by name.
extern "C" {
extern hccc_trace* hccc_tracing;
__attribute__((weak, visibility("default"))) hccc_trace* hccc_tracing = nullptr;
}

// Makes a launch record into the library's trace. Returns an hccc_status.
static inline int hccc_trace_into(hccc_params* p, int blocks) {
  const hccc_trace* trace = __atomic_load_n(&hccc_tracing, __ATOMIC_ACQUIRE);
  if (!trace) return HCCC_OK;
  p->trace = *trace;
  return hccc_check_trace(trace, blocks);
}

#endif
