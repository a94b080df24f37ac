// meeting.h: the ranks of a vendor's library, met by hccc's rendezvous: they exchange the library's own
// id, and learn who has gone.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "../bootstrap/include/hccc_bootstrap.h"
#include "../communicator/time_left.h"

namespace hccc::vendor {

class Meeting {
 public:
  // Meets the other ranks, which must have loaded the same library. Throws Error.
  Meeting(int n_ranks, const void *id, int rank, const std::string &library, const TimeLeft &left);
  ~Meeting();
  Meeting(const Meeting &) = delete;
  Meeting &operator=(const Meeting &) = delete;

  // Gathers bytes of all ranks. Throws Error.
  void gather(void *data, size_t bytes_each, const TimeLeft &left);
  std::vector<std::string> gather(const std::string &own, const TimeLeft &left);
  // Returns the first of some ranks that has gone without ending its communicator; -1: none.
  int gone(const std::vector<int> &of);
  // Says why this rank will leave.
  void give_up(const std::string &why) { hccc_bootstrap_give_up(bootstrap_, why.c_str()); }
  int host(int rank) const { return hccc_bootstrap_host(bootstrap_, rank); }
  const char *interface() const { return hccc_bootstrap_interface(bootstrap_); }
  int rank() const { return rank_; }
  int n_ranks() const { return n_ranks_; }
  // Return this rank's number among those of its host, and how many those are.
  int local_rank() const;
  int n_local() const;

 private:
  void compare(const std::string &library, const TimeLeft &left);

  const int rank_, n_ranks_;
  hccc_bootstrap *bootstrap_ = nullptr;
  std::mutex mutex_;
  std::vector<char> gone_;
};

}  // namespace hccc::vendor
