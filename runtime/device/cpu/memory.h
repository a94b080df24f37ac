// memory.h: memory of the CPU's devices, which is shared memory, and what pointers are to.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "../include/hcccrt.h"

namespace hcccrt::cpu {

// A file in memory, mapped, of which allocations are parts.
class Arena {
  int file_ = -1;  // first: `base` is made of it
  uint64_t inode_ = 0;

 public:
  // Throws std::bad_alloc.
  Arena(int device, size_t bytes);
  ~Arena();

  // Null when there is no room.
  char *take(size_t bytes);
  void give(char *pointer, size_t bytes);
  bool empty() const;

  const int device;
  const size_t bytes;
  char *const base;
  int file() const { return file_; }
  uint64_t inode() const { return inode_; }

 private:
  std::map<size_t, size_t> free_;  // offset → bytes
};

// Memory of another process, mapped once however many of its allocations are open.
struct Opened {
  dev_t device;
  ino_t inode;
  char *base;
  size_t bytes;
  int uses;
};

enum class Kind { device, managed, host, registered, opened };

struct Block {
  size_t bytes = 0;  // as asked for
  Kind kind = Kind::host;
  int device = 0;
  Arena *arena = nullptr;
  int uses = 1;  // how often opened
  unsigned handles = 0;  // hcccrtHandleX, of what can be shared by one kind
};

// All memory that the device layer knows. The caller holds the lock of the state.
class Memory {
 public:
  hcccrtError_t allocate(void **pointer, size_t bytes, Kind kind, int device);
  hcccrtError_t allocate_host(void **pointer, size_t bytes, int device);
  hcccrtError_t enlist(void *pointer, size_t bytes, int device);
  // The block that begins there and is of one of the two kinds; null where none is.
  Block *at(const void *pointer, Kind kind, Kind or_kind);
  void release(const void *pointer);
  void release_all(int device);

  // The block that a pointer lies in; `begin` gets its address.
  const Block *around(const void *pointer, char **begin) const;
  // Whether bytes from the pointer on are of one block (known), or of none (unknown).
  bool known(const void *pointer, size_t bytes) const;
  bool unknown(const void *pointer, size_t bytes) const;

  hcccrtError_t share(hcccrtIpcMemHandle_t *handle, void *pointer) const;
  hcccrtError_t open(void **pointer, const hcccrtIpcMemHandle_t &handle, int device);
  hcccrtError_t close(void *pointer);

  // shared.cpp: allocations with a file of their own, and such of other processes.
  hcccrtError_t allocate_shared(void **pointer, size_t *bytes, unsigned handles, int device);
  hcccrtError_t handle_of(hcccrtIpcMemHandle_t *handle, int *descriptor, void *pointer) const;
  hcccrtError_t open(void **pointer, int descriptor, size_t bytes, int device);

  size_t total() const;

 private:
  using Blocks = std::map<uintptr_t, Block>;

  void unmap(Blocks::iterator it);
  Opened *map(int file, size_t bytes);
  void *enter(Opened &opened, size_t offset, size_t bytes, int device);

  Blocks blocks_;
  std::list<std::unique_ptr<Arena>> arenas_;
  std::list<Opened> opened_;
  size_t used_ = 0;
};

}  // namespace hcccrt::cpu
