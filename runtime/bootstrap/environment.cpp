// environment.cpp: reads the launchers' variables.
#include "environment.h"

#include <algorithm>

namespace hccc::bootstrap {
namespace {

struct Launcher {
  const char *name, *rank, *sizes[2], *local_ranks[2], *local_sizes[2], *hosts[2];
};

const Launcher kLaunchers[] = {
    {"HCCC_RANK", "HCCC_RANK", {"HCCC_NRANKS"}, {"HCCC_LOCAL_RANK"}, {"HCCC_LOCAL_NRANKS"}, {}},
    {"torchrun", "RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, {}},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"}, {"SLURM_NNODES"}},
    {"PMI", "PMI_RANK", {"PMI_SIZE"}, {"MPI_LOCALRANKID", "SLURM_LOCALID"},
     {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}},
    {"Slurm", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID"}, {},
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}},
};
const int kSlurmPorts = 20000, kNSlurmPorts = 10000;  // below the systems' ephemeral ports

// Returns the first of the names that is set; null: none.
const char *first_set(const char *const (&names)[2]) {
  for (const char *name : names)
    if (name && variable(name)) return name;
  return nullptr;
}

int number(const char *name, long long least, long long most) {
  long long value;
  if (!parse(variable(name), least, most, &value))
    fail(kBadArgument, -1, "%s is `%.40s`: it must be a number from %lld to %lld",
         name, variable(name), least, most);
  return static_cast<int>(value);
}

int optional(const char *name, long long least, long long most) {
  return name && variable(name) ? number(name, least, most) : -1;
}

int port_of(const char *name) { return number(name, 1, 65535); }

Environment read_launcher(const Launcher &l) {
  const char *size = first_set(l.sizes);
  if (!size)
    fail(kBadArgument, -1, "%s is set, but %s is not", l.rank, l.sizes[0]);
  Environment made = {l.name, l.rank, size, 0, 0, -1, -1, false, false};
  made.n_ranks = number(size, 1, HCCC_BOOTSTRAP_MAX_RANKS);
  made.rank = number(l.rank, 0, made.n_ranks - 1);
  made.local_rank = optional(first_set(l.local_ranks), 0, HCCC_BOOTSTRAP_MAX_RANKS - 1);
  made.local_size = optional(first_set(l.local_sizes), 1, HCCC_BOOTSTRAP_MAX_RANKS);
  const int hosts = optional(first_set(l.hosts), 1, HCCC_BOOTSTRAP_MAX_RANKS);
  made.one_host = made.n_ranks == 1 || made.local_size == made.n_ranks || hosts == 1;
  made.several_hosts = !made.one_host && (made.local_size > 0 || hosts > 1);
  return made;
}

bool is_loopback_name(const std::string &host) {
  return host == "localhost" || host == "::1" || host.compare(0, 4, "127.") == 0;
}

std::string slurm_address() {
  const char *list = variable("SLURM_STEP_NODELIST");
  if (!list) list = variable("SLURM_JOB_NODELIST");
  if (!list) list = variable("SLURM_NODELIST");
  if (!list) return "";
  int port = optional("HCCC_ROOT_PORT", 1, 65535);
  if (port < 0) {
    long long job = 0, step = 0;  // any numbers, or none
    if (const char *id = variable("SLURM_JOB_ID")) parse(id, 0, 0, &job);
    if (const char *id = variable("SLURM_STEP_ID")) parse(id, 0, 0, &step);
    port = kSlurmPorts + static_cast<int>((job % kNSlurmPorts * 16 + step) % kNSlurmPorts);
  }
  return first_host(list) + ":" + std::to_string(port);
}

}  // namespace

Environment find_environment() {
  std::string tried;
  for (const Launcher &l : kLaunchers) {
    if (variable(l.rank)) return read_launcher(l);
    tried += (tried.empty() ? "" : ", ") + std::string(l.rank);
  }
  fail(kBadArgument, -1, "no launcher says which rank this is (none is set of %s): use "
       "one, or set HCCC_RANK and HCCC_NRANKS", tried.c_str());
}

std::string first_host(const std::string &list) {
  std::string made;
  bool inside = false, taken = false;  // a bracket; its first number
  for (const char c : list) {
    if (inside) {
      if (c == ']') inside = false;
      else if (c == '-' || c == ',') taken = true;
      else if (!taken) made += c;
    } else if (c == '[') {
      inside = true;
      taken = false;
    } else if (c == ',') {
      break;
    } else {
      made += c;
    }
  }
  return made;
}

Place parse_place(const std::string &address) {
  const size_t colon = address.rfind(':'), bracket = address.rfind(']');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || bracket < colon);
  std::string host = has_port ? address.substr(0, colon) : address;
  long long port = 0;
  if (!has_port && variable("HCCC_ROOT_PORT")) port = port_of("HCCC_ROOT_PORT");
  else if (!has_port || !parse(address.substr(colon + 1), 1, 65535, &port)) host.clear();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos) host.clear();
  if (host.empty())
    fail(kBadArgument, -1, "the root is at `%.80s`: it must be host:port", address.c_str());
  return {host, static_cast<int>(port)};
}

std::string root_address(const Environment &e) {
  if (const char *root = variable("HCCC_ROOT")) {
    const Place place = parse_place(root);
    const bool v6 = place.host.find(':') != std::string::npos;
    return text(v6 ? "[%s]:%d" : "%s:%d", place.host.c_str(), place.port);
  }
  if (const char *host = variable("MASTER_ADDR")) {
    int port = optional("HCCC_ROOT_PORT", 1, 65535);
    if (port < 0 && variable("MASTER_PORT")) port = number("MASTER_PORT", 1, 65534) + 1;
    if (port < 0)
      fail(kBadArgument, -1, "MASTER_ADDR is set, but neither MASTER_PORT nor "
           "HCCC_ROOT_PORT is");
    const bool v6 = std::string(host).find(':') != std::string::npos && *host != '[';
    return std::string(v6 ? "[" : "") + host + (v6 ? "]:" : ":") + std::to_string(port);
  }
  if (e.one_host) return "";
  const std::string slurm = slurm_address();
  if (!slurm.empty()) return slurm;
  // HCCC_RANK without local numbers: all ranks are on this host.
  if (e.launcher == "HCCC_RANK" && e.local_size < 0) return "";
  fail(kBadArgument, -1, "%s says that this is rank %d of %d, but not where rank 0 is: "
       "set HCCC_ROOT=host:port", e.launcher.c_str(), e.rank, e.n_ranks);
}

Address own_address() {
  try {
    if (!find_environment().several_hosts) return loopback();
  } catch (const Failure &) {  // no launcher's
    return loopback();
  }
  try {
    const char *root = variable("HCCC_ROOT"), *master = variable("MASTER_ADDR");
    if (root || master) {
      const Address found = address_towards(resolve(root ? parse_place(root).host : master, 1, Deadline::in(0)));
      if (!found.is_loopback()) return found;
    }
  } catch (const Failure &) {  // it is nowhere: ranks meet by the id alone
  }
  return interface_address(nullptr);
}

std::string describe(const Environment &e, const std::string &address) {
  const std::string where = address.empty() ? "on one host" : "root at " + address;
  return text("%s: rank %d of %d (%s, %s), %s", e.launcher.c_str(), e.rank, e.n_ranks,
              e.rank_variable.c_str(), e.size_variable.c_str(), where.c_str());
}

bool on_one_host(const Environment &e, const std::string &address) {
  return e.one_host || address.empty() || is_loopback_name(parse_place(address).host);
}

}  // namespace hccc::bootstrap
