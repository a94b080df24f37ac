// record_entry.h: calls the entries of a catalogue, and the functions of its C header, for the
// record. Included last by the translation unit that compiler/validate/entry.py writes, which
// includes recorder.h, the header and the dispatcher, and defines
//
//   HCCC_CATALOGUE(rest)   NAME##rest
//   HCCC_BY_NAME           the entry that takes names
//   HCCC_STREAM            "" on the CPU, else the type of a stream
//   HCCC_IS_GPU
//   HCCC_STUB(entry, plan, number) for the entry of each plan, dtype and op that was built
//   HCCC_CALLED            {entry, bytes of an element}, …: the catalogue's entries, in that order
//   HCCC_QUERIES           {dtype, op}, …: what the dispatcher is asked for
#pragma once

constexpr int hccc_first_status = 1000;  // of the first entry; compiler/validate/tables.py, LAUNCHED

// Addresses that are passed on and never looked at.
static hccc_rank hccc_some_rank;
static hccc_local hccc_some_local;
static hccc_fault hccc_some_fault;
static char hccc_some_stream[1];

static int hccc_record_stub(const hccc_comm* comm, const hccc_call* call, const void* stream,
                            int plan, int number) {
  const int times = hccc_stubbed.times + 1;
  hccc_stubbed = {times, plan, *comm, *call, stream};
  return hccc_first_status + number;
}

static hccc_comm hccc_comm_like(long long flags_at) {
  hccc_comm comm = HCCC_COMM_INIT;
  comm.n_ranks = 3, comm.ranks = &hccc_some_rank, comm.fault = &hccc_some_fault;
  comm.flags_at = flags_at;
  return comm;
}

static const long long hccc_some_blocks = 0;

static hccc_call hccc_call_like() {
  hccc_call call = HCCC_CALL_INIT;
  call.timeout_s = 7, call.join_timeout_s = 19, call.deadline_s = 41;
  call.workers = 11, call.first_rank = 13;
  call.n_local = 17, call.oversubscribed = 31, call.local = &hccc_some_local, call.count = 3,
  call.signature = 37, call.blocks = &hccc_some_blocks;
  return call;
}

// Returns whether the plan's entry got the catalogue's arguments, except those that a range sets.
static bool hccc_passed_on(const hccc_call& given) {
  const hccc_call& call = hccc_stubbed.call;
  const hccc_comm& comm = hccc_stubbed.comm;
  return comm.size == sizeof comm && comm.abi == HCCC_ABI && comm.rank_size == sizeof(hccc_rank) &&
         comm.n_ranks == 3 && comm.ranks == &hccc_some_rank && comm.fault == &hccc_some_fault &&
         (!HCCC_IS_GPU || hccc_stubbed.stream == hccc_some_stream) && call.size == given.size &&
         call.local_size == given.local_size && call.count == given.count &&
         call.timeout_s == given.timeout_s && call.join_timeout_s == given.join_timeout_s &&
         call.deadline_s == given.deadline_s &&
         call.in_place == given.in_place && call.workers == given.workers &&
         call.first_rank == given.first_rank && call.n_local == given.n_local &&
         call.oversubscribed == given.oversubscribed && call.signature == given.signature &&
         call.local == given.local && call.blocks == given.blocks;
}

static long long hccc_long_at(const int* cells) {
  return static_cast<long long>(static_cast<unsigned>(cells[0])) |
         static_cast<long long>(cells[1]) * (1LL << 32);
}

static void hccc_put_long(int* cells, long long value) {
  cells[0] = static_cast<int>(static_cast<unsigned>(value & 0xffffffffLL));
  cells[1] = static_cast<int>(value >> 32);
}

// Rows of HCCC_CALLS begin as a call; its results follow (compiler/validate/entry.py).
static void hccc_record_picks() {
  static const hccc_called called[] = {HCCC_CALLED};
  hccc_table& table = hccc_record->table[HCCC_CALLS];
  int* cells = reinterpret_cast<int*>(hccc_record) + table.at;
  for (long long i = 0; i < hccc_record->calls; ++i, cells += table.width) {
    hccc_call call = hccc_call_like();
    const hccc_called& entry = called[cells[0]];
    call.in_place = cells[1], call.window = cells[2], call.count = hccc_long_at(cells + 3);
    call.micro_batch_bytes = hccc_long_at(cells + 5);
    const hccc_comm comm = hccc_comm_like(hccc_long_at(cells + 7));
    hccc_stubbed = hccc_stub_call{};
    cells[9] = entry.entry(&comm, &call HCCC_SOME_STREAM);
    cells[10] = hccc_stubbed.times, cells[11] = hccc_stubbed.plan;
    cells[12] = hccc_stubbed.call.window;
    hccc_put_long(cells + 13, hccc_stubbed.call.micro_batch_bytes);
    hccc_put_long(cells + 15, hccc_stubbed.comm.flags_at);
    cells[17] = hccc_stubbed.times && hccc_passed_on(call);
    cells[18] = HCCC_CATALOGUE(_plan_of)(&call, entry.size);
    hccc_put_long(cells + 19, HCCC_CATALOGUE(_scratch_bytes)(&call, entry.size));
    hccc_put_long(cells + 21, HCCC_CATALOGUE(_flag_bytes)());
    ++table.count;
  }
}

static void hccc_record_names() {
  static const char* const queries[][2] = {HCCC_QUERIES};
  for (const auto& query : queries) {
    const hccc_call call = hccc_call_like();
    const hccc_comm comm = hccc_comm_like(0);
    hccc_stubbed = hccc_stub_call{};
    const int status = HCCC_BY_NAME(&comm, &call, query[0], query[1] HCCC_SOME_STREAM);
    const int times = hccc_stubbed.times;
    hccc_put_row(HCCC_NAMES, status, times, !times || hccc_passed_on(call));
  }
}

#include "record_library.h"

// Returns whether a launch by the library's function is the same as by name.
static bool hccc_same_launch(hccc_launch_function* launch) {
  const hccc_call call = hccc_call_like();
  const hccc_comm comm = hccc_comm_like(0);
  hccc_stubbed = hccc_stub_call{};
  const int wanted = HCCC_BY_NAME(&comm, &call, "float16", "sum" HCCC_SOME_STREAM);
  const int times = hccc_stubbed.times, plan = hccc_stubbed.plan;
  hccc_stubbed = hccc_stub_call{};
  const int status = launch(&comm, &call, "float16", "sum", hccc_some_stream);
  return status == wanted && hccc_stubbed.times == times && hccc_stubbed.plan == plan &&
         (!times || hccc_passed_on(call));
}

int main(int argc, char** argv) {
  hccc_confine(argc, argv, nullptr);
  if (!hccc_record) return 3;
  for (int rank = 0; rank < hccc_record->ranks; ++rank)
    hccc_put_row(HCCC_USER_BLOCKS, rank, HCCC_CATALOGUE(_input_blocks)(rank),
                 HCCC_CATALOGUE(_output_blocks)(rank));
  for (long long plan = 0; plan < hccc_record->blocks; ++plan) {
    const hccc_shape& s = *HCCC_CATALOGUE(_catalogue).shapes[plan];
    hccc_put_row(HCCC_SHAPE, s.ranks, s.sub, s.channels, s.blocks, s.flags, s.scratch, s.stage,
                 s.queues, s.sends, s.slots, s.grain, s.packets, s.lines, 1);
  }
  hccc_record_picks();
  hccc_record_names();
  hccc_record_library(hccc_same_launch);
  hccc_stop(HCCC_DONE);
}
