// cpu.h: the CPU as a platform: what the dispatcher knows of it.
#pragma once

#include <string>

#include "../generated/table.h"

namespace hcccrt::cpu {

// Whether it can be used, which is so unless HCCC_CPU_DEVICES is no number of devices.
bool available(std::string *text);
extern const Table table;

}  // namespace hcccrt::cpu
