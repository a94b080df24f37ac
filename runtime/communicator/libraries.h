// libraries.h: libraries of kernels that a communicator has loaded, and which of them a call takes.
#pragma once

#include <hccc/library.h>

#include <memory>
#include <string>
#include <vector>

namespace hccc {

// One shared library. It stays loaded for as long as this lives.
class Library {
 public:
  // target: where it is to run. Throws Error where there is none, or none for that and so many ranks.
  Library(const std::string &path, int n_ranks, const char *target);
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;
  ~Library();

  const hccc_library &says() const { return *says_; }
  long long flag_bytes() const { return hccc_flags_of(says_->catalogue, says_->catalogue->n_plans); }

  long long flags_at = 0;  // bytes past the beginning of every rank's flags

 private:
  void *handle_ = nullptr;
  const hccc_library *says_ = nullptr;
};

// What a caller asks for. Blocks are of `count` elements.
struct Wanted {
  const char *collective = nullptr;  // as hccc.h has it, or
  const char *library = nullptr;     // the name of a library
  const void *send = nullptr;
  void *receive = nullptr;
  size_t count = 0;
  int type = 0, op = 0, root = -1;
  void *stream = nullptr;  // on a GPU, where null is the default stream
};

const char *name_of_type(int type);   // as generated entries have it; null for none
int bytes_of_type(int type);
const char *name_of_op(int op);

class Libraries {
 public:
  // Several of one digest are one library, built for several types.
  void add(std::unique_ptr<Library> library);
  bool empty() const { return loaded_.empty(); }
  long long flag_bytes() const { return flag_bytes_; }

  // Those that serve a call, the last one loaded first. Throws Error where there is none.
  std::vector<const Library *> fit(const Wanted &wanted) const;

 private:
  std::vector<std::unique_ptr<Library>> loaded_;
  long long flag_bytes_ = 0;
};

}  // namespace hccc
