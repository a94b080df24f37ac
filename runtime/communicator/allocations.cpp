// allocations.cpp: allocation and freeing of the memory of hcccMemAlloc.
#include "allocations.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "comm.h"
#include "forks.h"
#include "heap.h"

namespace hccc::allocations {
namespace {

using Clock = std::chrono::steady_clock;
constexpr useconds_t TURN_US = 200;

struct Allocation {
  std::shared_ptr<Heap> heap;
  size_t bytes;
};

// The calls of a communicator that were made before memory was freed.
struct Before {
  uint64_t communicator;
  uint64_t made;          // calls that must have run
  bool captured;          // a graph uses the memory
  bool launched = false;  // `launches` is known: they must have ended
  uint64_t launches = 0;
};

// Memory that was freed, and is in use until all of these are over.
struct Freed {
  void *pointer;
  Allocation allocation;
  std::vector<Before> before;
};

struct State {
  const Process process;
  std::mutex mutex;
  std::unordered_map<void *, Allocation> taken;
  std::vector<Freed> freed;
  std::map<uint64_t, hcccComm *> communicators;  // null: it is being made, or ends
  uint64_t last = 0;
};

// Returns the state of this process: a child of fork() has none of its parent's memory.
State &state() {
  static auto *one = new State;  // outlives every thread
  std::lock_guard<std::mutex> lock(process_mutex());
  if (!one->process.is_this()) one = new State;  // a thread of the parent may hold the other's mutex
  return *one;
}

// Returns whether calls are over. The state is locked.
bool over(Before &calls) {
  const auto found = state().communicators.find(calls.communicator);
  if (found == state().communicators.end()) return true;
  if (!found->second || calls.captured || found->second->calls->progress().done < calls.made) return false;
  Communicator &of = found->second->of;
  if (!calls.launched) calls.launches = of.launched();
  calls.launched = true;
  return of.ended(calls.launches);
}

// Gives back what is no longer in use. Returns whether calls that will end use some of the rest. The
// state is locked.
bool sweep() {
  bool more = false;
  const auto gone = [&](Freed &one) {
    auto &before = one.before;
    before.erase(std::remove_if(before.begin(), before.end(), over), before.end());
    if (before.empty()) return one.allocation.heap->give(one.pointer), true;
    more = more || std::none_of(before.begin(), before.end(), [](const Before &b) { return b.captured; });
    return false;
  };
  std::vector<Freed> &freed = state().freed;
  freed.erase(std::remove_if(freed.begin(), freed.end(), gone), freed.end());
  return more;
}

uint64_t enlist() {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().communicators[++state().last] = nullptr;
  return state().last;
}

}  // namespace

void *take(size_t bytes) {
  const std::shared_ptr<Heap> heap = Heap::held(memory_of_thread());
  const double limit_s = timeout_of_environment();
  const Clock::time_point start = Clock::now();
  for (;;) {
    std::unique_lock<std::mutex> lock(state().mutex);
    const bool more = sweep();
    lock.unlock();
    try {
      void *made = heap->take(bytes);
      lock.lock();
      state().taken[made] = {heap, bytes};
      return made;
    } catch (const Error &) {
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (!more || (limit_s > 0 && waited.count() > limit_s)) throw;
    }
    usleep(TURN_US);
  }
}

void give(void *pointer) {
  std::lock_guard<std::mutex> lock(state().mutex);
  const auto found = state().taken.find(pointer);
  if (found == state().taken.end()) {
    if (generation()) return;  // of a child's parent, perhaps, which has it still
    throw Error(hcccInvalidArgument, "nothing that hcccMemAlloc returned");
  }
  Freed freed{pointer, std::move(found->second), {}};
  state().taken.erase(found);
  for (const auto &[number, comm] : state().communicators)
    if (comm)
      freed.before.push_back({number, comm->calls->progress().made,
                              comm->of.captured(pointer, freed.allocation.bytes)});
    else
      freed.before.push_back({number, 0, false});
  state().freed.push_back(std::move(freed));
  sweep();
}

Enlisted::Enlisted() : number_(enlist()) {}

Enlisted::~Enlisted() {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().communicators.erase(number_);
  sweep();
}

void Enlisted::open(hcccComm &comm) { set(&comm); }
void Enlisted::close() { set(nullptr); }

void Enlisted::set(hcccComm *comm) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().communicators[number_] = comm;
}

}  // namespace hccc::allocations
