// stops_rank.cpp: one rank of `stops.py`: makes calls until one fails, and says how long that took.
//
//     stops_rank LIBRARY SEED DEADLINE
#include <hccc_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <random>
#include <vector>

namespace {

constexpr size_t MOST = 20000;
constexpr unsigned MOST_PAUSE_US = 2000;  // of all ranks, between calls: jobs share a few cores

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

int failed(double since) {
  printf("FAILED %.3f %s\n", now() - since, hcccGetLastError(nullptr));
  return 1;
}

}  // namespace

int main(int n, char **words) {
  if (n < 4) return 2;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  hcccComm_t comm = nullptr;
  double since = now();
  if (hcccCommInitEnvironment(&comm)) return failed(since);
  since = now();
  if (hcccCommLoad(comm, words[1]) || hcccCommSetTimeout(comm, atof(words[3]))) return failed(since);
  float *near = nullptr;
  if (hcccMemAlloc(reinterpret_cast<void **>(&near), MOST * sizeof(float))) return failed(since);
  std::vector<float> far(MOST);
  std::mt19937 chance(static_cast<unsigned>(atoi(words[2])));
  puts("ready");
  for (;;) {
    const size_t count = 1 + chance() % (chance() % 4 ? 100 : MOST);
    float *x = chance() % 2 ? near : far.data();
    usleep(static_cast<useconds_t>(chance() % MOST_PAUSE_US));
    since = now();
    if (hcccAllReduce(x, x, count, hcccFloat32, hcccSum, comm, nullptr)) break;
  }
  failed(since);
  since = now();
  hcccCommDestroy(comm);
  printf("left %.3f\n", now() - since);
  return 0;
}
