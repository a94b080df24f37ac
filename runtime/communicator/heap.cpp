// heap.cpp: the process's heap, and the heap in a file.
#include "heap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>

#include "device.h"
#include "device_heap.h"
#include "error.h"
#include "forks.h"

namespace hccc {
namespace {

// Returns HCCC_HEAP_BYTES, or the machine's memory.
size_t most_bytes() {
  const size_t page = page_bytes(), asked = heap_bytes_of_environment();
  const auto machine = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page;
  return ((asked ? asked : machine) + page - 1) / page * page;
}

// Returns whether memory is of the calling thread's device, by the environment. Throws Error.
bool heap_is_of_device() {
  const char *wanted = getenv("HCCC_HEAP"), *platform = getenv("HCCC_PLATFORM");
  if (!wanted || !*wanted)
    return platform && (!strcasecmp(platform, "cuda") || !strcasecmp(platform, "hip"));
  const bool device = !strcmp(wanted, "device");
  if (!device && strcmp(wanted, "host"))
    throw Error(hcccInvalidArgument, "HCCC_HEAP is neither host nor device");
  return device;
}

thread_local std::optional<Device> told;

}  // namespace

std::optional<Device> told_memory() { return told; }

Device memory_of_thread() {
  if (told) return *told;
  return heap_is_of_device() ? Device::current() : Device();
}

void set_memory_of_thread(const std::optional<Device> &device) {
  if (device && device->platform != hcccrtPlatformNone) OnDevice there(*device);
  told = device;
}

size_t heap_bytes_of_environment() {
  const char *wanted = getenv("HCCC_HEAP_BYTES");
  char *end = nullptr;
  const unsigned long long asked = wanted ? strtoull(wanted, &end, 10) : 0;
  if (wanted && (end == wanted || *end || asked == 0))
    throw Error(hcccInvalidArgument, "HCCC_HEAP_BYTES is not a number of bytes");
  return asked;
}

std::shared_ptr<Heap> Heap::held(const Device &device) {
  static auto *current = new std::map<Device, std::weak_ptr<Heap>>;  // outlives every thread
  static Process process;
  std::lock_guard<std::mutex> lock(process_mutex());
  if (!process.is_this()) current->clear();
  process = Process();
  std::shared_ptr<Heap> found = (*current)[device].lock();
  if (!found) {
    if (device.platform == hcccrtPlatformNone)
      found = std::make_shared<FileHeap>(most_bytes());
    else
      found = std::make_shared<DeviceHeap>(device);
    (*current)[device] = found;
  }
  return found;
}

FileHeap::FileHeap(size_t bytes)
    : file_(SharedFile::make("hccc-heap", bytes)), mapping_(file_.descriptor(), 0, bytes), pieces_(bytes) {}

void *FileHeap::take(size_t bytes) {
  const size_t page = page_bytes();
  const size_t wanted = bytes ? (bytes + page - 1) / page * page : page;
  size_t at = 0;
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes <= file_.bytes() && pieces_.take(wanted, &at)) return base() + at;
  throw Error(hcccSystemError, text_of("no room for %zu bytes: HCCC_HEAP_BYTES says how much there is",
                                       bytes));
}

bool FileHeap::give(void *pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto at = static_cast<size_t>(static_cast<char *>(pointer) - base());
  const size_t bytes = pieces_.give(at);
  frees_.fetch_add(1, std::memory_order_release);
  if (bytes) file_.discard(at, bytes);
  return bytes != 0;
}

bool FileHeap::spans(const void *pointer) const {
  const char *at = static_cast<const char *>(pointer);
  return at >= base() && at < base() + file_.bytes();
}

bool FileHeap::has(const void *pointer, size_t bytes) const {
  const char *first = static_cast<const char *>(pointer);
  if (!spans(first)) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return pieces_.has(static_cast<size_t>(first - base()), bytes);
}

}  // namespace hccc
