// api.h: the CPU's implementation of the calls; table.cpp puts them into its table.
#pragma once

#include <algorithm>
#include <vector>

#include "../generated/cpu_calls.h"
#include "cpu.h"
#include "state.h"

namespace hcccrt::cpu {

inline constexpr int kMostThreads = 1024;         // of a block
inline constexpr int kMostSharedBytes = 1 << 20;  // of a block

// Lists the processors that this process may use.
std::vector<int> processors();

}  // namespace hcccrt::cpu
