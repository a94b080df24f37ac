// vendor_calls.h: a vendor's library beside hccc's own, for the calls that it is faster at (HCCC_VENDOR).
//
// Calls of one collective, type, reduction, root and size (to the next power of two) are a class. Of each, the
// first few are made in turn by either, and timed; then ranks compare the times of the slowest rank, once,
// and the faster makes the rest. All are the users' own calls: nothing is made for measuring alone.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "../bootstrap/include/hccc_bootstrap.h"
#include "../vendor/include/hccc_vendor.h"
#include "libraries.h"
#include "time_left.h"

namespace hccc {

class VendorCalls {
 public:
  // Tells a vendor's library that HCCC_VENDOR and HCCC_VENDOR_LIBRARY ask for from others; 0: none, or one
  // that has no calls of the host's memory.
  static uint64_t wish();
  // Loads it and meets the other ranks, all of which have the same wish. Collective. Throws Error.
  VendorCalls(hccc_bootstrap *bootstrap, int rank, int n_ranks, const TimeLeft &left);
  ~VendorCalls();
  VendorCalls(const VendorCalls &) = delete;
  VendorCalls &operator=(const VendorCalls &) = delete;

  using Gather = std::function<void(void *data, size_t bytes_each)>;  // of all ranks' bytes
  // Returns whether the library is to make a call. has_own: hccc can make it. Collective where the times
  // of a class are compared. Throws Error.
  bool takes(const Wanted &wanted, bool has_own, const Gather &gather);
  // Returns whether it also takes every later call like one that it has taken.
  bool makes_all(const Wanted &wanted, bool has_own) const;
  // Makes a call that the library takes. Throws Error.
  void make(const Wanted &wanted, double timeout_s);
  // The same of a call that may be like the last one but for its buffers, and is begun then: false: it is not. end: false:
  // it is not done soon. Throw Error.
  bool begin(const Wanted &wanted, double timeout_s);
  bool end(bool soon);
  // Notes how long the last call of `takes` took.
  void took(const Wanted &wanted, double us);
  // Makes a running call return, from any thread.
  void abort() { table_->abort(comm_); }
  const char *name() const { return table_->name; }

 private:
  static constexpr int EACH = 3;  // calls of either; the first is not counted
  struct Class {
    int made = 0;
    std::array<double, 2> least = {0, 0};  // µs, of hccc and of the library
    bool decided = false, vendors = false;
  };
  using Key = std::tuple<int, int, int, int, int>;  // call, type, reduction, root, size
  Key key_of(const Wanted &wanted) const;
  void check(hcccResult_t result) const;  // throws Error
  void decide(const Key &key, Class &one, const Gather &gather) const;

  const int rank_, n_ranks_;
  const hccc_vendor *table_ = nullptr;
  hccc_vendor_comm *comm_ = nullptr;
  double timeout_s_ = -1;
  const char *collective_ = nullptr;  // of the last call, as the caller has it, and the call of the table that it is
  int what_ = -1;
  std::map<Key, Class> classes_;
};

}  // namespace hccc
