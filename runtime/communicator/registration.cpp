// registration.cpp: registered ranges of memory.
#include "registration.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "error.h"
#include "log.h"

namespace hccc {
namespace {

// Returns whether all pages are mapped, which is all that msync with MS_ASYNC checks.
bool mapped(uintptr_t first, size_t bytes) {
  const uintptr_t begin = first / page_bytes() * page_bytes();
  return msync(reinterpret_cast<void *>(begin), bytes + (first - begin), MS_ASYNC) == 0;
}

bool of_device(const void *at) {
  hcccrtPointerAttributes found;
  const hcccrtError_t error = hcccrtPointerGetAttributes(&found, at);
  if (error) hcccrtGetLastError();
  return !error && found.type != hcccrtMemoryTypeUnregistered;
}

const char *meaning(Reach reach) {
  switch (reach) {
    case Reach::HEAP: return "of hcccMemAlloc: peers reach it, nothing is copied";
    case Reach::SAME_PROCESS: return "all ranks are in this process: nothing is copied";
    case Reach::COPIED: break;
  }
  return "not of hcccMemAlloc: calls copy it";
}

}  // namespace

Reach Registrations::reach_of(const void *at, size_t bytes) const {
  if (host_.one_process()) return Reach::SAME_PROCESS;
  return host_.reaches(at, bytes) ? Reach::HEAP : Reach::COPIED;
}

void *Registrations::add(void *at, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(at);
  if (!first || !bytes || first + bytes < first)
    throw Error(hcccInvalidArgument, text_of("%zu bytes at %p are no range", bytes, at));
  const bool here = host_.heap().has(at, bytes) || (host_.on_gpu() ? of_device(at) : mapped(first, bytes));
  if (!here)
    throw Error(hcccInvalidArgument, text_of("%zu bytes at %p are not memory of this process", bytes, at));
  std::lock_guard<std::mutex> lock(mutex_);
  const auto same = ranges_.find(first);
  if (same != ranges_.end() && same->second.bytes == bytes) {
    ++same->second.holders;
    return reinterpret_cast<void *>(static_cast<uintptr_t>(same->second.handle));
  }
  const auto after = ranges_.lower_bound(first);
  const auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
  const bool over = after != ranges_.end() && after->first < first + bytes;
  if (over || (before != ranges_.end() && before->first + before->second.bytes > first))
    throw Error(hcccInvalidArgument,
                text_of("%zu bytes at %p overlap a range that is registered", bytes, at));
  ranges_[first] = {bytes, ++last_, 1};
  HCCC_LOG(INFO, MEM, rank_, "%zu bytes at %p are registered, %s", bytes, at,
           meaning(reach_of(at, bytes)));
  return reinterpret_cast<void *>(static_cast<uintptr_t>(last_));
}

// Takes O(registered ranges).
void Registrations::remove(void *handle) {
  const auto number = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle));
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const auto &range) { return range.second.handle == number; });
  if (found == ranges_.end())
    throw Error(hcccInvalidArgument, text_of("%p is no handle of a registered buffer", handle));
  if (--found->second.holders) return;
  HCCC_LOG(INFO, MEM, rank_, "%zu bytes at %p are no longer registered", found->second.bytes,
           reinterpret_cast<void *>(found->first));
  ranges_.erase(found);
}

}  // namespace hccc
