// schedule.cpp: see schedule.h.
#include "schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace hccc::job {
namespace {

// A task in the order of all ranks: its wave, its micro-batch, its step.
using Turn = std::tuple<int, int, int>;

// How many steps lie before a step, one after another, and whether it needs nothing from over a border.
struct Level {
  int level = 0;
  bool home = false;
};

// Returns the level of each step: it comes after those that wrote what it reads or writes, and those that read what it
// writes.
std::vector<Level> levels(const SavedJob &job) {
  using Place = std::pair<int, int>;  // a vendor cluster, and a part
  std::map<Place, int> written, used;
  std::set<Place> away;  // what copies over borders, or steps after them, have touched
  const auto at = [](const std::map<Place, int> &of, const Place &place) {
    const auto found = of.find(place);
    return found == of.end() ? 0 : found->second;
  };
  std::vector<Level> found;
  for (const Step &step : job.steps) {
    std::vector<Place> reads, writes;
    if (step.op == Op::ALL_GATHER) {
      for (const int r : job.clusters[static_cast<size_t>(step.src)].ranks)
        reads.emplace_back(step.src, r * job.collective.per_block() + step.part);
      writes = reads;
    } else {
      reads = {{step.src, step.part}}, writes = {{step.dst, step.part}};
    }
    int level = 0;
    for (const Place &one : reads) level = std::max(level, at(written, one));
    for (const Place &one : writes) level = std::max(level, at(used, one));
    for (const Place &one : writes) written[one] = level + 1;
    bool home = step.op != Op::COPY_OVER && step.op != Op::REDUCE_OVER;
    for (const std::vector<Place> *all : {&reads, &writes})
      for (const Place &one : *all) used[one] = std::max(at(used, one), level + 1), home = home && !away.count(one);
    if (!home)
      for (const std::vector<Place> *all : {&reads, &writes}) away.insert(all->begin(), all->end());
    found.push_back({level, home});
  }
  return found;
}

std::vector<Turn> order(const SavedJob &job, int batches) {
  const std::vector<Level> of = levels(job);
  int last = 0;
  for (const Level &one : of)
    if (one.home) last = std::max(last, one.level);
  std::vector<Turn> turns;
  for (int q = 0; q < batches; ++q)
    for (size_t i = 0; i < of.size(); ++i)
      turns.emplace_back(of[i].level + q - (of[i].home ? last + batches : 0), q, static_cast<int>(i));
  // Of a wave the later micro-batches first: a border is busy with them while what goes back over it is reduced.
  const auto key = [](const Turn &turn) { return Turn(std::get<0>(turn), -std::get<1>(turn), std::get<2>(turn)); };
  std::sort(turns.begin(), turns.end(), [&](const Turn &a, const Turn &b) { return key(a) < key(b); });
  return turns;
}

// A buffer, and an element of it.
struct Place {
  int buffer = HCCC_JOB_NOWHERE;
  int64_t at = 0;
};

// The lengths of a call's blocks, and where they are in the buffers of a rank.
class Blocks {
 public:
  Blocks(const Collective &of, int rank, const CallShape &call)
      : count_(call.count), words_(call.blocks), ranks_(static_cast<size_t>(of.n_ranks())), rank_(static_cast<size_t>(rank)),
        lengths_(static_cast<size_t>(of.blocks())) {}

  int64_t length(int block) const { return words_.empty() ? count_ : words_[static_cast<size_t>(block)]; }
  // Return the place of a block of the send or the receive buffer, and the elements of so many blocks of it.
  int64_t sent(int k) const { return place(0, k); }
  int64_t received(int k) const { return place(1, k); }
  int64_t extent(bool receives, int blocks) const {
    return words_.empty() ? blocks * count_ : words_[lengths_ + 2 * ranks_ * ranks_ + 2 * rank_ + receives];
  }

 private:
  int64_t place(size_t receives, int k) const {
    return words_.empty() ? k * count_ : words_[lengths_ + (2 * rank_ + receives) * ranks_ + static_cast<size_t>(k)];
  }

  const int64_t count_;
  const std::vector<long long> &words_;
  const size_t ranks_, rank_, lengths_;
};

// Pieces of a part in a micro-batch: from `first` to before `end`.
struct Span {
  int part = 0, batch = 0, first = 0, end = 0;
};

// A lane, and a task of it.
using Done = std::pair<int, int>;
constexpr Done NONE = {-1, -1};

// The tasks of a rank, made in order.
class RankTasks {
 public:
  RankTasks(const SavedJob &job, int rank, const CallShape &call)
      : job_(job), of_(job.collective), rank_(rank), call_(call), blocks_(of_, rank, call_), own_(job.cluster_of[static_cast<size_t>(rank)]),
        members_(job.clusters[static_cast<size_t>(own_)].ranks), several_(!call.ordered || call.messages),
        cuts_(job.cuts()), pieces_(static_cast<int>(cuts_.size()) - 1), owners_(job.owners(cuts_)), lanes_(1) {
    const VendorCluster &mine = job.clusters[static_cast<size_t>(own_)];
    all_border_ = mine.border == members_ &&
                  std::all_of(mine.weights.begin(), mine.weights.end(), [&](int64_t w) { return w == mine.weights[0]; });
    input_ = {HCCC_JOB_INPUT, 0};
    if (call.in_place && of_.swaps_in_place()) {
      const int64_t length = blocks_.extent(false, of_.input_blocks(rank));
      input_ = reserve(length);
      first_ = add(0, HCCC_JOB_COPY, {HCCC_JOB_INPUT, 0}, input_, length, {});
    }
  }

  // Makes what this rank does in a task.
  void do_turn(const Turn &turn) {
    const Step &step = job_.steps[static_cast<size_t>(std::get<2>(turn))];
    if (own_ != step.src && own_ != step.dst) return;
    step_ = std::get<2>(turn), group_ = std::get<0>(turn) + 1;
    const Span whole = {step.part, std::get<1>(turn), 0, pieces_};
    const bool alone = members_.size() < 2;
    switch (step.op) {
      case Op::COPY_OVER:
      case Op::REDUCE_OVER: return hop(whole, step);
      case Op::REDUCE: return alone ? void() : reduce(whole, step.receiver);
      case Op::BROADCAST: return alone ? void() : broadcast(whole, step.sender);
      case Op::ALL_GATHER: return alone ? void() : all_gather(whole);
      case Op::GATHER:
        for (const auto &[owner, span] : runs(whole)) pass(owner, step.receiver, span);
        return;
      case Op::SCATTER:
        for (const auto &[owner, span] : runs(whole)) pass(step.sender, owner, span);
        return;
      case Op::SEND: return pass(step.sender, step.receiver, whole);
    }
  }

  // Lists what must end in the receive buffer and was never written.
  std::vector<Span> unwritten() {
    std::vector<Span> found;
    for (int part = 0; part < of_.n_parts(); ++part)
      for (int batch = 0; of_.wants(rank_, part) && batch < call_.batches; ++batch)
        for (const Span &span : alike({part, batch, 0, pieces_}))
          if (!known(span, span.first).written) found.push_back(span);
    return found;
  }

  // Copies input to the receive buffer that no step reads or writes there.
  void copy(const std::vector<Span> &spans) {
    step_ = -1;
    for (const Span &span : spans)
      if (const Place at = input_at(span); !(call_.in_place && at.buffer == HCCC_JOB_INPUT))
        add(0, HCCC_JOB_COPY, at, work_of(span), length(span), {{span}, {}});
  }

  // Returns all tasks, lane after lane.
  std::shared_ptr<const Schedule> schedule() {
    auto made = std::make_shared<Schedule>();
    made->lane_begin = {0};
    for (const Lane &lane : lanes_) {
      for (size_t k = 0; k < lane.tasks.size(); ++k) {
        made->tasks.push_back(lane.tasks[k]);
        made->tasks.back().first_wait = static_cast<int64_t>(made->waits.size());
        made->waits.insert(made->waits.end(), lane.waits[k].begin(), lane.waits[k].end());
      }
      made->lane_begin.push_back(static_cast<int64_t>(made->tasks.size()));
    }
    made->scratch = scratch_, made->arrived = arrived_;
    made->output = blocks_.extent(true, of_.output_blocks(rank_)), made->ranks = of_.n_ranks();
    return made;
  }

 private:
  struct Lane {
    std::vector<hccc_job_task> tasks;
    std::vector<std::vector<hccc_job_wait>> waits;  // of each task
  };

  // A piece: whether it is work, the task that wrote it last, and those that have read it since.
  struct Piece {
    bool written = false;
    Done writer = NONE;
    std::vector<Done> readers;
  };

  // What a task reads, writes and needs.
  struct Uses {
    std::vector<Span> reads, writes;
    Place with = {};
    int peer = 0, within = 0;
    Done after = NONE;
  };

  void reduce(const Span &whole, int root) {
    if (root != NOBODY) return reduce_to(root, whole);
    if (!is_equal(whole)) {
      for (const auto &[owner, span] : runs(whole)) reduce_to(owner, span);
      return;
    }
    const Span own = own_run(whole);
    const Place at = read(whole), to = work(own);
    add(0, HCCC_JOB_REDUCE_SCATTER, at, to, length(own), {{whole}, {own}});
  }

  void reduce_to(int root, const Span &span) {
    const Place at = read(span);
    const bool mine = root == rank_;
    const Place to = mine ? work(span) : Place{};
    Uses uses = {{span}, {}, {}, member(root)};
    if (mine) uses.writes = {span};
    add(0, HCCC_JOB_REDUCE, at, to, length(span), uses);
  }

  void broadcast(const Span &whole, int root) {
    if (root != NOBODY) return broadcast_from(root, whole);
    if (!is_equal(whole)) {
      for (const auto &[owner, span] : runs(whole)) broadcast_from(owner, span);
      return;
    }
    const Span own = own_run(whole);
    const Place at = read(own), to = work(whole);
    add(0, HCCC_JOB_ALL_GATHER, at, to, length(own), {{own}, {whole}});
  }

  void broadcast_from(int root, const Span &span) {
    const bool mine = root == rank_;
    const Place at = mine ? read(span) : work(span);
    Uses uses = {{}, {}, {}, member(root)};
    (mine ? uses.reads : uses.writes) = {span};
    add(0, HCCC_JOB_BROADCAST, at, at, length(span), uses);
  }

  void all_gather(const Span &whole) {
    const auto of = [&](int rank) { return Span{rank * of_.per_block() + whole.part, whole.batch, 0, pieces_}; };
    const Span own = of(rank_);
    std::vector<Span> spans;
    int64_t longest = 0, sum = 0;
    for (const int rank : members_) {
      spans.push_back(of(rank));
      longest = std::max(longest, length(spans.back())), sum += length(spans.back());
    }
    if (is_in_a_row(spans)) {
      const Place at = read(own);
      for (const Span &span : spans) mark(span);
      add(0, HCCC_JOB_ALL_GATHER, at, work_of(spans[0]), longest, {{own}, spans});
    } else if (is_padded(longest, sum, spans.size())) {
      all_gather_staged(own, spans, longest);
    } else {
      for (size_t k = 0; k < spans.size(); ++k) broadcast_from(members_[k], spans[k]);
    }
  }

  // Tells whether spans have one length, and follow each other in the receive buffer.
  bool is_in_a_row(const std::vector<Span> &spans) {
    const int64_t first = work_of(spans[0]).at, n = length(spans[0]);
    for (size_t k = 0; k < spans.size(); ++k)
      if (length(spans[k]) != n || work_of(spans[k]).at != first + static_cast<int64_t>(k) * n) return false;
    return true;
  }

  // Gathers through scratch, where each block has as much room as the longest.
  void all_gather_staged(const Span &own, const std::vector<Span> &spans, int64_t longest) {
    const Place stage = reserve(longest * static_cast<int64_t>(spans.size()));
    const auto slot = [&](size_t k) { return Place{stage.buffer, stage.at + static_cast<int64_t>(k) * longest}; };
    Place from = read(own);
    if (length(own) < longest) {
      const Place short_one = std::exchange(from, slot(static_cast<size_t>(member(rank_))));
      add(0, HCCC_JOB_COPY, short_one, from, length(own), {{own}, {}});
    }
    add(0, HCCC_JOB_ALL_GATHER, from, stage, longest, {{own}, {}});
    for (size_t k = 0; k < spans.size(); ++k)
      if (spans[k].part != own.part) add(0, HCCC_JOB_COPY, slot(k), work(spans[k]), length(spans[k]), {{}, {spans[k]}});
  }

  // Passes pieces between two ranks of the vendor cluster, by its library or as messages.
  void pass(int source, int target, const Span &span) {
    if (source == target || (rank_ != source && rank_ != target)) return;
    if (call_.messages) return message(source, target, span, true);
    if (rank_ == source) add(0, HCCC_JOB_SEND, read(span), {}, length(span), {{span}, {}, {}, member(target)});
    else add(0, HCCC_JOB_RECEIVE, {}, work(span), length(span), {{}, {span}, {}, member(source)});
  }

  void message(int source, int target, const Span &span, bool within) {
    if (rank_ == source)
      add(lane(target, true), HCCC_JOB_HOP_SEND, read(span), {}, length(span), {{span}, {}, {}, target, within});
    else
      add(lane(source, false), HCCC_JOB_HOP_RECEIVE, {}, work(span), length(span), {{}, {span}, {}, source, within});
  }

  void hop(const Span &whole, const Step &step) {
    const bool by_library = step.op == Op::REDUCE_OVER && !call_.by_library.empty() &&
                            call_.by_library[static_cast<size_t>(step.dst)];
    for (const auto &[source, target, first, end] : crossing(step)) {
      const Span span = {whole.part, whole.batch, first, end};
      if (by_library) reduce_by_pair(source, target, job_.clusters[static_cast<size_t>(step.dst)].ranks, span);
      if (by_library || (rank_ != source && rank_ != target)) continue;
      if (rank_ == source || step.op == Op::COPY_OVER) {
        message(source, target, span, false);
        continue;
      }
      const int in = lane(source, false);
      const int64_t n = length(span);
      const Place there = read(span), came = {HCCC_JOB_ARRIVED, arrived_};
      arrived_ += n;
      add(in, HCCC_JOB_HOP_RECEIVE, {}, came, n, {{}, {}, {}, source});
      add(in, HCCC_JOB_ADD, there, work(span), n, {{span}, {span}, came});
    }
  }

  // Has a piece come to a rank beside the border rank it is for, and the library of their vendor cluster reduce both's.
  void reduce_by_pair(int source, int target, const std::vector<int> &members, const Span &span) {
    const int at = static_cast<int>(std::find(members.begin(), members.end(), target) - members.begin());
    const int beside = member_beside(at, static_cast<int>(members.size()));
    const int helper = members[static_cast<size_t>(beside)];
    if (rank_ == source) return message(source, helper, span, false);
    if (rank_ == target) {
      const Place there = read(span), to = work(span);
      add(0, HCCC_JOB_REDUCE_PAIR, there, to, length(span), {{span}, {span}, {}, at, beside});
    } else if (rank_ == helper) {
      const Place came = {HCCC_JOB_ARRIVED, arrived_};
      const int64_t n = length(span);
      arrived_ += n;
      const Done done = add(lane(source, false), HCCC_JOB_HOP_RECEIVE, {}, came, n, {{}, {}, {}, source});
      add(0, HCCC_JOB_REDUCE_PAIR, came, {}, n, {{}, {}, {}, at, beside, done});
    }
  }

  // Copies input to where work is; in place it is there.
  void bring(const Span &span) {
    const Place at = input_at(span), to = work(span);
    if (!(call_.in_place && of_.wants(rank_, span.part) && at.buffer == HCCC_JOB_INPUT))
      add(0, HCCC_JOB_COPY, at, to, length(span), {{span}, {span}});
  }

  // Cuts a span into pieces that are all input, or all work.
  std::vector<Span> alike(const Span &span) {
    std::vector<Span> found;
    for (int k = span.first; k < span.end; ++k) {
      const bool same = !found.empty() && known(span, k).written == known(span, k - 1).written;
      if (same) found.back().end = k + 1;
      else found.push_back({span.part, span.batch, k, k + 1});
    }
    return found;
  }

  // Returns where pieces are. Where some are input and others work, all become work.
  Place read(const Span &span) {
    const std::vector<Span> all = alike(span);
    if (all.size() > 1) {
      for (const Span &some : all)
        if (!known(some, some.first).written) bring(some);
      mark(span);
    }
    return known(span, span.first).written ? work_of(span) : input_at(span);
  }

  Place input_at(const Span &span) const {
    return {input_.buffer, input_.at + blocks_.sent(of_.input_block(span.part)) + range(span).first};
  }

  // Returns where pieces are written, which then are work.
  Place work(const Span &span) {
    mark(span);
    return work_of(span);
  }

  void mark(const Span &span) {
    for (int k = span.first; k < span.end; ++k) known(span, k).written = true;
  }

  Place work_of(const Span &span) {
    const int64_t begin = range(span).first;
    if (of_.wants(rank_, span.part)) return {HCCC_JOB_OUTPUT, blocks_.received(of_.output_block(span.part)) + begin};
    const auto [low, high] = part_range(span.part);
    if (!work_at_.count(span.part)) work_at_[span.part] = reserve(high - low).at - low;
    return {HCCC_JOB_SCRATCH, work_at_[span.part] + begin};
  }

  Place reserve(int64_t n) { return {HCCC_JOB_SCRATCH, std::exchange(scratch_, scratch_ + n)}; }

  static int64_t share(int64_t n, int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<__int128>(n) * a / b); }

  std::pair<int64_t, int64_t> part_range(int part) const {
    const int per = of_.per_block(), slot = part % per;
    const int64_t n = blocks_.length(of_.block_of(part));
    return {share(n, slot, per), share(n, slot + 1, per)};
  }

  // Returns the elements of pieces in their block.
  std::pair<int64_t, int64_t> range(const Span &span) const {
    const auto [low, high] = part_range(span.part);
    const int64_t begin = low + share(high - low, span.batch, call_.batches);
    const int64_t n = low + share(high - low, span.batch + 1, call_.batches) - begin;
    const Cut &from = cuts_[static_cast<size_t>(span.first)], &to = cuts_[static_cast<size_t>(span.end)];
    return {begin + share(n, from.a, from.b), begin + share(n, to.a, to.b)};
  }

  int64_t length(const Span &span) const {
    const auto [begin, end] = range(span);
    return end - begin;
  }

  // Lists the border ranks of this rank's vendor cluster with their pieces, in a row.
  std::vector<std::pair<int, Span>> runs(const Span &whole) const {
    const std::vector<int> &owners = owners_[static_cast<size_t>(own_)];
    std::vector<std::pair<int, Span>> found;
    for (int k = 0; k < pieces_; ++k) {
      const int owner = owners[static_cast<size_t>(k)];
      if (!found.empty() && found.back().first == owner) found.back().second.end = k + 1;
      else found.push_back({owner, {whole.part, whole.batch, k, k + 1}});
    }
    return found;
  }

  Span own_run(const Span &whole) const {
    for (const auto &[owner, span] : runs(whole))
      if (owner == rank_) return span;
    return {whole.part, whole.batch, 0, 0};
  }

  // Tells whether the ranks of the vendor cluster have equal pieces, in their order.
  bool is_equal(const Span &whole) const {
    return all_border_ && length(whole) % static_cast<int64_t>(members_.size()) == 0;
  }

  // Lists what a step moves over a border: from, to, first and end of the pieces.
  std::vector<std::tuple<int, int, int, int>> crossing(const Step &step) const {
    std::vector<std::tuple<int, int, int, int>> found;
    for (int k = 0; k < pieces_; ++k) {
      const auto owner = [&](int cluster) { return owners_[static_cast<size_t>(cluster)][static_cast<size_t>(k)]; };
      const int from = step.sender == NOBODY ? owner(step.src) : step.sender;
      const int to = step.receiver == NOBODY ? owner(step.dst) : step.receiver;
      if (!found.empty() && std::get<0>(found.back()) == from && std::get<1>(found.back()) == to) std::get<3>(found.back()) = k + 1;
      else found.emplace_back(from, to, k, k + 1);
    }
    return found;
  }

  int member(int rank) const {
    return static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
  }

  int lane(int peer, bool out) {
    if (!several_) return 0;
    const auto [at, is_new] = lane_of_.emplace(std::make_pair(peer, out), static_cast<int>(lanes_.size()));
    if (is_new) lanes_.emplace_back();
    return at->second;
  }

  Piece &known(const Span &span, int piece) {
    const int64_t row = static_cast<int64_t>(span.part) * call_.batches + span.batch;
    return known_[row * pieces_ + piece];
  }

  // Adds a task, with waits for what wrote or uses its pieces; none without elements.
  Done add(int lane, hccc_job_kind kind, const Place &from, const Place &to, int64_t n, const Uses &uses) {
    if (!n) return first_;
    std::vector<hccc_job_wait> waits;
    const auto wait_for = [&](const Done &done) {
      if (done == NONE || done.first == lane) return;
      for (hccc_job_wait &one : waits)
        if (one.lane == done.first) return void(one.tasks = std::max(one.tasks, done.second + 1));
      waits.push_back({done.first, done.second + 1});
    };
    const auto each = [&](const std::vector<Span> &spans, const auto &body) {
      for (const Span &span : spans)
        for (int k = span.first; k < span.end; ++k) body(known(span, k));
    };
    const auto after_writer = [&](Piece &piece) { wait_for(piece.writer == NONE ? first_ : piece.writer); };
    wait_for(uses.after);
    each(uses.reads, after_writer);
    each(uses.writes, after_writer);
    each(uses.writes, [&](Piece &piece) {
      for (const Done &done : piece.readers) wait_for(done);
    });
    Lane &in = lanes_[static_cast<size_t>(lane)];
    const Done done = {lane, static_cast<int>(in.tasks.size())};
    // In an ordered list nothing goes together: what comes between would wait.
    const int group = several_ ? group_ : done.second + 1;
    in.tasks.push_back({static_cast<int32_t>(kind), step_, uses.peer, group, from.buffer, uses.with.buffer, to.buffer, uses.within, from.at,
                        uses.with.at, to.at, n, 0, static_cast<int64_t>(waits.size())});
    in.waits.push_back(std::move(waits));
    each(uses.reads, [&](Piece &piece) { piece.readers.push_back(done); });
    each(uses.writes, [&](Piece &piece) { piece.writer = done, piece.readers.clear(); });
    return done;
  }

  const SavedJob &job_;
  const Collective &of_;
  const int rank_;
  const CallShape call_;
  const Blocks blocks_;
  const int own_;  // the vendor cluster
  const std::vector<int> &members_;
  const bool several_;  // lanes
  bool all_border_ = false;
  const std::vector<Cut> cuts_;
  const int pieces_;
  const std::vector<std::vector<int>> owners_;
  std::vector<Lane> lanes_;
  std::map<std::pair<int, bool>, int> lane_of_;
  std::unordered_map<int64_t, Piece> known_;
  std::unordered_map<int, int64_t> work_at_;
  int64_t scratch_ = 0, arrived_ = 0;
  int step_ = -1, group_ = 0;
  Done first_ = NONE;
  Place input_;
};

}  // namespace

hccc_job_schedule Schedule::view() const {
  return {tasks.data(), lane_begin.data(), waits.data(), static_cast<int64_t>(lane_begin.size()) - 1, scratch, arrived,
          output, ranks};
}

std::shared_ptr<const Schedule> schedule_of(const SavedJob &job, int rank, const CallShape &call) {
  const std::vector<Turn> turns = order(job, call.batches);
  RankTasks first(job, rank, call);
  for (const Turn &turn : turns) first.do_turn(turn);
  const std::vector<Span> unwritten = first.unwritten();
  if (unwritten.empty()) return first.schedule();
  // What no step writes is copied while copies over borders, which wait for none of it, are under way.
  RankTasks made(job, rank, call);
  const auto away = std::find_if(turns.begin(), turns.end(), [](const Turn &turn) { return std::get<0>(turn) > 0; });
  for (auto at = turns.begin(); at != away; ++at) made.do_turn(*at);
  made.copy(unwritten);
  for (auto at = away; at != turns.end(); ++at) made.do_turn(*at);
  return made.schedule();
}

}  // namespace hccc::job
