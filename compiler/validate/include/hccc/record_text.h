// record_text.h: runs a text, and the C header and dispatcher beside it, for the record. Included
// last by the translation unit that compiler/validate/unit.py writes, which defines
//
//   HCCC_VALIDATED(rest)     NAME##rest
//   HCCC_ENTRY_OF(d, o)      the entry of a dtype and an op, HCCC_BY_NAME that of the dispatcher
//   HCCC_IS_GPU, HCCC_HAS_HEADER, HCCC_HAS_DISPATCH
//   HCCC_ENTRIES(E)          E(dtype, op) for each that the header declares, but for float16, sum
//   HCCC_QUERIES             {dtype, op}, …: what the dispatcher is asked for
#pragma once

#include "reductions.h"

void hccc_record_run(int rank, int tb, int channel) {
  hccc_block block(rank, tb, channel);
  hccc_record->rank = rank, hccc_record->tb = tb, hccc_record->channel = channel;
  hccc_window_now = hccc_no_window;
  hccc_program(block);
  if (hccc_window_now == hccc_no_window)
    hccc_end_window();
  else if (hccc_window_now != hccc_windows)
    hccc_stop(HCCC_LEFT);
}

// Records a thread block: the first window of the first channel, which every other channel and
// window must repeat.
static void hccc_record_block(int rank, int tb) {
  hccc_repeats = false;
  for (int name = 0; name < hccc_of_blocks; ++name)
    hccc_begin[name] = hccc_next[name] = hccc_record->table[name].count;
  for (long long channel = 0; channel < hccc_record->channels; channel += hccc_record->channel_step)
    hccc_record_run(rank, tb, static_cast<int>(channel));
  if (hccc_record->channels > 1)
    hccc_record_run(rank, tb, static_cast<int>(hccc_record->channels) - 1);
}

static void hccc_record_neighbours(int rank) {
  const int n = hccc_neighbour_count(rank);
  for (int i = 0; i < n; ++i) hccc_put_row(HCCC_NEIGHBOURS, rank, hccc_neighbour(rank, i));
}

#if HCCC_IS_GPU
typedef HCCC_GPU(Stream_t) hccc_stream;
#define HCCC_STREAM , hccc_stream stream
#define HCCC_AND_STREAM , stream
#define HCCC_STREAM_OR_NULL stream
#else
#define HCCC_STREAM
#define HCCC_AND_STREAM
#define HCCC_STREAM_OR_NULL nullptr
#endif

// Addresses that are passed on and never looked at.
static hccc_comm hccc_some_comm;
static hccc_local hccc_some_local;
static char hccc_some_stream[1];

static int hccc_call_entry(const hccc_call* call) {
#if HCCC_IS_GPU
  hccc_stream stream = reinterpret_cast<hccc_stream>(hccc_some_stream);
  hccc_kernel_is_written();
#endif
  return HCCC_ENTRY_OF(float16, sum)(&hccc_some_comm, call HCCC_AND_STREAM);
}

static const long long hccc_some_blocks = 0;

static hccc_call hccc_call_like(int in_place, int window) {
  hccc_call call{};
  call.count = 3, call.micro_batch_bytes = 5, call.timeout_s = 7;
  call.workers = 11, call.first_rank = 13, call.n_local = 17;
  call.join_timeout_s = 19, call.deadline_s = 41;
  call.size = 23, call.local_size = 29, call.oversubscribed = 31, call.local = &hccc_some_local;
  call.in_place = in_place, call.window = window, call.signature = 37;
  call.blocks = &hccc_some_blocks;
  return call;
}

// Returns whether the launch got the entry's arguments, except the window.
static bool hccc_passed_on(const hccc_call& given) {
  const hccc_call& call = hccc_last.call;
  return hccc_last.comm == &hccc_some_comm &&
         (!HCCC_IS_GPU || hccc_last.stream == hccc_some_stream) && call.count == given.count &&
         call.micro_batch_bytes == given.micro_batch_bytes && call.timeout_s == given.timeout_s &&
         call.join_timeout_s == given.join_timeout_s && call.deadline_s == given.deadline_s &&
         call.size == given.size &&
         call.local_size == given.local_size && call.oversubscribed == given.oversubscribed &&
         call.local == given.local && call.blocks == given.blocks && call.in_place == given.in_place &&
         call.workers == given.workers && call.signature == given.signature &&
         call.first_rank == given.first_rank && call.n_local == given.n_local;
}

// Rows of HCCC_CALLS begin as (in place, window), -1 for no call at all; the results follow.
static void hccc_record_calls() {
  hccc_table& table = hccc_record->table[HCCC_CALLS];
  int* cells = reinterpret_cast<int*>(hccc_record) + table.at;
  for (long long i = 0; i < hccc_record->calls; ++i, cells += table.width) {
    const hccc_call call = hccc_call_like(cells[0], cells[1]);
    hccc_last = hccc_launched{};
    const bool none = cells[0] < 0;
    cells[2] = hccc_call_entry(none ? nullptr : &call);
    cells[3] = hccc_last.times;
    cells[4] = none ? !hccc_last.given : hccc_last.times && hccc_passed_on(call);
    cells[5] = hccc_last.call.window;
    ++table.count;
  }
}

#if HCCC_HAS_HEADER
static int hccc_same_sizes(const hccc_shape& shape) {
  for (long long count = 0; count < 4000; count += 997) {
    hccc_call call{};
    call.count = count, call.micro_batch_bytes = 512;
    for (int size = 1; size <= 8; size *= 2)
      if (HCCC_VALIDATED(_scratch_bytes)(&call, size) != hccc_scratch_bytes(shape, count, size, 512))
        return 0;
  }
  return HCCC_VALIDATED(_flag_bytes)() == hccc_flag_bytes(shape);
}

static void hccc_record_header() {
  const hccc_shape& s = HCCC_VALIDATED(_shape);
  hccc_put_row(HCCC_SHAPE, s.ranks, s.sub, s.channels, s.blocks, s.flags, s.scratch, s.stage,
               s.queues, s.sends, s.slots, s.grain, s.packets, s.lines, hccc_same_sizes(s));
  for (int rank = 0; rank < hccc_record->ranks; ++rank)
    hccc_put_row(HCCC_USER_BLOCKS, rank, HCCC_VALIDATED(_input_blocks)(rank),
                 HCCC_VALIDATED(_output_blocks)(rank));
}
#endif

#if HCCC_HAS_DISPATCH
#include "record_library.h"

// Every entry but the text's own: it says which it is.
#define HCCC_NUMBER(d, o) HCCC_ENTRY_##d##_##o,
enum hccc_entry_number { HCCC_TEXT_ENTRY = hccc_launch_status, HCCC_ENTRIES(HCCC_NUMBER) };
#define HCCC_STUB(d, o)                                                             \
  extern "C" int HCCC_ENTRY_OF(d, o)(const hccc_comm* comm,                         \
                                     const hccc_call* call HCCC_STREAM) {           \
    hccc_record_launch(comm, call, HCCC_STREAM_OR_NULL);                            \
    return HCCC_ENTRY_##d##_##o;                                                    \
  }
HCCC_ENTRIES(HCCC_STUB)

static void hccc_record_names() {
  static const char* const queries[][2] = {HCCC_QUERIES};
#if HCCC_IS_GPU
  hccc_stream stream = reinterpret_cast<hccc_stream>(hccc_some_stream);
#endif
  for (const auto& query : queries) {
    const hccc_call call = hccc_call_like(0, 0);
    hccc_last = hccc_launched{};
    const int status =
        HCCC_BY_NAME(&hccc_some_comm, &call, query[0], query[1] HCCC_AND_STREAM);
    hccc_put_row(HCCC_NAMES, status, hccc_last.times, !hccc_last.times || hccc_passed_on(call));
  }
}

// Returns whether a launch by the library's function is the same as by name.
static bool hccc_same_launch(hccc_launch_function* launch) {
  const hccc_call call = hccc_call_like(0, 0);
#if HCCC_IS_GPU
  hccc_stream stream = reinterpret_cast<hccc_stream>(hccc_some_stream);
#endif
  hccc_last = hccc_launched{};
  const int wanted = HCCC_BY_NAME(&hccc_some_comm, &call, "float16", "sum" HCCC_AND_STREAM);
  const int times = hccc_last.times;
  hccc_last = hccc_launched{};
  const int status = launch(&hccc_some_comm, &call, "float16", "sum", hccc_some_stream);
  return status == wanted && hccc_last.times == times && (!times || hccc_passed_on(call));
}
#endif

int main(int argc, char** argv) {
  hccc_confine(argc, argv, nullptr);
  if (!hccc_record) return 3;
  for (int rank = 0; rank < hccc_record->ranks; ++rank)
    for (int tb = 0; tb < hccc_record->blocks; ++tb) hccc_record_block(rank, tb);
  for (int rank = 0; rank < hccc_record->ranks; ++rank) hccc_record_neighbours(rank);
  for (int value : hccc_constants) hccc_put_row(HCCC_CONSTANTS, value);
  for (int rank = 0; rank < hccc_record->ranks; ++rank)
    hccc_put_row(HCCC_BUFFERS, rank, HCCC_INPUT_BLOCKS(rank), HCCC_OUTPUT_BLOCKS(rank));
#if HCCC_NETWORK
  for (int rank = 0; rank < hccc_record->ranks; ++rank)
    hccc_put_row(HCCC_DOMAINS, rank, hccc_memory_domain(rank));
#endif
  hccc_record_calls();
  hccc_record_reductions();
#if HCCC_HAS_HEADER
  hccc_record_header();
#endif
#if HCCC_HAS_DISPATCH
  hccc_record_names();
  hccc_record_library(hccc_same_launch);
#endif
  hccc_stop(HCCC_DONE);
}
