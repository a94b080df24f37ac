// gpu_calls.cpp: launches in streams, and the copies around them.
#include "gpu_calls.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "error.h"
#include "log.h"

namespace hccc {
namespace {

constexpr size_t MOST_QUEUED = 256;  // a further call waits for the first of them

}  // namespace

GpuCalls::GpuCalls(const Device &device, std::shared_ptr<Heap> heap) : device_(device), heap_(std::move(heap)) {
  const OnDevice on(device_);
  void *made = nullptr, *seen = nullptr;
  const unsigned flags = hcccrtHostAllocMapped | hcccrtHostAllocPortable;
  check_device(hcccrtHostAlloc(&made, sizeof(hccc_fault), flags), "memory of host and device");
  fault_ = static_cast<hccc_fault *>(made);
  hccc_reset_fault(fault_);
  const hcccrtError_t error = hcccrtHostGetDevicePointer(&seen, made, 0);
  if (error) hcccrtFreeHost(made);
  check_device(error, "memory of host and device");
  fault_of_device_ = static_cast<hccc_fault *>(seen);
}

GpuCalls::~GpuCalls() {
  try {
    wait_for_all();
    const OnDevice on(device_);
    for (const Room *room : {&input_, &output_, &apart_, &table_})
      if (room->base) heap_->give(room->base);
    for (char *base : kept_) heap_->give(base);
    for (const hcccrtEvent_t one : spare_) hcccrtEventDestroy(one);
    hcccrtFreeHost(fault_);
  } catch (const Error &error) {
    HCCC_LOG(WARN, COLL, -1, "%s", error.what());
  }
}

void GpuCalls::check_buffers(const Buffers &buffers) const {
  const std::pair<const char *, const void *> both[] = {{"send", buffers.send}, {"receive", buffers.receive}};
  for (const auto &[name, at] : both) {
    hcccrtPointerAttributes found;
    if (!at || heap_->has(at, 0)) continue;
    const hcccrtError_t error = hcccrtPointerGetAttributes(&found, at);
    if (error) hcccrtGetLastError();
    if (error || found.type == hcccrtMemoryTypeUnregistered)
      throw Error(hcccInvalidArgument, text_of("the %s buffer is no memory of %s %d", name, device_.name(),
                                               device_.number));
  }
}

bool GpuCalls::holds(const void *at) const {
  hcccrtPointerAttributes found;
  const hcccrtError_t error = hcccrtPointerGetAttributes(&found, at);
  if (error) hcccrtGetLastError();
  return !error && (found.type == hcccrtMemoryTypeDevice || found.type == hcccrtMemoryTypeManaged);
}

void GpuCalls::fetch(void *to, const void *from, size_t bytes, hcccrtStream_t stream) const {
  const OnDevice on(device_);
  copy(to, from, bytes, stream);
  check_device(hcccrtStreamSynchronize(stream), "waiting for a stream");
}

// Returns whether a stream is being captured: it then has no launches to wait for.
bool GpuCalls::captures(hcccrtStream_t stream) const {
  hcccrtStreamCaptureStatus_t status = hcccrtStreamCaptureStatusNone;
  const bool known =
      hcccrtStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, nullptr, nullptr) == hcccrtSuccess;
  if (!known) hcccrtGetLastError();  // a runtime that cannot capture
  return known && status != hcccrtStreamCaptureStatusNone;
}

// Lets a stream wait for launches in others.
void GpuCalls::follow(hcccrtStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!queued_.empty() && stream != last_ && !captures(stream))
    check_device(hcccrtStreamWaitEvent(stream, queued_.back().done, 0), "waiting for an earlier call");
}

Staged GpuCalls::before(const Buffers &given, const CopiedBlocks &blocks, hcccrtStream_t stream) {
  follow(stream);
  Staged made{given, nullptr};
  const auto copied = [&](char *to, const char *from, size_t bytes) { copy(to, from, bytes, stream); };
  if (blocks.send) {
    made.used.send_bytes = static_cast<size_t>(blocks.used.send.extent() * blocks.size);
    char *base = reserve(input_, made.used.send_bytes, stream);
    copy_blocks(base, blocks.used.send, given.send, blocks.given.send, blocks.size, copied);
    made.used.send = base;
  }
  if (blocks.receive) {
    made.used.receive_bytes = static_cast<size_t>(blocks.used.receive.extent() * blocks.size);
    made.used.receive = reserve(output_, made.used.receive_bytes, stream);
    made.back = given.receive;
  }
  return made;
}

void GpuCalls::after(const Staged &staged, const CopiedBlocks &blocks, const Called &called, hcccrtStream_t stream) {
  const auto copied = [&](char *to, const char *from, size_t bytes) { copy(to, from, bytes, stream); };
  if (staged.back)
    copy_blocks(staged.back, blocks.given.receive, staged.used.receive, blocks.used.receive, blocks.size, copied);
  after({staged.used, nullptr}, called, stream);
}

const long long *GpuCalls::on_device(const std::vector<long long> &table, hcccrtStream_t stream) {
  const size_t bytes = table.size() * sizeof(long long);
  char *base = reserve(table_, bytes, stream);
  copied_ = table;
  copy(base, copied_.data(), bytes, stream);
  return reinterpret_cast<const long long *>(base);
}

Staged GpuCalls::before(const Buffers &given, const Reaches &reaches, hcccrtStream_t stream) {
  follow(stream);
  Staged made{given, nullptr};
  const char *outer = given.receive;
  size_t bytes = given.receive_bytes;
  if (given.in_place && given.send && given.receive) {
    const bool within = given.send >= given.receive && given.send_bytes <= given.receive_bytes;
    if (!within) outer = given.send, bytes = given.send_bytes;
    if (reaches(outer, bytes)) return made;
    char *base = reserve(output_, bytes, stream);
    made.used.send = base + (given.send - outer);
    made.used.receive = base + (given.receive - outer);
    copy(base + (given.send - outer), given.send, given.send_bytes, stream);
    made.back = given.receive;
    return made;
  }
  if (given.send && !reaches(given.send, given.send_bytes)) {
    char *base = reserve(input_, given.send_bytes, stream);
    copy(base, given.send, given.send_bytes, stream);
    made.used.send = base;
  }
  if (given.receive && !reaches(outer, bytes)) {
    made.used.receive = reserve(output_, bytes, stream);
    made.back = given.receive;
  }
  return made;
}

void GpuCalls::after(const Staged &staged, const Called &called, hcccrtStream_t stream) {
  if (staged.back) copy(staged.back, staged.used.receive, staged.used.receive_bytes, stream);
  if (captures(stream)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  const hcccrtEvent_t done = event();
  queued_.push_back({called, done, std::move(copied_)});
  ++launched_;
  last_ = stream;
  check_device(hcccrtEventRecord(done, stream), "an event");
  const hcccrtEvent_t first = queued_.size() > MOST_QUEUED ? queued_.front().done : nullptr;
  lock.unlock();
  if (first) check_device(hcccrtEventSynchronize(first), "waiting for an earlier call");
}

Buffers GpuCalls::apart(const Buffers &given, hcccrtStream_t stream) {
  Buffers made = given;
  char *base = reserve(apart_, given.send_bytes, stream);
  copy(base, given.send, given.send_bytes, stream);
  made.send = base;
  made.in_place = false;
  return made;
}

// Returns room of at least `bytes` bytes. Earlier calls end before a smaller one is freed. One that a
// graph has captured stays until the communicator ends, for the graph may be launched again; its
// successor is twice as large, so that there are few.
char *GpuCalls::reserve(Room &room, size_t bytes, hcccrtStream_t stream) {
  if (!room.base || room.bytes < bytes) {
    if (room.captured) {
      bytes = std::max(bytes, 2 * room.bytes);
      kept_.push_back(room.base);
    } else if (room.base) {
      wait_for_all();
      heap_->give(room.base);
    }
    room = {};
    room = {static_cast<char *>(heap_->take(bytes)), bytes, false};
  }
  room.captured = room.captured || captures(stream);
  return room.base;
}

void GpuCalls::copy(void *to, const void *from, size_t bytes, hcccrtStream_t stream) const {
  check_device(hcccrtMemcpyAsync(to, from, bytes, hcccrtMemcpyDefault, stream), "copying a buffer");
}

hcccrtEvent_t GpuCalls::event() {
  hcccrtEvent_t made = nullptr;
  if (spare_.empty()) {
    check_device(hcccrtEventCreateWithFlags(&made, hcccrtEventDisableTiming), "an event");
    return made;
  }
  made = spare_.back();
  spare_.pop_back();
  return made;
}

bool GpuCalls::running(Called *first) {
  const OnDevice on(device_);
  std::lock_guard<std::mutex> lock(mutex_);
  while (!queued_.empty()) {
    const hcccrtError_t error = hcccrtEventQuery(queued_.front().done);
    if (error == hcccrtErrorNotReady) {
      *first = queued_.front().called;
      return true;
    }
    check_device(error, "a call");
    spare_.push_back(queued_.front().done);
    queued_.pop_front();
  }
  return false;
}

size_t GpuCalls::unfinished() {
  Called first;
  const bool some = running(&first);
  std::lock_guard<std::mutex> lock(mutex_);
  return some ? queued_.size() : 0;
}

uint64_t GpuCalls::launched() {
  std::lock_guard<std::mutex> lock(mutex_);
  return launched_;
}

void GpuCalls::wait_for_all() {
  const OnDevice on(device_);
  std::unique_lock<std::mutex> lock(mutex_);
  const hcccrtEvent_t last = queued_.empty() ? nullptr : queued_.back().done;
  lock.unlock();
  if (last) check_device(hcccrtEventSynchronize(last), "waiting for calls");
  Called none;
  running(&none);
}

}  // namespace hccc
