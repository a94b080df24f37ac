// machine.cpp: executes PTX, as `encode.py` has made a table of it, on all blocks of several grids
// at once: thread by thread in an order that a seed gives, in one thread of the host. `memory.h` has
// what stores and loads do.
#include <cmath>
#include <limits>

#include "instructions.h"

namespace {

constexpr int LONGEST_TURN = 256;
constexpr uint64_t LONGEST_POLL = 1024;  // instructions of a thread that waits, between two looks
constexpr uint64_t SKIP = 1000000000;  // nanoseconds, where nothing goes on

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
  Grid& g = *b.grid;
  wait(t);
  stacks_.push_back(t.stack);
  memory.raise(t.stores, HANDED, b.stores);
  ++memory.progress;
  if (--b.alive) {
    for (int which = 0; which < BARRIERS; ++which) meet(b, which, NO_REDUCTION);
    return false;
  }
  memory.raise(b.stores, ON_GPU, g.stores);
  if (--g.alive) return false;
  memory.publish(g.stores);
  ++ended_;
  for (size_t k = 0; k < waiting_.size(); ++k)
    if (waiting_[k].stream == g.row.stream) {
      grids_.emplace_back(new Grid{waiting_[k], 0, 0, {}, {}});
      waiting_.erase(waiting_.begin() + k);
      begin(*grids_.back(), int(grids_.size()) - 1);
      break;
    }
  return false;
}

void Machine::begin(Grid& g, int number) {
  g.alive = g.row.x * g.row.y;
  ++memory.now;
  const int first = blocks_;
  blocks_ += g.alive;
  g.first_block = first;
  for (int y = 0; y < g.row.y; ++y)
    for (int x = 0; x < g.row.x; ++x) {
      g.blocks.emplace_back(new Block);
      Block& b = *g.blocks.back();
      b.grid = &g;
      b.x = x;
      b.y = y;
      b.alive = g.row.threads;
      b.shared.resize((shared_bytes + 15) / 8);
      const int index = y * g.row.x + x;
      for (int k = 0; k < g.row.threads; ++k) {
        threads_.emplace_back(new Thread{});
        Thread& t = *threads_.back();
        t.block = &b;
        t.who = {number, first + index, k, memory.now};
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
        enter(t, g.row.function, t.stack, nullptr);
        memcpy(t.frame + g.row.params_at, g.row.params, g.row.params_bytes);
        b.threads.push_back(&t);
        ready(t);
      }
    }
}

// Gives a thread that can run a turn.
void Machine::turn() {
  Thread& t = *ready_[memory.rng.below(ready_.size())];
  const uint64_t most = 1 + memory.rng.below(LONGEST_TURN);
  for (uint64_t left = most; left; --left) {
    const Instruction& i = *t.next++;
    ++steps;
    executed[&i - code] = 1;
    if (i.guard >= 0 && bool(t.frame[i.guard]) == bool(i.negated)) continue;
    if (!i.run(*this, t, i)) return;
  }
  t.unpolled += most;
  if (t.unpolled > LONGEST_POLL) ++memory.progress;
}

void Machine::run(const std::vector<GridRow>& rows, uint64_t seed, uint64_t hang) {
  memory.rng.state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (int k = 0; k < 4; ++k) memory.rng.next();
  // Some seeds publish hardly anything by chance, some nearly at once.
  constexpr unsigned OFTEN[] = {0, 4, 64, 512};
  const unsigned eager = OFTEN[memory.rng.below(4)];
  std::map<int, bool> running;
  for (const GridRow& row : rows) {
    if (running[row.stream])
      waiting_.push_back(row);
    else
      grids_.emplace_back(new Grid{row, 0, 0, {}, {}});
    running[row.stream] = true;
  }
  for (size_t k = 0, n = grids_.size(); k < n; ++k) begin(*grids_[k], int(k));
  uint64_t seen = 0, idle = 0, skips = 0;
  while (!ready_.empty() && !stopped) {
    if (memory.rng.chance(eager)) memory.publish_any();
    turn();
    idle = memory.progress == seen ? idle + 1 : 0;
    seen = memory.progress;
    if (idle <= 20 * ready_.size() + 1000) continue;
    idle = 0;
    if (memory.publish_any()) continue;
    skipped_ += SKIP * (1 + skips / 16);  // so that the longest deadline comes, too
    if (++skips > hang) fail(*ready_[0], *ready_[0]->next, HANG, 0);
  }
  if (!stopped && ended_ < int(rows.size())) {
    const Thread& t = *threads_[0];
    fail(t, *t.next, HANG, 0);
  }
}

extern "C" {

// Returns whether the machine has an instruction.
__attribute__((visibility("default"))) int hccc_ptx_knows(const char* opcode) {
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
struct PtxRun {
  const GridRow* grids;
  const RegionRow* regions;
  const MulticastRow* multicasts;
  const uint64_t* replicas;  // the addresses that all of them stand for
  uint64_t n_grids, n_regions, n_multicasts, seed, hang;
  uint64_t steps;  // done
  uint8_t* executed;  // of each instruction, whether it was
  Report report;
};

// Runs grids to their ends, or to the first fault after which nothing can go on. Returns 1 where
// there is not enough memory.
__attribute__((visibility("default"))) int hccc_ptx_run(const PtxProgram* program, PtxRun* run) {
  try {
    std::vector<Instruction> code;
    for (uint64_t k = 0; k < program->n_code; ++k) {
      const Row& row = program->code[k];
      Instruction i{handlers().known.at(program->opcodes[row.handler]), row.offset, row.guard, {},
                    row.target, row.negated, row.space, row.order, row.scope, row.count};
      memcpy(i.a, row.a, sizeof i.a);
      code.push_back(i);
    }
    std::vector<Region> regions;
    for (uint64_t k = 0; k < run->n_regions; ++k)
      regions.push_back({run->regions[k].begin, run->regions[k].begin + run->regions[k].bytes, {}});
    Machine machine(std::move(regions));
    machine.multicasts.assign(run->multicasts, run->multicasts + run->n_multicasts);
    machine.replicas = run->replicas;
    machine.code = code.data();
    machine.functions = program->functions;
    machine.constants = program->constants;
    machine.executed = run->executed;
    machine.copies = program->copies;
    machine.stack_bytes = program->stack_bytes;
    machine.shared_bytes = program->shared_bytes;
    machine.run({run->grids, run->grids + run->n_grids}, run->seed, run->hang);
    run->steps = machine.steps;
    run->report = machine.report();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}
