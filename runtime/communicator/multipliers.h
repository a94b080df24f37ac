// multipliers.h: the reductions of a communicator that multiply first, each with its scalar.
#pragma once

#include <map>
#include <mutex>

#include "libraries.h"

namespace hccc {

class Multipliers {
 public:
  // Makes a reduction. at: the scalar, read now if it is immediate. Throws Error.
  int make(const void *at, int type, bool immediate);
  // Ends one. Throws Error where there is none of that number.
  void end(int op);
  // Sets a call's reduction and scalar, if its number is one of these or was. Throws Error where it is of another
  // type, was ended, or is premul_sum's own, which has no scalar.
  void resolve(Wanted &wanted) const;

 private:
  struct Made {
    int type;
    Scalar scalar;
  };
  mutable std::mutex mutex_;
  std::map<int, Made> made_;
  int next_ = 0;  // past the first number
};

}  // namespace hccc
