// pmi.h: the other end of PMI-1, by which MPICH and Intel MPI ask their launcher who the ranks are.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "meeting.h"

namespace hccc::vendor {

// Serves this process's MPI over a pair of sockets; what it tells all ranks goes by their meeting. Lives
// as long as the process, as MPI does.
class Pmi {
 public:
  // name: of the world, unique on the machine. timeout: seconds of an exchange.
  static std::shared_ptr<Pmi> start(std::shared_ptr<Meeting> meeting, const std::string &name, double timeout);
  // Returns why an exchange failed; empty: none did.
  std::string wrong() const;

 private:
  Pmi(std::shared_ptr<Meeting> meeting, std::string name, double timeout);
  void serve();
  std::string answer(const std::string &line);
  std::string exchange();

  const std::shared_ptr<Meeting> meeting_;
  const std::string name_;
  const double timeout_;
  int own_end_ = -1, mpis_end_ = -1;
  std::map<std::string, std::string> all_, put_;  // told by all ranks; by this one since the last barrier
  mutable std::mutex mutex_;
  std::string wrong_;
};

}  // namespace hccc::vendor
