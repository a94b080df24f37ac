// job.cpp: the job that the environment names.
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "environment.h"
#include "job_file.h"
#include "root.h"

namespace hccc::bootstrap {
namespace {

// Counts the calls of this process (not of its parent before a fork) as this rank, so that
// successive jobs have different names.
int count_of(int rank) {
  static auto *mutex = new std::mutex;
  static auto *counts = new std::map<std::pair<pid_t, int>, int>;
  std::lock_guard<std::mutex> lock(*mutex);
  return (*counts)[{getpid(), rank}]++;
}

// Finds the job on one host: the root is at a loopback address and any port, named by a file.
Identity by_file(const std::string &key, int rank, const Deadline &deadline) {
  if (rank != 0) return read_id(read_job_file(key, deadline));
  Identity identity;
  identity.listening = identity.at_rank_0 = true;
  random_bytes(identity.secret.data(), identity.secret.size());
  Fd listener = listen_tcp(loopback(), &identity.address);
  hccc_unique_id id;
  write_id(identity, &id);
  const std::string path = write_job_file(key, id);
  start_root(std::move(listener), identity, root_timeout(),
             [path, id] { remove_job_file(path, id); });
  return identity;
}

// Listens, and retries for a moment: the last job's root may not have closed yet.
Fd listen_with_retries(const Address &at, Address *bound) {
  for (const Deadline soon = Deadline::in(3);; usleep(20000)) {
    try {
      return listen_tcp(at, bound);
    } catch (const Failure &failure) {
      if (errno != EADDRINUSE) throw;
      if (soon.passed())
        fail(failure.code, failure.rank, "%s; HCCC_ROOT_PORT sets another port",
             failure.message.c_str());
    }
  }
}

Identity by_address(const Environment &e, const std::string &address, const Secret &secret,
                    int rank, const Deadline &deadline) {
  const Place place = parse_place(address);
  Identity identity = {resolve(place.host, place.port, deadline), secret};
  identity.at_rank_0 = true;
  if (rank != 0) return identity;
  Address bind = choose_binding(identity.address).bind, bound;
  if (bind.is_loopback() && !on_one_host(e, address))
    fail(kBadArgument, 0, "%.80s is a loopback address on rank 0's own host, where no "
         "other host reaches it: set HCCC_SOCKET_IFNAME or HCCC_BIND", place.host.c_str());
  if (!bind.is_any() && !is_local(bind))
    fail(kBadArgument, 0, "%.80s is not an address of rank 0's host: set HCCC_BIND to "
         "one that is (0.0.0.0: all)", place.host.c_str());
  bind.port = identity.address.port;
  stop_root(identity);
  Fd listener = listen_with_retries(bind, &bound);
  start_root(std::move(listener), identity, root_timeout(), nullptr);
  return identity;
}

}  // namespace

// Launchers name their jobs; else the parent process of all ranks of this host does.
std::string job_key(const Environment &e, const std::string &address, int rank) {
  std::string made = text("%s %d ", e.launcher.c_str(), e.n_ranks) + address;
  made += text(" %d", count_of(rank));
  bool named = false;
  for (const char *name : {"HCCC_JOB", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                           "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID",
                           "SLURM_STEP_ID"}) {
    const char *value = variable(name);
    made += std::string("\n") + name + "=" + (value ? value : "");
    named |= value != nullptr;
  }
  if (!named && address.empty()) made += "\nparent " + std::to_string(getppid());
  return made;
}

Identity identity_from_environment(int rank) {
  const Environment e = find_environment();
  if (rank < 0 || rank >= e.n_ranks)
    fail(kBadArgument, -1, "%s says that there are %d ranks: there is no rank %d",
         e.launcher.c_str(), e.n_ranks, rank);
  const std::string address = root_address(e);
  const Deadline deadline = Deadline::of(-1);
  Secret secret;
  const bool has_secret = secret_from_environment(&secret);
  if (has_secret && !address.empty()) return by_address(e, address, secret, rank, deadline);
  if (on_one_host(e, address)) return by_file(job_key(e, address, rank), rank, deadline);
  fail(kBadArgument, -1, "the ranks are on several hosts: they need a secret in common, "
       "HCCC_SECRET or HCCC_SECRET_FILE");
}

}  // namespace hccc::bootstrap
