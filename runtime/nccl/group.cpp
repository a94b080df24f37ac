// group.cpp: groups: libhccc's, and what is done at their end: new communicators made ready, and
// calls of the vendor's.
#include <dirent.h>
#include <dlfcn.h>
#include <hccc/library.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "../communicator/log.h"
#include "comm.h"

namespace hccc_nccl {

void must(hcccResult_t result) {
  if (result != hcccSuccess) throw Failed{result_of(result), runtime().hcccGetLastError(nullptr)};
}

void check(const void *pointer, const char *what) {
  if (!pointer) throw Failed{ncclInvalidArgument, std::string(what) + " is null"};
}

void check(ncclComm_t comm) {
  check(comm, "the communicator");
  if (!comm->of) throw Failed{ncclInvalidUsage, "the communicator is made when the group ends: end it first"};
}

Said said(const std::string &text) {
  static std::atomic<uint64_t> number{0};
  return {++number, text};
}

Said &thread_said() {
  static thread_local Said last;
  return last;
}

bool on_cpu(ncclComm_t comm) {
  const char *platform = "";
  must(runtime().hcccCommPlatform(comm->of, &platform));
  return !strcmp(platform, "cpu");
}

void *stream_of(ncclComm_t comm, cudaStream_t stream) {
  constexpr uintptr_t PER_THREAD = 2;  // cudaStreamLegacy is 1
  if (reinterpret_cast<uintptr_t>(stream) > PER_THREAD) return stream;
  return on_cpu(comm) ? nullptr : static_cast<void *>(stream);
}

void abandon(ncclComm_t comm) {
  if (comm->vendor) vendor()->ncclCommAbort(comm->vendor);
  if (comm->of) runtime().hcccCommAbort(comm->of);
  for (Registered *one : comm->registered) delete one;
  delete comm;
}

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

// Lists the shared libraries of a folder and of `build/` in it, by their names.
void list(const std::string &folder, std::vector<std::string> &files) {
  DIR *const open = opendir(folder.c_str());
  if (!open) return;
  std::vector<std::string> found;
  while (const dirent *entry = readdir(open)) {
    const std::string name = entry->d_name;
    if (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0) found.push_back(folder + "/" + name);
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
      throw Failed{ncclInvalidUsage, "$HCCC_LIBRARIES: " + one + " has no shared library, nor has its build/: `cmake -S " +
                                         one + " -B " + one + "/build && cmake --build " + one + "/build`"};
  }
  return files;
}

// Returns whether a file is for so many ranks; what is no library of kernels is left to libhccc, which
// says what is wrong with it.
bool is_for(const std::string &file, int n_ranks) {
  void *const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void *const found = handle ? dlsym(handle, "hccc_this_library") : nullptr;
  const bool fits = !found || reinterpret_cast<hccc_library_function *>(found)()->n_ranks == n_ranks;
  if (handle) dlclose(handle);
  return fits;
}

// What ranks tell each other of a new communicator.
struct Told {
  int has_vendor, standard;
  ncclUniqueId id;  // of rank 0's vendor
};
using All = std::vector<Told>;

Told own_word(ncclComm_t comm) {
  Told word{};
  hcccCan_t can = hcccCanNot;
  must(runtime().hcccCommCan(comm->of, "Allreduce", -1, hcccFloat32, hcccSum, &can));
  word.standard = can != hcccCanNot;
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
    if (all[r].has_vendor && all[r].standard != all[0].standard)
      throw Failed{ncclInvalidUsage, "some ranks make standard libraries and others do not (HCCC_STANDARD): ranks 0 and " +
                                         std::to_string(r) + " differ"};
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

// Loads the libraries of HCCC_LIBRARIES, and makes the vendor's communicators.
void make_ready(const std::vector<ncclComm_t> &comms) {
  const std::vector<std::string> files = named_libraries();
  std::vector<All> told;
  for (const ncclComm_t comm : comms) {
    must(runtime().hcccCommCount(comm->of, &comm->n_ranks));
    must(runtime().hcccCommUserRank(comm->of, &comm->rank));
    if (!on_cpu(comm)) must(runtime().hcccCommCuDevice(comm->of, &comm->device));
    told.emplace_back(static_cast<size_t>(comm->n_ranks));
  }
  grouped([&] {
    for (const ncclComm_t comm : comms)
      for (const std::string &file : files) {
        if (is_for(file, comm->n_ranks)) must(runtime().hcccCommLoad(comm->of, file.c_str()));
        else HCCC_LOG(INFO, INIT, comm->rank, "%s is for other numbers of ranks than %d", file.c_str(), comm->n_ranks);
      }
  });
  for (size_t k = 0; k < comms.size(); ++k)
    told[k][static_cast<size_t>(comms[k]->rank)] = own_word(comms[k]);
  grouped([&] {
    for (size_t k = 0; k < comms.size(); ++k)
      must(runtime().hcccCommGatherBytes(comms[k]->of, told[k].data(), sizeof(Told)));
  });
  for (const All &one : told) compare(one);
  attach(comms, told);
}

struct Made {
  ncclComm_t comm, *out;
};

// Makes new communicators ready. Those that libhccc has not made (of a split without a color) are
// none; where one fails, none is left.
void finish(const std::vector<Made> &all, bool usable) {
  std::vector<ncclComm_t> comms;
  for (const Made &one : all) {
    if (usable && one.comm->of) {
      comms.push_back(one.comm);
    } else {
      abandon(one.comm);
      *one.out = nullptr;
    }
  }
  if (comms.empty()) return;
  try {
    make_ready(comms);
  } catch (...) {
    for (const Made &one : all)
      if (*one.out) abandon(one.comm), *one.out = nullptr;
    throw;
  }
}

struct Open {
  int depth = 0;
  std::vector<Made> made;
  std::vector<std::function<ncclResult_t()>> vendors;
  ncclResult_t code = ncclSuccess;  // of the first call that failed
  std::string text;
};
thread_local Open current;

// Makes the vendor's calls of a group.
void run(const std::vector<std::function<ncclResult_t()>> &calls) {
  if (calls.empty()) return;
  vendors(vendor()->ncclGroupStart());
  ncclResult_t begun = ncclSuccess;
  for (const auto &call : calls)
    if (begun == ncclSuccess) begun = call();
  const ncclResult_t ended = vendor()->ncclGroupEnd();
  vendors(begun != ncclSuccess ? begun : ended);
}

}  // namespace

namespace group {

bool open() { return current.depth > 0; }

void start() {
  if (!current.depth) must(runtime().hcccGroupStart());
  ++current.depth;
}

void end() {
  if (!current.depth) throw Failed{ncclInvalidUsage, "no group is open"};
  if (current.depth > 1) {
    --current.depth;
    return;
  }
  const Open ended = std::exchange(current, {});
  if (ended.code != ncclSuccess) {
    runtime().hcccGroupCancel();
    finish(ended.made, false);
    throw Failed{ended.code, ended.text};
  }
  const hcccResult_t result = runtime().hcccGroupEnd();
  const std::string text = result ? runtime().hcccGetLastError(nullptr) : "";
  finish(ended.made, result == hcccSuccess);
  if (result != hcccSuccess) throw Failed{result_of(result), text};
  run(ended.vendors);
}

void made(ncclComm_t comm, ncclComm_t *out) {
  *out = comm;
  if (open()) current.made.push_back({comm, out});
  else finish({{comm, out}}, true);
}

void at_vendor(std::function<ncclResult_t()> call) {
  if (open()) current.vendors.push_back(std::move(call));
  else vendors(call());
}

void failed(const Failed &failed) {
  if (open() && current.code == ncclSuccess) current.code = failed.code, current.text = failed.text;
}

}  // namespace group
}  // namespace hccc_nccl

NCCL_FUNCTION(ncclGroupStart, (void)) {
  return hccc_nccl::caught(nullptr, [] { hccc_nccl::group::start(); });
}

NCCL_FUNCTION(ncclGroupEnd, (void)) {
  return hccc_nccl::caught(nullptr, [] { hccc_nccl::group::end(); });
}

NCCL_FUNCTION(ncclGroupSimulateEnd, (void *)) {
  return hccc_nccl::caught(nullptr, [] {
    hccc_nccl::group::failed({ncclInvalidUsage, "no times are simulated here: `hccc sim` predicts them"});
    hccc_nccl::group::end();
  });
}
