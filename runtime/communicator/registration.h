// registration.h: registered buffers, and how peers reach a buffer.
#pragma once

#include <stddef.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "host.h"

namespace hccc {

enum class Reach {
  HEAP,          // memory of hcccMemAlloc, which all ranks of the host have mapped
  SAME_PROCESS,  // all ranks are threads of this process
  COPIED         // calls copy it into memory that peers reach, and back
};

class Registrations {
 public:
  Registrations(const Host &host, int rank) : host_(host), rank_(rank) {}

  // Returns how peers reach a buffer; calls choose their way by it.
  Reach reach_of(const void *at, size_t bytes) const;

  // Registers a range and returns its handle, the same one for the same range. Throws Error where
  // it is not memory of this process, or overlaps another range.
  void *add(void *at, size_t bytes);
  // Deregisters a range, as often as it was registered. Throws Error where the handle is none.
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
