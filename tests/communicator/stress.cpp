// stress.cpp: ranks that are threads make calls in streams, in graphs, without streams and in groups at
// once, end them and abort; built with a sanitizer, which judges. 0 is returned when all results are right.
// arguments: an AllReduce of three ranks for float32, rounds, an Alltoallv of three ranks.
#include <hccc_runtime.h>
#include <hcccrt.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int RANKS = 3, COUNT = 1000, CALLS = 20;
std::atomic<int> wrong{0};

void expect(bool is, const char *what, int line) {
  if (is) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, what, hcccGetLastError(nullptr));
  ++wrong;
}
#define EXPECT(is) expect(is, #is, __LINE__)

struct Made {
  hcccrtStream_t stream = nullptr;
  Made() {
    EXPECT(!hcccrtSetPlatform(hcccrtPlatformCPU));
    EXPECT(!hcccrtStreamCreateWithFlags(&stream, hcccrtStreamNonBlocking));
  }
  ~Made() { EXPECT(!hcccrtStreamDestroy(stream)); }
};

bool all_are(const std::vector<float> &x, float value) {
  for (const float one : x)
    if (one != value) return false;
  return true;
}

// The same calls at all ranks. Those of both threads of a rank are alike, whichever comes first.
void calls(hcccComm_t comm, int rank, int rounds) {
  const Made one, two;
  const std::vector<float> x(COUNT, static_cast<float>(rank + 1));
  std::vector<std::vector<float>> y(CALLS, std::vector<float>(COUNT));
  for (int round = 0; round < rounds; ++round) {
    for (int k = 0; k < CALLS; ++k)
      EXPECT(!hcccAllReduce(x.data(), y[static_cast<size_t>(k)].data(), COUNT, hcccFloat32, hcccSum, comm,
                            k % 5 == 4 ? nullptr : k % 2 ? one.stream : two.stream));
    EXPECT(!hcccrtStreamSynchronize(one.stream));
    EXPECT(!hcccrtStreamSynchronize(two.stream));
    for (auto &of : y) {
      EXPECT(all_are(of, 6));
      of.assign(COUNT, 0);
    }
  }
}

// Sends to the next rank and receives from the one before, of lengths that go in each way, in groups
// and streams.
void messages(hcccComm_t comm, int rank, int rounds) {
  const Made made;
  const int next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
  for (int round = 0; round < rounds; ++round)
    for (const size_t count : {size_t{1}, size_t{300}, size_t{5000}, size_t{100000}}) {
      void *shared = nullptr;
      EXPECT(!hcccMemAlloc(&shared, count * sizeof(float)));
      float *x = static_cast<float *>(shared);
      for (size_t k = 0; k < count; ++k) x[k] = static_cast<float>(rank);
      std::vector<float> y(count, -1), z(count, -1);
      hcccStatus_t status = {-1, -1, 0};
      hcccrtStream_t stream = round % 2 ? made.stream : nullptr;
      EXPECT(!hcccGroupStart());
      EXPECT(!hcccRecvTagged(y.data(), count, hcccFloat32, HCCC_ANY_SOURCE, 7, &status, comm, stream));
      EXPECT(!hcccRecv(z.data(), count, hcccFloat32, last, comm, stream));
      EXPECT(!hcccSend(x, count, hcccFloat32, next, comm, stream));
      EXPECT(!hcccSendTagged(x, count, hcccFloat32, next, 7, comm, stream));
      EXPECT(!hcccGroupEnd());
      EXPECT(!hcccrtStreamSynchronize(made.stream));
      EXPECT(all_are(y, static_cast<float>(last)) && all_are(z, static_cast<float>(last)));
      EXPECT(status.source == last && status.tag == 7 && status.count == count);
      EXPECT(!hcccMemFree(shared));
    }
}

// Rank 0 receives in two streams of ranks that call a sum as soon as they have sent, rank 2 the later of them: what rank
// 0 waits for comes while it looks whether the others wait for it.
void chased(hcccComm_t comm, int rank, int rounds) {
  const Made made[2];
  for (int round = 0; round < 20 * rounds; ++round) {
    float x[2] = {-1, -1}, sum = static_cast<float>(rank);
    if (rank) usleep(static_cast<useconds_t>(1500 * rank + 37 * round % 1000));
    for (int k = 0; k < 2; ++k) {
      if (!rank) EXPECT(!hcccRecv(&x[k], 1, hcccFloat32, k + 1, comm, made[k].stream));
      else if (rank == k + 1) EXPECT(!hcccSend(&sum, 1, hcccFloat32, 0, comm, nullptr));
    }
    for (const Made &one : made) EXPECT(!hcccrtStreamSynchronize(one.stream));
    EXPECT(rank || (x[0] == 1 && x[1] == 2));
    EXPECT(!hcccAllReduce(&sum, &sum, 1, hcccFloat32, hcccSum, comm, nullptr));
    EXPECT(sum == 3);
  }
}

void graph(hcccComm_t comm, int rank, int rounds) {
  const Made made;
  const std::vector<float> x(COUNT, static_cast<float>(rank + 1));
  std::vector<float> y(COUNT);
  hcccrtGraph_t captured;
  hcccrtGraphExec_t exec;
  EXPECT(!hcccrtStreamBeginCapture(made.stream, hcccrtStreamCaptureModeRelaxed));
  EXPECT(!hcccAllReduce(x.data(), y.data(), COUNT, hcccFloat32, hcccSum, comm, made.stream));
  EXPECT(!hcccrtStreamEndCapture(made.stream, &captured));
  EXPECT(!hcccrtGraphInstantiate(&exec, captured, 0));
  EXPECT(!hcccrtGraphDestroy(captured));
  for (int round = 0; round < 5 * rounds; ++round) {
    y.assign(COUNT, 0);
    EXPECT(!hcccrtGraphLaunch(exec, made.stream));
    EXPECT(!hcccrtStreamSynchronize(made.stream));
    EXPECT(all_are(y, 6));
  }
  EXPECT(!hcccrtGraphExecDestroy(exec));
}

void watch(hcccComm_t comm, const std::atomic<bool> &over) {
  while (!over) {
    hcccResult_t state;
    unsigned long long issued = 0, done = 0;
    const hcccResult_t found = hcccCommQuery(comm, &issued, &done);
    EXPECT(found == hcccSuccess || found == hcccInProgress);
    EXPECT(done <= issued);
    EXPECT(!hcccCommGetAsyncError(comm, &state) && !state);
    std::this_thread::yield();
  }
}

void group(const std::vector<hcccComm_t> &comms, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<float>> x(RANKS, std::vector<float>(COUNT, static_cast<float>(round)));
    EXPECT(!hcccGroupStart());
    for (int k = 0; k < 3; ++k)
      for (size_t r = 0; r < RANKS; ++r)
        EXPECT(!hcccAllReduce(x[r].data(), x[r].data(), COUNT, hcccFloat32, hcccSum, comms[r], nullptr));
    EXPECT(!hcccGroupEnd());
    for (const auto &of : x) EXPECT(all_are(of, 27.0f * static_cast<float>(round)));
  }
}

// Blocks of other lengths in each call; in every third, rank 2 is ready for more than it is sent.
void blocks(hcccComm_t comm, int rank, int rounds) {
  const auto length = [](int from, int to, int call) { return static_cast<size_t>((from * 3 + to * 5 + call) % 7); };
  for (int call = 0; call < rounds * CALLS; ++call) {
    size_t out[RANKS], in[RANKS], all = 0;
    for (int r = 0; r < RANKS; ++r) out[r] = length(rank, r, call), in[r] = length(r, rank, call);
    const bool wrong_length = call % 3 == 2;
    if (wrong_length && rank == 2) ++in[0];
    for (const size_t one : in) all += one;
    std::vector<float> x(7 * RANKS, static_cast<float>(rank + call)), y(all + 1, -1);
    const hcccResult_t result =
        hcccAllToAllv(x.data(), out, nullptr, y.data(), in, nullptr, hcccFloat32, comm, nullptr);
    EXPECT(result == (wrong_length ? hcccInvalidUsage : hcccSuccess));
    size_t at = 0;
    for (int r = 0; r < RANKS; ++r)
      for (size_t k = 0; k < in[r]; ++k, ++at)
        EXPECT(y[at] == (wrong_length ? -1 : static_cast<float>(r + call)));
    EXPECT(y[at] == -1);
  }
}

// One rank aborts while calls of all are in streams.
void aborted(hcccComm_t comm, int rank) {
  const Made made;
  std::vector<float> x(COUNT);
  hcccResult_t last = hcccSuccess;
  for (int k = 0; k < 50 && !last; ++k) {
    if (rank == 1 && k == 20) break;
    last = hcccAllReduce(x.data(), x.data(), COUNT, hcccFloat32, hcccSum, comm, made.stream);
  }
  EXPECT(!last || last == hcccAborted);
  if (rank == 1) EXPECT(!hcccCommAbort(comm));
  EXPECT(!hcccrtStreamSynchronize(made.stream));
  hcccResult_t state = hcccAborted;
  if (rank != 1) EXPECT(!hcccCommGetAsyncError(comm, &state) && state == hcccAborted);
  if (rank != 1) EXPECT(!hcccCommDestroy(comm));
}

template <class Body>
void at_every_rank(const std::vector<hcccComm_t> &comms, int threads, const Body &body) {
  std::vector<std::thread> all;
  for (int r = 0; r < RANKS; ++r)
    for (int t = 0; t < threads; ++t)
      all.emplace_back([&, r] { body(comms[static_cast<size_t>(r)], r); });
  for (std::thread &one : all) one.join();
}

}  // namespace

int main(int n, char **words) {
  if (n < 4) return 2;
  const int rounds = std::atoi(words[2]);
  for (const bool aborts : {false, true}) {
    std::vector<hcccComm_t> comms(RANKS);
    EXPECT(!hcccCommInitAll(comms.data(), RANKS, nullptr));
    EXPECT(!hcccGroupStart());
    for (const int library : {1, 3})
      for (hcccComm_t comm : comms) EXPECT(!hcccCommLoad(comm, words[library]));
    EXPECT(!hcccGroupEnd());
    std::atomic<bool> over{false};
    std::thread watcher([&] { watch(comms[0], over); });
    at_every_rank(comms, 2, [&](hcccComm_t comm, int rank) { calls(comm, rank, rounds); });
    at_every_rank(comms, 1, [&](hcccComm_t comm, int rank) { graph(comm, rank, rounds); });
    at_every_rank(comms, 1, [&](hcccComm_t comm, int rank) { blocks(comm, rank, rounds); });
    at_every_rank(comms, 1, [&](hcccComm_t comm, int rank) { messages(comm, rank, rounds); });
    at_every_rank(comms, 1, [&](hcccComm_t comm, int rank) { chased(comm, rank, rounds); });
    group(comms, rounds);
    over = true;
    watcher.join();
    at_every_rank(comms, 1, [&](hcccComm_t comm, int rank) {
      if (aborts) aborted(comm, rank);
      else EXPECT(!hcccCommDestroy(comm));
    });
  }
  return wrong != 0;
}
