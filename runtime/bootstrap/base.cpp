// base.cpp: failures, deadlines, descriptors.
#include "base.h"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

namespace hccc::bootstrap {
namespace {

const double kTimeout = 60;

std::string format_text(const char *format, va_list arguments) {
  char made[512];
  std::vsnprintf(made, sizeof made, format, arguments);
  return made;
}

// Never destroyed: threads may close what they have while the process ends.
struct OpenDescriptors {
  std::mutex mutex;
  std::set<int> open;
};

OpenDescriptors &descriptors();

void before_fork() { descriptors().mutex.lock(); }
void after_fork() { descriptors().mutex.unlock(); }
void in_child() {
  OpenDescriptors &d = descriptors();
  for (const int fd : d.open) ::close(fd);
  d.open.clear();
  d.mutex.unlock();
}

OpenDescriptors &descriptors() {
  static auto *made = [] {
    auto *d = new OpenDescriptors;
    pthread_atfork(before_fork, after_fork, in_child);
    return d;
  }();
  return *made;
}

}  // namespace

void fail(int code, int rank, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string made = format_text(format, arguments);
  va_end(arguments);
  throw Failure{code, rank, std::move(made)};
}

void fail_errno(const char *doing, const std::string &what) {
  const int error = errno;
  fail(kSystem, -1, "%s%s%s: %s", doing, what.empty() ? "" : " ", what.c_str(),
       std::strerror(error));
}

std::string text(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string made = format_text(format, arguments);
  va_end(arguments);
  return made;
}

std::string name_ranks(const std::vector<int> &ranks) {
  const size_t most = 8, n = ranks.size(), shown = std::min(n, most);
  if (!n) return "no rank";
  std::string made = n == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < shown; ++i) {
    if (i) made += i + 1 == n ? " and " : ", ";
    made += std::to_string(ranks[i]);
  }
  if (n > shown) made += " and " + std::to_string(n - shown) + " more";
  return made;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

Deadline Deadline::in(double seconds) {
  if (!(seconds < 1e9)) return never();
  return Deadline(now_ns() + static_cast<int64_t>(std::max(0.0, seconds) * 1e9));
}

Deadline Deadline::of(double timeout_s) {
  if (std::isnan(timeout_s)) fail(kBadArgument, -1, "the timeout is no number");
  const double seconds = timeout_s < 0 ? environment_timeout() : timeout_s;
  return seconds > 0 ? in(seconds) : never();
}

int Deadline::poll_ms(int at_most) const {
  if (at_ == INT64_MAX) return at_most;
  const int64_t left = (at_ - now_ns() + 999999) / 1000000;
  return static_cast<int>(std::clamp<int64_t>(left, 0, at_most));
}

Deadline Deadline::or_in(double seconds) const { return Deadline(std::min(at_, in(seconds).at_)); }

double environment_timeout() {
  const char *named = variable("HCCC_TIMEOUT");
  if (!named) return kTimeout;
  char *end;
  const double seconds = std::strtod(named, &end);
  if (*end || !(seconds >= 0))
    fail(kBadArgument, -1, "HCCC_TIMEOUT is `%.40s`: it must be seconds, 0 for none",
         named);
  return seconds;
}

const char *variable(const std::string &name) {
  const char *value = std::getenv(name.c_str());
  return value && *value ? value : nullptr;
}

bool parse(const std::string &word, long long least, long long most, long long *value) {
  if (word.empty() || word.size() > 18) return false;
  long long made = 0;
  for (const char c : word) {
    if (c < '0' || c > '9') return false;
    made = made * 10 + (c - '0');
  }
  *value = made;
  return least <= made && made <= most;
}

Fd::ForkGuard::ForkGuard() { descriptors().mutex.lock(); }
Fd::ForkGuard::~ForkGuard() { descriptors().mutex.unlock(); }
Fd::Fd(int fd) : Fd(fd, ForkGuard()) {}
Fd::Fd(int fd, const ForkGuard &) : fd_(fd) {
  if (fd >= 0) descriptors().open.insert(fd);
}

void Fd::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return;
  const int before = errno;
  std::lock_guard<std::mutex> lock(descriptors().mutex);
  if (descriptors().open.erase(fd)) ::close(fd);
  errno = before;
}

void random_bytes(void *to, size_t bytes) {
  auto p = static_cast<char *>(to);
  while (bytes) {
    const ssize_t n = getrandom(p, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_errno("cannot get random bytes");
    p += n;
    bytes -= static_cast<size_t>(n);
  }
}

pthread_t start_thread(void *(*run)(void *), void *of, const char *name) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, run, of);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error) {
    errno = error;
    fail_errno("cannot start a thread");
  }
  pthread_setname_np(thread, name);
  return thread;
}

}  // namespace hccc::bootstrap
