// device_combine.cpp: finds, makes and loads the library of a reduction.
#include "device_combine.h"

#include <dlfcn.h>

#include <string>

#include "../communicator/error.h"
#include "../communicator/log.h"
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

const DeviceCombine *DeviceCombines::of(const Device &device, int type, int op, int rank,
                                        const std::function<bool()> &stopped) {
  const auto [at, is_new] = known_.emplace(std::make_pair(type, op), std::nullopt);
  std::optional<DeviceCombine> &one = at->second;
  if (is_new) try {
      one = loaded(device, type, op, stopped);
      HCCC_LOG(INFO, COLL, rank, "%s of %s at borders: on the device", name_of_op(op), name_of_type(type));
    } catch (const Error &error) {
      HCCC_LOG(INFO, COLL, rank, "%s of %s at borders: by the host, as no kernel does it: %s", name_of_op(op),
               name_of_type(type), error.what());
    }
  return one ? &*one : nullptr;
}

}  // namespace hccc::job
