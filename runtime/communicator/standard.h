// standard.h: the libraries of standard collectives, which `hccc standard` makes when a call first
// needs one, and which are kept in the user's cache.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libraries.h"

namespace hccc {

// The library of a call without one: which it is, and where it lies.
class StandardLibrary {
 public:
  // Throws Error where there is no place for it that only this user can write to.
  StandardLibrary(const Wanted &wanted, int n_ranks);

  // Returns whether calls of a collective get such a library. HCCC_STANDARD=0 turns them off.
  static bool serves(const char *collective);

  const std::string &file() const { return file_; }
  // Describes it: "Allreduce of float32, sum, for 8 ranks".
  std::string text() const;
  // Hashes all that it is made of, the same at all ranks that make the same call.
  uint64_t identity() const { return identity_; }
  // Returns whether it lies there, and belongs to this user alone.
  bool there() const;
  // Makes it, in a child process. stopped: asked ten times a second, ends it. Throws Error.
  void make(const std::function<bool()> &stopped) const;

 private:
  std::vector<std::string> command() const;

  std::string collective_, type_, op_, file_;
  int root_, n_ranks_;
  uint64_t identity_ = 0;
};

// Sets the words of the command that makes them, before `standard`; none: those of HCCC_COMMAND, or
// `hccc`.
void set_maker(std::vector<std::string> words);

}  // namespace hccc
