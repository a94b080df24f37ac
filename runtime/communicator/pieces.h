// pieces.h: allocation within a range of memory.
#pragma once

#include <stddef.h>

#include <map>

namespace hccc {

// Offsets from the beginning of the range. The caller locks.
class Pieces {
 public:
  explicit Pieces(size_t bytes) : bytes_(bytes) { free_[0] = bytes; }

  size_t bytes() const { return bytes_; }
  // Allocates a piece by first fit, O(free pieces). False: no room.
  bool take(size_t bytes, size_t *at);
  // Frees the piece that begins at `at` and returns its bytes; 0: none.
  size_t give(size_t at);
  // Returns whether [at, at + bytes) lies in one allocated piece.
  bool has(size_t at, size_t bytes) const;

 private:
  size_t bytes_;
  std::map<size_t, size_t> free_, taken_;  // by offset
};

}  // namespace hccc
