// standin.cpp: a device of PyTorch (PrivateUse1) on the runtime of CUDA that works on the CPU
// (tests/runtime/device/working_cuda.cpp): memory, streams and events are that runtime's; what computes is PyTorch's
// CPU, which waits for the current stream. Memory that was freed is used again at once, but by streams that it was
// recorded on, as PyTorch's allocator for CUDA does.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

namespace {

struct Cuda {
  int (*cudaSetDevice)(int);
  int (*cudaMalloc)(void **, size_t);
  int (*cudaMemcpyAsync)(void *, const void *, size_t, int, void *);
  int (*cudaLaunchHostFunc)(void *, void (*)(void *), void *);
  int (*cudaStreamCreateWithFlags)(void **, unsigned);
  int (*cudaStreamSynchronize)(void *);
  int (*cudaStreamQuery)(void *);
  int (*cudaStreamWaitEvent)(void *, void *, unsigned);
  int (*cudaDeviceSynchronize)();
  int (*cudaEventCreateWithFlags)(void **, unsigned);
  int (*cudaEventRecord)(void *, void *);
  int (*cudaEventQuery)(void *);
  int (*cudaEventSynchronize)(void *);
  int (*cudaEventDestroy)(void *);
};

Cuda cuda;

void check(int error) { TORCH_CHECK(error == 0, "the stand-in for CUDA returned ", error); }

constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex DEVICES = 2;
thread_local c10::DeviceIndex current_device = 0;
thread_local std::map<c10::DeviceIndex, void *> current_streams;

void *made_stream() {
  void *made = nullptr;
  check(cuda.cudaStreamCreateWithFlags(&made, 1));
  return made;
}

void *default_stream(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, void *> all;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!all[device]) all[device] = made_stream();
  return all[device];
}

void *current_stream(c10::DeviceIndex device = current_device) {
  void *&found = current_streams[device];
  return found ? found : found = default_stream(device);
}

c10::Stream stream_of(c10::DeviceIndex device, void *handle) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(KIND, device), reinterpret_cast<c10::StreamId>(handle));
}
void *handle_of(const c10::Stream &stream) { return reinterpret_cast<void *>(stream.id()); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    setDevice(d);
    return before;
  }
  c10::Device getDevice() const override { return {KIND, current_device}; }
  void setDevice(c10::Device d) const override { current_device = d.index(), cuda.cudaSetDevice(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { setDevice(d); }
  c10::Stream getStream(c10::Device d) const override { return stream_of(d.index(), current_stream(d.index())); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream_of(d.index(), default_stream(d.index())); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return stream_of(d.index(), made_stream()); }
  c10::Stream getNewStream(c10::Device d, int) const override { return stream_of(d.index(), made_stream()); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const c10::Stream before = getStream(s.device());
    current_streams[s.device_index()] = handle_of(s);
    return before;
  }
  void *getStreamNativeHandle(const c10::Stream s) const override { return handle_of(s); }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override {
    if (event) cuda.cudaEventDestroy(event);
  }
  void record(void **event, const c10::Stream &s, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) check(cuda.cudaEventCreateWithFlags(event, 2));
    check(cuda.cudaEventRecord(*event, handle_of(s)));
  }
  void block(void *event, const c10::Stream &s) const override {
    if (event) check(cuda.cudaStreamWaitEvent(handle_of(s), event, 0));
  }
  bool queryEvent(void *event) const override { return !event || cuda.cudaEventQuery(event) == 0; }
  bool queryStream(const c10::Stream &s) const override { return cuda.cudaStreamQuery(handle_of(s)) == 0; }
  void synchronizeStream(const c10::Stream &s) const override { check(cuda.cudaStreamSynchronize(handle_of(s))); }
  void synchronizeEvent(void *event) const override { check(cuda.cudaEventSynchronize(event)); }
  void synchronizeDevice(const c10::DeviceIndex) const override { check(cuda.cudaDeviceSynchronize()); }
  void recordDataPtrOnStream(const c10::DataPtr &memory, const c10::Stream &stream) const override;
};

// Blocks by their sizes; one that was freed waits for the streams that it was recorded on.
class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t size = std::max<size_t>(64, bytes);
    void *found = nullptr;
    for (auto &[at, block] : blocks_)
      if (!found && block.free && block.size == size && block.device == current_device && idle(block)) found = at;
    if (!found) check(cuda.cudaMalloc(&found, size));
    blocks_[found] = {size, current_device, false, {}};
    return {found, found, [](void *at) { one().release(at); }, c10::Device(KIND, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void record(void *memory, void *stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = blocks_.find(memory); found != blocks_.end()) found->second.streams[stream] = nullptr;
  }
  static Allocator &one() {
    static auto *const made = new Allocator;
    return *made;
  }

 private:
  struct Block {
    size_t size;
    c10::DeviceIndex device;
    bool free;
    std::map<void *, void *> streams;  // and their events, once it was freed
  };

  void release(void *memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Block &block = blocks_[memory];
    block.free = true;
    for (auto &[stream, event] : block.streams) {
      check(cuda.cudaEventCreateWithFlags(&event, 2));
      check(cuda.cudaEventRecord(event, stream));
    }
  }
  static bool idle(const Block &block) {
    return std::all_of(block.streams.begin(), block.streams.end(),
                       [](const auto &one) { return cuda.cudaEventQuery(one.second) == 0; });
  }

  std::mutex mutex_;
  std::unordered_map<void *, Block> blocks_;
};

void Guard::recordDataPtrOnStream(const c10::DataPtr &memory, const c10::Stream &stream) const {
  Allocator::one().record(memory.get(), handle_of(stream));
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
};

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(KIND, current_device)));
  return at::detail::empty_generic(sizes, &Allocator::one(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(KIND, current_device)));
  return at::detail::empty_strided_generic(sizes, strides, &Allocator::one(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(type));
}

// Returns the tensor's memory, which is the host's, as a tensor of the CPU.
at::Tensor on_cpu(const at::Tensor &of) {
  return at::for_blob(of.data_ptr(), of.sizes()).strides(of.strides()).options(at::TensorOptions(of.scalar_type())).make_tensor();
}

// Copies in the current stream's turn; what is not plain, or of the CPU, while the thread waits.
at::Tensor &copy(at::Tensor &to, const at::Tensor &from, bool) {
  const auto device = (to.is_cpu() ? from : to).device().index();
  void *stream = current_stream(device);
  const bool plain = to.is_contiguous() && from.is_contiguous() && to.scalar_type() == from.scalar_type() &&
                     to.sizes() == from.sizes();
  if (!plain) {
    check(cuda.cudaStreamSynchronize(stream));
    on_cpu(to).copy_(on_cpu(from));
    return to;
  }
  check(cuda.cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), to.nbytes(), 4, stream));
  if (to.is_cpu() || from.is_cpu()) check(cuda.cudaStreamSynchronize(stream));
  return to;
}
at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool late) {
  at::Tensor into = to;
  return copy(into, from, late);
}
at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to) { return copy_from(from, to, false); }

at::Tensor as_strided(const at::Tensor &of, c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<int64_t> at) {
  return at::native::as_strided_tensorimpl(of, sizes, strides, at);
}
c10::Scalar scalar(const at::Tensor &of) {
  check(cuda.cudaStreamSynchronize(current_stream(of.device().index())));
  return on_cpu(of).item();
}

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) { at::native::cpu_fallback(op, stack); }

// Fills a tensor in the current stream's turn.
void fill(const at::Tensor &tensor, double value) {
  struct Told {
    at::Tensor memory;
    double value;
  };
  const auto run = [](void *data) {
    const std::unique_ptr<Told> told(static_cast<Told *>(data));
    told->memory.fill_(told->value);
  };
  check(cuda.cudaLaunchHostFunc(current_stream(), run, new Told{on_cpu(tensor), value}));
}

std::atomic<int> holds{0};  // that were not released

// Has the current stream stand still until release().
void hold() {
  ++holds;
  const auto run = [](void *) {
    while (holds) usleep(200);
  };
  check(cuda.cudaLaunchHostFunc(current_stream(), run, nullptr));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("as_strided", &as_strided);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("_local_scalar_dense", &scalar);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

PYBIND11_MODULE(standin, module) {
  module.def("open", [](const std::string &path) {
    void *library = dlopen(path.c_str(), RTLD_NOW);
    TORCH_CHECK(library, dlerror());
#define FIND(name) TORCH_CHECK(cuda.name = reinterpret_cast<decltype(cuda.name)>(dlsym(library, #name)), #name)
    FIND(cudaSetDevice);
    FIND(cudaMalloc);
    FIND(cudaMemcpyAsync);
    FIND(cudaLaunchHostFunc);
    FIND(cudaStreamCreateWithFlags);
    FIND(cudaStreamSynchronize);
    FIND(cudaStreamQuery);
    FIND(cudaStreamWaitEvent);
    FIND(cudaDeviceSynchronize);
    FIND(cudaEventCreateWithFlags);
    FIND(cudaEventRecord);
    FIND(cudaEventQuery);
    FIND(cudaEventSynchronize);
    FIND(cudaEventDestroy);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  });
  module.def("fill", &fill);
  module.def("hold", &hold);
  module.def("release", [] { holds = 0; });
  module.def("is_available", [] { return true; });
  module.def("device_count", [] { return int{DEVICES}; });
  module.def("current_device", [] { return int{current_device}; });
  module.def("synchronize", [] { check(cuda.cudaStreamSynchronize(current_stream())); });
  // Whether the current stream has done all.
  module.def("idle", [] { return cuda.cudaStreamQuery(current_stream()) == 0; });
}
