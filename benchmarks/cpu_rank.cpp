// cpu_rank.cpp: one rank of one system of cpu.py: does what it reads from a socket, and sleeps in between.
// With -DMPI by MPI, else by hccc. arguments: the system's name, the port, the word that it is known by.
//
//   prepare COLLECTIVE MEMORY COUNT   allocates, makes a call whose result is checked: 0, or what is wrong
//   run CALLS                         seconds of a call
//   free                              0
//   end
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#ifdef MPI
#include <mpi.h>
#else
#include <hccc_runtime.h>
#endif

namespace {

int rank, n_ranks;

void check(bool good, const char *what) {
  if (good) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

#ifdef MPI
std::string begin() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
  MPI_Get_library_version(version, &length);
  return std::string(version).substr(0, std::strcspn(version, ",\n"));
}
float *allocate(size_t bytes, const std::string &) { return static_cast<float *>(std::aligned_alloc(4096, bytes)); }
void release(float *at, const std::string &) { std::free(at); }
void finish() { MPI_Finalize(); }

bool call(const std::string &what, float *in, float *out, int count) {
  const MPI_Comm all = MPI_COMM_WORLD;
  if (what == "allreduce") return !MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, all);
  if (what == "allgather") return !MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, all);
  if (what == "reducescatter") return !MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, all);
  if (what == "broadcast") return !MPI_Bcast(in, count, MPI_FLOAT, 0, all);
  if (what == "alltoall") return !MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, all);
  return !MPI_Sendrecv(in, count, MPI_FLOAT, (rank + 1) % n_ranks, 0, out, count, MPI_FLOAT,
                       (rank + n_ranks - 1) % n_ranks, 0, all, MPI_STATUS_IGNORE);
}
#else
hcccComm_t comm;
std::string begin() {
  int version;
  if (hcccCommInitEnvironment(&comm)) std::fprintf(stderr, "%s\n", hcccGetLastError(nullptr));
  check(comm && !hcccCommUserRank(comm, &rank) && !hcccCommCount(comm, &n_ranks), "meeting");
  hcccGetVersion(&version);
  return "hccc " + std::to_string(version / 1000) + "." + std::to_string(version / 100 % 10);
}
float *allocate(size_t bytes, const std::string &memory) {
  void *made = nullptr;
  if (memory == "foreign") made = std::aligned_alloc(4096, bytes);
  else check(!hcccMemAlloc(&made, bytes), "allocation");
  return static_cast<float *>(made);
}
void release(float *at, const std::string &memory) {
  if (memory == "foreign") std::free(at);
  else hcccMemFree(at);
}
void finish() { hcccCommDestroy(comm); }

bool exchange(float *in, float *out, size_t count) {
  hcccGroupStart();
  hcccSend(in, count, hcccFloat32, (rank + 1) % n_ranks, comm, nullptr);
  hcccRecv(out, count, hcccFloat32, (rank + n_ranks - 1) % n_ranks, comm, nullptr);
  return !hcccGroupEnd();
}

bool call(const std::string &what, float *in, float *out, int n) {
  const auto count = static_cast<size_t>(n);
  if (what == "allreduce") return !hcccAllReduce(in, in, count, hcccFloat32, hcccSum, comm, nullptr);
  if (what == "allgather") return !hcccAllGather(in, out, count, hcccFloat32, comm, nullptr);
  if (what == "reducescatter") return !hcccReduceScatter(in, out, count, hcccFloat32, hcccSum, comm, nullptr);
  if (what == "broadcast") return !hcccBroadcast(in, in, count, hcccFloat32, 0, comm, nullptr);
  if (what == "alltoall") return !hcccAllToAll(in, out, count, hcccFloat32, comm, nullptr);
  return exchange(in, out, count);
}
#endif

// What a rank sends, as sums of few ranks have it exactly.
float sent(int from, size_t i) { return static_cast<float>(1000 * (from + 1) + static_cast<int>(i % 997)); }

// A call's buffers. Blocks: of `count` elements. Of AllReduce and Broadcast `in` is both.
struct Call {
  std::string what, memory;
  size_t count = 0;
  float *in = nullptr, *out = nullptr;

  bool in_place() const { return what == "allreduce" || what == "broadcast"; }
  size_t sends() const { return what == "reducescatter" || what == "alltoall" ? count * size_t(n_ranks) : count; }
  size_t receives() const { return what == "allgather" || what == "alltoall" ? count * size_t(n_ranks) : count; }
  float expected(size_t i) const;
  std::string prepare();
  void free();
  bool operator()() const { return call(what, in, out, static_cast<int>(count)); }
};

float Call::expected(size_t i) const {
  float sum = 0;
  if (what == "allgather") return sent(static_cast<int>(i / count), i % count);
  if (what == "broadcast") return sent(0, i);
  if (what == "sendrecv") return sent((rank + n_ranks - 1) % n_ranks, i);
  if (what == "alltoall") return sent(static_cast<int>(i / count), size_t(rank) * count + i % count);
  for (int r = 0; r < n_ranks; ++r) sum += sent(r, what == "reducescatter" ? size_t(rank) * count + i : i);
  return sum;
}

// Makes a call, checks its result, and zeroes what sums would grow in.
std::string Call::prepare() {
  const auto bytes = [](size_t elements) { return (4 * elements + 4095) / 4096 * 4096; };
  in = allocate(bytes(sends()), memory);
  out = in_place() ? in : allocate(bytes(receives()), memory);
  check(in && out, "allocation");
  for (size_t i = 0; i < sends(); ++i) in[i] = sent(rank, i);
  if (!in_place()) std::memset(out, 0, 4 * receives());
  if (!(*this)()) return "a call that fails";
  for (size_t i = 0; i < receives(); ++i)
    if (out[i] != expected(i)) return "a wrong result";
  std::memset(in, 0, 4 * sends());
  return "0";
}

void Call::free() {
  if (!in_place() && out) release(out, memory);
  if (in) release(in, memory);
  in = out = nullptr;
}

std::string seconds(const Call &of, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < calls; ++k) check(of(), "a call");
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return std::to_string(spent.count() / calls * 1e9) + "e-9";
}

}  // namespace

int main(int n, char **words) {
  check(n == 4, "reading arguments");
  const std::string version = begin();
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(static_cast<uint16_t>(std::atoi(words[2])));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  check(!connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof to), "connecting");
  FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
  std::fprintf(out, "%s %s %d %s\n", words[3], words[1], rank, version.c_str());
  std::fflush(out);
  Call made;
  char line[256], collective[32], memory[32];
  while (std::fgets(line, sizeof line, in)) {
    size_t count;
    std::string answer = "0";
    if (std::sscanf(line, "prepare %31s %31s %zu", collective, memory, &count) == 3) {
      made.what = collective, made.memory = memory, made.count = count;
      answer = made.prepare();
    } else if (std::sscanf(line, "run %zu", &count) == 1) {
      answer = seconds(made, static_cast<int>(count));
    } else if (!std::strcmp(line, "free\n")) {
      made.free();
    } else {
      break;
    }
    std::fprintf(out, "%s\n", answer.c_str());
    std::fflush(out);
  }
  finish();
}
