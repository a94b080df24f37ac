// times.h: how long calls take by hccc and by the vendor's library, as `hccc sim ALGO -o FILE` predicts
// (compiler/predict/times.py): where the vendor's is faster, it makes them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

namespace hccc_nccl {

// The calls of one collective, and of one root, of a number of ranks.
struct Times {
  // µs of calls of so many bytes or more, of a rank's largest buffer.
  struct Row {
    size_t bytes;
    double own, vendors;
  };

  std::string collective, library;  // "Allreduce"; "nccl"
  int n_ranks = 0, root = -1;
  uint64_t hash = 0;  // of the file
  std::vector<Row> rows;
};

// Returns whether a file is a table of times.
bool is_times(const std::string &path);
// Reads one. Throws Failed.
Times read_times(const std::string &path);
// Returns the row of a call, of the last table that has it; null: none.
const Times::Row *row_of(const std::vector<Times> &all, const char *collective, int root, size_t bytes);

}  // namespace hccc_nccl
