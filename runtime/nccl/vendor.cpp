// vendor.cpp: loads the vendor's library, with its own names before those of this one.
#include "vendor.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <memory>

#include "../communicator/log.h"
#include "../vendor/apart.h"
#include "failed.h"

namespace hccc_nccl {
namespace {

constexpr const char *VARIABLE = "HCCC_NCCL_FALLBACK";

struct Found {
  Vendor functions;
  std::string wrong;  // empty: it serves
};

// Binds its functions, and returns the first of those it must have that is missing; null: none.
const char *bind(void *handle, Vendor &to) {
  const char *missing = nullptr;
#define FIND(name) to.name = reinterpret_cast<decltype(to.name)>(dlsym(handle, #name));
#define FIND_OR_MISS(name) \
  FIND(name)               \
  if (!to.name && !missing) missing = #name;
  HCCC_VENDOR_CALLS(FIND_OR_MISS)
  HCCC_VENDOR_MAY_HAVE(FIND)
#undef FIND_OR_MISS
#undef FIND
  return missing;
}

// Checks what was loaded, and returns what is wrong with it.
std::string wrong_with(Vendor &of, const char *missing) {
  if (!of.ncclGetVersion) return "is no NCCL: it has no ncclGetVersion";
  if (of.ncclGetVersion == &::ncclGetVersion) return "is this library: name the vendor's own";
  if (of.ncclGetVersion(&of.version) != ncclSuccess) return "does not say its version";
  if (of.version < 2000) return "is version " + std::to_string(of.version) + ", and 2 is needed";
  return missing ? "is version " + std::to_string(of.version) + " without " + missing : "";
}

Found load(const char *path) {
  Found made;
  const std::string named = std::string("$") + VARIABLE + ": ";
  void *const handle = hccc::vendor::open_apart(path);
  if (!handle) {
    made.wrong = named + dlerror();
    return made;
  }
  const std::string wrong = wrong_with(made.functions, bind(handle, made.functions));
  if (!wrong.empty()) made.wrong = named + path + " " + wrong;
  HCCC_LOG(INFO, INIT, -1, "the vendor's library: %s, version %d%s", path, made.functions.version,
           wrong.empty() ? "" : ", cannot serve");
  return made;
}

// Returns what the variable names; without a value nothing.
const std::unique_ptr<const Found> &named() {
  static const auto found = [] {
    const char *const path = getenv(VARIABLE);
    return path && *path ? std::make_unique<const Found>(load(path)) : nullptr;
  }();
  return found;
}

}  // namespace

const Vendor *vendor() {
  const Found *const found = named().get();
  if (!found) return nullptr;
  if (!found->wrong.empty()) throw Failed{ncclSystemError, found->wrong};
  return &found->functions;
}

void vendors(ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const Vendor &of = *vendor();
  const char *const said = of.ncclGetLastError ? of.ncclGetLastError(nullptr) : nullptr;
  const std::string more = said && *said ? std::string(": ") + said : "";
  throw Failed{result, std::string("the vendor's library: ") + of.ncclGetErrorString(result) + more};
}

}  // namespace hccc_nccl
