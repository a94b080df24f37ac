// shared_memory.cpp: files in memory.
#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "error.h"

namespace hccc {
namespace {

constexpr int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // its size is fixed

}  // namespace

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

SharedFile SharedFile::make(const char *name, size_t bytes) {
  SharedFile made;
  made.descriptor_ = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  made.bytes_ = bytes;
  if (made.descriptor_ < 0) throw system_error("no shared memory");
  if (fchmod(made.descriptor_, 0600) || ftruncate(made.descriptor_, static_cast<off_t>(bytes)) ||
      fcntl(made.descriptor_, F_ADD_SEALS, SEALS))
    throw system_error(text_of("no shared memory of %zu bytes", bytes));
  made.map();
  return made;
}

SharedFile SharedFile::open(int descriptor, size_t bytes) {
  SharedFile opened;
  opened.descriptor_ = descriptor;
  opened.bytes_ = bytes;
  struct stat status;
  if (fstat(descriptor, &status) || static_cast<size_t>(status.st_size) < bytes ||
      fcntl(descriptor, F_GET_SEALS) != SEALS)
    throw Error(hcccRemoteError, "what a rank shares is not the memory that it should be");
  opened.map();
  return opened;
}

void SharedFile::map() {
  const int flags = MAP_SHARED | MAP_NORESERVE;
  void *at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, descriptor_, 0);
  if (at == MAP_FAILED) throw system_error(text_of("no room to map %zu bytes", bytes_));
  base_ = static_cast<char *>(at);
  madvise(base_, bytes_, MADV_HUGEPAGE);  // where the system lets files in memory have them
}

void SharedFile::discard(size_t at, size_t bytes) {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  fallocate(descriptor_, mode, static_cast<off_t>(at), static_cast<off_t>(bytes));
}

SharedFile::SharedFile(SharedFile &&other) noexcept { *this = std::move(other); }

SharedFile &SharedFile::operator=(SharedFile &&other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedFile::~SharedFile() {
  if (base_) munmap(base_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace hccc
