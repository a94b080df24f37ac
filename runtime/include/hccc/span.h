// span.h: records when a thread block executes a micro-batch of a primitive (trace.h). Without
// HCCC_TRACE all of it is empty.
#pragma once

#include "block.h"

#ifdef HCCC_TRACE

#define HCCC_TRACED(...) __VA_ARGS__

struct hccc_span {
  hccc_record record;
  bool on;

  HCCC_METHOD void ready() {
    if (on) record.ready = hccc_clock();
  }

  // Lets the block meet, so that all its threads have moved their data, and writes the record.
  HCCC_METHOD void end(const hccc_block& b) {
    hccc_barrier();
    if (!on) return;
    record.end = hccc_clock();
    const hccc_trace& to = b.p->trace;
    const long long rank = b.rank - to.first_rank;
    const long long place = rank * to.blocks + b.tb * HCCC_CHANNELS + b.channel;
    const unsigned long long k = to.written[place * HCCC_TRACE_STRIDE]++;
    to.records[place * to.slots + (k & (to.slots - 1))] = record;
  }
};

HCCC_FN hccc_span hccc_begin_span(const hccc_block& b, int prim, unsigned m) {
  const hccc_trace& to = b.p->trace;
  const int rank = b.rank - to.first_rank;
  hccc_span span{};
  span.on = to.slots && hccc_thread() == 0 && rank >= 0 && rank < to.n_ranks;
  if (span.on) span.record = {hccc_clock(), 0, 0, static_cast<unsigned>(prim), m};
  return span;
}

#else

#define HCCC_TRACED(...)

#endif
