// working_cuda.cpp: a runtime of CUDA that works, on the CPU: streams, events and memory are those of the
// device layer's CPU; the driver's virtual memory is made of files in memory. Addresses that were mapped and
// to which access was not given may not be touched.
//
// FAKE_CUDA lists what the device has of `vmm descriptor fabric`, and `apart`: memory of cudaMalloc is then out
// of the host's reach, at addresses that only copies, and who asks workingMemory, can use; FAKE_CUDA_REFUSES names functions that fail,
// FAKE_CUDA_LACKS those of the driver that are not there, FAKE_CUDA_BLOCKS those that wait for kernels that run.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "hcccrt.cpp"

namespace {

using Number = unsigned long long;
namespace cpu = hcccrt::cpu;
constexpr int kInvalid = 1, kNotPermitted = 800;

bool listed(const char *variable, const char *word) {
  const char *found = std::getenv(variable);
  return found && std::strstr(found, word);
}
#define REFUSE \
  if (listed("FAKE_CUDA_REFUSES", __func__)) return kNotPermitted

std::atomic<int> kernels{0};  // that run
#define BLOCK \
  while (kernels && listed("FAKE_CUDA_BLOCKS", __func__)) usleep(1000)

// In the stream's turn. What is done stays: a graph may do it again.
int later(hcccrtStream_t stream, std::function<void()> what) {
  auto *kept = new std::function<void()>(std::move(what));
  const auto run = [](void *at) {
    (*static_cast<std::function<void()> *>(at))();
  };
  const int error = cpu::LaunchHostFunc(stream, run, kept);
  if (error) delete kept;
  return error;
}

struct Region {
  size_t bytes;
  int file;
};
std::mutex mutex;
std::map<Number, Region> regions;  // addresses that are reserved

// Memory out of the host's reach: its address, and where it really is.
struct Apart {
  size_t bytes;
  char *real;
};
std::map<Number, Apart> apart;

char *real(const void *at) {
  std::lock_guard<std::mutex> lock(mutex);
  const Number address = reinterpret_cast<Number>(at);
  auto it = apart.upper_bound(address);
  if (it != apart.begin() && (--it, address < it->first + it->second.bytes)) return it->second.real + (address - it->first);
  return static_cast<char *>(const_cast<void *>(at));
}

struct Properties {
  int type, handle_types, location, device;
};

int file_of(Number handle) { return static_cast<int>(handle >> 8); }
int types_of(Number handle) { return static_cast<int>(handle & 0xff); }
Number handle_of(int file, int types) { return static_cast<Number>(file) << 8 | static_cast<Number>(types); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Says that a kernel begins, or ends.
void workingKernel(int change) { kernels += change; }
// Counts the kernels of combine.cu that have run.
int workingCombines(int more) {
  static std::atomic<int> combines{0};
  return combines += more;
}
// Returns where memory of the device really is.
void *workingMemory(const void *at) { return real(at); }

int cudaGetDeviceCount(int *n) { return cpu::GetDeviceCount(n); }
int cudaGetDevice(int *device) { return cpu::GetDevice(device); }
int cudaSetDevice(int device) { return cpu::SetDevice(device); }
int cudaRuntimeGetVersion(int *version) { return *version = 13000, 0; }
int cudaDeviceGetAttribute(int *value, int, int) { return *value = 64, 0; }
int cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 1, 0; }
int cudaDeviceEnablePeerAccess(int, unsigned) { return 0; }
int cudaDeviceSynchronize() { return cpu::DeviceSynchronize(); }
const char *cudaGetErrorString(int) { return "the fake's error"; }
int cudaGetLastError() { return 0; }
int cudaPeekAtLastError() { return 0; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t) { return *n = 64, 0; }

int cudaMalloc(void **at, size_t bytes) {
  REFUSE;
  if (!listed("FAKE_CUDA", "apart")) return cpu::Malloc(at, bytes);
  void *made = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return 2;
  std::lock_guard<std::mutex> lock(mutex);
  apart[reinterpret_cast<Number>(*at = made)] = {bytes, static_cast<char *>(std::malloc(bytes))};
  return 0;
}
int cudaFree(void *at) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = apart.find(reinterpret_cast<Number>(at));
  if (it == apart.end()) return cpu::Free(at);
  std::free(it->second.real);
  munmap(at, it->second.bytes);
  apart.erase(it);
  return 0;
}
int cudaHostAlloc(void **at, size_t bytes, unsigned) { return cpu::MallocHost(at, bytes); }
int cudaFreeHost(void *at) { return cpu::FreeHost(at); }
int cudaHostGetDevicePointer(void **at, void *host, unsigned) { return *at = host, 0; }
int cudaMemsetAsync(void *at, int value, size_t bytes, hcccrtStream_t stream) {
  return later(stream, [=] { std::memset(real(at), value, bytes); });
}
int cudaMemcpy(void *to, const void *from, size_t bytes, int) { return std::memcpy(real(to), real(from), bytes), 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, hcccrtStream_t stream) {
  return later(stream, [=] { std::memcpy(real(to), real(from), bytes); });
}

struct Attributes {
  int type, device;
  void *device_pointer, *host_pointer;
};
int cudaPointerGetAttributes(Attributes *out, const void *pointer) {
  if (real(pointer) != pointer) return *out = {2, 0, const_cast<void *>(pointer), nullptr}, 0;
  hcccrtPointerAttributes found;
  if (const int error = cpu::PointerGetAttributes(&found, pointer)) return error;
  std::lock_guard<std::mutex> lock(mutex);
  auto it = regions.upper_bound(reinterpret_cast<Number>(pointer));
  const bool mapped = it != regions.begin() && (--it, reinterpret_cast<Number>(pointer) < it->first + it->second.bytes);
  *out = {mapped ? 2 : int(found.type), 0, found.devicePointer, found.hostPointer};
  return 0;
}

int cudaStreamCreateWithFlags(hcccrtStream_t *stream, unsigned flags) { return cpu::StreamCreateWithFlags(stream, flags); }
int cudaStreamDestroy(hcccrtStream_t stream) { return cpu::StreamDestroy(stream); }
int cudaStreamSynchronize(hcccrtStream_t stream) { return cpu::StreamSynchronize(stream); }
int cudaStreamQuery(hcccrtStream_t stream) { return cpu::StreamQuery(stream); }
int cudaStreamWaitEvent(hcccrtStream_t stream, hcccrtEvent_t event, unsigned) { return cpu::StreamWaitEvent(stream, event, 0); }
int cudaThreadExchangeStreamCaptureMode(hcccrtStreamCaptureMode_t *mode) { return cpu::ThreadExchangeStreamCaptureMode(mode); }
int cudaStreamBeginCapture(hcccrtStream_t stream, int mode) {
  return cpu::StreamBeginCapture(stream, static_cast<hcccrtStreamCaptureMode_t>(mode));
}
int cudaStreamEndCapture(hcccrtStream_t stream, hcccrtGraph_t *graph) { return cpu::StreamEndCapture(stream, graph); }
int cudaStreamGetCaptureInfo(hcccrtStream_t stream, int *status, unsigned long long *id, hcccrtGraph_t *graph,
                             const hcccrtGraphNode_t **dependencies, const void **, size_t *n) {
  hcccrtStreamCaptureStatus_t found = hcccrtStreamCaptureStatusNone;
  const int error = cpu::StreamGetCaptureInfo_v2(stream, &found, id, graph, dependencies, n);
  return *status = found, error;
}
int cudaGraphInstantiateWithFlags(hcccrtGraphExec_t *made, hcccrtGraph_t graph, unsigned long long flags) { return cpu::GraphInstantiate(made, graph, flags); }
int cudaGraphLaunch(hcccrtGraphExec_t graph, hcccrtStream_t stream) { return cpu::GraphLaunch(graph, stream); }
int cudaLaunchHostFunc(hcccrtStream_t stream, void (*fn)(void *), void *data) { return cpu::LaunchHostFunc(stream, fn, data); }
int cudaEventCreateWithFlags(hcccrtEvent_t *event, unsigned flags) { return cpu::EventCreateWithFlags(event, flags); }
int cudaEventRecord(hcccrtEvent_t event, hcccrtStream_t stream) { return cpu::EventRecord(event, stream); }
int cudaEventQuery(hcccrtEvent_t event) { return cpu::EventQuery(event); }
int cudaEventSynchronize(hcccrtEvent_t event) { return cpu::EventSynchronize(event); }
int cudaEventDestroy(hcccrtEvent_t event) { return cpu::EventDestroy(event); }

int cudaIpcGetMemHandle(hcccrtIpcMemHandle_t *handle, void *at) { return cpu::IpcGetMemHandle(handle, at); }
int cudaIpcOpenMemHandle(void **at, hcccrtIpcMemHandle_t handle, unsigned flags) {
  REFUSE;
  BLOCK;
  return cpu::IpcOpenMemHandle(at, handle, flags);
}
int cudaIpcCloseMemHandle(void *at) { return cpu::IpcCloseMemHandle(at); }

// The driver.

int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = (attribute == 102 && listed("FAKE_CUDA", "vmm")) || (attribute == 103 && listed("FAKE_CUDA", "descriptor")) ||
           (attribute == 128 && listed("FAKE_CUDA", "fabric"));
  return 0;
}
int cuMemGetAllocationGranularity(size_t *bytes, const Properties *, int) { return *bytes = size_t{2} << 20, 0; }
int cuMemCreate(Number *handle, size_t bytes, const Properties *wanted, Number) {
  REFUSE;
  if (bytes % (size_t{2} << 20) || wanted->type != 1 || wanted->location != 1) return kInvalid;
  const int file = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes))) return kInvalid;
  return *handle = handle_of(file, wanted->handle_types), 0;
}
int cuMemRelease(Number handle) { return close(file_of(handle)) ? kInvalid : 0; }
int cuMemAddressReserve(Number *at, size_t bytes, size_t, Number, Number) {
  void *made = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return 2;
  std::lock_guard<std::mutex> lock(mutex);
  regions[*at = reinterpret_cast<Number>(made)] = {bytes, -1};
  return 0;
}
int cuMemAddressFree(Number at, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = regions.find(at);
  if (it == regions.end() || it->second.bytes != bytes || it->second.file >= 0) return kInvalid;
  regions.erase(it);
  return munmap(reinterpret_cast<void *>(at), bytes) ? kInvalid : 0;
}
int cuMemMap(Number at, size_t bytes, size_t, Number handle, Number) {
  BLOCK;
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = regions.find(at);
  struct stat status;
  if (it == regions.end() || fstat(file_of(handle), &status) || static_cast<size_t>(status.st_size) != bytes) return kInvalid;
  it->second.file = file_of(handle);
  void *made = mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file_of(handle), 0);
  return made == MAP_FAILED ? kInvalid : 0;
}
int cuMemUnmap(Number at, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = regions.find(at);
  if (it == regions.end() || it->second.file < 0) return kInvalid;
  it->second.file = -1;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  return mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED ? kInvalid : 0;
}
int cuMemSetAccess(Number at, size_t bytes, const int *access, size_t n) {
  REFUSE;
  if (!n || access[0] != 1 || access[2] != 3) return kInvalid;
  return mprotect(reinterpret_cast<void *>(at), bytes, PROT_READ | PROT_WRITE) ? kInvalid : 0;
}
int cuMemExportToShareableHandle(void *out, Number handle, int type, Number) {
  REFUSE;
  if (!(types_of(handle) & type)) return kInvalid;
  if (type == 1) return *static_cast<int *>(out) = fcntl(file_of(handle), F_DUPFD_CLOEXEC, 0), 0;
  const int words[2] = {getpid(), file_of(handle)};
  std::memset(out, 0, 64);
  std::memcpy(out, words, sizeof words);
  return type == 8 ? 0 : kInvalid;
}
int cuMemImportFromShareableHandle(Number *handle, void *from, int type) {
  REFUSE;
  char path[64];
  int words[2] = {};
  if (type == 8) std::memcpy(words, from, sizeof words);
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", words[0], words[1]);
  const int file = type == 8 ? open(path, O_RDWR | O_CLOEXEC)
                             : fcntl(static_cast<int>(reinterpret_cast<intptr_t>(from)), F_DUPFD_CLOEXEC, 0);
  return file < 0 ? kNotPermitted : (*handle = handle_of(file, type), 0);
}

int cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned, Number, int *status) {
#define ENTRY(name) {#name, reinterpret_cast<void *>(name)}
  static const struct {
    const char *name;
    void *at;
  } all[] = {ENTRY(cuDeviceGet), ENTRY(cuDeviceGetAttribute), ENTRY(cuMemGetAllocationGranularity), ENTRY(cuMemCreate),
             ENTRY(cuMemRelease), ENTRY(cuMemAddressReserve), ENTRY(cuMemAddressFree), ENTRY(cuMemMap), ENTRY(cuMemUnmap),
             ENTRY(cuMemSetAccess), ENTRY(cuMemExportToShareableHandle), ENTRY(cuMemImportFromShareableHandle)};
  *out = nullptr;
  for (const auto &one : all)
    if (!std::strcmp(one.name, symbol) && !listed("FAKE_CUDA_LACKS", symbol)) *out = one.at;
  return *status = *out ? 0 : 1, 0;
}

}  // extern "C"
#pragma GCC visibility pop
