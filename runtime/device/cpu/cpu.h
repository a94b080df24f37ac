// cpu.h: the CPU as a platform of the dispatcher.
#pragma once

#include <string>

#include "../generated/table.h"

namespace hcccrt::cpu {

// Returns whether it can be used: unless HCCC_CPU_DEVICES is no number of devices.
bool available(std::string *text);
extern const Table table;

}  // namespace hcccrt::cpu
