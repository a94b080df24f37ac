// meeting.cpp: see meeting.h.
#include "meeting.h"

#include <stdlib.h>
#include <string.h>

#include "../communicator/error.h"

namespace hccc {
[[noreturn]] void fail_as(const hccc_bootstrap_error &error);
}

namespace hccc::vendor {

Meeting::Meeting(int n_ranks, const void *id, int rank, const std::string &library, const TimeLeft &left)
    : rank_(rank), n_ranks_(n_ranks), gone_(static_cast<size_t>(n_ranks > 0 ? n_ranks : 0)) {
  hccc_unique_id known;
  memcpy(&known, id, sizeof known);
  hccc_bootstrap_error error{};
  if (hccc_bootstrap_open(&bootstrap_, &known, n_ranks, rank, left.seconds(), &error)) fail_as(error);
  try {
    compare(library, left);
  } catch (...) {
    hccc_bootstrap_close(bootstrap_);
    throw;
  }
}

Meeting::~Meeting() { hccc_bootstrap_close(bootstrap_); }

void Meeting::compare(const std::string &library, const TimeLeft &left) {
  const std::vector<std::string> all = gather(library, left);
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw Error(hcccInvalidUsage, text_of("rank 0 has %s and rank %zu %s: ranks of one communicator have the same "
                                            "library", all[0].c_str(), r, all[r].c_str()));
}

void Meeting::gather(void *data, size_t bytes_each, const TimeLeft &left) {
  hccc_bootstrap_error error{};
  if (hccc_bootstrap_allgather(bootstrap_, data, bytes_each, left.seconds(), &error)) fail_as(error);
}

std::vector<std::string> Meeting::gather(const std::string &own, const TimeLeft &left) {
  hccc_bootstrap_error error{};
  void *all = nullptr;
  std::vector<size_t> sizes(static_cast<size_t>(n_ranks_));
  if (hccc_bootstrap_allgatherv(bootstrap_, own.data(), own.size(), &all, sizes.data(), left.seconds(), &error))
    fail_as(error);
  std::vector<std::string> made;
  const char *at = static_cast<const char *>(all);
  for (const size_t size : sizes) made.emplace_back(at, size), at += size;
  free(all);
  return made;
}

int Meeting::gone(const std::vector<int> &of) {
  std::lock_guard<std::mutex> lock(mutex_);
  int rank, orderly;
  while (hccc_bootstrap_next_departure(bootstrap_, &rank, &orderly))
    if (!orderly) gone_[static_cast<size_t>(rank)] = 1;
  for (const int one : of)
    if (gone_[static_cast<size_t>(one)]) return one;
  return -1;
}

int Meeting::local_rank() const {
  int before = 0;
  for (int r = 0; r < rank_; ++r) before += host(r) == host(rank_);
  return before;
}

int Meeting::n_local() const {
  int all = 0;
  for (int r = 0; r < n_ranks_; ++r) all += host(r) == host(rank_);
  return all;
}

}  // namespace hccc::vendor
