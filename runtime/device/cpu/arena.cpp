// arena.cpp: files in memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <new>

#include "memory.h"

namespace hcccrt::cpu {
namespace {

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Arena::Arena(int device, size_t size) : device(device), bytes(size), base([&]() -> char * {
      // Only /proc shows its name; no other user may open it there.
      file_ = memfd_create("hcccrt", MFD_CLOEXEC);
      struct stat status;
      void *mapped = MAP_FAILED;
      if (file_ >= 0 && fchmod(file_, 0600) == 0 && ftruncate(file_, static_cast<off_t>(size)) == 0 &&
          fstat(file_, &status) == 0) {
        inode_ = status.st_ino;
        mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
      }
      if (mapped == MAP_FAILED) {
        if (file_ >= 0) ::close(file_);
        throw std::bad_alloc();
      }
      return static_cast<char *>(mapped);
    }()) {
  free_[0] = bytes;
}

Arena::~Arena() {
  munmap(base, bytes);
  ::close(file_);
}

char *Arena::take(size_t wanted) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, size] = *it;
    if (size < wanted) continue;
    free_.erase(it);
    if (size > wanted) free_[offset + wanted] = size - wanted;
    return base + offset;
  }
  return nullptr;
}

// Returns whole free pages to the system.
void Arena::give(char *pointer, size_t size) {
  auto offset = static_cast<size_t>(pointer - base);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  free_[offset] = size;
  const size_t page = page_bytes();
  const size_t first = (offset + page - 1) / page * page, end = (offset + size) / page * page;
  if (first < end)
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
              static_cast<off_t>(end - first));
}

bool Arena::empty() const { return free_.size() == 1 && free_.begin()->second == bytes; }

}  // namespace hcccrt::cpu
