// group.cpp: hcccGroupStart, hcccGroupEnd, hcccGroupCancel.
#include "group.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "comm.h"
#include "device_layer.h"
#include "signals.h"

namespace hccc {
namespace group {
namespace {

struct Group {
  int depth = 0;
  std::vector<Part> parts;
  hcccResult_t code = hcccSuccess;  // of the first call that failed
  std::string text;
  void (*done)(void *) = nullptr;  // of the next messages
  void *argument = nullptr;
};
thread_local Group current;

constexpr size_t FEW = 4;  // messages that a communicator's part has room for at once

// The result of a part.
struct Ended {
  hcccResult_t code = hcccSuccess;
  std::string text;
};

template <class Body>
void run(const Body &body, const Part &part, Ended &ended) {
  if (ended.code) return;
  ended.code = caught(part.comm, body);
  if (ended.code) ended.text = thread_error();
}

void run_first(Part &part, Ended &ended) {
  if (part.messages.empty()) {
    if (part.first) run(part.first, part, ended);
  } else if (part.stream) {
    const auto stored = std::make_shared<std::vector<Message>>(std::move(part.messages));
    run([&] { part.calls->enqueue(Request(stored), part.stream); }, part, ended);
  } else {
    run([&] { part.place = part.calls->reserve(); }, part, ended);
  }
}

// Returns whether a part waits for other ranks, after its first has run.
bool waits(const Part &part) { return part.then || !part.messages.empty(); }

void run_then(Part &part, Ended &ended) {
  if (part.then) run(part.then, part, ended);
  else if (!part.messages.empty()) run([&] { part.calls->exchange(part.place, part.messages); }, part, ended);
}

// Runs the parts of one key, in order.
void run_all(std::vector<Part> &parts, std::vector<Ended> &ended, const void *key) {
  for (size_t k = 0; k < parts.size(); ++k)
    if (parts[k].key == key) run_then(parts[k], ended[k]);
}

// Lists the keys of parts that wait for other ranks.
std::vector<const void *> keys_of(const std::vector<Part> &parts) {
  std::vector<const void *> keys;
  for (const Part &part : parts)
    if (waits(part) && std::find(keys.begin(), keys.end(), part.key) == keys.end()) keys.push_back(part.key);
  return keys;
}

// Runs the last key's parts in this thread, others in threads of their own, which take no signals.
void run_keys(std::vector<Part> &parts, std::vector<Ended> &ended) {
  std::vector<const void *> keys = keys_of(parts);
  std::vector<std::thread> threads;
  if (keys.size() > 1) try {
      const SignalsBlocked blocked;
      for (; keys.size() > 1; keys.pop_back())
        threads.emplace_back(run_all, std::ref(parts), std::ref(ended), keys.back());
    } catch (const std::system_error &) {  // no thread: one after another, by deadlines at worst
    }
  for (const void *key : keys) run_all(parts, ended, key);
  for (std::thread &one : threads) one.join();
}

// Makes sends and receives that are all there is: there is no other part to wait for.
Ended run_messages(const Part &part) {
  Ended ended;
  run([&] { part.calls->exchange(part.messages.data(), part.messages.size()); }, part, ended);
  return ended;
}

Ended run_parts(std::vector<Part> &parts) {
  if (parts.size() == 1 && !parts[0].messages.empty() && !parts[0].stream) return run_messages(parts[0]);
  std::vector<Ended> ended(parts.size());
  for (size_t k = 0; k < parts.size(); ++k) run_first(parts[k], ended[k]);
  run_keys(parts, ended);
  for (const Ended &one : ended)
    if (one.code) return one;
  return {};
}

// Ends the group that is open, of whose calls none has failed. Throws Error.
Group taken() {
  if (!current.depth) throw Error(hcccInvalidUsage, "no group is open");
  Group made = std::exchange(current, {});
  if (made.code) throw Error(made.code, made.text);
  return made;
}

void make(Group &group) {
  const Ended ended = run_parts(group.parts);
  if (ended.code) throw Error(ended.code, ended.text);
}

}  // namespace

bool open() { return current.depth > 0; }

void add(Part part) { current.parts.push_back(std::move(part)); }

void add(const Message &message, hcccComm_t comm, void *stream) {
  const auto found = std::find_if(current.parts.begin(), current.parts.end(), [comm](const Part &part) {
    return part.comm == comm && !part.messages.empty();
  });
  Part *part = found == current.parts.end() ? nullptr : &*found;
  if (part && part->stream != stream)
    throw Error(hcccInvalidUsage, "sends and receives of a group and a communicator are in one stream");
  if (!part) {
    if (stream) device_layer::captures(static_cast<hcccrtStream_t>(stream));
    part = &current.parts.emplace_back();
    part->key = comm, part->comm = comm, part->stream = stream, part->calls = comm->calls;
    part->messages.reserve(FEW);
  }
  Message &added = part->messages.emplace_back(message);
  added.done = current.done, added.argument = current.argument;
}

void check_unused(hcccComm_t comm) {
  for (const Part &part : current.parts)
    if (part.comm == comm)
      throw Error(hcccInvalidUsage, "the group that is open uses the communicator: end it first");
}

void failed(hcccResult_t code, const std::string &text) {
  if (open() && current.code == hcccSuccess) current.code = code, current.text = text;
}

}  // namespace group

void in_turn(hcccComm_t comm, std::function<void(const Settings &)> body) {
  const std::shared_ptr<Calls> calls = comm->calls;
  if (!group::open()) return calls->run(calls->reserve(), body);
  const auto place = std::make_shared<Calls::Place>();
  group::add({comm, comm, [=] { *place = calls->reserve(); }, [=] { calls->run(*place, body); }});
}

}  // namespace hccc

using hccc::group::current;

HCCC_API hcccResult_t hcccGroupStart(void) {
  ++current.depth;
  return hcccSuccess;
}

struct hcccGroup {
  hccc::group::Group of;
};

HCCC_API hcccResult_t hcccGroupEnd(void) {
  if (current.depth > 1) return --current.depth, current.code;
  return hccc::caught(nullptr, [] {
    hccc::group::Group group = hccc::group::taken();
    hccc::group::make(group);
  });
}

HCCC_API hcccResult_t hcccGroupDetach(hcccGroup_t *group) {
  return hccc::caught(nullptr, [&] {
    hccc::check(group, "group");
    *group = nullptr;
    *group = new hcccGroup{hccc::group::taken()};
  });
}

HCCC_API hcccResult_t hcccGroupMake(hcccGroup_t group) {
  return hccc::caught(nullptr, [&] {
    hccc::check(group, "group");
    const std::unique_ptr<hcccGroup> own(group);
    hccc::group::make(own->of);
  });
}

HCCC_API hcccResult_t hcccGroupNotify(void (*function)(void *), void *argument) {
  return hccc::caught(nullptr, [&] {
    if (!current.depth) throw hccc::Error(hcccInvalidUsage, "no group is open");
    current.done = function, current.argument = argument;
  });
}

HCCC_API hcccResult_t hcccGroupCancel(void) {
  current = {};
  return hcccSuccess;
}
