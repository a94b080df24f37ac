// joined.h: what the ranks of a job have with each other: communicators, and reductions that all can.
#pragma once

#include <array>
#include <bitset>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../communicator/comm.h"
#include "include/hccc_job.h"
#include "saved.h"

namespace hccc::job {

constexpr const char *OWN = "own";  // hccc's own library, as a vendor

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

// Communicators, which jobs over the same vendor clusters share.
struct Joined {
  Joined() = default;
  Joined(const Joined &) = delete;
  Joined &operator=(const Joined &) = delete;
  ~Joined();
  void forget() { border = nullptr, comm = nullptr, pairs = {}; }
  void set_timeout(double seconds);
  // Makes the communicators of two ranks each, at all ranks of the vendor cluster, which has several: of a rank and
  // the one beside it, then of the last two where their number is odd. The second time nothing. Throws Error.
  void make_pairs();

  hcccComm_t border = nullptr;       // of all ranks, for copies over borders
  hccc_vendor_comm *comm = nullptr;  // of the vendor cluster; null: it has one rank
  std::array<hccc_vendor_comm *, 2> pairs = {};  // of two ranks of it (make_pairs); null: none, or this rank has no such
  bool paired = false;
  const hccc_vendor *vendor = nullptr;
  double timeout = -1;  // that was set last; -1: none was
  std::optional<Device> device;  // of this rank's memory; none: the host
  bool in_pieces = false;        // what crosses a border: some rank has memory of a device
  bool own = false;              // this rank's library is hccc's own
  bool any_own = false;          // some rank's is
};

// What ranks have told each other of an uneven call.
struct AllBlocks {
  std::vector<long long> words;  // as hccc_call has them
  size_t longest = 0;            // elements
};

// What the libraries of all ranks can of a job.
struct Able {
  // Throws Error where some rank's library does not do a call of a type and a reduction.
  void check(hcccDataType_t type, hcccRedOp_t op, bool known) const;

  Can can;
  bool reduces = false;
  bool agrees = false;  // on who reduces at borders: some rank's memory is a device's, or some ask for their libraries
};

// What a rank brings: the job, null where it has none, and why; its library as of hccc_job_given; bits of
// HCCC_VENDOR_ALL_REDUCE and so on, of the calls that the job makes of that; communicators to share; null: none.
struct Brought {
  const SavedJob *job = nullptr;
  std::string failed;
  const hccc_vendor *functions = nullptr;
  std::string vendor;
  const char *library = nullptr;
  uint32_t calls = 0;
  bool by_library = false;  // whether this rank's library is to reduce at its border
  std::shared_ptr<Joined> beside;

  // Returns the ranks of the vendor cluster of a rank.
  const std::vector<int> &members(int rank) const {
    return job->clusters[static_cast<size_t>(job->cluster_of[static_cast<size_t>(rank)])].ranks;
  }
};

// Lets all ranks of a communicator join, in a call's turn. Throws Error, at every rank where one fails.
std::pair<std::shared_ptr<Joined>, Able> joined(hcccComm_t comm, const Brought &brought, double timeout_s);

// Lets all ranks tell their blocks of an uneven call by messages, and compares them. signature: of the type and the reduction.
// Throws Error, at every rank: RefusedCall where two ranks differ, which costs nobody anything.
AllBlocks told_blocks(hcccComm_t border, const Collective &of, uint64_t signature, const OwnBlocks &own);

// Throws Error for a result of hccc_runtime.h that is one.
void must(hcccResult_t result);

}  // namespace hccc::job
