// multipliers.cpp: reductions that multiply by a scalar before they add.
#include "multipliers.h"

#include <string.h>

#include "error.h"

namespace hccc {
namespace {

// Between the numbers that are there and those of names.
constexpr int FIRST = 1 << 12, MOST = (1 << 16) - FIRST;

}  // namespace

int Multipliers::make(const void *at, int type, bool immediate) {
  if (!name_of_type(type)) throw Error(hcccInvalidArgument, text_of("type %d is none", type));
  if (!has_op(type, hcccPreMulSum))
    throw Error(hcccInvalidArgument, text_of("there is no premul_sum of %s", name_of_type(type)));
  Made made = {type, {0, immediate ? nullptr : at}};
  if (immediate) memcpy(&made.scalar.bits, at, static_cast<size_t>(bytes_of_type(type)));
  std::lock_guard<std::mutex> lock(mutex_);
  if (made_.size() == MOST) throw Error(hcccInvalidUsage, "too many reductions: hcccRedOpDestroy ends one");
  while (!made_.emplace(FIRST + next_, made).second) next_ = (next_ + 1) % MOST;
  const int op = FIRST + next_;
  next_ = (next_ + 1) % MOST;
  return op;
}

void Multipliers::end(int op) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!made_.erase(op))
    throw Error(hcccInvalidArgument, text_of("reduction %d is none that hcccRedOpCreatePreMulSum made", op));
}

void Multipliers::resolve(Wanted &wanted) const {
  if (wanted.op == hcccPreMulSum)
    throw Error(hcccInvalidArgument, "premul_sum needs a scalar: of hcccRedOpCreatePreMulSum, or hccc.premul_sum(0.5)");
  if (wanted.op < FIRST || wanted.op >= FIRST + MOST) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = made_.find(wanted.op);
  if (found == made_.end())
    throw Error(hcccInvalidArgument, text_of("reduction %d is none of this communicator, or was ended", wanted.op));
  const Made &made = found->second;
  if (name_of_type(wanted.type) && wanted.type != made.type)
    throw Error(hcccInvalidArgument, text_of("the scalar is %s, and the call %s", name_of_type(made.type),
                                             name_of_type(wanted.type)));
  wanted.op = hcccPreMulSum, wanted.scalar = made.scalar;
}

}  // namespace hccc
