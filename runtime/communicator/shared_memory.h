// shared_memory.h: files in memory, mapped by every process of a host.
#pragma once

#include <stddef.h>

namespace hccc {

// A file in memory without a name and with a fixed size. It is sparse: pages are allocated at their
// first use.
class SharedFile {
 public:
  SharedFile() = default;
  static SharedFile make(const char *name, size_t bytes);
  // Opens another process's file, and owns the descriptor. Throws Error where it is not such a
  // file.
  static SharedFile open(int descriptor, size_t bytes);
  SharedFile(SharedFile &&other) noexcept;
  SharedFile &operator=(SharedFile &&other) noexcept;
  ~SharedFile();

  char *base() const { return base_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }
  // Frees the whole pages of [at, at + bytes), which then read as zero.
  void discard(size_t at, size_t bytes);

 private:
  void map();
  int descriptor_ = -1;
  char *base_ = nullptr;
  size_t bytes_ = 0;
};

size_t page_bytes();

}  // namespace hccc
