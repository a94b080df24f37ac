// What a generated CPU translation unit ends with, and the sizes as C sees them.
#include "hccc/cpu_runtime.h"

#define HCCC_NAME_OF(dtype, op) program_cpu_##dtype##_##op
#define HCCC_NAME(dtype, op) HCCC_NAME_OF(dtype, op)

extern "C" int HCCC_NAME(HCCC_DTYPE, HCCC_OP)(const hccc_comm* comm,
                                              const hccc_call* call) {
  return hccc_cpu_launch(comm, call);
}

extern "C" void shape_of_program(hccc_shape* shape) { *shape = hccc_this_shape; }
