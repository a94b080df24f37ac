// gpu_launch.h: the launch that a GPU entry asks for, recorded.
#pragma once

#if defined(__HIP__)
#define HCCC_GPU(name) hip##name
typedef struct ihipStream_t* hipStream_t;
#else
#define HCCC_GPU(name) cuda##name
typedef struct CUstream_st* cudaStream_t;
#endif

HCCC_FN int hccc_gpu_launch(const hccc_comm* comm, const hccc_call* call,
                            HCCC_GPU(Stream_t) stream) {
  return hccc_record_launch(comm, call, stream);
}
