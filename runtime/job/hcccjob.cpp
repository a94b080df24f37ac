// hcccjob.cpp: jobs as one translation unit of the library of hccc_runtime.h.
#include "batches.cpp"
#include "combine.cpp"
#include "device_combine.cpp"
#include "job.cpp"
#include "joined.cpp"
#include "pieces.cpp"
#include "saved.cpp"
#include "schedule.cpp"
