// protocols.cpp: AllReduce of processes that call kernels of both protocols in turn; see protocols.py.
// arguments: bytes, rounds, calls. It is compiled with RANKS, and SIMPLE and LL, the plans' names.
#include "hccc/hccc.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#include SIMPLE_HEADER
#include LL_HEADER

namespace {

struct Protocol {
  int (*launch)(const hccc_comm *, const hccc_call *);
  long long flags, scratch;
  hccc_rank ranks[RANKS];
  hccc_comm comm = HCCC_COMM_INIT;
  std::vector<double> times;
};

char *shared(long long bytes) {
  const int both = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_ANONYMOUS;
  return static_cast<char *>(mmap(nullptr, static_cast<size_t>(bytes + 4096), both, how, -1, 0));
}

void run_rank(int rank, int count, int rounds, int calls, bool crowded,
              Protocol *protocols, double *out, float *in) {
  const hccc_local local = {in, in, nullptr, 0, nullptr};
  hccc_call call = HCCC_CALL_INIT;
  call.count = count, call.in_place = 1, call.first_rank = rank, call.n_local = 1, call.local = &local;
  call.timeout_s = call.join_timeout_s = 20, call.oversubscribed = crowded;
  for (int round = 0; round <= rounds; ++round)
    for (int p = 0; p < 2; ++p) {
      for (int i = 0; i < count; ++i) in[i] = static_cast<float>((rank + 1) * (round % 7 + 1) + i % 5);
      int bad = protocols[p].launch(&protocols[p].comm, &call);
      for (int i = 0; i < count; ++i)
        bad |= in[i] != static_cast<float>(RANKS * (RANKS + 1) / 2 * (round % 7 + 1) + RANKS * (i % 5));
      for (int i = 0; i < count; ++i) in[i] = 0;
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < calls; ++k) bad |= protocols[p].launch(&protocols[p].comm, &call);
      const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
      if (bad) std::fprintf(stderr, "rank %d: a wrong result or a failure\n", rank), _exit(1);
      if (round) protocols[p].times.push_back(spent.count() / calls);
    }
  for (int p = 0; p < 2; ++p) {
    std::vector<double> &t = protocols[p].times;
    std::sort(t.begin(), t.end());
    out[4 * rank + 2 * p] = t[t.size() / 2], out[4 * rank + 2 * p + 1] = t[0];
  }
}

}  // namespace

int main(int, char **words) {
  const int bytes = std::atoi(words[1]), rounds = std::atoi(words[2]), calls = std::atoi(words[3]);
  const int count = bytes / 4;
  static const hccc_window everything = HCCC_ALL_MEMORY;
  Protocol protocols[2];
  protocols[0].launch = JOINED(SIMPLE, _cpu_float32_sum), protocols[1].launch = JOINED(LL, _cpu_float32_sum);
  hccc_call call = HCCC_CALL_INIT;
  call.count = count;
  protocols[0].flags = JOINED(SIMPLE, _flag_bytes)(), protocols[1].flags = JOINED(LL, _flag_bytes)();
  protocols[0].scratch = JOINED(SIMPLE, _scratch_bytes)(&call, 4);
  protocols[1].scratch = JOINED(LL, _scratch_bytes)(&call, 4);
  for (Protocol &p : protocols) {
    for (hccc_rank &r : p.ranks) r = {shared(p.flags), shared(p.scratch), &everything, 1, 0};
    p.comm.n_ranks = RANKS, p.comm.ranks = p.ranks;
    p.comm.fault = reinterpret_cast<hccc_fault *>(shared(sizeof(hccc_fault)));
  }
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  double *out = reinterpret_cast<double *>(shared(4 * RANKS * 8));
  float *in[RANKS];  // mapped before the ranks begin, so that they have it at one address
  for (float *&one : in) one = reinterpret_cast<float *>(shared(bytes));
  for (int rank = 0; rank < RANKS; ++rank)
    if (fork() == 0) run_rank(rank, count, rounds, calls, RANKS > CPU_COUNT(&set), protocols, out, in[rank]), _exit(0);
  int status, failed = 0;
  while (wait(&status) > 0) failed |= status;
  double worst[4] = {};
  for (int i = 0; i < 4 * RANKS; ++i) worst[i % 4] = std::max(worst[i % 4], out[i]);
  std::printf("%g %g %g %g\n", worst[0], worst[1], worst[2], worst[3]);
  return failed ? 1 : 0;
}
