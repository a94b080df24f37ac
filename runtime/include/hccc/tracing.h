// tracing.h: where the launches of a library that was built with HCCC_TRACE record: trace.h.
#pragma once

#ifdef HCCC_TRACE

// The translation units of one library share it; who launches by name finds it by name.
extern "C" {
extern hccc_trace* hccc_tracing;
__attribute__((weak, visibility("default"))) hccc_trace* hccc_tracing = nullptr;
}

// Has a launch record where the library is told to. Returns an hccc_status.
static inline int hccc_trace_into(hccc_params* p, int blocks) {
  const hccc_trace* trace = __atomic_load_n(&hccc_tracing, __ATOMIC_ACQUIRE);
  if (!trace) return HCCC_OK;
  p->trace = *trace;
  return hccc_check_trace(trace, blocks);
}

#endif
