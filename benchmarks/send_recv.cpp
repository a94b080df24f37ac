// send_recv.cpp: two ranks send a message to and fro; the first prints the microseconds of one way.
// With -DMPI by MPI, else by hccc. arguments: bytes, turns, `foreign` or `registered`.
// Each rank has a core.
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#ifdef MPI
#include <mpi.h>
#else
#include <hccc_runtime.h>
#endif

namespace {

void check(bool good, const char *what) {
  if (good) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

#ifdef MPI
int rank_of_this() {
  int rank;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
char *memory(size_t bytes, bool) { return static_cast<char *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)); }
void send(const char *x, size_t bytes, int peer) {
  check(!MPI_Send(x, static_cast<int>(bytes), MPI_BYTE, peer, 0, MPI_COMM_WORLD), "send");
}
void receive(char *x, size_t bytes, int peer) {
  check(!MPI_Recv(x, static_cast<int>(bytes), MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "receive");
}
void end() { MPI_Finalize(); }
#else
hcccComm_t comm;
int rank_of_this() {
  int rank;
  check(!hcccCommInitEnvironment(&comm) && !hcccCommUserRank(comm, &rank), "meeting");
  return rank;
}
char *memory(size_t bytes, bool registered) {
  void *made = nullptr;
  if (registered) check(!hcccMemAlloc(&made, bytes), "allocation");
  return static_cast<char *>(registered ? made : std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
}
void send(const char *x, size_t bytes, int peer) {
  check(!hcccSend(x, bytes, hcccUint8, peer, comm, nullptr), "send");
}
void receive(char *x, size_t bytes, int peer) {
  check(!hcccRecv(x, bytes, hcccUint8, peer, comm, nullptr), "receive");
}
void end() { hcccCommDestroy(comm); }
#endif

}  // namespace

int main(int n, char **words) {
  check(n == 4, "reading arguments");
  const size_t bytes = std::strtoull(words[1], nullptr, 10);
  const int turns = std::atoi(words[2]), rank = rank_of_this();
  cpu_set_t core;  // MPI launchers bind by default, and not alike
  CPU_ZERO(&core);
  CPU_SET(static_cast<unsigned>(rank % sysconf(_SC_NPROCESSORS_ONLN)), &core);
  sched_setaffinity(0, sizeof core, &core);
  const bool registered = !std::strcmp(words[3], "registered");
  char *out = memory(bytes, registered), *in = memory(bytes, registered);
  std::memset(out, rank + 1, bytes), std::memset(in, 0, bytes);
  double best = 1e30;
  for (int round = 0; round < 10; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < turns; ++k) {
      if (!rank) send(out, bytes, 1), receive(in, bytes, 1);
      else receive(in, bytes, 0), send(out, bytes, 0);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (round && spent.count() < best) best = spent.count();
  }
  check(in[0] == 2 - rank && in[bytes - 1] == 2 - rank, "a message");
  if (!rank) std::printf("%.4f\n", best / turns / 2 * 1e6);
  end();
}
