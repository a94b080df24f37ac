// memory.cpp: allocations, registered memory, and memory of other processes.
#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

namespace hcccrt::cpu {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kArenaBytes = size_t{32} << 20;
constexpr size_t kOwnArena = kArenaBytes / 4;  // from here on an allocation has a file of its own

size_t up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
uintptr_t address(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// The content of an hcccrtIpcMemHandle_t. The start distinguishes a process from a later one of its
// number, the inode a file from a later one of its descriptor.
struct Handle {
  char magic[8];
  int32_t process, file;
  uint64_t start, inode, offset, bytes, mapped;
  char unused[8];
};
static_assert(sizeof(Handle) == sizeof(hcccrtIpcMemHandle_t));
constexpr char kMagic[8] = {'h', 'c', 'c', 'c', 'r', 't', '0', '1'};

// Returns when a process started, in ticks since boot; 0: there is none.
uint64_t start_of(int process) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t n = read(file, text, sizeof text - 1);
  ::close(file);
  if (n <= 0) return 0;
  text[n] = 0;
  // Field 2 is the name in parentheses, which may hold anything; the start is field 22.
  const char *at = std::strrchr(text, ')');
  for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
  unsigned long long start = 0;
  return at && std::sscanf(at, " %llu", &start) == 1 ? start : 0;
}

}  // namespace

size_t Memory::total() const {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page();
}

hcccrtError_t Memory::allocate(void **pointer, size_t bytes, Kind kind, int device) {
  *pointer = nullptr;
  if (!bytes) return hcccrtSuccess;
  if (bytes > total() || used_ + bytes > total()) return hcccrtErrorMemoryAllocation;
  const size_t size = up(bytes, kAlignment);
  Arena *arena = nullptr;
  char *made = nullptr;
  if (size < kOwnArena)
    for (const auto &other : arenas_)
      if (!made && other->device == device && (made = other->take(size))) arena = other.get();
  if (!made) {
    const size_t whole = size < kOwnArena ? kArenaBytes : up(size, page());
    arenas_.push_back(std::make_unique<Arena>(device, whole));
    arena = arenas_.back().get();
    made = arena->take(size);
  }
  blocks_[address(made)] = {bytes, kind, device, arena};
  used_ += bytes;
  *pointer = made;
  return hcccrtSuccess;
}

hcccrtError_t Memory::allocate_host(void **pointer, size_t bytes, int device) {
  *pointer = nullptr;
  if (!bytes) return hcccrtSuccess;
  if (bytes > total()) return hcccrtErrorMemoryAllocation;
  void *made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return hcccrtErrorMemoryAllocation;
  blocks_[address(made)] = {bytes, Kind::host, device};
  *pointer = made;
  return hcccrtSuccess;
}

hcccrtError_t Memory::enlist(void *pointer, size_t bytes, int device) {
  if (!pointer || !bytes) return hcccrtErrorInvalidValue;
  if (!unknown(pointer, bytes)) return hcccrtErrorHostMemoryAlreadyRegistered;
  const uintptr_t first = address(pointer) / page() * page();
  const size_t size = up(address(pointer) + bytes, page()) - first;
  std::vector<unsigned char> resident(size / page());
  if (mincore(reinterpret_cast<void *>(first), size, resident.data()))
    return hcccrtErrorInvalidValue;  // no memory of this process
  blocks_[address(pointer)] = {bytes, Kind::registered, device};
  return hcccrtSuccess;
}

Block *Memory::at(const void *pointer, Kind kind, Kind or_kind) {
  const auto it = blocks_.find(address(pointer));
  if (it == blocks_.end()) return nullptr;
  return it->second.kind == kind || it->second.kind == or_kind ? &it->second : nullptr;
}

void Memory::unmap(Blocks::iterator it) {
  const auto [begin, block] = *it;
  char *const pointer = reinterpret_cast<char *>(begin);
  blocks_.erase(it);
  if (block.kind == Kind::host) munmap(pointer, block.bytes);
  if (block.arena) {
    used_ -= block.bytes;
    // A shared block is its file's only allocation: its pages stay while another process has it
    // open.
    if (!block.handles) block.arena->give(pointer, up(block.bytes, kAlignment));
    if (block.handles || block.arena->empty())
      arenas_.remove_if([&](const auto &arena) { return arena.get() == block.arena; });
  }
  if (block.kind == Kind::opened)
    opened_.remove_if([&](Opened &o) {
      if (pointer < o.base || pointer >= o.base + o.bytes || --o.uses) return false;
      munmap(o.base, o.bytes);
      return true;
    });
}

void Memory::release(const void *pointer) {
  const auto it = blocks_.find(address(pointer));
  if (it != blocks_.end()) unmap(it);
}

void Memory::release_all(int device) {
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const auto next = std::next(it);
    if (it->second.device == device) unmap(it);
    it = next;
  }
}

const Block *Memory::around(const void *pointer, char **begin) const {
  auto it = blocks_.upper_bound(address(pointer));
  if (it == blocks_.begin()) return nullptr;
  --it;
  if (address(pointer) - it->first >= it->second.bytes) return nullptr;
  *begin = reinterpret_cast<char *>(it->first);
  return &it->second;
}

bool Memory::known(const void *pointer, size_t bytes) const {
  char *begin;
  const Block *block = around(pointer, &begin);
  return block && bytes <= block->bytes - (address(pointer) - address(begin));
}

bool Memory::unknown(const void *pointer, size_t bytes) const {
  char *begin;
  if (around(pointer, &begin)) return false;
  const auto it = blocks_.lower_bound(address(pointer));
  return it == blocks_.end() || it->first - address(pointer) >= bytes;
}

hcccrtError_t Memory::share(hcccrtIpcMemHandle_t *handle, void *pointer) const {
  char *begin;
  const Block *block = around(pointer, &begin);
  if (!block || block->kind != Kind::device) return hcccrtErrorInvalidValue;
  Handle made = {};
  std::memcpy(made.magic, kMagic, sizeof kMagic);
  made.process = getpid();
  made.file = block->arena->file();
  made.start = start_of(made.process);
  made.inode = block->arena->inode();
  made.offset = static_cast<uint64_t>(begin - block->arena->base);
  made.bytes = block->bytes;
  made.mapped = block->arena->bytes;
  std::memcpy(handle, &made, sizeof made);
  return hcccrtSuccess;
}

Opened *Memory::map(int file, size_t bytes) {
  struct stat status;
  if (fstat(file, &status)) return nullptr;
  for (Opened &o : opened_)
    if (o.device == status.st_dev && o.inode == status.st_ino && o.bytes == bytes) return &o;
  void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return nullptr;
  opened_.push_back({status.st_dev, status.st_ino, static_cast<char *>(mapped), bytes, 0});
  return &opened_.back();
}

hcccrtError_t Memory::open(void **pointer, const hcccrtIpcMemHandle_t &handle, int device) {
  Handle given;
  std::memcpy(&given, &handle, sizeof given);
  if (std::memcmp(given.magic, kMagic, sizeof kMagic) || given.process < 1 || given.file < 0 ||
      !given.bytes || given.offset > given.mapped || given.bytes > given.mapped - given.offset)
    return hcccrtErrorInvalidValue;
  if (!given.start || start_of(given.process) != given.start)
    return hcccrtErrorMapBufferObjectFailed;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", given.process, given.file);
  struct stat status;
  // The descriptor may be anything by now; a pipe must not be waited for.
  if (stat(path, &status) || !S_ISREG(status.st_mode) || status.st_ino != given.inode ||
      static_cast<uint64_t>(status.st_size) != given.mapped)
    return hcccrtErrorMapBufferObjectFailed;
  const int file = ::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return hcccrtErrorMapBufferObjectFailed;
  struct stat again;
  const bool same = fstat(file, &again) == 0 && again.st_dev == status.st_dev &&
                    again.st_ino == status.st_ino;
  Opened *opened = same ? map(file, given.mapped) : nullptr;
  ::close(file);
  if (!opened) return hcccrtErrorMapBufferObjectFailed;
  *pointer = enter(*opened, given.offset, given.bytes, device);
  return hcccrtSuccess;
}

void *Memory::enter(Opened &opened, size_t offset, size_t bytes, int device) {
  char *const made = opened.base + offset;
  const auto [it, fresh] = blocks_.try_emplace(address(made), Block{bytes, Kind::opened, device});
  if (fresh)
    ++opened.uses;
  else
    ++it->second.uses;
  return made;
}

hcccrtError_t Memory::close(void *pointer) {
  Block *block = at(pointer, Kind::opened, Kind::opened);
  if (!block) return hcccrtErrorInvalidValue;
  if (--block->uses == 0) release(pointer);
  return hcccrtSuccess;
}

}  // namespace hcccrt::cpu
