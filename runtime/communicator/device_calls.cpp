// device_calls.cpp: calls with buffers in memory of a device.
#include <hccc/backoff.h>

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "communicator.h"
#include "log.h"

namespace hccc {
namespace {

constexpr useconds_t RECORDED_US = 1000;  // a kernel that claims the record writes the rest of it

}  // namespace

const Device *Communicator::device() const {
  return host_->device_memory() ? &host_->device_memory()->device() : nullptr;
}

// Shares the buffers; returns when every peer reaches them. The peers' mappers map them whatever
// else the peers do. Where a peer's device lets that wait for a kernel, and the kernel waits for this
// rank, the deadline ends both.
void Communicator::share_with_peers(const Buffers &buffers, const Called &called) {
  const unsigned long long start = hccc_clock() - waited_;
  share_with_peers(buffers.send, buffers.send_bytes, description(called), start);
  share_with_peers(buffers.receive, buffers.receive_bytes, description(called), start);
  waited_ = hccc_clock() - start;
}

void Communicator::share_with_peers(const void *at, size_t bytes, const std::string &what,
                                    unsigned long long since) {
  host_->device_memory()->share_with_peers(at, bytes, [&] {
    if (failure_.code() != hcccSuccess) throw Error(failure_.code(), failure_.text() + "; in " + what);
    if (timeout_ <= 0 || static_cast<double>(hccc_clock() - since) <= timeout_ * 1e9) return true;
    std::string who;
    for (int r = 0; r < n_ranks_; ++r)
      if (host_->near(r) && host_->control(r).maps.load() == static_cast<uint32_t>(rank_ + 1))
        who += text_of("%srank %d", who.empty() ? "" : ", ", r);
    const std::string why = who.empty() ? "not all ranks have mapped its buffers"
                                        : who + " could not map its buffers, beside a kernel that runs there";
    fail(hcccTimeout, what + text_of(": timed out after %g s: %s", timeout_, why.c_str()));
  });
}

// Says whose memory this rank's device did not map while a kernel ran; "": nobody's.
std::string Communicator::describe_mapping() const {
  const int of = host_->device_memory() ? host_->device_memory()->slow_mapping() : -1;
  if (of < 0) return "";
  return text_of("; beside that kernel rank %d could not map memory of rank %d", rank_, of);
}

void *Communicator::register_buffer(void *at, size_t bytes) {
  const bool shared = host_->device_memory() && at && host_->heap().has(at, bytes);
  if (shared) {
    std::lock_guard<std::shared_mutex> lock(calling_);
    check_not_lost();
    share_with_peers(at, bytes, text_of("registration of %zu bytes at %p", bytes, at), hccc_clock());
  }
  std::optional<OnDevice> on;
  if (gpu_) on.emplace(*device());
  return registrations_->add(at, bytes);
}

// Launches a call; returns when it is in its stream.
void Communicator::launch(const Library &library, const Called &called, const Buffers &buffers,
                          const GpuCalls::Reaches &reaches, void *stream) {
  const auto in = static_cast<hcccrtStream_t>(stream);
  const Staged staged = gpu_->before(buffers, reaches, in);
  if (library.description().touches_peers) share_with_peers(staged.used, called);
  run(library, called, staged, 0, static_cast<size_t>(called.count), stream);
  gpu_->after(staged, called, in);
}

// Checks what became of launches; called by the monitor's thread.
void Communicator::watch() {
  if (!made_.load(std::memory_order_acquire) || !gpu_) return;
  try {
    Called first = called_by(host_->control(rank_));
    uint64_t last = first.number;
    if (!gpu_->running(&first) && !telling_.load(std::memory_order_acquire)) monitor_->running.compare_exchange_strong(last, 0);
    if (__atomic_load_n(&failure_.fault()->claimed, __ATOMIC_ACQUIRE) != 1 || failure_.code() != hcccSuccess ||
        failure_.refused())
      return;
    usleep(RECORDED_US);
    const Error why = reason_of(first);
    if (!failure_.refused()) HCCC_LOG(WARN, COLL, rank_, "%s", why.what());
  } catch (const Error &error) {
    abort(error.code, text_of("rank %d: ", rank_) + error.what());
  }
}

bool Communicator::ended(uint64_t launches) noexcept {
  try {
    return !gpu_ || gpu_->launched() - gpu_->unfinished() >= launches;
  } catch (const Error &) {
    return false;  // a device that failed: until the communicator ends
  }
}

void Communicator::note_captured(const Wanted &wanted) {
  std::lock_guard<std::mutex> lock(capturing_);
  for (const void *one : {wanted.send, static_cast<const void *>(wanted.receive)})
    if (one) captured_.insert(one);
}

void Communicator::note_captured(const std::vector<Message> &messages) {
  std::lock_guard<std::mutex> lock(capturing_);
  for (const Message &one : messages)
    if (one.at) captured_.insert(one.at);
}

bool Communicator::captured(const void *at, size_t bytes) const {
  std::lock_guard<std::mutex> lock(capturing_);
  const auto first = captured_.lower_bound(at);
  return first != captured_.end() && *first < static_cast<const char *>(at) + std::max<size_t>(1, bytes);
}

void Communicator::wait_for_launches() {
  if (gpu_) gpu_->wait_for_all();
  watch();
  check_not_refused(timeout_of_environment());
}

void Communicator::gpu_wait() noexcept {
  try {
    if (gpu_) gpu_->wait_for_all();
  } catch (const Error &error) {
    HCCC_LOG(WARN, COLL, rank_, "%s", error.what());
  }
}

}  // namespace hccc
