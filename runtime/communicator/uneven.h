// uneven.h: the blocks of an uneven call: what its caller says of them, what ranks tell each other,
// and the table that kernels read (hccc.h, "Uneven"). Lengths and places are in elements.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <optional>
#include <string>
#include <vector>

namespace hccc {

// The blocks of one buffer of a rank, in order. None: the rank has no such buffer.
struct BlockRow {
  std::vector<int64_t> lengths, places;

  size_t blocks() const { return lengths.size(); }
  // Returns the elements up to the end of the last block.
  int64_t extent() const;
  // Returns the same blocks, one after another without gaps.
  BlockRow packed() const;
};

// The blocks of both buffers of a rank.
struct OwnBlocks {
  BlockRow send, receive;
};

// Lengths or places as a caller gives them; none: null.
using Numbers = std::optional<std::vector<size_t>>;

// Returns the row of a caller's numbers; without places: one block after another. Throws Error.
BlockRow row_of(const Numbers &lengths, const Numbers &places, const char *buffer);
BlockRow row_of(size_t length);

// Returns whether received blocks overlap sent ones, as they do in place. Throws Error where they
// overlap in another way, or each other. size: bytes of an element.
bool overlaps_in_place(const OwnBlocks &own, const char *send, const char *receive, int size, int rank);

// What a rank tells the others: its call's signature, its blocks, the elements of its buffers.
size_t told_words(int n_ranks);
void tell(int64_t *words, int n_ranks, uint64_t signature, const OwnBlocks &own);

// The table of a call, of what all ranks have told.
class BlockTable {
 public:
  // collective: as hccc.h has it; told: told_words() of each rank.
  BlockTable(const char *collective, int n_ranks, const std::vector<int64_t> &told);

  // Names both ends of the first block of which two ranks say different lengths; "": none.
  const std::string &disagreement() const { return disagreement_; }
  // Returns the elements of the longest block.
  int64_t longest() const;
  uint64_t hash() const;
  // Returns the table as kernels read it.
  const std::vector<long long> &words() const { return words_; }

 private:
  int64_t number_of(int rank, bool receives, size_t at, size_t of) const;
  std::string two_lengths(int sender, int64_t sent, int receiver, int64_t received, int64_t number) const;
  void take(int rank, const int64_t *told);
  void compare(int rank, const int64_t *told);

  const std::string collective_;
  const size_t n_;
  size_t lengths_;  // how many
  std::vector<long long> words_;
  std::vector<int> said_by_;  // of each length
  std::string disagreement_;
};

}  // namespace hccc
