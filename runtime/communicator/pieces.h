// pieces.h: which parts of a range of memory are taken.
#pragma once

#include <stddef.h>

#include <map>

namespace hccc {

// Offsets from the beginning of the range. The caller locks.
class Pieces {
 public:
  explicit Pieces(size_t bytes) : bytes_(bytes) { free_[0] = bytes; }

  size_t bytes() const { return bytes_; }
  // First fit, O(free pieces). False: there is no room.
  bool take(size_t bytes, size_t *at);
  // How long what began there was; 0: nothing did.
  size_t give(size_t at);
  // Whether [at, at + bytes) lies in one piece that was taken.
  bool has(size_t at, size_t bytes) const;

 private:
  size_t bytes_;
  std::map<size_t, size_t> free_, taken_;  // by offset
};

}  // namespace hccc
