// apart.h: loads a vendor's library beside ours.
#pragma once

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include <vector>

namespace hccc::vendor {

// Loads a library that finds names in itself and its own libraries first, until the process ends. Null: dlerror()
// says why.
inline void *open_apart(const char *path) {
  // A program that is not position-independent (Debian's python) has `environ` as its own. Libc's, which such a library
  // finds, is null then: it gets the variables of now, for what setenv() replaces is freed.
  if (void *const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD)) {
    auto *const variables = static_cast<char ***>(dlsym(libc, "environ"));
    if (variables && variables != &environ && !*variables) {
      auto *const now = new std::vector<char *>;  // until the process ends
      for (char **one = environ; one && *one; ++one) now->push_back(strdup(*one));
      now->push_back(nullptr);
      *variables = now->data();
    }
    dlclose(libc);
  }
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND | RTLD_NODELETE);
}

}  // namespace hccc::vendor
