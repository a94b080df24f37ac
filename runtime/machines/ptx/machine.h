// machine.h: threads, blocks and grids, and what instructions ask of the machine.
#pragma once

#include <sys/mman.h>

#include "../grids.h"

constexpr int OPERANDS = 10;
constexpr int MOST_CALLS = 16;
constexpr int BARRIERS = 16;
constexpr int STACKS = 64;  // that are mapped at once
constexpr uint64_t SKIP = 1000000000;  // nanoseconds

enum Space : uint8_t { GENERIC, GLOBAL, CONSTANT, SHARED, LOCAL, FRAME };
enum Order : uint8_t { WEAK, NC, VOLATILE, MMIO, RELAXED, ACQUIRE, RELEASE, ACQ_REL, SC };
enum Special { TID, NTID = 3, CTAID = 6, NCTAID = 9, LANE = 12, WARP, SM, TIMER, TIMER_LOW, CLOCK };
enum Reduction { NO_REDUCTION, ANY, EVERY, COUNT };

class Machine;
struct Thread;
struct Instruction;
using Handler = bool (*)(Machine&, Thread&, const Instruction&);  // false: the thread's turn ends

// As `encode.py` lays it out, but for `run`.
struct Row {
  int64_t offset;
  int32_t handler, guard, a[OPERANDS], target, line;
  uint8_t negated, space, order, scope, count, reserved[7];
};
struct Instruction {
  Handler run;
  int64_t offset;
  int32_t guard, a[OPERANDS], target;
  uint8_t negated, space, order, scope, count;
};
struct Function {
  int32_t code, frame, at, constants, first, reserved;
};
struct Copy {
  int32_t source, target, size;
};
struct Block;

struct Frame {
  uint8_t* frame;
  int function;
  const Instruction* call;
};

struct Thread {
  uint8_t* frame;
  const Instruction* next;
  Block* block;
  Actor who;
  int function, depth;
  int runs_at;  // its place among those that can run; -1: it waits
  int barrier, result;
  int parts = 0, first = 0;  // of a vector: how many there are yet, and which is the first
  uint8_t vector[32];
  uint64_t unpolled;  // instructions since it last looked whether something is so
  uint8_t* stack;
  std::vector<Store*> stores;
  Frame above[MOST_CALLS];
};

struct Block {
  Grid<Block>* grid;
  int x, y, index, alive;
  int arrived[BARRIERS] = {}, all[BARRIERS] = {};
  std::vector<uint64_t> shared;
  std::vector<Thread*> threads;
  std::vector<Store*> stores;  // handed over by its threads
};

class Machine : public Grids<Machine, Thread, Block> {
 public:
  const Instruction* code;
  const Function* functions;
  const uint64_t* constants;
  const Copy* copies;
  uint64_t stack_bytes = 0;

  explicit Machine(const RunRow& run) : Grids(run, SKIP) {}
  ~Machine() {
    for (uint8_t* stacks : mapped_) munmap(stacks, STACKS * stack_bytes);
  }

  void call(Thread& t, const Instruction& i) {
    const Function& own = functions[t.function];
    enter(t, i.target, t.frame + own.frame, &i);
    const uint8_t* from = t.above[t.depth - 1].frame;
    for (int k = 0; k < i.a[0]; ++k) {
      const Copy& c = copies[i.offset + k];
      memcpy(t.frame + c.target, from + c.source, c.size);
    }
  }

  bool leave(Thread& t) {
    if (t.depth == 1) return end(t);
    const Frame above = t.above[--t.depth];
    for (int k = 0; k < above.call->a[1]; ++k) {
      const Copy& c = copies[above.call->offset + above.call->a[0] + k];
      memcpy(above.frame + c.target, t.frame + c.source, c.size);
    }
    t.frame = above.frame;
    t.function = above.function;
    t.next = above.call + 1;
    return true;
  }

  // Begins a function in a frame.
  void enter(Thread& t, int function, uint8_t* frame, const Instruction* from) {
    t.above[t.depth++] = {t.frame, t.function, from};
    const Function& f = functions[function];
    memcpy(frame + f.at, constants + f.first, 8 * f.constants);
    t.frame = frame;
    t.function = function;
    t.next = code + f.code;
  }

  uint64_t special(const Thread& t, int which) const {
    const Block& b = *t.block;
    const GridRow& g = b.grid->row;
    switch (which) {
      case TID: return t.who.thread;
      case NTID: return g.threads;
      case CTAID: return b.x;
      case CTAID + 1: return b.y;
      case NCTAID: return g.x;
      case NCTAID + 1: return g.y;
      case NTID + 1: case NTID + 2: case NCTAID + 2: return 1;
      case LANE: return t.who.thread % 32;
      case WARP: return t.who.thread / 32;
      case SM: return t.who.block;
      case TIMER: case CLOCK: return time();
      case TIMER_LOW: return uint32_t(time());
    }
    return 0;
  }

  // Ends the run with a finding; returns false, as handlers do.
  bool fail(const Thread& t, const Instruction& i, int finding, uint64_t at) {
    return Grids::fail(t.who, int(&i - code), finding, at);
  }
  void fail(const Thread& t, int finding) { fail(t, *t.next, finding, 0); }

  // Loads, and below stores, `size` bytes, `past` of which are before them.
  bool load(Thread& t, const Instruction& i, int size, uint8_t* out, int past = 0) {
    uint8_t* plain;
    Region* region;
    uint64_t at;
    if (!find(t, i, size, past, plain, region, at)) return false;
    if (plain) {
      memcpy(out, plain, size);
    } else if (i.order < VOLATILE) {
      Actor who = t.who;
      if (i.order == NC) who.acquired = 0;
      memory.load_weak(who, region, at, size, int(&i - code), out);
    } else {
      memory.load_strong(t.who, region, at, size, out);
      t.unpolled = 0;
      if (i.order == ACQUIRE) t.who.acquired = memory.now;
    }
    return true;
  }

  bool store(Thread& t, const Instruction& i, int size, const uint8_t* bytes, int past = 0) {
    uint8_t* plain;
    Region* region;
    uint64_t at;
    if (!find(t, i, size, past, plain, region, at)) return false;
    const int where = int(&i - code);
    if (i.order == RELEASE) publish(t, i.scope);
    if (plain)
      memcpy(plain, bytes, size);
    else if (i.order == WEAK)
      memory.store_weak(t.who, region, at, size, where, bytes, t.stores);
    else
      memory.store_strong(t.who, region, at, size, where, bytes);
    return true;
  }

  template <class T, class F>
  bool atomic(Thread& t, const Instruction& i, F change) {
    uint8_t* plain;
    Region* region;
    uint64_t at;
    if (!find(t, i, sizeof(T), 0, plain, region, at)) return false;
    T old;
    if (i.order == RELEASE || i.order >= ACQ_REL) publish(t, i.scope);
    if (plain) {
      memcpy(&old, plain, sizeof old);
    } else {
      memory.load_strong(t.who, region, at, sizeof old, reinterpret_cast<uint8_t*>(&old));
    }
    const T now = change(old);
    if (plain)
      memcpy(plain, &now, sizeof now);
    else
      memory.store_strong(t.who, region, at, sizeof now, int(&i - code),
                          reinterpret_cast<const uint8_t*>(&now));
    if (i.order == ACQUIRE || i.order >= ACQ_REL) t.who.acquired = memory.now;
    uint64_t word = 0;
    memcpy(&word, &old, sizeof old);
    if (i.a[1] >= 0) memcpy(t.frame + i.a[1], &word, 8);
    return true;
  }

  // Calls `access` with the region and the address of each place that a multicast address stands for, in
  // an order that the seed gives.
  template <class F>
  bool everywhere(Thread& t, const Instruction& i, int size, F access) {
    uint64_t at;
    memcpy(&at, t.frame + i.a[0], 8);
    at += uint64_t(i.offset);
    if (at % size) return fail(t, i, MISALIGNED, at);
    for (const MulticastRow& m : multicasts) {
      if (at < m.begin || at + size > m.begin + m.bytes) continue;
      std::vector<uint64_t> places(replicas + m.first, replicas + m.first + m.count);
      for (size_t left = places.size(); left; --left) {
        std::swap(places[memory.rng.below(left)], places[left - 1]);
        const uint64_t place = places[left - 1] + (at - m.begin);
        Region* const region = memory.find(place, size);
        if (!region) return fail(t, i, WILD, place);
        access(region, place);
      }
      return true;
    }
    return fail(t, i, WILD, at);
  }

  void fence(Thread& t, const Instruction& i) {
    if (i.order != ACQUIRE) publish(t, i.scope);
    if (i.order != RELEASE) t.who.acquired = memory.now;
  }

  // Publishes what a release of a thread does.
  void release(Thread& t, const Instruction& i) { publish(t, i.scope); }

  // Waits for the block's other threads at a barrier.
  bool barrier(Thread& t, const Instruction& i, int reduction);
  bool end(Thread& t);
  void begin(Block& b, int grid);
  void turn(Thread& t);
  const Thread& first() const { return *threads_[0]; }

 private:
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<uint8_t*> mapped_, stacks_;

  // Finds what an access touches: memory without weakness (`plain`), or a region.
  bool find(Thread& t, const Instruction& i, int size, int past, uint8_t*& plain, Region*& region,
            uint64_t& at) {
    const int64_t offset = i.offset + past;
    plain = nullptr;
    region = nullptr;
    if (i.space == FRAME) {
      plain = t.frame + offset;
      return true;
    }
    memcpy(&at, t.frame + i.a[0], 8);
    uint8_t* const shared = reinterpret_cast<uint8_t*>(t.block->shared.data());
    if (i.space == SHARED) {
      at = uint32_t(at + uint64_t(offset));
      if (at + size > shared_bytes) return fail(t, i, WILD, at);
      if (at % size) return fail(t, i, MISALIGNED, at);
      plain = shared + at;
      return true;
    }
    at += uint64_t(offset);
    if (at % size) return fail(t, i, MISALIGNED, at);
    const uint64_t stack = reinterpret_cast<uint64_t>(t.stack);
    const uint64_t block = reinterpret_cast<uint64_t>(shared);
    const bool own = at - stack < stack_bytes && at - stack + size <= stack_bytes;
    const bool own_block = at - block < shared_bytes && at - block + size <= shared_bytes;
    if (i.space != GLOBAL && (own || own_block)) {
      plain = reinterpret_cast<uint8_t*>(at);
      return true;
    }
    if (!(region = memory.find(at, size))) return fail(t, i, WILD, at);
    return true;
  }

  // Lets what a thread may have seen be seen as far as a scope reaches.
  void publish(Thread& t, int scope) {
    Block& b = *t.block;
    if (scope == OF_BLOCK) return memory.raise(t.stores, HANDED, b.stores);
    Grid<Block>& g = *b.grid;
    if (scope != OF_SYSTEM) {
      memory.raise(t.stores, ON_GPU, g.stores);
      return memory.raise(b.stores, ON_GPU, g.stores);
    }
    memory.publish(t.stores);
    memory.publish(b.stores);
    memory.publish(g.stores);
  }

  void meet(Block& b, int which, int reduction);
};
