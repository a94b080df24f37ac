#include "library.h"

#include <dlfcn.h>
#include <link.h>
#include <link.h>

#include <cstdlib>

namespace hccc::transport {
namespace {

constexpr const char *NAME = "libucp.so.0";
constexpr const char *VARIABLE = "HCCC_UCX_LIBRARY";
constexpr const char *ADVICE =
    "install it (apt-get install libucx0, or pip install libucx-cu12) or name its libucp.so in "
    "HCCC_UCX_LIBRARY";

// Opens UCX: the named one, else one that the process has loaded, else the loader's. It stays
// loaded: UCX's threads and its hooks of memory functions run its code.
void *search(std::string &why) {
  // The program handles its crashes and its output, not UCX.
  setenv("UCX_HANDLE_ERRORS", "none", 0);
  setenv("UCX_LOG_FILE", "stderr", 0);
  const char *named = std::getenv(VARIABLE);
  const bool is_named = named && *named;
  if (!is_named)
    if (void *handle = dlopen(NAME, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE)) return handle;
  void *handle = dlopen(is_named ? named : NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle) return handle;
  const char *error = dlerror();
  why = std::string("UCX was not found: ") + (is_named ? "$HCCC_UCX_LIBRARY: " : "") +
        (error ? error : "?") + "; " + ADVICE;
  return nullptr;
}

// Binds all functions and returns the first that is missing; null: none.
const char *bind(void *handle, Ucx &u) {
  const char *missing = nullptr;
#define HCCC_UCP_BIND(name, result, parameters)                                  \
  u.name = reinterpret_cast<decltype(u.name)>(dlsym(handle, #name));             \
  if (!u.name && !missing) missing = #name;
  HCCC_UCP_FUNCTIONS(HCCC_UCP_BIND)
#undef HCCC_UCP_BIND
  return missing;
}

// Checks the version and returns what is wrong with it; empty: nothing.
std::string check(Ucx &u, const char *missing) {
  if (!u.ucp_get_version) return "is no UCX";
  u.ucp_get_version(&u.major, &u.minor, &u.release);
  u.version = std::to_string(u.major) + "." + std::to_string(u.minor) + "." +
              std::to_string(u.release);
  if (u.major != ucp::API_MAJOR || u.minor < ucp::API_MINOR)
    return "is UCX " + u.version + ", and 1.12 or a later 1.x is needed";
  return missing ? "is UCX " + u.version + " without " + missing : "";
}

Ucx load() {
  Ucx u;
  void *handle = search(u.text);
  if (!handle) return u;
  link_map *map = nullptr;
  u.text = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : NAME;
  const std::string wrong = check(u, bind(handle, u));
  u.usable = wrong.empty();
  u.text = u.usable ? "UCX " + u.version + ", " + u.text : u.text + " " + wrong + ": " + ADVICE;
  return u;
}

}  // namespace

const Ucx &ucx() {
  static const Ucx found = load();
  return found;
}

}  // namespace hccc::transport
