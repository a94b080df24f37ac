// runtime.cpp: loads libhccc from the folder that this library was loaded from.
#include "runtime.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include <fstream>
#include <vector>

#include "failed.h"

namespace hccc_nccl {
namespace {

std::string folder() {
  Dl_info found{};
  const char *const here = dladdr(reinterpret_cast<void *>(&runtime), &found) && found.dli_fname ? found.dli_fname : "";
  const std::string path = here;
  return path.substr(0, path.rfind('/') + 1);
}

// The file behind a link, so that a process which has loaded it has it once.
std::string resolved(const std::string &path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) ? real : path;
}

// Has standard libraries made by the command of the hccc that built this library, whose words are
// lines of a file; HCCC_COMMAND goes before.
void set_command(const Runtime &of, const std::string &file) {
  const char *const own = getenv("HCCC_COMMAND");
  std::ifstream lines(file);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  if ((own && *own) || all.empty()) return;
  std::vector<const char *> words;
  for (const std::string &one : all) words.push_back(one.c_str());
  words.push_back(nullptr);
  of.hcccSetCommand(words.data());
}

struct Loaded {
  Runtime functions;
  std::string wrong;
};

Loaded load() {
  Loaded made;
  const std::string at = resolved(folder() + "libhccc.so");
  void *const handle = dlopen(at.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    made.wrong = std::string(dlerror()) + ": `hccc nccl --path` builds it anew";
    return made;
  }
#define FIND(name)                                                                                            \
  made.functions.name = reinterpret_cast<decltype(made.functions.name)>(dlsym(handle, #name));                \
  if (!made.functions.name) made.wrong = at + " has no " #name ": `hccc nccl --path` builds it anew";
  HCCC_NCCL_CALLS(FIND)
#undef FIND
  if (made.wrong.empty()) set_command(made.functions, folder() + "command");
  return made;
}

}  // namespace

const Runtime &runtime() {
  static const Loaded found = load();
  if (!found.wrong.empty()) throw Failed{ncclSystemError, found.wrong};
  return found.functions;
}

}  // namespace hccc_nccl
