// ready.cpp: what a new communicator gets: the libraries of HCCC_LIBRARIES, and one of the vendor's.
#include <dirent.h>
#include <dlfcn.h>
#include <hccc/library.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "../communicator/log.h"
#include "comm.h"

namespace hccc_nccl {
namespace {

// libhccc's group, which is cancelled where its calls throw.
template <class Body>
void grouped(const Body &body) {
  must(runtime().hcccGroupStart());
  try {
    body();
  } catch (...) {
    runtime().hcccGroupCancel();
    throw;
  }
  must(runtime().hcccGroupEnd());
}

bool is_folder(const std::string &path) {
  struct stat found;
  return !stat(path.c_str(), &found) && S_ISDIR(found.st_mode);
}

bool ends_with(const std::string &name, const std::string &end) {
  return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

// Lists the shared libraries of a folder, and tables of jobs and of times, by their names.
void list(const std::string &folder, std::vector<std::string> &files) {
  DIR *const open = opendir(folder.c_str());
  if (!open) return;
  std::vector<std::string> found;
  while (const dirent *entry = readdir(open)) {
    const std::string name = entry->d_name;
    if (ends_with(name, ".so") || ends_with(name, ".table")) found.push_back(folder + "/" + name);
  }
  closedir(open);
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

// Lists the files of HCCC_LIBRARIES: files and folders between colons. Throws Failed.
std::vector<std::string> named_libraries() {
  const char *const value = getenv("HCCC_LIBRARIES");
  std::vector<std::string> files;
  const std::string all = value ? value : "";
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(':', at), all.size());
    const std::string one = all.substr(at, end - at);
    at = end + 1;
    if (one.empty()) continue;
    const size_t before = files.size();
    if (!is_folder(one)) files.push_back(one);
    else list(one, files), list(one + "/build", files);
    if (files.size() == before)
      throw Failed{ncclInvalidUsage, "$HCCC_LIBRARIES: " + one + " has no shared library or table, nor has its build/: `cmake "
                                     "-DBUILD_SHARED_LIBS=ON -S " + one + " -B " + one + "/build && cmake --build " +
                                     one + "/build`"};
  }
  return files;
}

// Returns of how many ranks a job is whose table is in a file; 0: none is.
int ranks_of_job(const std::string &file) {
  std::ifstream in(file);
  std::string of_hccc, job, skipped, name, collective;
  int version = 0, ranks = 0;
  in >> of_hccc >> job >> version >> skipped >> name >> skipped >> collective >> ranks;
  return of_hccc == "hccc" && job == "job" ? ranks : 0;
}

// Returns whether libhccc is to load a file, which is for a communicator's platform and number of ranks; what is neither
// a library of kernels nor a table is left to libhccc, which says what is wrong with it.
bool is_for(const std::string &file, ncclComm_t comm) {
  if (is_times(file)) return false;
  if (const int ranks = ranks_of_job(file)) {
    if (ranks != comm->n_ranks)
      HCCC_LOG(INFO, INIT, comm->rank, "left out, as it is a job of %d ranks: %s", ranks, file.c_str());
    return ranks == comm->n_ranks;
  }
  void *const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void *const found = handle ? dlsym(handle, "hccc_this_library") : nullptr;
  bool fits = true;
  if (found) {
    const hccc_library &of = *reinterpret_cast<hccc_library_function *>(found)();
    fits = of.n_ranks == comm->n_ranks && platform_of(comm) == of.target;
    if (!fits)
      HCCC_LOG(INFO, INIT, comm->rank, "left out, as it is for %d ranks of %s: %s", of.n_ranks, of.target,
               file.c_str());
  }
  if (handle) dlclose(handle);
  return fits;
}

// Reads the tables of times for a communicator's number of ranks. Throws Failed.
void read_all_times(const std::vector<std::string> &files, ncclComm_t comm) {
  for (const std::string &file : files) {
    if (!is_times(file)) continue;
    Times found = read_times(file);
    const bool fits = found.n_ranks == comm->n_ranks;
    HCCC_LOG(INFO, INIT, comm->rank, "times of %s by hccc and %s, %d ranks%s: %s", found.collective.c_str(),
             found.library.c_str(), found.n_ranks, fits ? "" : ", left out", file.c_str());
    const Vendor *const of = fits ? vendor() : nullptr;
    if (of && found.library != of->name())
      HCCC_LOG(WARN, INIT, comm->rank, "the times are of %s, and the vendor's library is %s: the slower of the two may make "
               "calls of %s (%s)", found.library.c_str(), of->name(), found.collective.c_str(), file.c_str());
    if (fits) comm->times.push_back(std::move(found));
  }
}

// What ranks tell each other of a new communicator. standard: whether they make standard libraries; times: of their
// tables, 0 without any.
struct Told {
  int has_vendor, standard;
  uint64_t times;
  ncclUniqueId id;  // of rank 0's vendor
};
using All = std::vector<Told>;

Told own_word(ncclComm_t comm) {
  Told word{};
  hcccCan_t can = hcccCanNot;
  must(runtime().hcccCommCan(comm->of, "Allreduce", -1, hcccFloat32, hcccSum, &can));
  word.standard = can != hcccCanNot;
  for (const Times &one : comm->times) word.times = word.times * 31 + one.hash;
  const Vendor *const of = vendor();
  word.has_vendor = of != nullptr;
  if (of && !comm->rank) vendors(of->ncclGetUniqueId(&word.id));
  return word;
}

void compare(const All &all) {
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].has_vendor != all[0].has_vendor)
      throw Failed{ncclInvalidUsage, "HCCC_NCCL_FALLBACK is set at some ranks only: ranks 0 and " +
                                         std::to_string(r) + " differ"};
    if (all[r].times != all[0].times)
      throw Failed{ncclInvalidUsage, "HCCC_LIBRARIES has other tables of times at ranks 0 and " + std::to_string(r)};
    if (all[r].has_vendor && all[r].standard != all[0].standard)
      throw Failed{ncclInvalidUsage, "some ranks make standard libraries and others do not (HCCC_STANDARD): ranks 0 "
                                     "and " + std::to_string(r) + " differ"};
  }
}

// Makes the vendor's communicators of ranks, together.
void attach(const std::vector<ncclComm_t> &comms, const std::vector<All> &told) {
  const Vendor *const of = vendor();
  if (!of) return;
  const SameDevice same;
  vendors(of->ncclGroupStart());
  ncclResult_t begun = ncclSuccess;
  for (size_t k = 0; k < comms.size() && begun == ncclSuccess; ++k) {
    if (!on_cpu(comms[k])) runtime().hcccrtSetDevice(comms[k]->device);
    begun = of->ncclCommInitRank(&comms[k]->vendor, comms[k]->n_ranks, told[k][0].id, comms[k]->rank);
  }
  const ncclResult_t ended = of->ncclGroupEnd();
  vendors(begun != ncclSuccess ? begun : ended);
}

}  // namespace

void make_ready(const std::vector<ncclComm_t> &comms) {
  const std::vector<std::string> files = named_libraries();
  std::vector<All> told;
  for (const ncclComm_t comm : comms) {
    must(runtime().hcccCommCount(comm->of, &comm->n_ranks));
    must(runtime().hcccCommUserRank(comm->of, &comm->rank));
    if (!on_cpu(comm)) must(runtime().hcccCommCuDevice(comm->of, &comm->device));
    told.emplace_back(static_cast<size_t>(comm->n_ranks));
    read_all_times(files, comm);
  }
  // Before libraries are loaded, which are the same everywhere.
  for (size_t k = 0; k < comms.size(); ++k)
    told[k][static_cast<size_t>(comms[k]->rank)] = own_word(comms[k]);
  grouped([&] {
    for (const ncclComm_t comm : comms)
      for (const std::string &file : files)
        if (is_for(file, comm)) must(runtime().hcccCommLoad(comm->of, file.c_str()));
  });
  grouped([&] {
    for (size_t k = 0; k < comms.size(); ++k)
      must(runtime().hcccCommGatherBytes(comms[k]->of, told[k].data(), sizeof(Told)));
  });
  for (const All &one : told) compare(one);
  attach(comms, told);
}

}  // namespace hccc_nccl
