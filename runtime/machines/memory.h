// memory.h: the weak memory of the machine.
//
// A weak store stays with its thread until a barrier hands it to the block; a release or fence of a
// thread publishes its own and the block's, as far as its scope reaches; chance publishes any, out
// of order. A weak load may get what was published at any time since its thread last acquired. So
// a program whose accesses are ordered gets what the same accesses give in one memory, `truth`;
// a load that gets something else is not ordered, and is told.
#pragma once

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <deque>
#include <vector>

constexpr uint64_t LINE = 128;
constexpr int MOST_BYTES = 32;  // of one access

enum Scope : uint8_t { OF_BLOCK, OF_CLUSTER, OF_GPU, OF_SYSTEM };
enum Level : uint8_t { OF_THREAD, HANDED, ON_GPU };  // who sees a store that is not published

struct Rng {
  uint64_t state;
  uint64_t next() {  // xorshift64*
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1DULL;
  }
  uint64_t below(uint64_t n) { return (next() >> 33) % n; }
  bool chance(unsigned of_1024) { return (next() >> 54) < of_1024; }
};

// Who accesses memory.
struct Actor {
  int grid = 0, block = 0, thread = 0;
  uint64_t acquired = 0;  // the time of the last acquire that is ordered before
};

struct Line;

// A weak store that not everybody sees.
struct Store {
  uint64_t at;
  Line* line;
  int grid, block, thread;
  int where;  // the instruction
  uint32_t index;  // in the list of all
  uint8_t size;
  Level level;
  bool published;
  bool strong;  // another one there need not be ordered
  uint64_t entered;  // a cache, as its machine counts
  uint8_t bytes[MOST_BYTES];
};

// What lay in memory before something was published.
struct Undo {
  uint64_t time;
  int block, grid;  // who has seen it before; grid: -1, no other block
  uint8_t at, size;
  uint8_t old[MOST_BYTES];
};

struct Writer {
  int where = -1, grid = 0, block = 0, thread = 0;
};

struct Line {
  uint8_t truth[LINE];
  Writer writer[LINE / 4];
  std::vector<Store*> pending;  // in the order of execution
  std::vector<Undo> log;
};

struct Region {
  uint64_t begin, end;
  std::vector<Line*> lines;
  Line*& line(uint64_t at) { return lines[at / LINE - begin / LINE]; }
};

enum Finding : int {
  NOTHING, UNPUBLISHED, STALE, UNORDERED, UNREADY, WILD, MISALIGNED, HANG, TRAP
};

// The first fault that was found.
struct Report {
  int finding = NOTHING;
  int where = -1;  // the instruction, and who executed it
  int grid = 0, block = 0, thread = 0;
  int writer = -1;  // the instruction that wrote what was to be read, and who executed that
  int writer_grid = 0, writer_block = 0, writer_thread = 0;
  uint64_t at = 0;
};

class Memory {
 public:
  Rng rng{1};
  uint64_t now = 1;
  uint64_t progress = 0;  // grows with each store
  Report report;

  explicit Memory(std::vector<Region> regions) : regions_(std::move(regions)) {
    std::sort(regions_.begin(), regions_.end(),
              [](const Region& a, const Region& b) { return a.begin < b.begin; });
    for (Region& r : regions_) r.lines.resize((r.end - 1) / LINE - r.begin / LINE + 1);
  }

  ~Memory() {
    for (Line* line : made_) delete line;
  }

  // Returns the region of an access; null: it is wild.
  Region* find(uint64_t at, uint64_t size) {
    if (last_ && at >= last_->begin && at + size <= last_->end) return last_;
    auto after = std::upper_bound(regions_.begin(), regions_.end(), at,
                                  [](uint64_t a, const Region& r) { return a < r.begin; });
    if (after == regions_.begin()) return nullptr;
    Region* r = &*--after;
    if (at + size > r->end) return nullptr;
    return last_ = r;
  }

  void load_weak(const Actor& who, Region* r, uint64_t at, int size, int where, uint8_t* out) {
    memcpy(out, reinterpret_cast<void*>(at), size);
    const Line* line = r->line(at);
    if (!line) return;
    const int first = at % LINE;
    if (!line->log.empty()) go_back(who, *line, first, size, out);
    for (const Store* s : line->pending)
      if (sees(who, *s)) overlay(*s, at, size, out);
    for (int k = 0; k < size; ++k)
      if (out[k] != line->truth[first + k]) return tell(who, *line, at, k, where);
  }

  void load_strong(const Actor& who, Region* r, uint64_t at, int size, uint8_t* out) {
    if (Line* line = r->line(at)) settle(who, *line, at, size);
    memcpy(out, reinterpret_cast<void*>(at), size);
  }

  void store_weak(const Actor& who, Region* r, uint64_t at, int size, int where,
                  const uint8_t* bytes, std::vector<Store*>& own, bool strong = false) {
    Line& line = line_of(r, at);
    write_truth(who, line, at, size, where, bytes);
    if (free_.empty()) free_.push_back(&pool_.emplace_back());
    Store* s = free_.back();
    free_.pop_back();
    *s = {at, &line, who.grid, who.block, who.thread, where, uint32_t(all_.size()), uint8_t(size),
          OF_THREAD, false, strong, 0, {}};
    memcpy(s->bytes, bytes, size);
    all_.push_back(s);
    line.pending.push_back(s);
    own.push_back(s);
    ++progress;
  }

  void store_strong(const Actor& who, Region* r, uint64_t at, int size, int where,
                    const uint8_t* bytes) {
    Line& line = line_of(r, at);
    settle(who, line, at, size);
    write_truth(who, line, at, size, where, bytes);
    write(line, who.block, -1, at, size, bytes);
    ++progress;
  }

  // Lets others see stores: to `level`, or everybody.
  void raise(std::vector<Store*>& stores, Level level, std::vector<Store*>& into) {
    for (Store* s : stores) {
      if (s->published) {
        free_.push_back(s);
        continue;
      }
      if (s->level < level) s->level = level;
      into.push_back(s);
    }
    stores.clear();
  }
  void publish(std::vector<Store*>& stores) {
    for (Store* s : stores) {
      if (!s->published) publish(s);
      free_.push_back(s);
    }
    stores.clear();
  }

  // Publishes one that chance picks, after those of its block that it must not overtake.
  bool publish_any() {
    if (all_.empty()) return false;
    publish_early(all_[rng.below(all_.size())]);
    return true;
  }

  void publish_last() {
    if (!all_.empty()) publish_early(all_.back());
  }

  // Publishes one, after those of its block that it must not overtake, and those its GPU sees.
  void publish_early(Store* s) {
    const std::vector<Store*> before = s->line->pending;
    for (Store* other : before) {
      if (other == s) break;
      const bool seen = other->level == ON_GPU && other->grid == s->grid;
      if ((seen || other->block == s->block) && overlap(*other, s->at, s->size)) publish(other);
    }
    publish(s);
  }

  // Tells whether another than `who` has written what was loaded, since.
  void check_loaded(const Actor& who, Region* r, uint64_t at, int size, int where,
                    const uint8_t* bytes) {
    const Line* line = r->line(at);
    if (!line) return;
    for (int k = 0; k < size; ++k) {
      const Writer& w = line->writer[(at % LINE + k) / 4];
      const bool own = w.grid == who.grid && w.block == who.block && w.thread == who.thread;
      if (bytes[k] != line->truth[at % LINE + k] && !own)
        return tell(who, *line, at, k, where, UNORDERED);
    }
  }

  size_t pending() const { return all_.size(); }

 private:
  std::vector<Region> regions_;
  Region* last_ = nullptr;
  std::vector<Store*> all_;  // none is published
  std::vector<Line*> made_;
  std::deque<Store> pool_;
  std::vector<Store*> free_;

  static bool overlap(const Store& s, uint64_t at, uint64_t size) {
    return s.at < at + size && at < s.at + s.size;
  }

  static bool sees(const Actor& who, const Store& s) {
    if (s.level == ON_GPU) return s.grid == who.grid;
    if (s.level == HANDED) return s.block == who.block;
    return s.block == who.block && s.thread == who.thread;
  }

  static void overlay(const Store& s, uint64_t at, int size, uint8_t* out) {
    const uint64_t begin = std::max(s.at, at), end = std::min(s.at + s.size, at + size);
    if (begin < end) memcpy(out + (begin - at), s.bytes + (begin - s.at), end - begin);
  }

  // Makes of what lies in memory what lay there at some time since the actor's last acquire. What
  // its own block has written stays, and what its GPU has seen.
  void go_back(const Actor& who, const Line& line, int first, int size, uint8_t* out) {
    const uint64_t kind = rng.below(4);
    if (kind == 0) return;
    uint64_t time = who.acquired;
    if (kind == 1 && now > time) time += rng.below(now - time + 1);
    uint64_t own = 0;  // a bit for each byte
    for (auto undo = line.log.rbegin(); undo != line.log.rend() && undo->time > time; ++undo) {
      const int begin = std::max<int>(undo->at, first);
      const int end = std::min<int>(undo->at + undo->size, first + size);
      for (int k = begin; k < end; ++k) {
        const uint64_t bit = uint64_t(1) << (k - first);
        if (undo->block == who.block || undo->grid == who.grid) own |= bit;
        if (!(own & bit)) out[k - first] = undo->old[k - undo->at];
      }
    }
  }

  Line& line_of(Region* r, uint64_t at) {
    Line*& line = r->line(at);
    if (!line) {
      line = new Line;
      made_.push_back(line);
      const uint64_t begin = std::max(at / LINE * LINE, r->begin);
      const uint64_t end = std::min(at / LINE * LINE + LINE, r->end);
      memcpy(line->truth + begin % LINE, reinterpret_cast<void*>(begin), end - begin);
    }
    return *line;
  }

  static void write_truth(const Actor& who, Line& line, uint64_t at, int size, int where,
                          const uint8_t* bytes) {
    const int first = at % LINE;
    memcpy(line.truth + first, bytes, size);
    for (int k = first / 4; k <= (first + size - 1) / 4; ++k)
      line.writer[k] = {where, who.grid, who.block, who.thread};
  }

  // Changes what everybody sees.
  void write(Line& line, int block, int grid, uint64_t at, int size, const uint8_t* bytes) {
    Undo undo{++now, block, grid, uint8_t(at % LINE), uint8_t(size), {}};
    memcpy(undo.old, reinterpret_cast<void*>(at), size);
    memcpy(reinterpret_cast<void*>(at), bytes, size);
    line.log.push_back(undo);
  }

  void publish(Store* s) {
    write(*s->line, s->block, s->level == ON_GPU ? s->grid : -1, s->at, s->size, s->bytes);
    s->published = true;
    Line& line = *s->line;
    line.pending.erase(std::find(line.pending.begin(), line.pending.end(), s));
    all_[s->index] = all_.back();
    all_[s->index]->index = s->index;
    all_.pop_back();
    ++progress;
    uint8_t* const here = reinterpret_cast<uint8_t*>(s->at);
    uint8_t* const truth = line.truth + s->at % LINE;
    if (!line.pending.empty() || memcmp(here, truth, s->size) == 0) return;
    if (s->strong)
      memcpy(truth, here, s->size);
    else
      tell({s->grid, s->block, s->thread, 0}, line, s->at, 0, s->where, UNORDERED);
  }

  // Publishes what the actor sees of a place that it is to access strongly.
  void settle(const Actor& who, Line& line, uint64_t at, int size) {
    for (size_t k = 0; k < line.pending.size();) {
      Store* s = line.pending[k];
      if (overlap(*s, at, size) && sees(who, *s))
        publish(s);
      else
        ++k;
    }
  }

  void tell(const Actor& who, const Line& line, uint64_t at, int byte, int where,
            int finding = STALE) {
    if (report.finding) return;
    const Writer& w = line.writer[(at % LINE + byte) / 4];
    const bool here = *reinterpret_cast<uint8_t*>(at + byte) == line.truth[at % LINE + byte];
    report = {finding == STALE && !here ? UNPUBLISHED : finding, where, who.grid, who.block,
              who.thread, w.where, w.grid, w.block, w.thread, at + byte};
  }
};
