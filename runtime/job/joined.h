// joined.h: what the ranks of a job have with each other: communicators, and reductions that all can.
#pragma once

#include <bitset>
#include <utility>

#include "../communicator/comm.h"
#include "include/hccc_job.h"

namespace hccc::job {

using Can = std::bitset<hcccNumTypes * hcccNumOps>;

struct Joined {
  Joined() = default;
  Joined(Joined &&other) noexcept { *this = std::move(other); }
  Joined &operator=(Joined &&other) noexcept {
    std::swap(border, other.border), std::swap(comm, other.comm);
    vendor = other.vendor, can = other.can, reduces = other.reduces;
    return *this;
  }
  ~Joined();
  void forget() { border = nullptr, comm = nullptr; }
  // Throws Error where some rank's library does not do a call of a type and a reduction.
  void check(hcccDataType_t type, hcccRedOp_t op, bool known) const;

  hcccComm_t border = nullptr;       // of all ranks, for copies over borders
  hccc_vendor_comm *comm = nullptr;  // of the vendor cluster; null: it has one rank
  const hccc_vendor *vendor = nullptr;
  Can can;
  bool reduces = false;
};

// Lets all ranks of a communicator join. Throws Error, at every rank where one fails.
Joined joined(hcccComm_t comm, const hccc_job_given &given);

// Throws Error for a result of hccc_runtime.h that is one.
void must(hcccResult_t result);

}  // namespace hccc::job
