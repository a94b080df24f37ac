// Several launches of a generated kernel, back to back, with every memory domain launched by a
// thread of its own and a proxy between them. test_tsan.py writes world.h: what the kernel is.
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#include <thread>
#include <vector>

#include "hccc/proxy.h"

static const int n_ranks = HCCC_RANKS;
static const hccc_window window = HCCC_ALL_MEMORY;
static hccc_fault fault;
static hccc_rank ranks[n_ranks];  // as the proxy reaches them: all
static hccc_proxy_ring rings[n_ranks];
static hccc_local local[n_ranks];

static char* zeroed(size_t bytes) {
  bytes = (bytes / HCCC_FLAG_STRIDE + 1) * HCCC_FLAG_STRIDE;
  return static_cast<char*>(memset(aligned_alloc(HCCC_FLAG_STRIDE, bytes), 0, bytes));
}

static hccc_T given(int rank, long long i) { return static_cast<hccc_T>(rank + 3 * i % 101); }

static void allocate(int rank) {
  const unsigned length = 64;  // short, so that it is full now and then
  char* counters = zeroed(3 * HCCC_FLAG_STRIDE);
  ranks[rank] = {zeroed(hccc_flag_bytes(hccc_this_shape)), zeroed(1 << 20), &window, 1, 0};
  rings[rank].size = sizeof(hccc_proxy_ring);
  rings[rank].transfer_size = sizeof(hccc_transfer);
  rings[rank].length = length;
  rings[rank].entries = reinterpret_cast<hccc_transfer*>(zeroed(length * sizeof(hccc_transfer)));
  rings[rank].submitted = reinterpret_cast<unsigned*>(counters);
  rings[rank].taken = reinterpret_cast<unsigned*>(counters + HCCC_FLAG_STRIDE);
  rings[rank].completed = reinterpret_cast<unsigned*>(counters + 2 * HCCC_FLAG_STRIDE);
}

// Ranks [first, last), which reach no other's memory.
static int launch(hccc_call call, int first, int last) {
  std::vector<hccc_rank> table(n_ranks);
  for (int r = 0; r < n_ranks; ++r)
    table[r] = world_domain[r] == world_domain[first] ? ranks[r] : hccc_rank{};
  hccc_comm comm = HCCC_COMM_INIT;
  comm.n_ranks = n_ranks;
  comm.ranks = table.data();
  comm.fault = &fault;
  call.first_rank = first;
  call.n_local = last - first;
  call.local = local + first;
  return hccc_cpu_launch(&comm, &call);
}

static bool launch_all(const hccc_call& call) {
  std::vector<std::thread> hosts;
  std::vector<int> status(n_ranks);
  for (int first = 0, last = 1; first < n_ranks; first = last++) {
    while (last < n_ranks && world_domain[last] == world_domain[first]) ++last;
    hosts.emplace_back([&, first, last] { status[first] = launch(call, first, last); });
  }
  for (auto& host : hosts) host.join();
  for (int r = 0; r < n_ranks; ++r)
    if (status[r] != HCCC_OK) fprintf(stderr, "rank %d: status %d\n", r, status[r]);
  for (int r = 0; r < n_ranks; ++r)
    if (status[r] != HCCC_OK) return false;
  return true;
}

// Elements of an AllReduce's outputs that are not the sum of all inputs.
static long long wrong() {
  long long found = 0;
  for (int r = 0; r < n_ranks && world_is_allreduce; ++r)
    for (long long i = 0; i < world_count; ++i) {
      hccc_T sum = 0;
      for (int k = 0; k < n_ranks; ++k) sum += given(k, i);
      found += static_cast<hccc_T*>(local[r].output)[i] != sum;
    }
  return found;
}

static bool run(hccc_call call, int place) {
  hccc_T* slab[n_ranks];
  const long long elements = 2LL * n_ranks * world_count;
  for (int r = 0; r < n_ranks; ++r) {
    slab[r] = reinterpret_cast<hccc_T*>(zeroed(elements * sizeof(hccc_T)));
    local[r] = {slab[r] + world_at[r][place][0], slab[r] + world_at[r][place][1], &rings[r]};
  }
  call.in_place = place;
  for (int k = 0; k < 4; ++k) {
    for (int r = 0; r < n_ranks; ++r)
      for (long long i = 0; i < n_ranks * world_count; ++i)
        static_cast<hccc_T*>(local[r].input)[i] = given(r, i);
    call.window = world_window ? world_window : k % 3;
    if (!launch_all(call)) return false;
    if (wrong()) return printf("%lld wrong\n", wrong()), false;
  }
  return true;
}

int main() {
  int nic[n_ranks];
  for (int r = 0; r < n_ranks; ++r) allocate(r), nic[r] = r;
  const hccc_wire wire = {world_late ? 500.0 : 0.0, world_late ? 20.0 : 0.0, n_ranks, nic,
                          world_late};
  hccc_proxy* proxy = hccc_proxy_new(n_ranks, ranks, rings, &wire);
  if (!proxy || !hccc_proxy_start(proxy, 2)) return 3;
  hccc_call call = HCCC_CALL_INIT;
  call.count = world_count;
  call.micro_batch_bytes = 256;
  call.timeout_s = 100;
  bool good = true;
  for (int place = 0; place < 2; ++place)
    if (good && world_places >> place & 1) good = run(call, place);
  hccc_proxy_stop(proxy);
  hccc_proxy_free(proxy);
  if (!good) return 2;
  puts("done");
  return 0;
}
