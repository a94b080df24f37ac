// libraries.cpp: loads libraries, checks them, and finds those of a call.
#include "libraries.h"

#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <mutex>
#include <sstream>

#include "error.h"

namespace hccc {
namespace {

// kind: NumPy's letter.
struct Type {
  const char *name;
  int bytes;
  char kind;
};
constexpr Type TYPES[] = {
    {"int8", 1, 'i'},       {"uint8", 1, 'u'},      {"int32", 4, 'i'},     {"uint32", 4, 'u'},
    {"int64", 8, 'i'},      {"uint64", 8, 'u'},     {"float16", 2, 'f'},   {"float32", 4, 'f'},
    {"float64", 8, 'f'},    {"bfloat16", 2, 'f'},   {"float8e4m3", 1, 'f'}, {"float8e5m2", 1, 'f'},
    {"int16", 2, 'i'},      {"uint16", 2, 'u'},     {"bool", 1, 'b'},      {"complex64", 8, 'c'},
    {"complex128", 16, 'c'}};
// kinds: of the types that it is for.
constexpr int FIRST_OWN = 1 << 16;  // numbers of the program's own reductions

struct Reduction {
  const char *name, *kinds;
};
constexpr Reduction OPS[] = {{"sum", "biufc"}, {"prod", "biufc"}, {"max", "biuf"}, {"min", "biuf"},
                             {"avg", "iufc"},  {"band", "biu"},   {"bor", "biu"},  {"bxor", "biu"},
                             {"land", "biu"},  {"lor", "biu"},  {"premul_sum", "iuf"}};
static_assert(sizeof TYPES / sizeof *TYPES == hcccNumTypes, "all types have names");
static_assert(sizeof OPS / sizeof *OPS == hcccNumOps, "all reductions have names");

// The programs' own reductions of the libraries that this process has loaded, by their numbers.
struct OwnReductions {
  std::mutex mutex;
  std::map<int, std::string> names;
};
OwnReductions &own_reductions() {
  static auto *all = new OwnReductions;
  return *all;
}

int number_of(const std::string &name) {
  uint32_t hash = 0x811c9dc5u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;  // FNV-1a
  return FIRST_OWN + static_cast<int>(hash % static_cast<uint32_t>(hcccMaxRedOp - FIRST_OWN));
}

const hccc_library *describe(void *handle, const std::string &path) {
  void *found = dlsym(handle, "hccc_this_library");
  if (!found)
    throw Error(hcccInvalidArgument, path + " is no library of kernels that hccc emitted");
  return reinterpret_cast<hccc_library_function *>(found)();
}

void check(const hccc_library &description, const std::string &path, int n_ranks, const char *target) {
  if (description.size != sizeof description || description.abi != HCCC_ABI)
    throw Error(hcccInvalidArgument, path + " was emitted by another version of hccc; emit it again");
  if (strcmp(description.target, target))
    throw Error(hcccInvalidArgument, text_of("%s is for %s, and memory of the communicator is the %s's: see "
                                             "HCCC_PLATFORM and HCCC_HEAP",
                                             path.c_str(), description.target, target));
  if (description.n_ranks != n_ranks)
    throw Error(hcccInvalidArgument, text_of("%s is for %d ranks, the communicator has %d",
                                             path.c_str(), description.n_ranks, n_ranks));
}

}  // namespace

const char *name_of_type(int type) {
  return type >= 0 && type < hcccNumTypes ? TYPES[type].name : nullptr;
}
int bytes_of_type(int type) { return TYPES[type].bytes; }
const char *name_of_moved(int bytes) {  // MOVED_AS of dtypes.py
  return bytes == 1   ? "uint8"
         : bytes == 2 ? "float16"
         : bytes == 4 ? "uint32"
         : bytes == 8 ? "uint64"
                      : "complex128";
}
bool is_own(int op) { return op >= FIRST_OWN; }
const char *name_of_op(int op) {
  if (!is_own(op)) return op >= 0 && op < hcccNumOps ? OPS[op].name : nullptr;
  OwnReductions &own = own_reductions();
  std::lock_guard<std::mutex> lock(own.mutex);
  const auto found = own.names.find(op);
  return found == own.names.end() ? nullptr : found->second.c_str();
}
int op_of(const std::string &name) {
  for (int op = 0; op < hcccNumOps; ++op)
    if (name == OPS[op].name) return op;
  const int op = number_of(name);
  const char *known = name_of_op(op);
  if (known && name == known) return op;
  throw Error(hcccInvalidArgument, text_of("no library that is loaded has a reduction '%s'", name.c_str()));
}
int op_of_own(const std::string &name) {
  const int op = number_of(name);
  OwnReductions &own = own_reductions();
  std::lock_guard<std::mutex> lock(own.mutex);
  const std::string &known = own.names.emplace(op, name).first->second;
  if (known != name)
    throw Error(hcccInvalidUsage, text_of("the reductions %s and %s of two libraries have one number: rename one",
                                          known.c_str(), name.c_str()));
  return op;
}
bool has_op(int type, int op) { return is_own(op) || strchr(OPS[op].kinds, TYPES[type].kind); }

Library::Library(const std::string &path, int n_ranks, const char *target, bool standard) : standard_(standard) {
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) throw Error(hcccInvalidArgument, dlerror());
  try {
    description_ = describe(handle_, path);
    check(*description_, path, n_ranks, target);
    for (int type = 0; type < hcccNumTypes; ++type)
      for (int op = 0; op < hcccNumOps; ++op)
        if (!refuses(type, OPS[op].name)) built_.set(place_of(type, op));
    std::istringstream names(description_->own_ops);
    for (std::string name; names >> name;) {
      std::bitset<hcccNumTypes> &types = built_of_own_[op_of_own(name)];
      for (int type = 0; type < hcccNumTypes; ++type)
        if (!refuses(type, name.c_str())) types.set(static_cast<size_t>(type));
    }
  } catch (...) {
    dlclose(handle_);
    throw;
  }
}

Library::~Library() { dlclose(handle_); }

// Returns whether an entry was not built; one that was refuses a null call for another reason.
bool Library::refuses(int type, const char *op) const {
  return description_->launch(nullptr, nullptr, TYPES[type].name, op, nullptr) == HCCC_NOT_BUILT;
}

bool Library::built_for(int type, int op) const {
  if (!is_own(op)) return built_.test(place_of(type, op));
  const auto found = built_of_own_.find(op);
  return found != built_of_own_.end() && found->second.test(static_cast<size_t>(type));
}

Library::Built Library::built() const {
  Built made{};
  for (size_t at = 0; at < built_.size(); ++at) made[at / 64] |= uint64_t{built_.test(at)} << at % 64;
  return made;
}

void Library::keep(const Built &of_all) {
  for (size_t at = 0; at < built_.size(); ++at) {
    if (!built_.test(at) || of_all[at / 64] >> at % 64 & 1) continue;
    built_.reset(at);
    dropped_.set(at);
  }
}

std::string Library::not_built_text(int type, int op) const {
  std::string made = text_of("%s is not built for %s, %s", description_->name, name_of_type(type), name_of_op(op));
  if (!is_own(op) && dropped_.test(place_of(type, op))) made += ", at another rank";
  return made + text_of(": load it for that too, in Python comm.load(PATH, [\"%s\"], [\"%s\"]), or build it with CMake's "
                        "HCCC_DTYPES and HCCC_OPS",
                        name_of_type(type), name_of_op(op));
}

bool Library::does(const Wanted &wanted) const {
  if (wanted.library) return !strcmp(description_->name, wanted.library);
  return !strcmp(description_->collective, wanted.collective) && description_->root == wanted.root;
}

bool Library::turns() const {
  const hccc_library &of = *description_;
  if (strcmp(of.collective, "Broadcast") != 0 && strcmp(of.collective, "Reduce") != 0) return false;
  for (int r = 1; of.domain && r < of.n_ranks; ++r)
    if (of.domain[r] != of.domain[0]) return false;
  return !strcmp(of.target, "cpu");
}

int Library::turn_of(const Wanted &wanted) const {
  if (wanted.library || wanted.root < 0) return 0;
  return (wanted.root - description_->root + description_->n_ranks) % description_->n_ranks;
}

void Library::load_kernels() const {
  void *found = dlsym(handle_, "hccc_load_kernels");
  if (!found || reinterpret_cast<hccc_load_function *>(found)() == HCCC_OK) return;
  throw Error(hcccUnhandledDeviceError, text_of("%s: the device refused to load its kernels", description_->name));
}

void Libraries::add(std::unique_ptr<Library> library) {
  const auto same = std::find_if(loaded_.begin(), loaded_.end(), [&](const auto &one) {
    return one->description().digest == library->description().digest;
  });
  if (same != loaded_.end()) {
    library->place_flags((*same)->flags_at(0));
  } else {
    library->place_flags(flag_bytes_);
    flag_bytes_ += library->all_flag_bytes();
  }
  loaded_.push_back(std::move(library));
}

// Returns the last library loaded that passes, or null.
template <class Passes>
const Library *Libraries::last(const Passes &passes) const {
  const auto found = std::find_if(loaded_.rbegin(), loaded_.rend(), [&](const auto &one) { return passes(*one); });
  return found == loaded_.rend() ? nullptr : found->get();
}

const Library *Libraries::last(const Wanted &wanted, bool standard, bool built) const {
  const auto passes = [&](const Library &one, bool turned) {
    if (one.standard() != standard || (built && !one.built_for(wanted.type, wanted.op))) return false;
    if (!turned) return one.does(wanted);
    Wanted its = wanted;
    its.root = one.description().root;
    return !wanted.library && wanted.root < one.description().n_ranks && one.turns() && one.does(its);
  };
  for (const bool turned : {false, true})
    if (const Library *found = last([&](const Library &one) { return passes(one, turned); })) return found;
  return nullptr;
}

const Library *Libraries::find(const Wanted &wanted) const {
  if (const Library *own = last(wanted, false, false)) {
    const uint64_t digest = own->description().digest;
    const auto same = [&](const Library &one) {
      return one.description().digest == digest && one.built_for(wanted.type, wanted.op);
    };
    if (const Library *found = last(same)) return found;
  }
  return wanted.library ? nullptr : last(wanted, true, true);
}

const Library &Libraries::fit(const Wanted &wanted) const {
  if (const Library *found = find(wanted)) return *found;
  const Library *first = last(wanted, false, false);
  if (first)
    throw Error(hcccInvalidUsage, first->not_built_text(wanted.type, wanted.op));
  const std::string what = wanted.library ? text_of("is called %s", wanted.library)
                           : wanted.root < 0
                               ? text_of("does %s", wanted.collective)
                               : text_of("does %s with root %d", wanted.collective, wanted.root);
  throw Error(hcccInvalidUsage, "no library is loaded that " + what);
}

}  // namespace hccc
