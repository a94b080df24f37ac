// base.h: failures, deadlines, descriptors and the encoding of numbers.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "include/hccc_bootstrap.h"

namespace hccc::bootstrap {

enum Code {
  kTimedOut = HCCC_BOOTSTRAP_TIMEOUT,
  kLost = HCCC_BOOTSTRAP_LOST,
  kRefused = HCCC_BOOTSTRAP_REFUSED,
  kBadArgument = HCCC_BOOTSTRAP_BAD_ARGUMENT,
  kSystem = HCCC_BOOTSTRAP_SYSTEM,
};

// A failure: thrown inside, returned as code and message by the C interface.
struct Failure {
  int code;
  int rank;
  std::string message;
};

[[noreturn]] void fail(int code, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
[[noreturn]] void fail_errno(const char *doing, const std::string &what = "");
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Names ranks: "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 120 more".
std::string name_ranks(const std::vector<int> &ranks);

int64_t now_ns();

// A moment on the monotonic clock.
class Deadline {
 public:
  static Deadline never() { return Deadline(INT64_MAX); }
  static Deadline in(double seconds);
  // Converts a timeout of the C interface: 0 none, below 0 that of HCCC_TIMEOUT.
  static Deadline of(double timeout_s);

  bool passed() const { return at_ != INT64_MAX && now_ns() >= at_; }
  int poll_ms(int at_most = 60000) const;  // for poll()
  Deadline or_in(double seconds) const;    // the earlier of both

 private:
  explicit Deadline(int64_t at) : at_(at) {}
  int64_t at_;
};

double environment_timeout();  // HCCC_TIMEOUT, seconds; throws where it is no number

// Returns a variable of the environment; null: unset or empty.
const char *variable(const std::string &name);

// Parses decimal digits. False: another text, or out of range.
bool parse(const std::string &word, long long least, long long most, long long *value);

// Owns a descriptor. It is closed in children of fork, too, where it would keep connections open
// after this process has ended.
class Fd {
  struct ForkGuard {  // no fork while it lives
    ForkGuard();
    ~ForkGuard();
  };

 public:
  Fd() = default;
  explicit Fd(int fd);
  // Owns the result of `make()`; no fork happens in between, whose child would keep it.
  template <class Make>
  static Fd of(const Make &make) {
    const ForkGuard guard;
    return Fd(make(), guard);
  }
  Fd(Fd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd &operator=(Fd &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { close(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  Fd(int fd, const ForkGuard &);
  int fd_ = -1;
};

// Numbers are little-endian.
template <class T>
void put(std::string *to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    to->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

template <class T>
T get(const char *p) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<uint64_t>(static_cast<uint8_t>(p[i])) << (8 * i);
  return static_cast<T>(value);
}

void random_bytes(void *to, size_t bytes);

// Starts a thread that takes no signals and runs `run(of)`; throws.
pthread_t start_thread(void *(*run)(void *), void *of, const char *name);

}  // namespace hccc::bootstrap
