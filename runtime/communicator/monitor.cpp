// monitor.cpp: the monitor's thread.
#include "monitor.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "log.h"
#include "signals.h"

namespace hccc {
namespace {

constexpr int PERIOD_MS = 100;

struct AbortMessage {
  int32_t code;
  char text[248];
};
static_assert(sizeof(AbortMessage) <= 256, "the size of a message");

}  // namespace

Monitor::Monitor(hccc_bootstrap *bootstrap, const Host &host, Failure &failure, int rank,
                 std::function<void()> watch)
    : bootstrap_(bootstrap), host_(host), failure_(failure), rank_(rank), watch_(std::move(watch)),
      processes_(static_cast<size_t>(host.n_ranks())), left_(static_cast<size_t>(host.n_ranks())) {
  for (int r = 0; r < host.n_ranks(); ++r)
    if (host.near(r) && host.process(r) != getpid())
      processes_[static_cast<size_t>(r)] =
          Descriptor(static_cast<int>(syscall(SYS_pidfd_open, host.process(r), 0)));
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop_.get() < 0) throw system_error("no event descriptor");
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error &error) {
    throw Error(hcccSystemError, std::string("no thread for the monitor: ") + error.what());
  }
}

Monitor::~Monitor() {
  const uint64_t one = 1;
  const ssize_t written = write(stop_.get(), &one, sizeof one);
  static_cast<void>(written);
  thread_.join();
}

void Monitor::forsake() {
  processes_.clear();
  stop_ = Descriptor();
}

void notify_ranks(hccc_bootstrap *bootstrap, hcccResult_t code, const std::string &text) {
  AbortMessage message{};
  message.code = code;
  strncpy(message.text, text.c_str(), sizeof message.text - 1);
  hccc_bootstrap_notify(bootstrap, &message, sizeof message);
}

void Monitor::run() {
  for (;;) {
    std::vector<pollfd> files = {{stop_.get(), POLLIN, 0}, {hccc_bootstrap_poll_fd(bootstrap_), POLLIN, 0}};
    std::vector<int> of;
    for (size_t r = 0; r < processes_.size(); ++r) {
      if (processes_[r].get() < 0) continue;
      files.push_back({processes_[r].get(), POLLIN, 0});
      of.push_back(static_cast<int>(r));
    }
    poll(files.data(), files.size(), PERIOD_MS);
    if (files[0].revents) return;
    read_messages();
    for (size_t k = 0; k < of.size(); ++k)
      if (files[2 + k].revents) handle_departure(of[k], false);
    watch_();
    if (running.load(std::memory_order_acquire)) compare_calls();
  }
}

void Monitor::read_messages() {
  int rank = -1, orderly = 0;
  while (hccc_bootstrap_next_departure(bootstrap_, &rank, &orderly)) handle_departure(rank, orderly);
  AbortMessage message{};
  size_t bytes = sizeof message;
  for (; hccc_bootstrap_next_message(bootstrap_, &rank, &message, &bytes); bytes = sizeof message) {
    if (bytes != sizeof message) continue;
    message.text[sizeof message.text - 1] = '\0';
    const bool known = message.code > hcccSuccess && message.code <= hcccAborted;
    failure_.set(known ? static_cast<hcccResult_t>(message.code) : hcccRemoteError, message.text);
  }
}

void Monitor::handle_departure(int rank, bool orderly) {
  const auto r = static_cast<size_t>(rank);
  if (rank < 0 || r >= left_.size() || rank == rank_ || left_[r]) return;
  left_[r] = true;
  processes_[r] = Descriptor();
  const bool left = host_.near(rank) &&
                    host_.control(rank).standing.load(std::memory_order_acquire) == Standing::LEFT;
  HCCC_LOG(INFO, INIT, rank_, "rank %d is gone%s", rank, left || orderly ? ", as announced" : "");
  if (left || orderly) return;
  failure_.set(hcccRemoteError, text_of("rank %d is gone: its process, %d, has ended", rank,
                                        host_.process(rank)));
}

// Finds ranks that make another call than this one, or have left.
void Monitor::compare_calls() {
  const Called own = called_by(host_.control(rank_));
  for (int r = 0; r < host_.n_ranks(); ++r) {
    if (r == rank_ || !host_.near(r)) continue;
    const Control &control = host_.control(r);
    const bool left = control.standing.load(std::memory_order_acquire) == Standing::LEFT;
    const Called other = called_by(control);
    if (running.load(std::memory_order_acquire) != own.number) return;
    std::string why;
    if (left && other.number < own.number)
      why = text_of("rank %d has left the communicator; its last call was ", r) + description(other);
    else if (other.number == own.number && other.signature != own.signature)
      why = text_of("rank %d calls ", r) + description(other);
    else
      continue;
    const std::string text = why + text_of("; rank %d calls ", rank_) + description(own);
    if (failure_.set(hcccInvalidUsage, text)) notify(hcccInvalidUsage, text);
  }
}

}  // namespace hccc
