// stress.cpp: many threads use the CPU's devices at once; built with a sanitizer, which judges.
// Every thread checks its own results; 0 is returned when all are right.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "hcccrt.cpp"

#define CHECK(call)                                                       \
  do {                                                                    \
    const hcccrtError_t status = call;                                    \
    if (status) {                                                         \
      std::fprintf(stderr, "%s: %s\n", #call, hcccrtGetErrorString(status)); \
      return false;                                                       \
    }                                                                     \
  } while (0)

static int add(const hcccrtCpuBlock *block, void **arguments) {
  int *at = *static_cast<int **>(arguments[0]);
  at[block->block_idx.x] += *static_cast<int *>(arguments[1]);
  return 0;
}
static const size_t sizes[] = {sizeof(int *), sizeof(int)};
static const hcccrtCpuKernel kernel = {HCCCRT_CPU_KERNEL, 0, add, 16, 2, sizes};

static void count(void *n) { ++*static_cast<std::atomic<int> *>(n); }

// Work that goes to and fro between two streams, in order by events; then as a graph.
static bool work(int device, unsigned flags, int rounds) {
  constexpr int kBlocks = 64;
  CHECK(hcccrtSetPlatform(hcccrtPlatformCPU));
  CHECK(hcccrtSetDevice(device));
  hcccrtStream_t one, other;
  hcccrtEvent_t there, back;
  int *memory, *host;
  std::atomic<int> called{0};
  CHECK(hcccrtStreamCreateWithFlags(&one, flags));
  CHECK(hcccrtStreamCreateWithFlags(&other, hcccrtStreamNonBlocking));
  CHECK(hcccrtEventCreate(&there));
  CHECK(hcccrtEventCreateWithFlags(&back, hcccrtEventDisableTiming));
  CHECK(hcccrtMalloc(reinterpret_cast<void **>(&memory), kBlocks * sizeof(int)));
  CHECK(hcccrtHostAlloc(reinterpret_cast<void **>(&host), kBlocks * sizeof(int), 0));
  CHECK(hcccrtMemsetAsync(memory, 0, kBlocks * sizeof(int), one));
  const auto round = [&](int by) {
    void *arguments[] = {&memory, &by};
    CHECK(hcccrtLaunchKernel(&kernel, {kBlocks, 1, 1}, {1, 1, 1}, arguments, 8, one));
    CHECK(hcccrtEventRecord(there, one));
    CHECK(hcccrtStreamWaitEvent(other, there, 0));
    CHECK(hcccrtLaunchKernel(&kernel, {kBlocks, 1, 1}, {1, 1, 1}, arguments, 0, other));
    CHECK(hcccrtLaunchHostFunc(other, count, &called));
    CHECK(hcccrtEventRecord(back, other));
    CHECK(hcccrtStreamWaitEvent(one, back, 0));
    return true;
  };
  int sum = 0;
  for (int i = 0; i < rounds; ++i, sum += 2 * i)
    if (!round(i + 1)) return false;
  hcccrtGraph_t graph;
  hcccrtGraphExec_t exec;
  CHECK(hcccrtStreamBeginCapture(one, hcccrtStreamCaptureModeRelaxed));
  if (!round(5)) return false;
  CHECK(hcccrtStreamEndCapture(one, &graph));
  CHECK(hcccrtGraphInstantiate(&exec, graph, 0));
  CHECK(hcccrtGraphDestroy(graph));
  for (int i = 0; i < rounds; ++i, sum += 10) CHECK(hcccrtGraphLaunch(exec, i % 2 ? one : other));
  CHECK(hcccrtStreamSynchronize(one));
  CHECK(hcccrtStreamSynchronize(other));
  CHECK(hcccrtGraphExecDestroy(exec));
  CHECK(hcccrtMemcpyAsync(host, memory, kBlocks * sizeof(int), hcccrtMemcpyDeviceToHost, one));
  const hcccrtError_t error = hcccrtStreamQuery(one);
  if (error != hcccrtErrorNotReady) CHECK(error);
  CHECK(hcccrtStreamSynchronize(one));
  CHECK(hcccrtEventDestroy(there));
  CHECK(hcccrtEventDestroy(back));
  CHECK(hcccrtStreamDestroy(one));
  CHECK(hcccrtStreamDestroy(other));
  for (int i = 0; i < kBlocks; ++i)
    if (host[i] != sum) return std::fprintf(stderr, "%d, not %d\n", host[i], sum), false;
  if (called != 2 * rounds) return std::fprintf(stderr, "%d calls\n", called.load()), false;
  CHECK(hcccrtFree(memory));
  CHECK(hcccrtFreeHost(host));
  return true;
}

int main() {
  setenv("HCCC_CPU_DEVICES", "2", 1);
  std::atomic<int> wrong{0};
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i)
      threads.emplace_back([&wrong, i] {
        const unsigned flags = i < 3 ? hcccrtStreamNonBlocking : hcccrtStreamDefault;
        for (int k = 0; k < 5; ++k) wrong += !work(i % 2, flags, 30);
      });
    for (auto &thread : threads) thread.join();
    for (int device = 0; device < 2; ++device) {
      wrong += hcccrtSetPlatform(hcccrtPlatformCPU) || hcccrtSetDevice(device);
      // What is under way or has not begun when a device is reset.
      hcccrtStream_t stream;
      std::atomic<int> called{0};
      wrong += hcccrtStreamCreate(&stream) != hcccrtSuccess;
      for (int k = 0; k < 100; ++k) hcccrtLaunchHostFunc(stream, count, &called);
      wrong += hcccrtDeviceReset() != hcccrtSuccess;
    }
  }
  return wrong ? 1 : 0;
}
