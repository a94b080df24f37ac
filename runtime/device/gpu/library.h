// library.h: a vendor's runtime, loaded at its first use, and conversion of values to its own.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../generated/table.h"

namespace hcccrt {

class Library {
 public:
  Library(const char *variable, const char *folder, const char *const *names, size_t n_names,
          const char *const *symbols, size_t n_symbols)
      : variable_(variable), folder_(folder), names_(names), n_names_(n_names),
        symbols_(symbols), n_symbols_(n_symbols) {}

  // Finds the first of the functions that the runtime has; null: none.
  template <class F>
  F *function(std::initializer_list<int> symbols) {
    open();
    for (const int symbol : symbols)
      if (found_[symbol]) return reinterpret_cast<F *>(found_[symbol]);
    return nullptr;
  }

  // Returns whether there is a runtime; `text`: its path, or why not.
  bool open() {
    std::call_once(once_, [this] {
      found_.assign(n_symbols_, nullptr);
      handle_ = search();
      if (!handle_) return;
      link_map *map = nullptr;
      text = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "?";
      for (size_t i = 0; i < n_symbols_; ++i) found_[i] = dlsym(handle_, symbols_[i]);
    });
    return handle_ != nullptr;
  }

  std::string text;

 private:
  // Loads the named runtime, else one that the process has loaded (PyTorch's, CuPy's), else the
  // newest.
  void *search() {
    if (const char *path = std::getenv(variable_); path && *path)
      return attempt(path, std::string("$") + variable_ + ": ");
    for (size_t i = 0; i < n_names_; ++i)
      if (void *handle = dlopen(names_[i], RTLD_NOW | RTLD_NOLOAD)) return handle;
    for (size_t i = 0; i < n_names_; ++i) {
      if (void *handle = attempt(names_[i], "")) return handle;
      if (void *handle = attempt(std::string(folder_) + "/" + names_[i], "")) return handle;
    }
    text = "none of " + std::string(names_[0]) + " … " + names_[n_names_ - 1] +
           " was found by the loader or in " + folder_ + " (" + broken_ + "); " + variable_ +
           " may name one";
    return nullptr;
  }

  void *attempt(const std::string &path, const std::string &before) {
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) return handle;
    const char *why = dlerror();
    text = before + (why ? why : path);
    // The error of a file that exists says more than that of a missing one.
    if (broken_.empty() || text.find("No such file") == std::string::npos) broken_ = text;
    return nullptr;
  }

  const char *variable_, *folder_;
  const char *const *names_;
  size_t n_names_;
  const char *const *symbols_;
  size_t n_symbols_;
  std::once_flag once_;
  void *handle_ = nullptr;
  std::vector<void *> found_;
  std::string broken_;
};

// A value of hcccrt and the platform's.
struct Value {
  int own, native;
  bool has;
};

inline hcccrtError_t error_of(int native, const Value *values, size_t n, int unnamed) {
  for (size_t i = 0; i < n; ++i)
    if (values[i].has && values[i].native == native)
      return static_cast<hcccrtError_t>(values[i].own);
  return static_cast<hcccrtError_t>(unnamed + native);
}

inline hcccrtError_t value_of(int own, const Value *values, size_t n, int *native) {
  for (size_t i = 0; i < n; ++i)
    if (values[i].own == own) {
      *native = values[i].native;
      return values[i].has ? hcccrtSuccess : hcccrtErrorNotSupported;
    }
  return hcccrtErrorInvalidValue;
}

inline hcccrtError_t bits_of(unsigned own, const Value *values, size_t n, int *native) {
  unsigned known = 0, result = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto bit = static_cast<unsigned>(values[i].own);
    known |= bit;
    if (!(own & bit)) continue;
    if (!values[i].has) return hcccrtErrorNotSupported;
    result |= static_cast<unsigned>(values[i].native);
  }
  *native = static_cast<int>(result);
  return own & ~known ? hcccrtErrorInvalidValue : hcccrtSuccess;
}

// Counts the devices; `text` gets what was found, or why there are none.
inline bool has_devices(Library &library, int (*count)(int *), int (*version)(int *),
                        const char *(*string)(int), std::string *text) {
  int n = 0, number = 0;
  const int error = count(&n);
  *text = library.text;
  if (version && version(&number) == 0) *text += ", version " + std::to_string(number);
  if (error == 0 && n > 0) {
    *text += ", " + std::to_string(n) + (n == 1 ? " device" : " devices");
    return true;
  }
  *text += ": no device";
  if (error) *text += std::string(" (") + (string ? string(error) : std::to_string(error)) + ")";
  return false;
}

}  // namespace hcccrt
