// device_combine.cpp: finds, makes and loads the library of a reduction.
#include "device_combine.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../communicator/error.h"
#include "../communicator/standard.h"

namespace hccc::job {
namespace {

// Loads the functions of `hccc standard --collective combine`. Throws Error: there are none.
DeviceCombine loaded(const Device &device, int type, int op, const std::function<bool()> &stopped) {
  Wanted wanted;
  wanted.collective = "Combine", wanted.type = type, wanted.op = op;
  if (!StandardLibrary::serves(wanted.collective)) throw Error(hcccInvalidUsage, "HCCC_STANDARD=0");
  const StandardLibrary library(wanted, {0}, device.name(), device.arch());
  if (!library.places()) library.make(stopped);
  const std::string &file = library.file(StandardLibrary::CACHE);
  void *const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw Error(hcccSystemError, dlerror());
  DeviceCombine found;
  found.combine = reinterpret_cast<decltype(found.combine)>(dlsym(handle, "hccc_combine"));
  found.divide = reinterpret_cast<decltype(found.divide)>(dlsym(handle, "hccc_divide"));
  const auto loads = reinterpret_cast<int (*)()>(dlsym(handle, "hccc_combine_loads"));
  if (!found.combine || !found.divide || !loads) throw Error(hcccSystemError, file + " has no reduction");
  if (loads()) throw Error(hcccUnhandledDeviceError, "the device refuses to load the kernels of " + file);
  return found;
}

}  // namespace

const DeviceCombine *DeviceCombines::of(const Device &device, int type, int op, const std::function<bool()> &stopped) {
  const auto [at, is_new] = known_.try_emplace({type, op});
  Known &one = at->second;
  if (is_new) try {
      one.functions = loaded(device, type, op, stopped);
    } catch (const Error &error) {
      one.why = error.what();
    }
  return one.functions ? &*one.functions : nullptr;
}

std::vector<bool> libraries_that_reduce(const SavedJob &job, const std::vector<Reduces> &of_ranks) {
  std::vector<bool> made;
  for (const VendorCluster &cluster : job.clusters) {
    const auto all = [&](double Reduces::*by) {
      return std::all_of(cluster.ranks.begin(), cluster.ranks.end(),
                         [&](int r) { return of_ranks[static_cast<size_t>(r)].*by > 0; });
    };
    made.push_back(!all(&Reduces::by_hccc) && all(&Reduces::by_library));
  }
  return made;
}

}  // namespace hccc::job
