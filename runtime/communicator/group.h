// group.h: the calls of a thread between hcccGroupStart and hcccGroupEnd, made together at the end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calls.h"
#include "include/hccc_runtime.h"

namespace hccc::group {

// A part of a group: functions, or a communicator's sends and receives. first: runs in the order of the
// group, and must not wait for other ranks; then: runs after all of these, concurrently with parts of
// other keys. Messages without a stream take their place in the first, and are made in the second.
struct Part {
  const void *key = nullptr;
  hcccComm_t comm = nullptr;  // gets the error; null: none
  std::function<void()> first, then;
  std::vector<Message> messages = {};
  void *stream = nullptr;  // of messages
  std::shared_ptr<Calls> calls = nullptr;
  Calls::Place place = {};
};

// Returns whether this thread has a group open.
bool open();
void add(Part part);
// Adds a send or receive to those of its communicator. Throws Error.
void add(const Message &message, hcccComm_t comm, void *stream);
// Throws Error where the group that is open uses the communicator.
void check_unused(hcccComm_t comm);
// Fails the open group, if any: none of its parts will run, and its end returns this error.
void failed(hcccResult_t code, const std::string &text);

}  // namespace hccc::group
