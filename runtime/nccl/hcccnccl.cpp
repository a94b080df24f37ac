// hcccnccl.cpp: NCCL's C interface over libhccc, as one unit: libnccl.so.2 and librccl.so.1.
#include "../communicator/log.cpp"
#include "runtime.cpp"
#include "vendor.cpp"
#include "times.cpp"
#include "ready.cpp"
#include "group.cpp"
#include "collectives.cpp"
#include "life.cpp"
#include "memory.cpp"
#include "missing.cpp"

// Tells this library from the vendor's.
extern "C" __attribute__((visibility("default"))) const int hccc_nccl_library = 1;
