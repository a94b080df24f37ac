// shared_memory.cpp: files in memory.
#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <tuple>

#include "error.h"
#include "forks.h"

namespace hccc {
namespace {

constexpr int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // its size is fixed

struct stat status_of(const SharedFile &file) {
  struct stat status;
  if (fstat(file.descriptor(), &status)) throw system_error("shared memory");
  return status;
}

Error no_room(size_t bytes) {
  return system_error(text_of("no room to map %zu bytes (HCCC_HEAP_BYTES bounds what a process shares)", bytes));
}

}  // namespace

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Mapping::Mapping(int file, size_t at, size_t bytes) {
  const int flags = MAP_SHARED | MAP_NORESERVE;
  void *made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, static_cast<off_t>(at));
  if (made == MAP_FAILED) throw no_room(bytes);
  base_ = static_cast<char *>(made);
  bytes_ = bytes;
  madvise(base_, bytes_, MADV_HUGEPAGE);  // where the system lets files in memory have them
}

Mapping &Mapping::operator=(Mapping &&other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (base_) munmap(base_, bytes_);
}

void Mapping::grow(size_t bytes) {
  void *made = mremap(base_, bytes_, bytes, MREMAP_MAYMOVE);
  if (made == MAP_FAILED) throw no_room(bytes);
  base_ = static_cast<char *>(made);
  bytes_ = bytes;
}

SharedFile SharedFile::make(const char *name, size_t bytes) {
  SharedFile made;
  made.descriptor_ = Descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  made.bytes_ = bytes;
  const int file = made.descriptor();
  if (file < 0) throw system_error("no shared memory");
  if (fchmod(file, 0600) || ftruncate(file, static_cast<off_t>(bytes)) || fcntl(file, F_ADD_SEALS, SEALS))
    throw system_error(text_of("no shared memory of %zu bytes", bytes));
  return made;
}

SharedFile SharedFile::open(int descriptor, size_t bytes) {
  SharedFile opened;
  opened.descriptor_ = Descriptor(descriptor);
  opened.bytes_ = bytes;
  if (static_cast<size_t>(status_of(opened).st_size) < bytes || fcntl(descriptor, F_GET_SEALS) != SEALS)
    throw Error(hcccRemoteError, "what a rank shares is not the memory that it should be");
  return opened;
}

void SharedFile::discard(size_t at, size_t bytes) const {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  fallocate(descriptor(), mode, static_cast<off_t>(at), static_cast<off_t>(bytes));
}

std::shared_ptr<const Mapping> shared_mapping(const SharedFile &file, long owner, size_t bytes) {
  using Key = std::tuple<long, ino_t, size_t>;
  static auto *mapped = new std::map<Key, std::weak_ptr<const Mapping>>;  // outlives every thread
  const struct stat status = status_of(file);
  std::lock_guard<std::mutex> lock(process_mutex());
  for (auto it = mapped->begin(); it != mapped->end();) it = it->second.expired() ? mapped->erase(it) : std::next(it);
  std::weak_ptr<const Mapping> &kept = (*mapped)[{owner, status.st_ino, bytes}];
  std::shared_ptr<const Mapping> found = kept.lock();
  if (!found) kept = found = std::make_shared<const Mapping>(file.descriptor(), 0, bytes);
  return found;
}

}  // namespace hccc
