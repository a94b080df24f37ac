// hcccnccl.cpp: NCCL's C interface over libhccc, as one unit: libnccl.so.2 and librccl.so.1.
#include "../communicator/log.cpp"
#include "runtime.cpp"
#include "vendor.cpp"
#include "group.cpp"
#include "collectives.cpp"
#include "life.cpp"
#include "memory.cpp"
#include "missing.cpp"
