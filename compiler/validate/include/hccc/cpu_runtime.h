// cpu_runtime.h: the launch that a CPU entry asks for, recorded.
#pragma once

HCCC_FN int hccc_cpu_launch(const hccc_comm* comm, const hccc_call* call) {
  return hccc_record_launch(comm, call, nullptr);
}
