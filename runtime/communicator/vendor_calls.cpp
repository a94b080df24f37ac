// vendor_calls.cpp: see vendor_calls.h.
#include "vendor_calls.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "error.h"
#include "host.h"
#include "log.h"

namespace hccc {
namespace {

std::string variable_of(const char *name) {
  const char *const value = getenv(name);
  return value ? value : "";
}

// Returns the call of the table that a collective is; -1: none.
int call_of_collective(const char *collective) {
  static constexpr const char *names[] = {"Allreduce", "Broadcast", "Reduce",  "Allgather", "Reducescatter",
                                          "Alltoall",  "Gather",    "Scatter"};
  for (int k = 0; collective && k < 8; ++k)
    if (!strcmp(names[k], collective)) return k;
  return -1;
}

}  // namespace

uint64_t VendorCalls::wish() {
  const std::string vendor = variable_of("HCCC_VENDOR");
  const bool of_devices = vendor == "nccl" || vendor == "rccl";
  if (vendor.empty() || vendor == "own" || of_devices) return 0;
  // The file may be elsewhere on another host.
  return std::hash<std::string>()(vendor) | 1;
}

VendorCalls::VendorCalls(hccc_bootstrap *bootstrap, int rank, int n_ranks, const TimeLeft &left)
    : rank_(rank), n_ranks_(n_ranks) {
  struct Told {
    int32_t loaded;
    char id[HCCC_VENDOR_ID_BYTES];
  };
  std::vector<Told> all(static_cast<size_t>(n_ranks));
  Told &own = all[static_cast<size_t>(rank)];
  const std::string vendor = variable_of("HCCC_VENDOR");
  std::string why;
  if (hccc_vendor_load(vendor.c_str(), nullptr, &table_)) why = hccc_vendor_error();
  else if (table_->flags & HCCC_VENDOR_STREAM) why = std::string(table_->name) + " has no calls of the host's memory";
  hccc_bootstrap_error error{};
  if (why.empty() && !rank) {
    std::vector<int> ranks(all.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    hccc_unique_id id;
    if (hccc_bootstrap_unique_id_among(bootstrap, ranks.data(), n_ranks, &id, &error)) why = error.message;
    memcpy(own.id, &id, sizeof id);
  }
  own.loaded = why.empty();
  if (hccc_bootstrap_allgather(bootstrap, all.data(), sizeof(Told), left.seconds(), &error)) fail_as(error);
  if (!why.empty()) throw Error(hcccInvalidUsage, "HCCC_VENDOR=" + vendor + ": " + why);
  for (size_t r = 0; r < all.size(); ++r)
    if (!all[r].loaded)
      throw Error(hcccInvalidUsage, "HCCC_VENDOR=" + vendor + text_of(": rank %zu cannot load it", r));
  if (const hcccResult_t result = table_->init_rank(&comm_, n_ranks, all[0].id, rank, left.seconds()))
    throw Error(result, "HCCC_VENDOR=" + vendor + ": " + hccc_vendor_error());
}

VendorCalls::~VendorCalls() { table_->destroy(comm_); }

VendorCalls::Key VendorCalls::key_of(const Wanted &wanted) const {
  const int what = call_of_collective(wanted.collective);
  const size_t bytes = wanted.count * static_cast<size_t>(bytes_of_type(wanted.type));
  int size = 0;
  while ((size_t{1} << size) < bytes) ++size;
  const bool reduces =
      what == HCCC_VENDOR_ALL_REDUCE || what == HCCC_VENDOR_REDUCE || what == HCCC_VENDOR_REDUCE_SCATTER;
  return {what, wanted.type, reduces ? wanted.op : -1, wanted.root, size};
}

bool VendorCalls::takes(const Wanted &wanted, bool has_own, const Gather &gather) {
  const int what = call_of_collective(wanted.collective);
  if (what < 0 || wanted.blocks || wanted.op >= hcccPreMulSum) return false;
  if (!table_->can(what, static_cast<hcccDataType_t>(wanted.type), static_cast<hcccRedOp_t>(wanted.op))) return false;
  if (!has_own) return true;
  if (n_ranks_ == 1 || !wanted.count) return false;
  const Key key = key_of(wanted);
  Class &one = classes_[key];
  if (!one.decided && one.made == 2 * EACH) decide(key, one, gather);
  return one.decided ? one.vendors : one.made >= EACH;
}

bool VendorCalls::makes_all(const Wanted &wanted, bool has_own) const {
  const auto found = classes_.find(key_of(wanted));
  return !has_own || (found != classes_.end() && found->second.decided);
}

void VendorCalls::took(const Wanted &wanted, double us) {
  const auto found = classes_.find(key_of(wanted));
  if (found == classes_.end() || found->second.decided) return;
  Class &one = found->second;
  const int turn = one.made++;
  double &least = one.least[static_cast<size_t>(turn >= EACH)];
  if (turn % EACH) least = turn % EACH == 1 ? us : std::min(least, us);
}

void VendorCalls::decide(const Key &key, Class &one, const Gather &gather) const {
  std::vector<std::array<double, 2>> all(static_cast<size_t>(n_ranks_));
  all[static_cast<size_t>(rank_)] = one.least;
  gather(all.data(), sizeof all[0]);
  std::array<double, 2> slowest = {0, 0};
  for (const auto &times : all)
    for (size_t k : {size_t{0}, size_t{1}}) slowest[k] = std::max(slowest[k], times[k]);
  one.decided = true, one.vendors = slowest[1] < slowest[0];
  HCCC_LOG(INFO, COLL, rank_, "call %d of %s up to %lld bytes: %s from now on: %.1f us by %s, %.1f us by hccc",
           std::get<0>(key), name_of_type(std::get<1>(key)), 1LL << std::get<4>(key),
           one.vendors ? table_->name : "hccc", slowest[1], table_->name, slowest[0]);
}

void VendorCalls::check(hcccResult_t result) const {
  if (result) throw Error(result, std::string(table_->name) + ": " + hccc_vendor_error());
}

bool VendorCalls::begin(const Wanted &wanted, double timeout_s) {
  if (wanted.collective != collective_ || timeout_s != timeout_s_) return false;
  const hcccResult_t result =
      table_->begin(what_, wanted.send, wanted.receive, wanted.count, static_cast<hcccDataType_t>(wanted.type),
                    static_cast<hcccRedOp_t>(wanted.op), wanted.root, comm_);
  if (result == hcccInvalidUsage) return false;
  check(result);
  return true;
}

bool VendorCalls::end(bool soon) {
  const hcccResult_t result = table_->end(soon, comm_);
  if (result == hcccInProgress) return false;
  check(result);
  return true;
}

void VendorCalls::make(const Wanted &wanted, double timeout_s) {
  if (timeout_s != timeout_s_) table_->set_timeout(comm_, timeout_s);
  timeout_s_ = timeout_s;
  const void *s = wanted.send;
  void *r = wanted.receive;
  const size_t n = wanted.count;
  const auto type = static_cast<hcccDataType_t>(wanted.type);
  const auto op = static_cast<hcccRedOp_t>(wanted.op);
  hcccResult_t result = hcccSuccess;
  if (wanted.collective != collective_) collective_ = wanted.collective, what_ = call_of_collective(collective_);
  switch (what_) {
    case HCCC_VENDOR_ALL_REDUCE: result = table_->all_reduce(s, r, n, type, op, comm_, nullptr); break;
    case HCCC_VENDOR_REDUCE: result = table_->reduce(s, r, n, type, op, wanted.root, comm_, nullptr); break;
    case HCCC_VENDOR_REDUCE_SCATTER: result = table_->reduce_scatter(s, r, n, type, op, comm_, nullptr); break;
    case HCCC_VENDOR_BROADCAST: result = table_->broadcast(s, r, n, type, wanted.root, comm_, nullptr); break;
    case HCCC_VENDOR_ALL_GATHER: result = table_->all_gather(s, r, n, type, comm_, nullptr); break;
    case HCCC_VENDOR_ALL_TO_ALL: result = table_->all_to_all(s, r, n, type, comm_, nullptr); break;
    case HCCC_VENDOR_GATHER: result = table_->gather(s, r, n, type, wanted.root, comm_, nullptr); break;
    default: result = table_->scatter(s, r, n, type, wanted.root, comm_, nullptr);
  }
  check(result);
}

}  // namespace hccc
