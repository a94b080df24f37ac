// hcccrt.cpp: the device layer as one translation unit, as it is built at run time.
// A build of several may compile dispatcher.cpp and cpu/*.cpp by themselves.
#include "cpu/arena.cpp"
#include "cpu/copies.cpp"
#include "cpu/devices.cpp"
#include "cpu/graphs.cpp"
#include "cpu/kernels.cpp"
#include "cpu/memory.cpp"
#include "cpu/shared.cpp"
#include "cpu/state.cpp"
#include "cpu/streams.cpp"
#include "cpu/table.cpp"
#include "cpu/worker.cpp"
#include "dispatcher.cpp"
