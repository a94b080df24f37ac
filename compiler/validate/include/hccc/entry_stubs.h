// entry_stubs.h: stubs of the entries of a catalogue's plans, before its dispatcher.
#pragma once

#include "hccc/catalogue.h"

struct hccc_stub_call {
  int times, plan;
  hccc_comm comm;
  hccc_call call;
  const void* stream;
};

static hccc_stub_call hccc_stubbed;

#if HCCC_IS_GPU
#define HCCC_STREAM_PARAMETER , HCCC_STREAM stream
#define HCCC_STREAM_OR_NULL stream
#define HCCC_SOME_STREAM , reinterpret_cast<HCCC_STREAM>(hccc_some_stream)
#else
#define HCCC_STREAM_PARAMETER
#define HCCC_STREAM_OR_NULL nullptr
#define HCCC_SOME_STREAM
#endif

// An entry of the catalogue, and bytes of its elements.
struct hccc_called {
  int (*entry)(const hccc_comm*, const hccc_call* HCCC_STREAM_PARAMETER);
  int size;
};

static int hccc_record_stub(const hccc_comm* comm, const hccc_call* call, const void* stream,
                            int plan, int number);

#define HCCC_STUB(entry, plan, number)                                                     \
  extern "C" int entry(const hccc_comm* comm, const hccc_call* call HCCC_STREAM_PARAMETER) { \
    return hccc_record_stub(comm, call, HCCC_STREAM_OR_NULL, plan, number);                \
  }
