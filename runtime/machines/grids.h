// grids.h: launches and their blocks, and which of their units runs next: threads of PTX, waves of
// AMD. All blocks of all launches that run are resident.
#pragma once

#include <map>
#include <memory>

#include "memory.h"

constexpr uint64_t LONGEST_TURN = 256;   // instructions
constexpr uint64_t LONGEST_POLL = 1024;  // instructions of a unit that waits, between two looks

struct GridRow {  // a launch; those of one stream run one after the other
  const uint8_t* params;
  int32_t params_bytes, params_at, function, x, y, threads, stream;
};
struct RegionRow {
  uint64_t begin, bytes;
};
// Addresses that stand for one place in the memory of several GPUs: those from `first` on in a list of
// `count` that begin there.
struct MulticastRow {
  uint64_t begin, bytes, first, count;
};
struct RunRow {
  const GridRow* grids;
  const RegionRow* regions;
  const MulticastRow* multicasts;
  const uint64_t* replicas;  // the addresses that all of them stand for
  uint64_t n_grids, n_regions, n_multicasts, seed, hang;
  uint64_t steps;  // done
  uint8_t* executed;  // of each instruction, whether it was, and whether it has waited
  Report report;
};
enum Executed : uint8_t { EXECUTED = 1, WAITED = 2 };

template <class Block>
struct Grid {
  GridRow row;
  int alive, first_block;  // blocks
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Store*> stores;  // that its GPU sees
};

// A machine has `begin(Block&, int grid)`, which makes a block's units ready, `turn(Unit&)`, which
// executes some instructions of one, and `fail(Unit&, finding)`.
template <class Machine, class Unit, class Block>
class Grids {
 public:
  Memory memory;
  bool stopped = false;
  uint8_t* executed;
  const std::vector<MulticastRow> multicasts;
  const uint64_t* const replicas;  // of all of them
  uint64_t steps = 0, shared_bytes = 0;

  // skip: ticks of the clock that pass where nothing goes on.
  Grids(const RunRow& run, uint64_t skip)
      : memory(regions_of(run)), executed(run.executed),
        multicasts(run.multicasts, run.multicasts + run.n_multicasts), replicas(run.replicas), skip_(skip) {}

  uint64_t time() const { return 1 + steps + skipped_; }

  // Ends the run with a finding; returns false, as handlers do.
  bool fail(const Actor& who, int where, int finding, uint64_t at) {
    if (!memory.report.finding || finding == WILD || finding == MISALIGNED)
      memory.report = {finding, where, who.grid, who.block, who.thread, -1, 0, 0, 0, at};
    stopped = true;
    return false;
  }

  void run(RunRow& run) {
    memory.rng.state = run.seed * 0x9E3779B97F4A7C15ULL + 1;
    for (int k = 0; k < 4; ++k) memory.rng.next();
    // Some seeds publish hardly anything by chance, some nearly at once.
    constexpr unsigned OFTEN[] = {0, 4, 64, 512};
    const unsigned eager = OFTEN[memory.rng.below(4)];
    std::map<int, bool> running;
    for (const GridRow* row = run.grids; row != run.grids + run.n_grids; ++row) {
      if (running[row->stream])
        waiting_.push_back(*row);
      else
        grids_.emplace_back(new Grid<Block>{*row, 0, 0, {}, {}});
      running[row->stream] = true;
    }
    for (size_t k = 0, n = grids_.size(); k < n; ++k) begin(*grids_[k], int(k));
    uint64_t seen = 0, idle = 0, skips = 0;
    while (!ready_.empty() && !stopped) {
      if (memory.rng.chance(eager)) memory.publish_any();
      own().turn(*ready_[memory.rng.below(ready_.size())]);
      idle = memory.progress == seen ? idle + 1 : 0;
      seen = memory.progress;
      if (idle <= 20 * ready_.size() + 1000) continue;
      idle = 0;
      if (size_t waiting = memory.pending()) {
        for (size_t n = 1 + waiting / 16; n; --n) memory.publish_any();
        continue;
      }
      skipped_ += skip_ * (1 + skips / 16);  // so that the longest deadline comes, too
      if (++skips > run.hang) own().fail(*ready_[0], HANG);
    }
    if (!stopped && ended_ < run.n_grids) own().fail(own().first(), HANG);
    run.steps = steps;
    run.report = report();
  }

 protected:
  void ready(Unit& u) {
    u.runs_at = int(ready_.size());
    ready_.push_back(&u);
  }
  void wait(Unit& u) {
    ready_[u.runs_at] = ready_.back();
    ready_[u.runs_at]->runs_at = u.runs_at;
    ready_.pop_back();
    u.runs_at = -1;
  }

  // Ends a block that has no unit left, and begins the next launch of the stream after its last.
  void end(Block& b) {
    Grid<Block>& g = *b.grid;
    memory.raise(b.stores, ON_GPU, g.stores);
    if (--g.alive) return;
    memory.publish(g.stores);
    ++ended_;
    for (size_t k = 0; k < waiting_.size(); ++k)
      if (waiting_[k].stream == g.row.stream) {
        grids_.emplace_back(new Grid<Block>{waiting_[k], 0, 0, {}, {}});
        waiting_.erase(waiting_.begin() + k);
        begin(*grids_.back(), int(grids_.size()) - 1);
        break;
      }
  }

 private:
  const uint64_t skip_;
  std::vector<Unit*> ready_;
  std::vector<std::unique_ptr<Grid<Block>>> grids_;
  std::vector<GridRow> waiting_;
  uint64_t skipped_ = 0, ended_ = 0;
  int blocks_ = 0;

  Machine& own() { return static_cast<Machine&>(*this); }

  static std::vector<Region> regions_of(const RunRow& run) {
    std::vector<Region> regions;
    for (const RegionRow* r = run.regions; r != run.regions + run.n_regions; ++r)
      regions.push_back({r->begin, r->begin + r->bytes, {}});
    return regions;
  }

  void begin(Grid<Block>& g, int number) {
    g.alive = g.row.x * g.row.y;
    ++memory.now;
    g.first_block = blocks_;
    blocks_ += g.alive;
    for (int k = 0; k < g.row.x * g.row.y; ++k) {
      g.blocks.emplace_back(new Block);
      Block& b = *g.blocks.back();
      b.grid = &g;
      b.x = k % g.row.x;
      b.y = k / g.row.x;
      b.index = g.first_block + k;
      b.shared.resize((shared_bytes + 15) / 8);
      own().begin(b, number);
    }
  }

  // Returns the first fault, with blocks as their grids count them.
  Report report() const {
    Report r = memory.report;
    r.block -= grids_[r.grid]->first_block;
    r.writer_block -= grids_[r.writer_grid]->first_block;
    return r;
  }
};
