// environment.h: what a launcher tells its processes.
#pragma once

#include "id.h"

namespace hccc::bootstrap {

struct Environment {
  std::string launcher, rank_variable, size_variable;
  int rank, n_ranks, local_rank, local_size;  // the last two: -1 where nothing says
  bool one_host;                              // as far as the launcher says
};

// Throws BAD_ARGUMENT where there is none, or not all of it.
Environment find_environment();

// "host:port" of the root, "" where all ranks are on this host and nothing says. Throws where there
// are several hosts and nothing says, or what it says is wrong.
std::string root_address(const Environment &environment);
std::string describe(const Environment &environment, const std::string &address);

// The first host of a list as Slurm writes it: `gpu[003-017,40],login` → `gpu003`.
std::string first_host(const std::string &list);
struct Place {
  std::string host;
  int port;
};
Place parse_place(const std::string &address);  // "host:port", "[::1]:port"

// Whether all ranks are on this host, as far as is said.
bool on_one_host(const Environment &environment, const std::string &address);

// A name for this job that all its ranks on this host know and no other job has.
std::string job_key(const Environment &environment, const std::string &address, int rank);

// The job's root, by the environment; rank 0 starts it.
Identity identity_from_environment(int rank);

}  // namespace hccc::bootstrap
