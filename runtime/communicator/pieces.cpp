// pieces.cpp: first-fit allocation.
#include "pieces.h"

#include <iterator>

namespace hccc {

bool Pieces::take(size_t bytes, size_t *at) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, room] = *it;
    if (room < bytes) continue;
    free_.erase(it);
    if (room > bytes) free_[begin + bytes] = room - bytes;
    taken_[begin] = bytes;
    *at = begin;
    return true;
  }
  return false;
}

size_t Pieces::give(size_t at) {
  const auto found = taken_.find(at);
  if (found == taken_.end()) return 0;
  const size_t given = found->second;
  size_t bytes = given;
  taken_.erase(found);
  const auto after = free_.lower_bound(at);
  if (after != free_.end() && after->first == at + bytes) {
    bytes += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(at);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += bytes;
      return given;
    }
  }
  free_[at] = bytes;
  return given;
}

bool Pieces::has(size_t at, size_t bytes) const {
  auto it = taken_.upper_bound(at);
  if (it == taken_.begin()) return false;
  --it;
  return at - it->first <= it->second && bytes <= it->second - (at - it->first);
}

}  // namespace hccc
