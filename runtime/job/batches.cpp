// batches.cpp: see batches.h.
#include "batches.h"

#include <algorithm>
#include <utility>

namespace hccc::job {
namespace {

int size_class(int64_t bytes) {
  int k = 0;
  while ((int64_t{1} << k) < bytes) ++k;
  return k;
}

}  // namespace

Batches::Batches(std::vector<std::pair<int64_t, int>> given, size_t steps) : given_(std::move(given)) {
  for (const int count : TRIED)
    if (count == 1 || steps * static_cast<size_t>(count) <= MOST_TASKS) counts_.insert(counts_.begin(), count);
}

const Batches::Trials &Batches::trials(int64_t bytes) const {
  static const Trials none;
  const auto at = trials_.find(size_class(bytes));
  return at == trials_.end() ? none : at->second;
}

int Batches::next(int64_t bytes) const {
  if (const int known = found(bytes)) return known;
  return counts_[static_cast<size_t>(trials(bytes).made) % counts_.size()];
}

int Batches::left(int64_t bytes) const { return found(bytes) ? 0 : calls() - trials(bytes).made; }

int Batches::found(int64_t bytes) const {
  if (tries(bytes)) return trials(bytes).chosen;
  int count = 1;
  for (const auto &[size, its] : given_)
    if (bytes >= size) count = its;
  return count;
}

void Batches::took(int64_t bytes, double seconds, const Gather &gather) {
  if (found(bytes)) return;
  Trials &of = trials_[size_class(bytes)];
  of.least.resize(counts_.size());
  const size_t turn = static_cast<size_t>(of.made) / counts_.size();
  double &least = of.least[static_cast<size_t>(of.made) % counts_.size()];
  if (turn == 1 || (turn > 1 && seconds < least)) least = seconds;
  if (++of.made < calls()) return;
  const std::vector<double> all = gather(of.least);
  std::vector<double> slowest(counts_.size());
  for (size_t i = 0; i < all.size(); ++i) slowest[i % counts_.size()] = std::max(slowest[i % counts_.size()], all[i]);
  // Of equal times the smaller number, which is the later.
  const auto best = std::min_element(slowest.rbegin(), slowest.rend());
  of.chosen = *(counts_.rbegin() + (best - slowest.rbegin()));
}

}  // namespace hccc::job
