// cuda_guard.cpp: compiles where PyTorch's devices of CUDA have each function that runtime/torch/device.h calls.
#include <c10/cuda/impl/CUDAGuardImpl.h>

#include <type_traits>

namespace {

using Cuda = c10::cuda::impl::CUDAGuardImpl;

template <class Of, class Result, class... Arguments>
Of owner(Result (Of::*)(Arguments...) const);

#define HAS(name) static_assert(std::is_same_v<decltype(owner(&Cuda::name)), Cuda>, #name)
HAS(getDevice);
HAS(getStream);
HAS(getStreamFromGlobalPool);
HAS(getStreamNativeHandle);
HAS(exchangeStream);
HAS(record);
HAS(block);
HAS(queryEvent);
HAS(synchronizeStream);
HAS(synchronizeDevice);
HAS(recordDataPtrOnStream);

}  // namespace
