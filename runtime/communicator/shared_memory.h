// shared_memory.h: files in memory, mapped by every process of a host.
#pragma once

#include <stddef.h>

namespace hccc {

// A file in memory that nobody else can open, and that keeps its size. It is sparse: pages come with
// their first use.
class SharedFile {
 public:
  SharedFile() = default;
  static SharedFile make(const char *name, size_t bytes);
  // One that another process made. Takes the descriptor. Throws Error where it is not such a file.
  static SharedFile open(int descriptor, size_t bytes);
  SharedFile(SharedFile &&other) noexcept;
  SharedFile &operator=(SharedFile &&other) noexcept;
  ~SharedFile();

  char *base() const { return base_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }
  // The pages of [at, at + bytes), whole ones, go back to the system and read as zero.
  void discard(size_t at, size_t bytes);

 private:
  void map();
  int descriptor_ = -1;
  char *base_ = nullptr;
  size_t bytes_ = 0;
};

size_t page_bytes();

}  // namespace hccc
