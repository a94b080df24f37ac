// machine.cpp: executes clang's assembly for AMD, as `encode.py` has made a table of it, on all blocks
// of several grids at once: wave by wave in an order that a seed gives, in one thread of the host.
// `accesses.h` has what loads and stores do, `instructions.h` the others.
#include "instructions.h"

namespace {

const Handlers& handlers() {
  static const Handlers all;
  return all;
}

constexpr uint32_t UNSET = 0xa5a5a5a5;  // of registers, at first
constexpr size_t HIDDEN = 256;          // bytes after the parameters
constexpr size_t PACKET = 64;           // bytes of the packet that starts a launch, after those

// Returns what a kernel is given in memory: parameters, then how many blocks and threads there are,
// then the packet of its launch, which says that, too.
std::vector<uint8_t> kernarg_of(const GridRow& row) {
  const size_t own = (row.params_bytes + 7) / 8 * 8;
  std::vector<uint8_t> made(own + HIDDEN + PACKET);
  memcpy(made.data(), row.params, row.params_bytes);
  const uint32_t blocks[] = {uint32_t(row.x), uint32_t(row.y), 1};
  const uint32_t all[] = {uint32_t(row.x * row.threads), uint32_t(row.y), 1};
  const uint16_t threads[] = {uint16_t(row.threads), 1, 1};
  uint8_t* const hidden = made.data() + own;
  memcpy(hidden, blocks, sizeof blocks);
  memcpy(hidden + sizeof blocks, threads, sizeof threads);
  memcpy(hidden + HIDDEN + 4, threads, sizeof threads);
  memcpy(hidden + HIDDEN + 12, all, sizeof all);
  return made;
}

}  // namespace

void Machine::begin(Block& b, int grid) {
  const GridRow& row = b.grid->row;
  const Settings& s = settings;
  b.kernarg = kernarg_of(row);
  b.alive = (row.threads + LANES - 1) / LANES;
  for (int number = 0; number < b.alive; ++number) {
    waves_.emplace_back(new Wave{});
    Wave& w = *waves_.back();
    w.memory.assign(VECTORS + LANES * s.registers, UNSET);
    w.words = w.memory.data();
    w.scratch.resize(size_t(LANES) * s.private_bytes);
    w.block = &b;
    w.who = {grid, b.index, number, memory.now};
    w.emptied = memory.now;
    w.next = code + s.first;
    int at = 0;
    const auto take = [&](int registers, uint64_t value) {
      for (int k = 0; k < registers; ++k) w.words[at++] = uint32_t(k < 2 ? value >> 32 * k : 0);
    };
    take(4 * s.descriptor, 0);
    take(2 * s.dispatch, reinterpret_cast<uint64_t>(b.kernarg.data()) + b.kernarg.size() - PACKET);
    take(2 * s.queue, 0);
    take(2 * s.kernarg, reinterpret_cast<uint64_t>(b.kernarg.data()));
    take(2 * s.id, 0);
    take(2 * s.flat_scratch, 0);
    take(s.private_size, s.private_bytes);
    take(s.x, b.x);
    take(s.y, b.y);
    take(s.z, 0);
    take(s.info, 0);
    take(1, 0);  // where the wave's own memory begins, which is counted from there
    const int lanes = std::min(LANES, row.threads - number * LANES);
    set_pair(w.words + EXEC, ~uint64_t(0) >> (LANES - lanes));
    for (int l = 0; l < LANES; ++l) w.words[VECTORS + l] = number * LANES + l;
    b.waves.push_back(&w);
    ready(w);
  }
}

bool Machine::barrier(Wave& w) {
  w.at_barrier = true;
  ++w.block->arrived;
  wait(w);
  meet(*w.block);
  return false;
}

// Ends a barrier at which all waves have arrived.
void Machine::meet(Block& b) {
  if (!b.arrived || b.arrived < b.alive) return;
  uint64_t acquired = 0, emptied = 0;
  for (const Wave* w : b.waves)
    if (w->at_barrier) {
      acquired = std::max(acquired, w->who.acquired);
      emptied = std::max(emptied, w->emptied);
    }
  for (Wave* w : b.waves)
    if (w->at_barrier) {
      w->who.acquired = acquired;
      w->emptied = emptied;
      w->at_barrier = false;
      ready(*w);
    }
  b.arrived = 0;
  ++memory.progress;
}

bool Machine::end(Wave& w) {
  Block& b = *w.block;
  wait_for(w, 0, 0);
  wait(w);
  w.memory = {};
  w.scratch = {};
  ++memory.progress;
  if (--b.alive)
    meet(b);
  else
    Grids::end(b);
  return false;
}

// Returns whether what an instruction reads and writes is there. Loads of one kind are in order.
bool Machine::registers_are_ready(Wave& w, const Instruction& i) {
  const bool in_order = i.size && (i.space == GLOBAL || i.space == SCRATCH || i.space == BUFFER);
  for (int k = 0; k < 2 + SOURCES; ++k)
    for (int r = i.first[k]; r < i.first[k] + i.counts[k]; ++r)
      if (w.pending[1][r] || (w.pending[0][r] && (k >= 2 || !in_order))) return false;
  return true;
}

// Takes the parts of operands that an instruction names, and their signs.
void Machine::prepare(Wave& w, const Instruction& i) {
  for (int k = 0; k < SOURCES - 1; ++k) {
    if (!(i.modified >> k & 1)) continue;
    Instruction as_it_is = i;
    as_it_is.modified = 0;
    const Source s = source(*this, w, as_it_is, k);
    const int part = i.sel[k];
    const bool sign = i.sext >> k & 1;
    for (int l = 0; l < LANES; ++l) {
      u64 value = i.width == 64 ? s.both(l) : s.low(l);
      if (part < WORD) value = sign ? u32(s8(value >> 8 * part)) : u8(value >> 8 * part);
      if (part == WORD || part == WORD + 1) {
        const u16 word = u16(value >> 16 * (part - WORD));
        value = sign ? u32(s16(word)) : word;
      }
      const u64 top = u64(1) << (i.width - 1);
      if (i.abs >> k & 1) value &= ~top;
      if (i.neg >> k & 1) value ^= top;
      temporary[k][l] = u32(value);
      temporary[k][LANES + l] = u32(value >> 32);
    }
  }
}

// Puts a result into the part of a register that is its place. old: what the register had.
void Machine::finish_part(Wave& w, const Instruction& i, const uint32_t* old) {
  u32* const to = w.words + i.d[0];
  const int at = i.to < WORD ? 8 * i.to : 16 * (i.to - WORD);
  const u32 mask = (i.to < WORD ? 0xffu : 0xffffu) << at;
  for_lanes(w.exec(), [&](int l) {
    const u32 value = to[l] << at & mask;
    const u32 above = ~mask & ~((u32(1) << at) - 1);
    const bool negative = value & (mask ^ (mask >> 1)) & mask;
    to[l] = i.unused == 2 ? value | (old[l] & ~mask)
            : i.unused == 1 && negative ? value | above : value;
  });
}

// Gives a wave that can run a turn.
void Machine::turn(Wave& w) {
  stir(w);
  const uint64_t most = 1 + memory.rng.below(LONGEST_TURN);
  for (uint64_t left = most; left; --left) {
    if (stopped) return;
    const Instruction& i = *w.next++;
    ++steps;
    executed[&i - code] |= EXECUTED;
    if (w.loading && !registers_are_ready(w, i)) {
      fail(w, i, UNREADY);
      return;
    }
    if (i.modified) prepare(w, i);
    if (i.to != DWORD) {
      uint32_t old[LANES];
      memcpy(old, w.words + i.d[0], sizeof old);
      i.run(*this, w, i);
      finish_part(w, i, old);
    } else if (!i.run(*this, w, i)) {
      return;
    }
  }
  w.unpolled += most;
  if (w.unpolled > LONGEST_POLL) ++memory.progress;
}

extern "C" {

// Returns whether the machine has an instruction.
__attribute__((visibility("default"))) int hccc_machine_knows(const char* opcode) {
  return handlers().known.count(opcode) != 0;
}

struct GcnProgram {
  const Row* code;
  const char* const* opcodes;
  uint64_t n_code, shared_bytes;
  Settings settings;
};

// Runs grids to their ends, or to the first fault after which nothing can go on. Returns 1 where
// there is not enough memory.
__attribute__((visibility("default"))) int hccc_machine_run(const GcnProgram* program,
                                                            RunRow* run) {
  try {
    std::vector<Instruction> code;
    for (uint64_t k = 0; k < program->n_code; ++k) {
      const Row& row = program->code[k];
      code.push_back({row, handlers().known.at(program->opcodes[row.handler])});
    }
    Machine machine(*run);
    machine.code = code.data();
    machine.n_code = program->n_code;
    machine.shared_bytes = program->shared_bytes;
    machine.settings = program->settings;
    machine.run(*run);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}
