// memory.h: memory of the CPU's devices, which is shared memory, and the blocks of pointers.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "../include/hcccrt.h"

namespace hcccrt::cpu {

// A mapped file in memory, of which allocations are parts.
class Arena {
  int file_ = -1;  // before `base`, which is made of it
  uint64_t inode_ = 0;

 public:
  // Throws std::bad_alloc.
  Arena(int device, size_t bytes);
  ~Arena();

  // Allocates; null: no room.
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

// Memory of another process, mapped once for all of its open allocations.
struct Opened {
  dev_t device;
  ino_t inode;
  char *base;
  size_t bytes;
  int uses;
};

enum class Kind { device, managed, host, registered, opened };

struct Block {
  size_t bytes = 0;  // as requested
  Kind kind = Kind::host;
  int device = 0;
  Arena *arena = nullptr;
  int uses = 1;  // times opened
  unsigned handles = 0;  // hcccrtHandleX, of memory shared by one kind
};

// The blocks of memory that the device layer knows. The caller holds the lock of the state.
class Memory {
 public:
  hcccrtError_t allocate(void **pointer, size_t bytes, Kind kind, int device);
  hcccrtError_t allocate_host(void **pointer, size_t bytes, int device);
  hcccrtError_t enlist(void *pointer, size_t bytes, int device);
  // Finds the block that begins there and is of one of the two kinds; null: none.
  Block *at(const void *pointer, Kind kind, Kind or_kind);
  void release(const void *pointer);
  void release_all(int device);

  // Finds the block that contains a pointer; `begin` gets its address.
  const Block *around(const void *pointer, char **begin) const;
  // Returns whether the bytes lie in one block (known), or in none (unknown).
  bool known(const void *pointer, size_t bytes) const;
  bool unknown(const void *pointer, size_t bytes) const;

  hcccrtError_t share(hcccrtIpcMemHandle_t *handle, void *pointer) const;
  hcccrtError_t open(void **pointer, const hcccrtIpcMemHandle_t &handle, int device);
  hcccrtError_t close(void *pointer);

  // shared.cpp: allocations with a file of their own, of this process and of others.
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
