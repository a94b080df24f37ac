// short_calls.h: calls of few bytes. Ranks tell each other their inputs as they agree on the call; then
// each runs the plan of all ranks by itself, in memory of its own, and waits for nobody.
#pragma once

#include <stdlib.h>

#include <map>
#include <memory>
#include <vector>

#include "libraries.h"

namespace hccc {

constexpr size_t MOST_SHORT_BYTES = 4096;  // of the largest buffer of any rank

// What a rank tells of a short call. The rest of `input` is not written.
struct alignas(128) ToldInput {
  uint64_t scalar;  // of premul_sum: its bits
  char input[MOST_SHORT_BYTES];
};

class ShortCalls {
 public:
  // oversubscribed: the ranks are more than there are cores, and a wait costs a switch between them.
  ShortCalls(int n_ranks, bool oversubscribed);

  // Returns whether the inputs of a call are told, of so many bytes a rank.
  bool tells(size_t bytes) const { return bytes <= most_bytes_; }
  // Prepares a call. False: it is too much work for a rank to do it for all ranks.
  bool begin(const Library &library, const hccc_call &call, int size);
  // Returns where the input of a part goes.
  char *input(int part) const { return static_cast<char *>(locals_[static_cast<size_t>(part)].input); }
  void set_scalar(int part, uint64_t bits) { locals_[static_cast<size_t>(part)].scalar = bits; }
  // Runs all parts; that waits for nobody, and no failure of others stops it. Returns an hccc_status.
  int run(const char *type, const char *op);
  const char *output(int part) const { return static_cast<const char *>(locals_[static_cast<size_t>(part)].output); }

 private:
  struct Free {
    void operator()(char *memory) const { free(memory); }
  };
  using Memory = std::unique_ptr<char, Free>;
  static Memory zeroed(size_t bytes);
  Memory &flags_of(const Library &library);

  const size_t n_, most_bytes_;
  hccc_window window_ = HCCC_ALL_MEMORY;
  std::vector<hccc_rank> ranks_;
  std::vector<hccc_local> locals_;
  std::map<const Library *, Memory> flags_;  // which go on from call to call
  Memory buffers_, scratch_;
  size_t scratch_bytes_ = 0;  // of a rank
  const Library *library_ = nullptr;  // of the last call that was prepared
  int size_ = 0;                      // bytes of its elements
  hccc_call call_ = HCCC_CALL_INIT;
  hccc_fault fault_ = {};
};

}  // namespace hccc
