// standard.h: the libraries of standard collectives, which `hccc standard` makes when a call first
// needs one, and which are kept in the user's cache. A platform wheel brings some, beside this library.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libraries.h"

namespace hccc {

// The library of a call without one: which it is, and where it lies.
class StandardLibrary {
 public:
  // host_of: of each rank, numbered in the order of their lowest ranks; target: what its kernels are
  // for; arch: the kind of GPU, "" on the CPU. Throws Error where there is no place for it that only
  // this user can write to.
  StandardLibrary(const Wanted &wanted, const std::vector<int> &host_of, const std::string &target,
                  const std::string &arch);

  // Returns whether calls of a collective get such a library. HCCC_STANDARD=0 turns them off.
  static bool serves(const char *collective);

  // Places where it may lie: this user's cache, and the package. Values are bits.
  enum Place { NOWHERE = 0, CACHE = 1, PACKAGE = 2 };

  // Returns its file in a place.
  const std::string &file(Place place) const { return place == PACKAGE ? packaged_ : file_; }
  // Describes it: "Allreduce of float32, sum, for 8 ranks".
  std::string text() const;
  // Hashes all that it is made of, the same at all ranks that make the same call.
  uint64_t identity() const { return identity_; }
  // Returns the places where it lies, built for the call's type and reduction, and can be changed by
  // this user alone, or by those alone who can change the package.
  int places() const;
  // Makes it in the cache, in a child process. stopped: asked ten times a second, ends it. Throws Error.
  void make(const std::function<bool()> &stopped) const;

 private:
  bool in_cache() const;
  std::vector<std::string> command() const;

  std::string collective_, hosts_, target_, type_, op_, file_, packaged_;
  int root_, n_ranks_, of_type_, of_op_;
  uint64_t identity_ = 0;
};

// Sets the words of the command that makes them, before `standard`; none: those of HCCC_COMMAND, or
// `hccc`.
void set_maker(std::vector<std::string> words);

}  // namespace hccc
