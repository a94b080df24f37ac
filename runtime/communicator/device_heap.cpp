// device_heap.cpp: allocation from a device's segments.
#include "device_heap.h"

#include <string.h>

#include <algorithm>

#include "error.h"
#include "log.h"

namespace hccc {
namespace {

// A segment has at least this many bytes, and at least a quarter of all before it: so there are
// few.
constexpr size_t LEAST_SEGMENT = size_t{64} << 20, GROWTH = 4;
constexpr size_t ALIGNMENT = 4096;

bool within(const DeviceHeap::Segment &segment, const char *at) {
  return at >= segment.base && at < segment.base + segment.pieces.bytes();
}

}  // namespace

DeviceHeap::DeviceHeap(const Device &device) : device_(device), kind_(handle_kind_of(device)) {
  const OnDevice on(device_);
  check_device(hcccrtStreamCreateWithFlags(&stream_, hcccrtStreamNonBlocking), "a stream");
}

// CUDA and HIP do not define a peer's mapping by a legacy handle after the owner has freed the
// memory, and peers may end later: such memory stays until the process ends.
DeviceHeap::~DeviceHeap() {
  try {
    const OnDevice on(device_);
    hcccrtStreamDestroy(stream_);
    if (kind_ == HandleKind::LEGACY && device_.platform != hcccrtPlatformCPU) return;
    for (const Segment &segment : segments_) free_shared(segment.base);
  } catch (const Error &error) {
    HCCC_LOG(WARN, MEM, -1, "%s", error.what());
  }
}

void *DeviceHeap::take(size_t bytes) {
  const size_t wanted = std::max<size_t>(1, (bytes + ALIGNMENT - 1) / ALIGNMENT) * ALIGNMENT;
  if (wanted < bytes) throw Error(hcccSystemError, text_of("no room for %zu bytes", bytes));
  char *made = take_piece(wanted);
  if (!made) call_on(device_, [&] { made = grow(wanted); });
  clear(made, bytes);
  return made;
}

// Takes a piece of a segment; null: none has room.
char *DeviceHeap::take_piece(size_t bytes) {
  size_t at = 0;
  std::lock_guard<std::mutex> lock(mutex_);
  for (Segment &segment : segments_)
    if (segment.pieces.take(bytes, &at)) return segment.base + at;
  return nullptr;
}

// Allocates a segment, and its first piece. The device may wait for kernels before it does: others
// look up segments meanwhile.
char *DeviceHeap::grow(size_t bytes) {
  std::lock_guard<std::mutex> one_at_a_time(growing_);
  if (char *made = take_piece(bytes)) return made;
  const size_t most = heap_bytes_of_environment();
  const size_t room = !most ? SIZE_MAX : most > total_ ? most - total_ : 0;
  if (bytes > room)
    throw Error(hcccSystemError, text_of("no room for %zu bytes: HCCC_HEAP_BYTES says how much there is",
                                         bytes));
  size_t length = std::min(std::max({bytes, LEAST_SEGMENT, total_ / GROWTH}), room), at = 0;
  auto *base = static_cast<char *>(allocate_shared(kind_, &length));
  total_ += length;
  std::lock_guard<std::mutex> lock(mutex_);
  segments_.push_back({base, Pieces(length)});
  segments_.back().pieces.take(bytes, &at);
  HCCC_LOG(INFO, MEM, -1, "%s %d: a segment of %zu bytes, shared by %s", device_.name(), device_.number,
           length, name_of(kind_));
  return base + at;
}

void DeviceHeap::clear(char *at, size_t bytes) {
  if (!bytes) return;
  if (device_.platform == hcccrtPlatformCPU) {
    memset(at, 0, bytes);
    return;
  }
  const OnDevice on(device_);
  check_device(hcccrtMemsetAsync(at, 0, bytes, stream_), "zeroing memory");
  check_device(hcccrtStreamSynchronize(stream_), "zeroing memory");
}

bool DeviceHeap::give(void *pointer) {
  const char *at = static_cast<const char *>(pointer);
  std::lock_guard<std::mutex> lock(mutex_);
  frees_.fetch_add(1, std::memory_order_release);
  for (Segment &segment : segments_)
    if (within(segment, at)) return segment.pieces.give(static_cast<size_t>(at - segment.base)) != 0;
  return false;
}

int DeviceHeap::segment_of(const void *pointer, size_t bytes) const {
  const char *at = static_cast<const char *>(pointer);
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t k = 0; k < segments_.size(); ++k)
    if (within(segments_[k], at))
      return segments_[k].pieces.has(static_cast<size_t>(at - segments_[k].base), bytes) ? static_cast<int>(k)
                                                                                         : -1;
  return -1;
}

bool DeviceHeap::spans(const void *pointer) const {
  const char *at = static_cast<const char *>(pointer);
  std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(segments_.begin(), segments_.end(), [at](const Segment &one) { return within(one, at); });
}

bool DeviceHeap::has(const void *pointer, size_t bytes) const { return segment_of(pointer, bytes) >= 0; }

// Returns a segment; its place and length never change.
const DeviceHeap::Segment &DeviceHeap::segment(int number) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return segments_[static_cast<size_t>(number)];
}

}  // namespace hccc
