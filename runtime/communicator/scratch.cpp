// scratch.cpp: maps scratch.
#include "scratch.h"

#include <algorithm>

namespace hccc {

void *Scratch::at(size_t rank, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  Mapping &part = parts_[rank];
  if (part.base() && part.bytes() < bytes) {
    const size_t pages = (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
    part.grow(std::min(most_, std::max(pages, 2 * part.bytes())));
  }
  return part.base();
}

}  // namespace hccc
