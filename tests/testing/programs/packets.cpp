// Ranks that make launches of a kernel of protocol LL at their own speed, each in a thread of its own:
// nothing but packets keeps them together. test_packets.py writes world.h: what the kernel is, an
// AllReduce or, where there is a root, a Broadcast.
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <thread>

static const int n_ranks = HCCC_RANKS, n_launches = 60;
static const hccc_window window = HCCC_ALL_MEMORY;
static hccc_fault fault;
static hccc_rank ranks[n_ranks];
static long long wrong[n_ranks];
static int status[n_ranks];

static char* zeroed(size_t bytes) {
  bytes = (bytes / HCCC_FLAG_STRIDE + 1) * HCCC_FLAG_STRIDE;
  return static_cast<char*>(memset(aligned_alloc(HCCC_FLAG_STRIDE, bytes), 0, bytes));
}

static hccc_T given(int rank, int launch, long long i) {
  return static_cast<hccc_T>(1 + rank + 7 * launch + 3 * i % 101);
}

// Short and long calls in turn, and some of nothing.
static long long count_of(int launch) {
  const long long counts[] = {1, world_count, 5, 0, world_count / 2, 0, world_count};
  return counts[launch % 7];
}

static void run(int rank) {
  hccc_T* buffer = reinterpret_cast<hccc_T*>(zeroed(2 * world_count * sizeof(hccc_T)));
  unsigned dice = static_cast<unsigned>(rank) * 2654435761u + 1;
  hccc_comm comm = HCCC_COMM_INIT;
  comm.n_ranks = n_ranks, comm.ranks = ranks, comm.fault = &fault;
  for (int k = 0; k < n_launches && !status[rank]; ++k) {
    const long long count = count_of(k);
    const bool in_place = k % 3 == 0;
    hccc_local local = {buffer, in_place ? buffer : buffer + world_count, nullptr, 0, nullptr};
    hccc_call call = HCCC_CALL_INIT;
    call.count = count, call.in_place = in_place, call.first_rank = rank, call.n_local = 1;
    call.local = &local, call.timeout_s = call.join_timeout_s = 10, call.oversubscribed = 1;
    call.signature = static_cast<unsigned long long>(k) + 1;
    for (long long i = 0; i < count; ++i) buffer[i] = given(rank, k, i);
    dice = dice * 1664525u + 1013904223u;
    // Where there are old packets rank 0 is late, so that rank 1 would take them: of chunk 1 first.
    if (world_stale && rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (dice >> 30 == 0) std::this_thread::sleep_for(std::chrono::microseconds(dice >> 22 & 255));
    status[rank] = hccc_cpu_launch(&comm, &call);
    for (long long i = 0; i < count; ++i) {
      hccc_T sum = 0;
      for (int r = 0; r < n_ranks; ++r)
        if (world_root < 0 || r == world_root) sum = static_cast<hccc_T>(sum + given(r, k, i));
      wrong[rank] += static_cast<hccc_T*>(local.output)[i] != sum;
    }
  }
}

int main() {
  for (int r = 0; r < n_ranks; ++r) {
    char* flags = zeroed(hccc_flag_bytes(hccc_this_shape));
    for (int block = 0; block < HCCC_BLOCKS * HCCC_CHANNELS; ++block) {
      const long long at = (hccc_state_at(hccc_this_shape) + block) * HCCC_FLAG_STRIDE;
      reinterpret_cast<unsigned*>(flags + at)[1] = world_epoch;
    }
    for (long long at = hccc_packets_at(hccc_this_shape); at < hccc_flag_bytes(hccc_this_shape); at += HCCC_LINE)
      reinterpret_cast<hccc_line*>(flags + at)->flag = world_stale;
    ranks[r] = {flags, zeroed(1 << 20), &window, 1, 0};
  }
  std::thread threads[n_ranks];
  for (int r = 0; r < n_ranks; ++r) threads[r] = std::thread(run, r);
  for (int r = 0; r < n_ranks; ++r) threads[r].join();
  for (int r = 0; r < n_ranks; ++r) {
    if (status[r] != HCCC_OK) return printf("rank %d: status %d\n", r, status[r]), 2;
    if (wrong[r]) return printf("rank %d: %lld wrong\n", r, wrong[r]), 2;
  }
  puts("done");
  return 0;
}
