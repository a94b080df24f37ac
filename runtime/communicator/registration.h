// registration.h: buffers that the caller says calls will use, and how peers reach a buffer.
#pragma once

#include <stddef.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "host.h"

namespace hccc {

enum class Reach {
  HEAP,          // it is of hcccMemAlloc, which all ranks of the host have mapped
  SAME_PROCESS,  // all ranks are threads of this process
  COPIED         // calls copy it into memory that peers reach, and back
};

class Registrations {
 public:
  Registrations(const Host &host, int rank) : host_(host), rank_(rank) {}

  // How peers reach a buffer. Whatever way a call takes is chosen by this.
  Reach reach_of(const void *at, size_t bytes) const;

  // A handle of a range; the same one for the same range, as often as it is asked for. Throws Error
  // for what is no memory of this process and for a range that overlaps another.
  void *add(void *at, size_t bytes);
  // Once for each time that add returned the handle. Throws Error for what is none.
  void remove(void *handle);

 private:
  struct Range {
    size_t bytes;
    uint64_t handle;
    uint64_t holders;
  };
  const Host &host_;
  const int rank_;
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::map<uintptr_t, Range> ranges_;  // by their beginnings; none overlaps another
};

}  // namespace hccc
