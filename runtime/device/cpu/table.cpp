// table.cpp: the CPU's table.
#include "api.h"

namespace hcccrt::cpu {

const Table table = calls;

}  // namespace hcccrt::cpu
