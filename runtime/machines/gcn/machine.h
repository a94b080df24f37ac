// machine.h: waves, what they have in flight, and how their accesses reach memory.
//
// A load writes its registers when a wait retires it; a store is seen by its wave alone until then.
// After that it is in the cache of the block's part of the GPU (`block.stores`; on gfx90a in that of
// the GPU, `grid.stores`) until a write-back, begun after it, is waited for. Chance lets any be seen
// earlier. Loads that do not bypass caches may get what memory had at any time since the wave last
// invalidated its caches, or another before a barrier.
#pragma once

#include "../grids.h"

constexpr int LANES = 64;
constexpr int VCC = 106, EXEC = 126, SCC = 128, VECTORS = 136;  // places, in words
constexpr int REGISTERS = 128 + 512;
constexpr int SOURCES = 4, CONSTANT = -2;
constexpr uint64_t CODE = uint64_t(1) << 40;
constexpr uint64_t PRIVATE = 0x20000, SHARED = 0x10000;  // the upper halves of flat addresses
constexpr uint64_t SKIP = 100000000;                     // ticks of the clock, a second
constexpr size_t MOST_LOADS = 63, MOST_OTHERS = 15;      // in flight

enum Space : uint8_t { FLAT, GLOBAL, SCRATCH, BUFFER, DS };
enum Extend : uint8_t { ZERO, SIGNED, LOW, HIGH, SIGNED_LOW, SIGNED_HIGH };
enum Part : uint8_t { BYTE, WORD = 4, DWORD = 6 };

class Machine;
struct Wave;
struct Instruction;
using Handler = bool (*)(Machine&, Wave&, const Instruction&);  // false: the wave's turn ends

// As `encode.py` lays it out.
struct Row {
  int32_t handler, line;
  int64_t offset;
  uint64_t k[SOURCES];
  int32_t d[2], s[SOURCES], target;
  int16_t first[2 + SOURCES];
  uint8_t counts[2 + SOURCES];
  uint8_t width, neg, abs, sext, op_sel, op_sel_hi, neg_hi;
  uint8_t sel[3], to, unused, modified;
  uint8_t size, extend, space, strong, returns, wide;
  uint8_t reserved[3];
};
struct Instruction : Row {
  Handler run;
};

// A load, store or write-back that a wait retires.
struct Flight {
  enum Kind { LOAD, STORE, WRITE_BACK, SCALAR } kind;
  const Instruction* i;
  uint64_t lanes, since;  // since: what was in the cache when a write-back began
  uint8_t owed;           // counters that it has still to be waited for with
  bool sampled, weak;
  uint64_t at[LANES];
  uint8_t bytes[LANES][16];
  std::vector<Store*> stores;
};
enum Counter : uint8_t { LOADS = 1, OTHERS = 2 };

struct Block;

// Two registers in a row.
inline uint64_t pair(const uint32_t* low) { return low[0] | uint64_t(low[1]) << 32; }
inline void set_pair(uint32_t* low, uint64_t value) {
  low[0] = uint32_t(value);
  low[1] = uint32_t(value >> 32);
}

struct Wave {
  const Instruction* next;
  uint32_t* words;
  Block* block;
  Actor who;
  int runs_at;  // its place among those that can run; -1: it waits
  bool at_barrier = false;
  uint64_t unpolled = 0;   // instructions since it last looked whether something is so
  uint64_t emptied = 0;    // when the GPU's cache was last invalidated: gfx90a
  int loading = 0;         // loads that have yet to write registers
  uint8_t pending[2][REGISTERS] = {};  // of each counter, how many have yet to write each
  std::vector<uint8_t> scratch;
  std::vector<Flight*> loads, others;  // in the order of execution
  std::vector<uint32_t> memory;

  uint64_t exec() const { return pair(words + EXEC); }
  uint32_t& scc() { return words[SCC]; }
};

struct Block {
  Grid<Block>* grid;
  int x, y, index, alive, arrived = 0;
  std::vector<uint64_t> shared;
  std::vector<uint8_t> kernarg;  // parameters, and what the runtime adds
  std::vector<Wave*> waves;
  std::vector<Store*> stores;  // in its cache
};

// Calls f(lane) for each lane of a mask.
template <class F>
inline void for_lanes(uint64_t lanes, F f) {
  if (lanes == ~uint64_t(0))
    for (int l = 0; l < LANES; ++l) f(l);
  else
    for (; lanes; lanes &= lanes - 1) f(__builtin_ctzll(lanes));
}

struct Settings {  // of a kernel
  int32_t first, registers, private_bytes;
  int32_t descriptor, dispatch, queue, kernarg, id, flat_scratch, private_size;  // scalar registers
  int32_t x, y, z, info;  // whether workgroup ids are in registers
  int32_t one_cache;      // whether all blocks of a GPU share a cache: gfx90a
};

class Machine : public Grids<Machine, Wave, Block> {
 public:
  const Instruction* code;
  uint64_t n_code;
  Settings settings;
  uint32_t temporary[SOURCES][2 * LANES];  // operands of which an instruction takes a part

  explicit Machine(const RunRow& run) : Grids(run, SKIP) {}

  bool fail(const Wave& w, const Instruction& i, int finding, uint64_t at = 0) {
    return Grids::fail(w.who, int(&i - code), finding, at);
  }
  void fail(const Wave& w, int finding) { fail(w, *w.next, finding); }
  const Wave& first() const { return *waves_[0]; }

  void begin(Block& b, int grid);
  void turn(Wave& w);
  bool end(Wave& w);
  bool barrier(Wave& w);

  bool load(Wave& w, const Instruction& i);
  bool store(Wave& w, const Instruction& i);
  bool ds(Wave& w, const Instruction& i, bool loads);
  bool load_scalar(Wave& w, const Instruction& i, int words);
  bool clock(Wave& w, const Instruction& i);
  bool write_back(Wave& w, const Instruction& i);
  bool invalidate(Wave& w, const Instruction& i);
  bool invalidate_device(Wave& w);
  bool wait_for(Wave& w, size_t loads, size_t others);

  template <class T, class F>
  bool atomic(Wave& w, const Instruction& i, F change);

 private:
  std::vector<std::unique_ptr<Wave>> waves_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<Flight*> free_;
  uint64_t entered_ = 0;  // stores that entered a cache

  bool registers_are_ready(Wave& w, const Instruction& i);
  void prepare(Wave& w, const Instruction& i);
  void finish_part(Wave& w, const Instruction& i, const uint32_t* old);
  Flight& fly(Wave& w, const Instruction& i, Flight::Kind kind, uint8_t counters);
  void mark(Wave& w, const Instruction& i, uint8_t counters, int by);
  void retire_first(Wave& w, std::vector<Flight*>& of, Counter counter, size_t n);
  void retire(Wave& w, Flight& f, Counter counter);
  void land(Wave& w, Flight& f);
  void check(Wave& w, Flight& f);
  void enter(Wave& w, std::vector<Store*>& stores, bool strong);
  void finish(Wave& w, const Flight& f);
  void run_shared(Wave& w);
  void access_shared(Wave& w, Flight& f);
  void sample(Wave& w, Flight& f);
  void sample_before(Wave& w);
  void stir(Wave& w);
  uint64_t address(Wave& w, const Instruction& i, int lane);
  uint8_t* plain(Wave& w, const Instruction& i, int lane, uint64_t at, int size);
  bool read(Wave& w, const Instruction& i, uint64_t at, int size, bool strong, uint8_t* out);
  void meet(Block& b);
};
