// uneven.cpp: checks of an uneven call's blocks, and the table that all ranks make of them.
#include "uneven.h"

#include <algorithm>
#include <numeric>

#include "error.h"

namespace hccc {
namespace {

constexpr int64_t MOST_ELEMENTS = int64_t{1} << 62;
constexpr size_t HEAD = 5;  // words before the rows: signature, blocks of each row, elements of each buffer

// Memory of a block: bytes from an address on.
struct Span {
  size_t block;
  const char *begin;
  size_t bytes;

  const char *end() const { return begin + bytes; }
  bool meets(const Span &other) const { return begin < other.end() && other.begin < end(); }
};

// Returns the spans of a buffer's blocks that are not empty, in the order of their addresses.
std::vector<Span> spans_of(const BlockRow &row, const char *base, int size) {
  std::vector<Span> made;
  for (size_t k = 0; k < row.blocks(); ++k)
    if (row.lengths[k]) made.push_back({k, base + row.places[k] * size, static_cast<size_t>(row.lengths[k] * size)});
  std::sort(made.begin(), made.end(), [](const Span &a, const Span &b) { return a.begin < b.begin; });
  return made;
}

int64_t taken(size_t number, const char *what, const char *buffer, size_t block) {
  if (number >= static_cast<size_t>(MOST_ELEMENTS))
    throw Error(hcccInvalidArgument, text_of("the %s of block %zu of the %s buffer is %zu elements, too many, or negative",
                                             what, block, buffer, number));
  return static_cast<int64_t>(number);
}

// The words of a rank, as tell() has written them.
struct TableRow {
  const int64_t *words;
  size_t n;

  size_t blocks(bool receives) const { return std::min(static_cast<size_t>(words[1 + receives]), n); }
  int64_t elements(bool receives) const { return words[3 + receives]; }
  const int64_t *lengths(bool receives) const { return words + HEAD + 2 * n * receives; }
  const int64_t *places(bool receives) const { return lengths(receives) + n; }
};

}  // namespace

int64_t BlockRow::extent() const {
  int64_t end = 0;
  for (size_t k = 0; k < blocks(); ++k)
    if (lengths[k]) end = std::max(end, places[k] + lengths[k]);
  return end;
}

BlockRow BlockRow::packed() const {
  BlockRow made{lengths, std::vector<int64_t>(blocks())};
  std::exclusive_scan(lengths.begin(), lengths.end(), made.places.begin(), int64_t{0});
  return made;
}

BlockRow row_of(const Numbers &lengths, const Numbers &places, const char *buffer) {
  if (!lengths) throw Error(hcccInvalidArgument, text_of("the lengths of the blocks of the %s buffer are null", buffer));
  BlockRow made;
  int64_t sum = 0;
  for (size_t k = 0; k < lengths->size(); ++k) {
    made.lengths.push_back(taken((*lengths)[k], "length", buffer, k));
    made.places.push_back(places && made.lengths.back() ? taken((*places)[k], "place", buffer, k) : 0);
    sum = std::min(sum, MOST_ELEMENTS) + made.lengths.back();
    if (sum >= MOST_ELEMENTS || made.places.back() + made.lengths.back() >= MOST_ELEMENTS)
      throw Error(hcccInvalidArgument, text_of("the blocks of the %s buffer have too many elements", buffer));
  }
  return places ? made : made.packed();
}

BlockRow row_of(size_t length) { return row_of(std::vector<size_t>{length}, {}, "own"); }

bool overlaps_in_place(const OwnBlocks &own, const char *send, const char *receive, int size, int rank) {
  const std::vector<Span> in = spans_of(own.receive, receive, size), out = spans_of(own.send, send, size);
  for (size_t k = 1; k < in.size(); ++k)
    if (in[k].meets(in[k - 1]))
      throw Error(hcccInvalidArgument, text_of("blocks %zu and %zu overlap in the receive buffer", in[k - 1].block,
                                               in[k].block));
  if (in.empty() || out.empty() || send + own.send.extent() * size <= in.front().begin ||
      out.front().begin >= in.back().end())
    return false;
  const auto peer = [rank](const BlockRow &row, size_t block) {
    return row.blocks() == 1 ? static_cast<size_t>(rank) : block;
  };
  bool found = false;
  for (const Span &from : out)
    for (const Span &to : in) {
      if (!from.meets(to)) continue;
      const bool same = from.begin == to.begin && from.bytes == to.bytes &&
                        peer(own.send, from.block) == peer(own.receive, to.block);
      if (!same)
        throw Error(hcccInvalidArgument, text_of("block %zu that is sent and block %zu that is received overlap, and "
                                                 "not as they do in place", from.block, to.block));
      found = true;
    }
  return found;
}

size_t told_words(int n_ranks) { return HEAD + 4 * static_cast<size_t>(n_ranks); }

void tell(int64_t *words, int n_ranks, uint64_t signature, const OwnBlocks &own) {
  std::fill(words, words + told_words(n_ranks), 0);
  words[0] = static_cast<int64_t>(signature);
  for (const bool receives : {false, true}) {
    const BlockRow &row = receives ? own.receive : own.send;
    words[1 + receives] = static_cast<int64_t>(row.blocks()), words[3 + receives] = row.extent();
    int64_t *lengths = words + HEAD + 2 * n_ranks * receives;
    std::copy(row.lengths.begin(), row.lengths.end(), lengths);
    std::copy(row.places.begin(), row.places.end(), lengths + n_ranks);
  }
}

BlockTable::BlockTable(const char *collective, int n_ranks, const std::vector<int64_t> &told)
    : collective_(collective), n_(static_cast<size_t>(n_ranks)),
      lengths_(collective_ == "Alltoallv" ? n_ * n_ : n_), words_(lengths_ + 2 * n_ * n_ + 2 * n_),
      said_by_(lengths_, -1) {
  const size_t each = told_words(n_ranks);
  for (size_t r = 0; r < n_; ++r) take(static_cast<int>(r), &told[r * each]);
  for (size_t r = 0; r < n_ && disagreement_.empty(); ++r) compare(static_cast<int>(r), &told[r * each]);
}

// Returns the number of a block: its place among the lengths. at, of: which of how many in a buffer.
int64_t BlockTable::number_of(int rank, bool receives, size_t at, size_t of) const {
  const auto r = static_cast<size_t>(rank);
  if (collective_ == "Alltoallv") return static_cast<int64_t>(receives ? at * n_ + r : r * n_ + at);
  return static_cast<int64_t>(of == 1 ? r : at);
}

// Takes over places and sizes of a rank, and the lengths of what it sends.
void BlockTable::take(int rank, const int64_t *told) {
  const TableRow its{told, n_};
  for (const bool receives : {false, true}) {
    const size_t row = 2 * static_cast<size_t>(rank) + receives, blocks = its.blocks(receives);
    std::copy(its.places(receives), its.places(receives) + blocks, &words_[lengths_ + row * n_]);
    words_[lengths_ + 2 * n_ * n_ + row] = its.elements(receives);
    for (size_t k = 0; k < blocks && !receives; ++k) {
      const auto at = static_cast<size_t>(number_of(rank, false, k, blocks));
      if (said_by_[at] >= 0) continue;  // of a reduction, whose ranks all send all blocks
      words_[at] = its.lengths(false)[k], said_by_[at] = rank;
    }
  }
}

void BlockTable::compare(int rank, const int64_t *told) {
  const TableRow its{told, n_};
  for (const bool receives : {false, true})
    for (size_t k = 0; k < its.blocks(receives) && disagreement_.empty(); ++k) {
      const int64_t number = number_of(rank, receives, k, its.blocks(receives)), said = its.lengths(receives)[k];
      const auto at = static_cast<size_t>(number);
      if (words_[at] != said) disagreement_ = two_lengths(said_by_[at], words_[at], rank, said, number);
    }
}

std::string BlockTable::two_lengths(int sender, int64_t sent, int receiver, int64_t received, int64_t number) const {
  const auto a = static_cast<long long>(sent), b = static_cast<long long>(received);
  if (collective_ == "Reducescatterv")
    return text_of("rank %d has %lld elements for rank %lld, and rank %d has %lld for it", sender, a,
                   static_cast<long long>(number), receiver, b);
  return text_of("rank %d sends %lld elements to rank %d, which receives %lld from it", sender, a, receiver, b);
}

int64_t BlockTable::longest() const {
  return *std::max_element(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(lengths_));
}

uint64_t BlockTable::hash() const {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const long long word : words_) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace hccc
