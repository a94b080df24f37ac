// group.cpp: hcccGroupStart, hcccGroupEnd, hcccGroupCancel.
#include "group.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "comm.h"
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

// The result of a part.
struct Ended {
  hcccResult_t code = hcccSuccess;
  std::string text;
};

void run(const std::function<void()> &body, const Part &part, Ended &ended) {
  if (!body || ended.code) return;
  ended.code = caught(part.comm, body);
  if (ended.code) ended.text = thread_error();
}

// Runs the parts of one key, in order.
void run_all(const std::vector<Part> &parts, std::vector<Ended> &ended, const void *key) {
  for (size_t k = 0; k < parts.size(); ++k)
    if (parts[k].key == key) run(parts[k].then, parts[k], ended[k]);
}

// Lists the keys of parts that wait for other ranks.
std::vector<const void *> keys_of(const std::vector<Part> &parts) {
  std::vector<const void *> keys;
  for (const Part &part : parts)
    if (part.then && std::find(keys.begin(), keys.end(), part.key) == keys.end()) keys.push_back(part.key);
  return keys;
}

// Runs the last key's parts in this thread, others in threads of their own, which take no signals.
void run_keys(const std::vector<Part> &parts, std::vector<Ended> &ended) {
  std::vector<const void *> keys = keys_of(parts);
  std::vector<std::thread> threads;
  try {
    const SignalsBlocked blocked;
    for (; keys.size() > 1; keys.pop_back())
      threads.emplace_back(run_all, std::cref(parts), std::ref(ended), keys.back());
  } catch (const std::system_error &) {  // no thread: one after another, by deadlines at worst
  }
  for (const void *key : keys) run_all(parts, ended, key);
  for (std::thread &one : threads) one.join();
}

Ended run_parts(const std::vector<Part> &parts) {
  std::vector<Ended> ended(parts.size());
  for (size_t k = 0; k < parts.size(); ++k) run(parts[k].first, parts[k], ended[k]);
  run_keys(parts, ended);
  for (const Ended &one : ended)
    if (one.code) return one;
  return {};
}

}  // namespace

bool open() { return current.depth > 0; }

void add(Part part) { current.parts.push_back(std::move(part)); }

Part *messages_of(hcccComm_t comm) {
  for (Part &part : current.parts)
    if (part.comm == comm && part.messages) return &part;
  return nullptr;
}

void set_notice(Message &message) { message.done = current.done, message.argument = current.argument; }

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
  const hccc::group::Group of;
};

HCCC_API hcccResult_t hcccGroupEnd(void) {
  if (current.depth > 1) return --current.depth, current.code;
  hcccGroup_t group = nullptr;
  const hcccResult_t result = hcccGroupDetach(&group);
  return result == hcccSuccess ? hcccGroupMake(group) : result;
}

HCCC_API hcccResult_t hcccGroupDetach(hcccGroup_t *group) {
  return hccc::caught(nullptr, [&] {
    hccc::check(group, "group");
    *group = nullptr;
    if (!current.depth) throw hccc::Error(hcccInvalidUsage, "no group is open");
    auto made = std::make_unique<hcccGroup>(hcccGroup{std::exchange(current, {})});
    if (made->of.code) throw hccc::Error(made->of.code, made->of.text);
    *group = made.release();
  });
}

HCCC_API hcccResult_t hcccGroupMake(hcccGroup_t group) {
  return hccc::caught(nullptr, [&] {
    hccc::check(group, "group");
    const std::unique_ptr<hcccGroup> own(group);
    const hccc::group::Ended ended = hccc::group::run_parts(own->of.parts);
    if (ended.code) throw hccc::Error(ended.code, ended.text);
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
