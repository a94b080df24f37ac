// libraries.h: the libraries of kernels of a communicator, and the choice for a call.
#pragma once

#include <hccc/library.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "include/hccc_runtime.h"
#include "uneven.h"

namespace hccc {

// The scalar of premul_sum at this rank: its bits, or where it is.
struct Scalar {
  unsigned long long bits = 0;
  const void *at = nullptr;
};

// A call as its caller makes it. Blocks have `count` elements.
struct Wanted {
  const char *collective = nullptr;  // as hccc.h has it, or
  const char *library = nullptr;     // the name of a library
  const void *send = nullptr;
  void *receive = nullptr;
  size_t count = 0;
  int type = 0, op = 0, root = -1;
  Scalar scalar = {};
  void *stream = nullptr;  // on a GPU, where null is the default stream
  std::shared_ptr<const OwnBlocks> blocks;  // of an uneven collective; null: all have `count` elements
};

// A shared library, loaded while this lives.
class Library {
 public:
  // Loads a library. Throws Error where it is none, or not for this target and number of ranks.
  Library(const std::string &path, int n_ranks, const char *target, bool standard);
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;
  ~Library();

  const hccc_library &description() const { return *description_; }
  // Returns whether it was made for a call that had none, so that others go before it.
  bool standard() const { return standard_; }
  // The types and reductions that a library is built for, as bits.
  static constexpr size_t BUILT_WORDS = (hcccNumTypes * hcccNumOps + 63) / 64;
  using Built = std::array<uint64_t, BUILT_WORDS>;
  Built built() const;
  // Drops types and reductions that another rank's library of the plan was not built for.
  void keep(const Built &of_all);
  // Returns whether it was built for a type and a reduction, at all ranks.
  bool built_for(int type, int op) const;
  // Returns the text for a type and a reduction that it was not built for.
  std::string not_built_text(int type, int op) const;
  // Returns whether it does a call's collective for its root, or has the name that the call asks for.
  bool does(const Wanted &wanted) const;
  // Returns whether it does a call's collective for any root, with its ranks renumbered: all share
  // memory, and no rank has blocks of its own in the root's buffer.
  bool turns() const;
  // Returns by how much its ranks are renumbered for a call: rank r has the part of r - turn_of().
  int turn_of(const Wanted &wanted) const;
  // Loads all kernels of a library for GPUs onto the thread's device. Throws Error.
  void load_kernels() const;
  long long flag_bytes() const {
    return hccc_flags_of(description_->catalogue, description_->catalogue->n_plans);
  }

  // Return bytes past the beginning of every rank's flags: ranks with other parts have other flags.
  long long flags_at(int turn) const { return turn ? flags_at_ + turn * flag_bytes() : flags_at_; }
  long long all_flag_bytes() const { return flag_bytes() * (turns() ? description_->n_ranks : 1); }
  void place_flags(long long at) { flags_at_ = at; }

 private:
  bool refuses(int type, const char *op) const;
  static size_t place_of(int type, int op) { return static_cast<size_t>(type * hcccNumOps + op); }

  void *handle_ = nullptr;
  const hccc_library *description_ = nullptr;
  const bool standard_;
  long long flags_at_ = 0;
  std::bitset<hcccNumTypes * hcccNumOps> built_, dropped_;  // of each type and reduction
  std::map<int, std::bitset<hcccNumTypes>> built_of_own_;  // by the program's own reductions
};

const char *name_of_type(int type);   // as generated entries have it; null for none
int bytes_of_type(int type);
const char *name_of_op(int op);
// Returns the number of a reduction. Throws Error: neither hccc nor a library that is loaded has it.
int op_of(const std::string &name);
// Returns the number of a program's own reduction, which then has a name: a hash of that, the same at all ranks.
// Throws Error: another one has it.
int op_of_own(const std::string &name);
bool is_own(int op);  // whether a program's own reduction may have that number
// Returns the type that kernels are built for which only move elements of so many bytes.
const char *name_of_moved(int bytes);
bool has_op(int type, int op);  // whether values of the type have the reduction

class Libraries {
 public:
  // Adds a library. Several of one digest are one library, built for several types.
  void add(std::unique_ptr<Library> library);
  size_t size() const { return loaded_.size(); }
  long long flag_bytes() const { return flag_bytes_; }

  // Finds the library of a call: the last one loaded of those that do its collective, or, where
  // that is not built for its type and reduction, one of the same digest that is; one for its root
  // goes before others that turn, and a standard one comes last. Null: none.
  const Library *find(const Wanted &wanted) const;
  // The same. Throws Error: none.
  const Library &fit(const Wanted &wanted) const;

 private:
  template <class Passes>
  const Library *last(const Passes &passes) const;
  const Library *last(const Wanted &wanted, bool standard, bool built) const;

  std::vector<std::unique_ptr<Library>> loaded_;
  long long flag_bytes_ = 0;
};

}  // namespace hccc
