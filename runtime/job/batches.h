// batches.h: into how many micro-batches a job's calls are cut: as is given, or as the first calls of each size find.
#pragma once

#include <stdint.h>

#include <array>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace hccc::job {

class Batches {
 public:
  // given: of calls of so many bytes or more; without any numbers are tried. steps: of the job.
  Batches(std::vector<std::pair<int64_t, int>> given, size_t steps);

  // Returns into how many a call of so many bytes, of its largest buffer, is cut now.
  int next(int64_t bytes) const;
  // Returns how many calls are needed until that is found; of a call of such a size.
  int left(int64_t bytes) const;
  // Returns the number that was given or found; 0: it is not found yet.
  int found(int64_t bytes) const;

  // Returns the numbers of all ranks, by rank.
  using Gather = std::function<std::vector<double>(const std::vector<double> &own)>;
  // Notes how many seconds the call of `next` took. After the last that was to be tried, all ranks choose what the
  // slowest of them was fastest with: collective then.
  void took(int64_t bytes, double seconds, const Gather &gather);

 private:
  static constexpr std::array<int, 5> TRIED = {1, 2, 4, 8, 16};
  static constexpr int TURNS = 3;  // of each number; the first, which may make a library, is not counted
  static constexpr int64_t LEAST_TRIED = int64_t{1} << 16;  // bytes of calls that may be cut
  static constexpr size_t MOST_TASKS = size_t{1} << 13;     // steps times micro-batches

  // Calls of about one size. made: calls; least: seconds of the calls with each number.
  struct Trials {
    int made = 0, chosen = 0;
    std::vector<double> least;
  };
  bool tries(int64_t bytes) const { return given_.empty() && bytes >= LEAST_TRIED; }
  // Returns the trials of a size, rounded up to a power of two.
  const Trials &trials(int64_t bytes) const;
  int calls() const { return static_cast<int>(counts_.size()) * TURNS; }

  const std::vector<std::pair<int64_t, int>> given_;
  std::vector<int> counts_;  // that are tried, from the largest on
  std::map<int, Trials> trials_;
};

}  // namespace hccc::job
