// group.h: the calls of a thread between hcccGroupStart and hcccGroupEnd, made together at the end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "include/hccc_runtime.h"
#include "messages.h"

namespace hccc::group {

// A part of a group. first: runs in the order of the group, and must not wait for other ranks;
// then: runs after all of these, concurrently with parts of other keys.
struct Part {
  const void *key = nullptr;
  hcccComm_t comm = nullptr;  // gets the error; null: none
  std::function<void()> first, then;
  // Of sends and receives, which are one part a communicator: all of them, and their stream.
  std::shared_ptr<std::vector<Message>> messages = nullptr;
  void *stream = nullptr;
};

// Returns whether this thread has a group open.
bool open();
void add(Part part);
// Has a message of the group be told of as hcccGroupNotify says.
void set_notice(Message &message);
// Returns the part of a communicator's sends and receives; null: there are none yet.
Part *messages_of(hcccComm_t comm);
// Throws Error where the group that is open uses the communicator.
void check_unused(hcccComm_t comm);
// Fails the open group, if any: none of its parts will run, and its end returns this error.
void failed(hcccResult_t code, const std::string &text);

}  // namespace hccc::group
