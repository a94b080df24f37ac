// environment.h: a process's rank and job by its launcher's variables.
#pragma once

#include "id.h"

namespace hccc::bootstrap {

struct Environment {
  std::string launcher, rank_variable, size_variable;
  int rank, n_ranks, local_rank, local_size;  // the last two: -1 where they are not set
  bool one_host, several_hosts;  // by the launcher's variables; neither: they do not say
};

// Throws BAD_ARGUMENT where variables are missing.
Environment find_environment();

// Returns "host:port" of the root, "" where all ranks are on this host and no variable names one.
// Throws where there are several hosts and no variable, or a wrong one.
std::string root_address(const Environment &environment);
std::string describe(const Environment &environment, const std::string &address);

// Returns the first host of a list as Slurm writes it: `gpu[003-017,40],login` → `gpu003`.
std::string first_host(const std::string &list);
struct Place {
  std::string host;
  int port;
};
Place parse_place(const std::string &address);  // "host:port", "[::1]:port"

// Returns whether all ranks are on this host by what the variables say.
bool on_one_host(const Environment &environment, const std::string &address);

// Returns the address at which this process listens for its job: of loopback, unless the launcher's variables
// say that there are several hosts; then the one that it reaches the root's host by, else of the first interface.
Address own_address();

// Returns a name for this job, the same at all its ranks on this host and different from other
// jobs'.
std::string job_key(const Environment &environment, const std::string &address, int rank);

// Returns the identity of the job that the environment names; rank 0 starts its root.
Identity identity_from_environment(int rank);

}  // namespace hccc::bootstrap
