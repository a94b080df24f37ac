// saved.cpp: reads a job's table, and checks it.
#include "saved.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "../communicator/error.h"

namespace hccc::job {
namespace {

constexpr int VERSION = 1;
constexpr int64_t MOST_RANKS = 1 << 17, MOST_PARTS = 1 << 26, MOST_WEIGHT = 1 << 20, MOST_BATCHES = 1 << 10;
constexpr const char *COLLECTIVES[] = {"Allgather", "Allreduce", "Reducescatter", "Broadcast", "Reduce",
                                       "Gather",    "Scatter",   "Alltoall",      "SendRecv"};
// Those whose blocks may have lengths of their own; null: not of this one.
constexpr const char *UNEVEN[] = {"Allgatherv", nullptr,    "Reducescatterv", nullptr, nullptr,
                                  "Gatherv",    "Scatterv", "Alltoallv",      nullptr};
constexpr const char *OPS[] = {"reduce", "broadcast", "gather", "scatter", "allgather", "send", "c2cCpy", "c2cRed"};

[[noreturn]] void refuse(const std::string &why) {
  throw Error(hcccInvalidUsage, "the job's table: " + why + "; `hccc compile JOB -o FILE` writes one");
}

uint64_t hash_of(const std::string &text, size_t end, uint64_t begun) {
  for (size_t i = 0; i < end; ++i) begun = (begun ^ static_cast<unsigned char>(text[i])) * 0x100000001b3ULL;  // FNV-1a
  return begun;
}
constexpr uint64_t BASIS = 0xcbf29ce484222325ULL;

// Reads a table, line after line.
class Lines {
 public:
  explicit Lines(const std::string &text) : text_(text) {}

  size_t place() const { return at_; }
  bool next_is(const char *word) const { return begins(at_, word); }

  // Returns what follows a word in the next line.
  std::string rest(const char *word) {
    if (!begins(at_, word)) refuse(text_of("line %d does not begin with `%s`", line_, word));
    const size_t from = at_ + strlen(word) + 1, end = text_.find('\n', at_);
    step_to(end + 1);
    return from > end ? "" : text_.substr(from, end - from);
  }

  std::vector<int64_t> numbers(const char *word) { return numbers_in(rest(word)); }

  std::vector<int64_t> row(size_t n) {
    const size_t end = text_.find('\n', at_);
    if (end == std::string::npos) refuse("it is cut off");
    const std::string text = text_.substr(at_, end - at_);
    const std::vector<int64_t> found = numbers_in(text);
    if (found.size() != n) refuse(text_of("line %d has not %zu numbers", line_, n));
    step_to(end + 1);
    return found;
  }

  // Returns the only number of a line, which says how many lines of a kind follow.
  size_t length(const char *word) {
    const std::vector<int64_t> found = numbers(word);
    if (found.size() != 1 || found[0] < 0 || static_cast<size_t>(found[0]) > text_.size())
      refuse(text_of("`%s` has no such number of lines", word));
    return static_cast<size_t>(found[0]);
  }

 private:
  // Returns whether a whole line is there, of a word alone or with more behind it.
  bool begins(size_t at, const char *word) const {
    const size_t n = strlen(word);
    if (text_.find('\n', at) == std::string::npos || text_.compare(at, n, word)) return false;
    return text_[at + n] == ' ' || text_[at + n] == '\n';
  }

  void step_to(size_t at) { at_ = at, ++line_; }

  std::vector<int64_t> numbers_in(const std::string &text) const {
    std::vector<int64_t> found;
    for (const char *at = text.c_str(); *at;) {
      char *end = nullptr;
      errno = 0;
      found.push_back(strtoll(at, &end, 10));
      if (end == at || errno || (*end && *end != ' ')) refuse(text_of("line %d has something else than numbers", line_));
      at = *end ? end + 1 : end;
    }
    return found;
  }

  const std::string &text_;
  size_t at_ = 0;
  int line_ = 1;
};

// Returns a number as an int, which it is from `least` to before `end`.
int within(int64_t number, int64_t least, int64_t end, const char *what) {
  if (number < least || number >= end) refuse(text_of("%lld is no %s", static_cast<long long>(number), what));
  return static_cast<int>(number);
}

Collective read_collective(Lines &lines) {
  const std::string text = lines.rest("collective");
  const size_t space = text.find(' ');
  std::vector<int64_t> numbers;
  if (space != std::string::npos) {
    const std::string row = text.substr(space + 1) + "\n";
    numbers = Lines(row).row(3);
  } else {
    refuse("its collective has no numbers");
  }
  return Collective(text.substr(0, space), numbers[0], numbers[1], numbers[2]);
}

std::vector<VendorCluster> read_clusters(Lines &lines, int n_ranks) {
  const auto ranks_of = [&](const char *word) {
    std::vector<int> found;
    for (const int64_t rank : lines.numbers(word)) found.push_back(within(rank, 0, n_ranks, "rank"));
    return found;
  };
  std::vector<VendorCluster> found;
  while (lines.next_is("cluster")) {
    VendorCluster one;
    one.ranks = ranks_of("cluster"), one.border = ranks_of("border"), one.weights = lines.numbers("weights");
    found.push_back(std::move(one));
  }
  return found;
}

// Returns the vendor cluster of each rank. Refuses ranks that are in none or two, and borders of other ranks.
std::vector<int> clusters_of(const std::vector<VendorCluster> &clusters, int n_ranks) {
  std::vector<int> of(static_cast<size_t>(n_ranks), NOBODY);
  for (size_t c = 0; c < clusters.size(); ++c)
    for (const int rank : clusters[c].ranks)
      if (std::exchange(of[static_cast<size_t>(rank)], static_cast<int>(c)) != NOBODY)
        refuse(text_of("rank %d is in two vendor clusters", rank));
  if (std::find(of.begin(), of.end(), NOBODY) != of.end()) refuse("a rank is in no vendor cluster");
  std::vector<char> seen(of.size());
  for (size_t c = 0; c < clusters.size(); ++c) {
    const VendorCluster &one = clusters[c];
    if (one.ranks.empty() || one.border.empty() || one.weights.size() != one.border.size())
      refuse("a vendor cluster has no rank, no border rank, or not a weight for each");
    for (const int rank : one.border)
      if (of[static_cast<size_t>(rank)] != static_cast<int>(c) || std::exchange(seen[static_cast<size_t>(rank)], 1))
        refuse(text_of("rank %d is no border rank of its vendor cluster, or twice", rank));
    for (const int64_t weight : one.weights) within(weight, 1, MOST_WEIGHT + 1, "weight");
  }
  return of;
}

// What a step may or must name: its sender and its receiver.
struct Ends {
  bool may_send, may_receive, must_send, must_receive;
};
Ends ends_of(Op op) {
  switch (op) {
    case Op::REDUCE: return {false, true, false, false};
    case Op::BROADCAST: return {true, false, false, false};
    case Op::GATHER: return {false, true, false, true};
    case Op::SCATTER: return {true, false, true, false};
    case Op::SEND: return {true, true, true, true};
    case Op::COPY_OVER: return {true, true, false, false};
    default: return {false, false, false, false};
  }
}

// Refuses a step that breaks an invariant of ir/job.py.
void check(const Step &step, const SavedJob &job) {
  const auto wrong = [&](bool is, const char *why) {
    if (is) refuse(step.text() + ": " + why);
  };
  const auto n_clusters = static_cast<int>(job.clusters.size());
  const auto is_cluster = [&](int c) { return c >= 0 && c < n_clusters; };
  wrong(!is_cluster(step.src) || !is_cluster(step.dst), "there is no such vendor cluster");
  const int parts = step.op == Op::ALL_GATHER ? job.collective.per_block() : job.collective.n_parts();
  wrong(step.part < 0 || step.part >= parts, "there is no such part");
  wrong(step.crosses() == (step.src == step.dst), "it joins other vendor clusters than its kind does");
  wrong((step.op == Op::REDUCE || step.op == Op::REDUCE_OVER) && !job.collective.reduces(), "the collective does not reduce");
  wrong(step.op == Op::ALL_GATHER && !job.collective.gathers(), "only Allgather has blocks of all ranks");
  const Ends ends = ends_of(step.op);
  const auto check_end = [&](int rank, int cluster, bool may, bool must) {
    if (rank == NOBODY) return wrong(must, "it names no rank that it needs");
    wrong(!may || rank < 0 || rank >= job.collective.n_ranks(), "it names a rank that it has not");
    wrong(job.cluster_of[static_cast<size_t>(rank)] != cluster, "it names a rank of another vendor cluster");
    const std::vector<int> &border = job.clusters[static_cast<size_t>(cluster)].border;
    wrong(step.crosses() && std::find(border.begin(), border.end(), rank) == border.end(), "it names no border rank");
  };
  check_end(step.sender, step.src, ends.may_send, ends.must_send);
  check_end(step.receiver, step.dst, ends.may_receive, ends.must_receive);
  wrong(step.op == Op::SEND && step.sender == step.receiver, "a rank sends to itself");
}

Step read_step(Lines &lines) {
  const std::vector<int64_t> row = lines.row(6);
  const auto number = [&](size_t k) { return within(row[k], NOBODY, std::numeric_limits<int>::max(), "number of a step"); };
  return {static_cast<Op>(within(row[0], 0, N_OPS, "kind of a step")), number(1), number(2), number(3), number(4), number(5)};
}

std::vector<std::pair<int64_t, int>> read_micro_batches(Lines &lines) {
  std::vector<std::pair<int64_t, int>> found(lines.length("micro_batches"));
  int64_t before = -1;
  for (auto &[size, count] : found) {
    const std::vector<int64_t> row = lines.row(2);
    if (row[0] <= before) refuse("the sizes of its micro-batches do not rise");
    size = before = row[0];
    count = within(row[1], 1, MOST_BATCHES + 1, "number of micro-batches");
  }
  return found;
}

// Returns where the checksum begins. Refuses a table of another version, or that is not whole.
size_t check_whole(const std::string &table) {
  Lines lines(table);
  const std::string version = lines.rest("hccc");
  if (version != text_of("job %d", VERSION)) refuse("it is `hccc " + version.substr(0, 40) + text_of("`, and `job %d` is read", VERSION));
  const size_t end = table.rfind("\nend ");
  if (end == std::string::npos || table.size() != end + 22 || table.back() != '\n') refuse("it is cut off");
  const uint64_t sum = hash_of(table, end + 1, BASIS);
  if (table.compare(end + 5, 16, text_of("%016llx", static_cast<unsigned long long>(sum))))
    refuse("it is damaged: its checksum is another");
  return end + 1;
}

Collective header(Lines &lines, std::string &name) {
  lines.rest("hccc");
  name = lines.rest("name");
  return read_collective(lines);
}

}  // namespace

std::string Step::text() const {
  const char *const word = OPS[static_cast<int>(op)];
  std::string ends;
  if (op == Op::SEND || op == Op::COPY_OVER) {
    if (sender != NOBODY) ends += text_of(", src=%d", sender);
    if (receiver != NOBODY) ends += text_of(", dst=%d", receiver);
  } else if (std::max(sender, receiver) != NOBODY) {
    ends = text_of(", root=%d", std::max(sender, receiver));
  }
  return (crosses() ? text_of("%s(%d, %d, part(%d)", word, src, dst, part) : text_of("homColl(%d, %s, part(%d)", src, word, part)) +
         ends + ")";
}

Collective::Collective(const std::string &name, int64_t n_ranks, int64_t n_parts, int64_t root) {
  const auto find = [&](const auto &names) {
    return std::find_if(std::begin(names), std::end(names), [&](const char *one) { return one && name == one; }) - names;
  };
  const auto n_names = static_cast<std::ptrdiff_t>(std::size(COLLECTIVES));
  auto found = find(COLLECTIVES);
  uneven_ = found == n_names;
  if (uneven_) found = find(UNEVEN);
  if (found == n_names) refuse("`" + name.substr(0, 40) + "` is no collective");
  what_ = static_cast<What>(found);
  n_ranks_ = within(n_ranks, 1, MOST_RANKS + 1, "number of ranks");
  n_parts_ = within(n_parts, 1, MOST_PARTS + 1, "number of parts");
  root_ = within(root, 0, n_ranks, "root");
  const bool whole = what_ == What::ALLREDUCE || what_ == What::BROADCAST || what_ == What::REDUCE;
  const int64_t blocks = whole ? 1 : what_ == What::ALLTOALL ? n_ranks * n_ranks : n_ranks;
  if (n_parts % blocks) refuse("its parts are no multiple of its blocks");
  per_block_ = static_cast<int>(n_parts / blocks);
}

const char *Collective::name() const { return (uneven_ ? UNEVEN : COLLECTIVES)[static_cast<int>(what_)]; }

bool Collective::rooted() const {
  return what_ == What::BROADCAST || what_ == What::REDUCE || what_ == What::GATHER || what_ == What::SCATTER;
}

bool Collective::wants(int rank, int part) const {
  const int block = block_of(part);
  switch (what_) {
    case What::ALLREDUCE:
    case What::BROADCAST:
    case What::ALLGATHER: return true;
    case What::REDUCE:
    case What::GATHER: return rank == root_;
    case What::ALLTOALL: return rank == block % n_ranks_;
    case What::SENDRECV: return rank == (block + 1) % n_ranks_;
    default: return rank == block;
  }
}

int Collective::input_block(int part) const {
  switch (what_) {
    case What::ALLGATHER:
    case What::GATHER:
    case What::SENDRECV: return 0;
    case What::ALLTOALL: return block_of(part) % n_ranks_;
    default: return block_of(part);
  }
}

int Collective::output_block(int part) const {
  switch (what_) {
    case What::REDUCESCATTER:
    case What::SCATTER:
    case What::SENDRECV: return 0;
    case What::ALLTOALL: return block_of(part) / n_ranks_;
    default: return block_of(part);
  }
}

int Collective::input_blocks(int rank) const {
  if (what_ == What::REDUCESCATTER || what_ == What::ALLTOALL) return n_ranks_;
  if (what_ == What::SCATTER) return rank == root_ ? n_ranks_ : 0;
  return what_ != What::BROADCAST || rank == root_;
}

int Collective::output_blocks(int rank) const {
  if (what_ == What::ALLGATHER || what_ == What::ALLTOALL) return n_ranks_;
  if (what_ == What::GATHER) return rank == root_ ? n_ranks_ : 0;
  return what_ != What::REDUCE || rank == root_;
}

int Collective::most_blocks() const { return std::max(input_blocks(root_), output_blocks(root_)); }

int Collective::alias_blocks(int rank) const {
  if (what_ == What::ALLGATHER || what_ == What::GATHER) return rank;
  return what_ == What::REDUCESCATTER || what_ == What::SCATTER ? -rank : 0;
}

SavedJob::SavedJob(const std::string &table) : collective("Allreduce", 1, 1, 0) {
  const size_t end = check_whole(table);
  Lines lines(table);
  collective = header(lines, name);
  clusters = read_clusters(lines, collective.n_ranks());
  cluster_of = clusters_of(clusters, collective.n_ranks());
  const size_t n_steps = lines.length("steps");
  for (size_t i = 0; i < n_steps; ++i) steps.push_back(read_step(lines)), check(steps.back(), *this);
  micro_batches = read_micro_batches(lines);
  if (lines.place() != end) refuse("there is more in it than its lines say");
  const uint64_t sums[] = {hash_of(table, table.size(), BASIS), hash_of(table, table.size(), ~BASIS)};
  memcpy(digest.data(), sums, sizeof sums);
}

// Of weights in a row, their sums are at these shares of the total.
static std::vector<Cut> own_cuts(const VendorCluster &of) {
  const int64_t total = std::accumulate(of.weights.begin(), of.weights.end(), int64_t{0});
  std::vector<Cut> found = {{0, total}};
  for (const int64_t weight : of.weights) found.push_back({found.back().a + weight, total});
  return found;
}

static bool before(const Cut &x, const Cut &y) {
  return static_cast<__int128>(x.a) * y.b < static_cast<__int128>(y.a) * x.b;
}

std::vector<Cut> SavedJob::cuts() const {
  std::vector<Cut> found;
  for (const VendorCluster &one : clusters) {
    const std::vector<Cut> own = own_cuts(one);
    found.insert(found.end(), own.begin(), own.end());
  }
  std::sort(found.begin(), found.end(), before);
  const auto alike = [](const Cut &x, const Cut &y) { return !before(x, y) && !before(y, x); };
  found.erase(std::unique(found.begin(), found.end(), alike), found.end());
  return found;
}

std::vector<std::vector<int>> SavedJob::owners(const std::vector<Cut> &cuts) const {
  std::vector<std::vector<int>> found;
  for (const VendorCluster &one : clusters) {
    const std::vector<Cut> own = own_cuts(one);
    std::vector<int> row;
    for (size_t k = 0; k + 1 < cuts.size(); ++k) {
      const auto at = std::upper_bound(own.begin(), own.end(), cuts[k], before) - own.begin();
      row.push_back(one.border[static_cast<size_t>(at - 1)]);
    }
    found.push_back(std::move(row));
  }
  return found;
}

}  // namespace hccc::job
