// machine.cpp: executes PTX, as `encode.py` has made a table of it, on all blocks of several grids
// at once: thread by thread in an order that a seed gives, in one thread of the host. `memory.h` has
// what stores and loads do.
#include <cmath>
#include <limits>

#include "instructions.h"

namespace {

const Handlers& handlers() {
  static const Handlers all;
  return all;
}

}  // namespace

bool Machine::barrier(Thread& t, const Instruction& i, int reduction) {
  Block& b = *t.block;
  uint64_t which;
  const int at = reduction == NO_REDUCTION ? i.a[0] : i.a[1];
  const int given = reduction == NO_REDUCTION ? i.a[1] : i.a[3] >= 0 ? i.a[2] : -1;
  memcpy(&which, t.frame + at, 8);
  which %= BARRIERS;
  t.barrier = int(which);
  t.result = reduction == NO_REDUCTION ? -1 : i.a[0];
  if (given >= 0 && get<uint32_t>(t, given) != uint32_t(b.threads.size())) {
    return fail(t, i, TRAP, 0);  // barriers of a part of the block: no kernel has one yet
  }
  if (reduction != NO_REDUCTION) b.all[which] += get<uint8_t>(t, i.a[i.a[3] >= 0 ? 3 : 2]) != 0;
  ++b.arrived[which];
  wait(t);
  meet(b, int(which), reduction);
  return false;
}

// Ends a barrier at which all threads have arrived.
void Machine::meet(Block& b, int which, int reduction) {
  if (!b.arrived[which] || b.arrived[which] < b.alive) return;
  const int all = b.all[which];
  const uint64_t value = reduction == ANY ? all != 0 : reduction == EVERY ? all == b.alive : all;
  uint64_t acquired = 0;
  for (Thread* t : b.threads)
    if (t->barrier == which) {
      acquired = std::max(acquired, t->who.acquired);
      memory.raise(t->stores, HANDED, b.stores);
    }
  for (Thread* t : b.threads)
    if (t->barrier == which) {
      t->who.acquired = acquired;
      t->barrier = -1;
      if (t->result >= 0) set<uint64_t>(*t, t->result, value);
      ready(*t);
    }
  b.arrived[which] = b.all[which] = 0;
  ++memory.progress;
}

bool Machine::end(Thread& t) {
  Block& b = *t.block;
  wait(t);
  stacks_.push_back(t.stack);
  memory.raise(t.stores, HANDED, b.stores);
  ++memory.progress;
  if (!--b.alive)
    Grids::end(b);
  else
    for (int which = 0; which < BARRIERS; ++which) meet(b, which, NO_REDUCTION);
  return false;
}

void Machine::begin(Block& b, int grid) {
  const GridRow& row = b.grid->row;
  b.alive = row.threads;
  for (int k = 0; k < row.threads; ++k) {
    threads_.emplace_back(new Thread{});
    Thread& t = *threads_.back();
    t.block = &b;
    t.who = {grid, b.index, k, memory.now};
    t.barrier = -1;
    if (stacks_.empty()) {
      uint8_t* made = static_cast<uint8_t*>(
          mmap(nullptr, STACKS * stack_bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      if (made == MAP_FAILED) throw std::bad_alloc();
      mapped_.push_back(made);
      for (int n = 0; n < STACKS; ++n) stacks_.push_back(made + n * stack_bytes);
    }
    t.stack = stacks_.back();
    stacks_.pop_back();
    enter(t, row.function, t.stack, nullptr);
    memcpy(t.frame + row.params_at, row.params, row.params_bytes);
    b.threads.push_back(&t);
    ready(t);
  }
}

void Machine::turn(Thread& t) {
  const uint64_t most = 1 + memory.rng.below(LONGEST_TURN);
  for (uint64_t left = most; left; --left) {
    const Instruction& i = *t.next++;
    ++steps;
    executed[&i - code] |= EXECUTED;
    if (i.guard >= 0 && bool(t.frame[i.guard]) == bool(i.negated)) continue;
    if (!i.run(*this, t, i)) return;
  }
  t.unpolled += most;
  if (t.unpolled > LONGEST_POLL) ++memory.progress;
}

extern "C" {

// Returns whether the machine has an instruction.
__attribute__((visibility("default"))) int hccc_machine_knows(const char* opcode) {
  return handlers().known.count(opcode) != 0;
}

struct PtxProgram {
  const Row* code;
  const Function* functions;
  const uint64_t* constants;
  const Copy* copies;
  const char* const* opcodes;
  uint64_t n_code, stack_bytes, shared_bytes;
};
// Runs grids to their ends, or to the first fault after which nothing can go on. Returns 1 where
// there is not enough memory.
__attribute__((visibility("default"))) int hccc_machine_run(const PtxProgram* program, RunRow* run) {
  try {
    std::vector<Instruction> code;
    for (uint64_t k = 0; k < program->n_code; ++k) {
      const Row& row = program->code[k];
      Instruction i{handlers().known.at(program->opcodes[row.handler]), row.offset, row.guard, {},
                    row.target, row.negated, row.space, row.order, row.scope, row.count};
      memcpy(i.a, row.a, sizeof i.a);
      code.push_back(i);
    }
    Machine machine(*run);
    machine.code = code.data();
    machine.functions = program->functions;
    machine.constants = program->constants;
    machine.copies = program->copies;
    machine.stack_bytes = program->stack_bytes;
    machine.shared_bytes = program->shared_bytes;
    machine.run(*run);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}
