// shared_memory.h: files in memory, mapped by every process of a host.
#pragma once

#include <stddef.h>

#include <memory>
#include <utility>

#include "descriptor.h"

namespace hccc {

// A part of a file, mapped for reading and writing. Pages are allocated at their first use.
class Mapping {
 public:
  Mapping() = default;
  // Throws Error.
  Mapping(int file, size_t at, size_t bytes);
  Mapping(Mapping &&other) noexcept { *this = std::move(other); }
  Mapping &operator=(Mapping &&other) noexcept;
  ~Mapping();

  char *base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // Maps more of the file behind it; it may move. Throws Error.
  void grow(size_t bytes);

 private:
  char *base_ = nullptr;
  size_t bytes_ = 0;
};

// A file in memory without a name and with a fixed size. It is sparse.
class SharedFile {
 public:
  SharedFile() = default;
  // Throw Error; `open` owns the descriptor of another process's file, and throws also where it is
  // not such a file.
  static SharedFile make(const char *name, size_t bytes);
  static SharedFile open(int descriptor, size_t bytes);

  int descriptor() const { return descriptor_.get(); }
  size_t bytes() const { return bytes_; }
  // Frees the whole pages of [at, at + bytes), which then read as zero.
  void discard(size_t at, size_t bytes) const;

 private:
  Descriptor descriptor_;
  size_t bytes_ = 0;
};

// Maps the first bytes of the file of another process, `owner`. All communicators of this process
// share the mapping, which ends with its last holder. Throws Error.
std::shared_ptr<const Mapping> shared_mapping(const SharedFile &file, long owner, size_t bytes);

size_t page_bytes();

}  // namespace hccc
