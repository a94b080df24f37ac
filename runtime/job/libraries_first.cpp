// libraries_first.cpp: see libraries_first.h.
#include "libraries_first.h"

#include <stdio.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace hccc::job {
namespace {

// Makes a call of no elements, for which hccc's library is found or made.
hcccResult_t empty_call(const hccc_vendor &vendor, hccc_vendor_comm *comm, const hccc_job_task &task, const Call &call) {
  switch (task.kind) {
    case HCCC_JOB_REDUCE: return vendor.reduce(nullptr, nullptr, 0, call.type, call.op, task.peer, comm, nullptr);
    case HCCC_JOB_BROADCAST: return vendor.broadcast(nullptr, nullptr, 0, call.type, task.peer, comm, nullptr);
    case HCCC_JOB_REDUCE_SCATTER: return vendor.reduce_scatter(nullptr, nullptr, 0, call.type, call.op, comm, nullptr);
    default: return vendor.all_gather(nullptr, nullptr, 0, call.type, comm, nullptr);
  }
}

// Makes the libraries of a schedule's calls, and returns why one cannot be; "": all are there.
std::string made(const Call &call, const Joined &joined) {
  std::set<std::pair<int, int>> known;
  const Schedule &s = *call.schedule;
  for (int64_t k = s.lane_begin[0]; k < s.lane_begin[1]; ++k) {
    const hccc_job_task &task = s.tasks[static_cast<size_t>(k)];
    if (task.kind > HCCC_JOB_ALL_GATHER || !known.emplace(task.kind, task.peer).second) continue;
    if (empty_call(*joined.vendor, joined.comm, task, call)) return joined.vendor->last_error();
  }
  return "";
}

// Lets all ranks tell each other what went wrong. Returns the first of them that has something to tell, and what.
std::pair<size_t, std::string> meet(const Joined &joined, const std::string &why) {
  std::vector<std::array<char, 480>> all(static_cast<size_t>(joined.border->of.n_ranks()));
  snprintf(all[static_cast<size_t>(joined.border->of.rank())].data(), all[0].size(), "%s", why.c_str());
  must(hcccCommGatherBytes(joined.border, all.data(), all[0].size()));
  const auto told = std::find_if(all.begin(), all.end(), [](const auto &one) { return one[0]; });
  if (told == all.end()) return {};
  return {static_cast<size_t>(told - all.begin()), std::string(told->data())};
}

}  // namespace

LibrariesFirst::LibrariesFirst(const SavedJob &job) : job_(job) {}

uint64_t LibrariesFirst::shapes(const AllBlocks &blocks, int batches) const {
  uint64_t found = 0;
  const auto count = static_cast<int64_t>(blocks.longest);
  const auto cut = [](int64_t n, int64_t into, bool longer) { return n / into + (longer && n % into); };
  for (size_t c = 0; c < job_.clusters.size(); ++c) {
    const auto n = static_cast<int64_t>(job_.clusters[c].ranks.size());
    if (n < 2) continue;
    if (!blocks.words.empty()) {
      int64_t longest = 0, sum = 0;
      for (const int rank : job_.clusters[c].ranks) {
        const int64_t length = blocks.words[static_cast<size_t>(rank)];
        longest = std::max(longest, length), sum += length;
      }
      const uint64_t way = longest * n == sum ? 1 : is_padded(longest, sum, static_cast<size_t>(n)) ? 2 : 3;
      found |= way << 2 * (c % 32);
      continue;
    }
    for (const bool part : {false, true})
      for (const bool batch : {false, true}) {
        const bool even = cut(cut(count, job_.collective.per_block(), part), batches, batch) % n == 0;
        found |= uint64_t{even ? 1u : 2u} << 2 * (c % 32);
      }
  }
  return found;
}

void LibrariesFirst::make(const Call &call, const AllBlocks &blocks, int batches, Joined &joined) {
  if (!joined.any_own) return;
  const auto [at, is_new] = made_.emplace(call.type, call.op, shapes(blocks, batches));
  if (!is_new) return;
  meet(joined, "");  // in the time of a call; from here on a rank that does not come is gone
  const double timeout = joined.timeout;
  joined.set_timeout(0);
  const auto [rank, why] = meet(joined, joined.own && joined.comm ? made(call, joined) : "");
  joined.set_timeout(timeout);
  if (why.empty()) return;
  made_.erase(at);
  throw RefusedCall(text_of("rank %zu: ", rank) + why);
}

}  // namespace hccc::job
