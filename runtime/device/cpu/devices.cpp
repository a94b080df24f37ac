// devices.cpp: the CPU's devices, their attributes, and their reset.
#include <limits.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "api.h"

namespace hcccrt::cpu {
namespace {

constexpr int kDomain = 0xffff, kDevicesPerBus = 32;

bool is_device(const State &s, int device) {
  return device >= 0 && static_cast<size_t>(device) < s.devices.size();
}

int cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 && bytes <= INT_MAX ? static_cast<int>(bytes) : 0;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const auto at = line.find(": "); line.rfind("model name", 0) == 0 && at != line.npos)
      return line.substr(at + 2);
  return "CPU";
}

bool attribute_of(hcccrtDeviceAttr_t attr, int device, int *value) {
  switch (attr) {
    case hcccrtDevAttrMaxThreadsPerBlock:
    case hcccrtDevAttrMaxBlockDimX:
    case hcccrtDevAttrMaxBlockDimY:
    case hcccrtDevAttrMaxBlockDimZ:
    case hcccrtDevAttrMaxThreadsPerMultiProcessor: *value = kMostThreads; break;
    case hcccrtDevAttrMaxGridDimX:
    case hcccrtDevAttrMaxGridDimY:
    case hcccrtDevAttrMaxGridDimZ: *value = INT_MAX; break;
    case hcccrtDevAttrMaxSharedMemoryPerBlock:
    case hcccrtDevAttrMaxSharedMemoryPerMultiprocessor:
    case hcccrtDevAttrMaxSharedMemoryPerBlockOptin: *value = kMostSharedBytes; break;
    case hcccrtDevAttrMultiProcessorCount: *value = static_cast<int>(processors().size()); break;
    case hcccrtDevAttrL2CacheSize: *value = cache_bytes(); break;
    case hcccrtDevAttrPciDomainId: *value = kDomain; break;
    case hcccrtDevAttrPciBusId: *value = device / kDevicesPerBus; break;
    case hcccrtDevAttrPciDeviceId: *value = device % kDevicesPerBus; break;
    case hcccrtDevAttrWallClockRate: *value = 1000000; break;  // CLOCK_MONOTONIC: nanoseconds
    case hcccrtDevAttrWarpSize:
    case hcccrtDevAttrIntegrated:
    case hcccrtDevAttrCanMapHostMemory:
    case hcccrtDevAttrConcurrentKernels:
    case hcccrtDevAttrUnifiedAddressing:
    case hcccrtDevAttrManagedMemory:
    case hcccrtDevAttrHostNativeAtomicSupported:
    case hcccrtDevAttrPageableMemoryAccess:
    case hcccrtDevAttrConcurrentManagedAccess:
    case hcccrtDevAttrHostRegisterSupported:
    case hcccrtDevAttrFineGrainSupport:
    case hcccrtDevAttrGPUDirectRDMASupported: *value = 1; break;
    case hcccrtDevAttrMaxRegistersPerBlock:
    case hcccrtDevAttrClockRate:
    case hcccrtDevAttrComputeMode:
    case hcccrtDevAttrMemoryClockRate:
    case hcccrtDevAttrGlobalMemoryBusWidth:
    case hcccrtDevAttrAsyncEngineCount:
    case hcccrtDevAttrComputeCapabilityMajor:
    case hcccrtDevAttrComputeCapabilityMinor:
    case hcccrtDevAttrStreamPrioritiesSupported:
    case hcccrtDevAttrCooperativeLaunch: *value = 0; break;
    default: return false;
  }
  return true;
}

}  // namespace

hcccrtError_t GetDeviceCount(int *count) {
  Call call(true);
  if (call.error) return call.error;
  if (!count) return hcccrtErrorInvalidValue;
  *count = static_cast<int>(call.s.devices.size());
  return hcccrtSuccess;
}

hcccrtError_t GetDevice(int *device) {
  Call call(true);
  if (call.error) return call.error;
  if (!device) return hcccrtErrorInvalidValue;
  *device = current_device;
  return hcccrtSuccess;
}

hcccrtError_t SetDevice(int device) {
  Call call(true);
  if (call.error) return call.error;
  if (!is_device(call.s, device)) return hcccrtErrorInvalidDevice;
  current_device = device;
  return hcccrtSuccess;
}

hcccrtError_t DeviceGetAttribute(int *value, hcccrtDeviceAttr_t attr, int device) {
  Call call;
  if (call.error) return call.error;
  if (!value) return hcccrtErrorInvalidValue;
  if (!is_device(call.s, device)) return hcccrtErrorInvalidDevice;
  return attribute_of(attr, device, value) ? hcccrtSuccess : hcccrtErrorInvalidValue;
}

hcccrtError_t GetDeviceProperties(hcccrtDeviceProp *p, int device) {
  Call call;
  if (call.error) return call.error;
  if (!p) return hcccrtErrorInvalidValue;
  if (!is_device(call.s, device)) return hcccrtErrorInvalidDevice;
  *p = {};
  std::snprintf(p->name, sizeof p->name, "%s", processor_name().c_str());
  utsname name;
  if (uname(&name) == 0)
    std::snprintf(p->arch, sizeof p->arch, "%.*s", int{sizeof p->arch} - 1, name.machine);
  p->totalGlobalMem = call.s.memory.total();
  p->sharedMemPerBlock = kMostSharedBytes;
  p->multiProcessorCount = static_cast<int>(processors().size());
  p->warpSize = 1;
  p->maxThreadsPerBlock = p->maxThreadsPerMultiProcessor = kMostThreads;
  p->l2CacheSize = cache_bytes();
  p->pciDomainID = kDomain;
  p->pciBusID = device / kDevicesPerBus;
  p->pciDeviceID = device % kDevicesPerBus;
  p->integrated = p->canMapHostMemory = p->unifiedAddressing = p->managedMemory = 1;
  return hcccrtSuccess;
}

hcccrtError_t DeviceGetPCIBusId(char *id, int bytes, int device) {
  Call call;
  if (call.error) return call.error;
  if (!id || bytes < 1) return hcccrtErrorInvalidValue;
  if (!is_device(call.s, device)) return hcccrtErrorInvalidDevice;
  char text[32];
  const int n = std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", kDomain,
                              device / kDevicesPerBus, device % kDevicesPerBus);
  if (n >= bytes) return hcccrtErrorInvalidValue;
  std::memcpy(id, text, static_cast<size_t>(n) + 1);
  return hcccrtSuccess;
}

hcccrtError_t DeviceGetByPCIBusId(int *device, const char *id) {
  Call call;
  if (call.error) return call.error;
  unsigned domain, bus, number, function = 0;
  int end = 0;
  if (!device || !id) return hcccrtErrorInvalidValue;
  if (std::sscanf(id, "%4x:%2x:%2x.%1x%n", &domain, &bus, &number, &function, &end) != 4 || id[end])
    return hcccrtErrorInvalidValue;
  const unsigned found = bus * kDevicesPerBus + number;
  if (domain != kDomain || number >= kDevicesPerBus || function || found >= call.s.devices.size())
    return hcccrtErrorInvalidDevice;
  *device = static_cast<int>(found);
  return hcccrtSuccess;
}

hcccrtError_t DeviceCanAccessPeer(int *can, int device, int peer) {
  Call call;
  if (call.error) return call.error;
  if (!can) return hcccrtErrorInvalidValue;
  if (!is_device(call.s, device) || !is_device(call.s, peer)) return hcccrtErrorInvalidDevice;
  *can = device != peer;
  return hcccrtSuccess;
}

hcccrtError_t DeviceEnablePeerAccess(int peer, unsigned flags) {
  Call call;
  if (call.error) return call.error;
  if (!is_device(call.s, peer) || peer == call.device->index) return hcccrtErrorInvalidDevice;
  if (flags) return hcccrtErrorInvalidValue;
  const bool fresh = call.device->peers.insert(peer).second;
  return fresh ? hcccrtSuccess : hcccrtErrorPeerAccessAlreadyEnabled;
}

hcccrtError_t ExtGetLinkTypeAndHopCount(int device, int peer, unsigned *link_type, unsigned *hops) {
  Call call;
  if (call.error) return call.error;
  if (!link_type || !hops) return hcccrtErrorInvalidValue;
  if (!is_device(call.s, device) || !is_device(call.s, peer) || device == peer)
    return hcccrtErrorInvalidDevice;
  *link_type = hcccrtLinkTypeMemory;
  *hops = 1;
  return hcccrtSuccess;
}

hcccrtError_t DeviceSetLimit(hcccrtLimit_t limit, size_t value) {
  Call call;
  if (call.error) return call.error;
  if (limit != hcccrtLimitStackSize) return hcccrtErrorUnsupportedLimit;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto least = static_cast<size_t>(PTHREAD_STACK_MIN);
  if (value > (size_t{1} << 40)) return hcccrtErrorInvalidValue;
  call.device->stack_bytes = std::max(least, (value + page - 1) / page * page);
  return hcccrtSuccess;
}

hcccrtError_t DeviceSynchronize() {
  Call call;
  if (call.error) return call.error;
  if (const auto error = unsafe(call.s)) return error;
  const auto error = call.wait(all_of(*call.device), *call.device);
  reap(*call.device);
  return error;
}

hcccrtError_t GetLastError() { return PeekAtLastError(); }

// Returns an error that stays until a reset; the dispatcher keeps the others.
hcccrtError_t PeekAtLastError() {
  Call call;
  return call.error;
}

namespace {

// Frees everything that was made on a device.
template <class T>
void forget(std::unordered_map<void *, std::shared_ptr<T>> *all, int device) {
  for (auto it = all->begin(); it != all->end();)
    it = it->second->device == device ? all->erase(it) : std::next(it);
}

}  // namespace

// Resets a device, one at a time: a reset must not unmap memory that another still waits for.
hcccrtError_t DeviceReset() {
  static std::mutex one;
  if (Call call(true); call.error) return call.error;  // not in a stream's thread, which would be joined
  std::lock_guard<std::mutex> alone(one);
  Call call(true);
  if (call.error) return call.error;
  State &s = call.s;
  Device &device = *call.device;
  for (const auto &stream : device.streams) leave(s, *stream);
  for (auto *streams : {&device.streams, &device.retired})
    for (const auto &stream : *streams) stream->worker.drop();
  std::vector<std::shared_ptr<Stream>> ending;
  ending.swap(device.streams);
  ending.insert(ending.end(), device.retired.begin(), device.retired.end());
  device.retired.clear();
  if (device.default_stream) {
    device.default_stream->worker.drop();
    ending.push_back(std::move(device.default_stream));
  }
  device.default_stream = nullptr;
  forget(&s.streams, device.index);
  forget(&s.events, device.index);
  forget(&s.graphs, device.index);
  forget(&s.execs, device.index);
  call.lock.unlock();
  for (const auto &stream : ending) stream->worker.join();
  call.lock.lock();
  s.memory.release_all(device.index);
  device.peers.clear();
  device.stack_bytes = 0;
  device.lost = hcccrtSuccess;
  return hcccrtSuccess;
}

}  // namespace hcccrt::cpu
