// stress.cpp: ranks as threads, several jobs at once, each rank watched by a second thread and pestered
// by strangers; what test_sanitized.py runs under sanitizers. Exits with 0 where all went well.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bootstrap.cpp"

namespace {

const int kRanks = 4, kJobs = 2, kRounds = 8, kCalls = 40;

void check(bool right, const char *what, const hccc_bootstrap_error &error) {
  if (right) return;
  std::fprintf(stderr, "WRONG: %s: %s\n", what, error.message);
  std::_Exit(1);
}

// Polls as a progress thread does; counts what it hears, until `done`.
void watch(hccc_bootstrap *b, const std::atomic<bool> *done, std::atomic<int> *heard) {
  char data[HCCC_BOOTSTRAP_MAX_MESSAGE];
  size_t bytes;
  int rank, orderly;
  while (!*done) {
    pollfd one = {hccc_bootstrap_poll_fd(b), POLLIN, 0};
    poll(&one, 1, 5);
    while (hccc_bootstrap_next_departure(b, &rank, &orderly)) {
    }
    while (hccc_bootstrap_next_message(b, &rank, data, &bytes)) ++*heard;
  }
}

void share(hccc_bootstrap *b, int rank) {
  hccc_bootstrap_error e;
  const int own[2] = {open("/dev/zero", O_RDONLY | O_CLOEXEC), -1};
  int got[2 * kRanks];
  check(hccc_bootstrap_share(b, own, 2, got, 20, &e) == 0, "share", e);
  for (int r = 0; r < kRanks; ++r) {
    check(got[2 * r] >= 0 && got[2 * r + 1] == -1, "descriptors", e);
    close(got[2 * r]);
  }
  close(own[0]);
  (void)rank;
}

void be(const hccc_unique_id *id, int rank, int round) {
  hccc_bootstrap_error e;
  hccc_bootstrap *b;
  check(hccc_bootstrap_open(&b, id, kRanks, rank, 20, &e) == 0, "open", e);
  std::atomic<bool> done{false};
  std::atomic<int> heard{0};
  std::thread watcher(watch, b, &done, &heard);
  for (int call = 0; call < kCalls; ++call) {
    int all[kRanks] = {};
    all[rank] = 1000 * call + rank;
    check(hccc_bootstrap_allgather(b, all, sizeof *all, 20, &e) == 0, "allgather", e);
    for (int r = 0; r < kRanks; ++r) check(all[r] == 1000 * call + r, "data", e);
    if (call % 8 == rank) hccc_bootstrap_notify(b, "hello", 5);
    if (call % 16 == 0) share(b, rank);
    const std::vector<char> own(static_cast<size_t>(rank) * 10000, 'x');
    void *together;
    size_t sizes[kRanks];
    check(hccc_bootstrap_allgatherv(b, own.data(), own.size(), &together, sizes, 20, &e) == 0,
          "allgatherv", e);
    std::free(together);
  }
  // Whoever leaves early is news to the others, not a failure of what came before.
  check(hccc_bootstrap_barrier(b, 20, &e) == 0, "barrier", e);
  if (rank == round % kRanks) usleep(2000);
  done = true;
  watcher.join();
  hccc_bootstrap_close(b);
}

// Connects to the root and sends junk, as whoever scans ports.
void pester(const hccc_unique_id *id, const std::atomic<bool> *done) {
  const auto identity = hccc::bootstrap::read_id(*id);
  for (unsigned n = 0; !*done; ++n) {
    using hccc::bootstrap::Deadline;
    const auto fd = hccc::bootstrap::connect_tcp(identity.address, Deadline::in(1));
    const std::string junk = n % 2 ? "hcccBS-c" : std::string(n % 300, static_cast<char>(n));
    if (fd) send(fd.get(), junk.data(), junk.size(), MSG_NOSIGNAL);
    usleep(200);
  }
}

void one_round(int round) {
  std::vector<std::thread> threads;
  hccc_unique_id ids[kJobs];
  std::atomic<bool> done{false};
  hccc_bootstrap_error e;
  for (hccc_unique_id &id : ids) {
    check(hccc_bootstrap_unique_id(&id, &e) == 0, "unique_id", e);
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(be, &id, rank, round);
  }
  std::thread stranger(pester, &ids[0], &done);
  for (std::thread &thread : threads) thread.join();
  done = true;
  stranger.join();
}

}  // namespace

int main() {
  for (int round = 0; round < kRounds; ++round) one_round(round);
  return 0;
}
