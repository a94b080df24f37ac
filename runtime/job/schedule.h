// schedule.h: makes of a Job the tasks of one rank's call, for a count and so many micro-batches.
//
// A rank has of each piece of a part its input or what was written last (*work*): in the receive buffer where the
// rank must end with the part, else in scratch. What a step writes goes there. A copy over the border that is reduced
// first comes to a place of its own. Tasks are in an order that all ranks keep, of waves (ir/job_order.py); those of
// other lanes are waited for where they wrote what a task reads, or use what it writes.
//
// Sizes and places are in elements. Where a vendor cluster's ranks have equal pieces, its library's ReduceScatter and
// AllGather take the place of a Reduce and a Broadcast for each. Where its library also reduces what comes over a border,
// this comes to a rank beside the border rank, and a Reduce of the two brings the sum to the border rank.
//
// No library has a call for blocks of several lengths: an AllGather of them goes through scratch, in slots of the longest,
// and where that would more than double what is moved, as a Broadcast of each block.
#pragma once

#include <memory>
#include <vector>

#include "include/hccc_job.h"
#include "saved.h"

namespace hccc::job {

struct Schedule {
  // Returns the structure of C, which points into this one.
  hccc_job_schedule view() const;

  std::vector<hccc_job_task> tasks;
  std::vector<int64_t> lane_begin;
  std::vector<hccc_job_wait> waits;
  int64_t scratch = 0, arrived = 0, output = 0, ranks = 0;
};

// What a schedule is of. ordered: all tasks are in one lane, an ordered list; messages: what a rank of the vendor
// cluster sends to another goes as over a border, as its library has no sends.
struct CallShape {
  int64_t count = 0;  // elements of a block, of the longest
  int batches = 1;
  bool in_place = false, ordered = false, messages = false;
  std::vector<long long> blocks;  // of an uneven call: lengths and places, as hccc_call has them; empty: all have `count` elements
  std::vector<bool> by_library;  // of each vendor cluster: whether its library reduces what comes over a border; empty: none
};

// Returns how many words the lengths and places of an uneven call's blocks are.
inline size_t words_of_blocks(const Collective &of) {
  const auto n = static_cast<size_t>(of.n_ranks());
  return static_cast<size_t>(of.blocks()) + 2 * n * (n + 1);
}

// Returns whether n blocks are gathered as if all were as long as the longest: at most twice as much is moved then.
inline bool is_padded(int64_t longest, int64_t sum, size_t n) { return longest * static_cast<int64_t>(n) <= 2 * sum; }

// Returns the rank that has what comes for another, where the library of their vendor cluster of n ranks reduces it, by
// their numbers there. Of an odd number the last two also are a pair.
inline int member_beside(int member, int n) { return (member ^ 1) < n ? member ^ 1 : member - 1; }

// O(tasks of all ranks · log).
std::shared_ptr<const Schedule> schedule_of(const SavedJob &job, int rank, const CallShape &call);

}  // namespace hccc::job
