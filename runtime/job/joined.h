// joined.h: what the ranks of a job have with each other: communicators, and reductions that all can.
#pragma once

#include <bitset>
#include <optional>
#include <utility>

#include "../communicator/comm.h"
#include "include/hccc_job.h"

namespace hccc::job {

// The memory that the calling thread takes, while it lives.
class MemoryOn {
 public:
  explicit MemoryOn(const Device &device) : before_(told_memory()) { set_memory_of_thread(device); }
  ~MemoryOn() {
    try {
      set_memory_of_thread(before_);
    } catch (const Error &) {  // a device that is lost by now: the next call says so
    }
  }
  MemoryOn(const MemoryOn &) = delete;
  MemoryOn &operator=(const MemoryOn &) = delete;

 private:
  const std::optional<Device> before_;
};

using Can = std::bitset<hcccNumTypes * hcccNumOps>;

struct Joined {
  Joined() = default;
  Joined(Joined &&other) noexcept { *this = std::move(other); }
  Joined &operator=(Joined &&other) noexcept {
    std::swap(border, other.border), std::swap(comm, other.comm);
    vendor = other.vendor, can = other.can, reduces = other.reduces;
    device = other.device, in_pieces = other.in_pieces;
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
  std::optional<Device> device;  // of this rank's memory; none: the host
  bool in_pieces = false;        // what crosses a border: some rank has memory of a device
};

// Lets all ranks of a communicator join. Throws Error, at every rank where one fails.
Joined joined(hcccComm_t comm, const hccc_job_given &given);

// Throws Error for a result of hccc_runtime.h that is one.
void must(hcccResult_t result);

}  // namespace hccc::job
