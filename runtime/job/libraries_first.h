// libraries_first.h: hccc's standard libraries that a job's call is the first to need are made before the call's time
// begins to run: it may take longer than a call may, and all other ranks wait for it.
#pragma once

#include <stdint.h>

#include <set>
#include <tuple>

#include "lanes.h"
#include "saved.h"

namespace hccc::job {

class LibrariesFirst {
 public:
  explicit LibrariesFirst(const SavedJob &job);

  // Makes what the calls of a schedule need of this rank's library, where calls of such a type, reduction, blocks and
  // number of micro-batches may need what none before did: collective then. What only the lengths of an uneven call
  // need, and none of those alike, is made in the call's own time. Throws RefusedCall at every rank where one cannot,
  // else Error.
  void make(const Call &call, const AllBlocks &blocks, int batches, Joined &joined);

 private:
  // Returns for each vendor cluster of several ranks whether some pieces are equal at all of them, and whether some are
  // not: two bits, as which calls become of a step depends on it. Of an uneven call: how its ranks' blocks are gathered.
  uint64_t shapes(const AllBlocks &blocks, int batches) const;

  const SavedJob &job_;
  std::set<std::tuple<int, int, uint64_t>> made_;  // type, reduction, shapes
};

}  // namespace hccc::job
