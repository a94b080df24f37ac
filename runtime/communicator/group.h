// group.h: what a thread does between hcccGroupStart and hcccGroupEnd, as one.
#pragma once

#include <functional>
#include <string>

#include "include/hccc_runtime.h"

namespace hccc::group {

// A part of a group. first: in the order of the group, and must not wait for other ranks; then: after
// all these, at the same time as those of other keys.
struct Part {
  const void *key = nullptr;
  hcccComm_t comm = nullptr;  // whose last error it is; null: of none
  std::function<void()> first, then;
};

// Whether this thread has a group open.
bool open();
void add(Part part);
// Throws Error where the group that is open uses the communicator.
void check_unused(hcccComm_t comm);
// Where a group is open, nothing of it will run, and its end returns this.
void failed(hcccResult_t code, const std::string &text);

}  // namespace hccc::group
