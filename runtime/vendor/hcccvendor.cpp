// hcccvendor.cpp: the engines as one translation unit, part of libhccc.
#include "meeting.cpp"
#include "mpi.cpp"
#include "nccl.cpp"
#include "own.cpp"
#include "table.cpp"
#include "pmi.cpp"
#include "worker.cpp"
