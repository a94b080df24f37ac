// copies.cpp: the calls for memory: allocation, copying, setting.
#include <cstring>

#include "api.h"

namespace hcccrt::cpu {
namespace {

constexpr size_t kStagedBytes = size_t{64} << 10;  // pageable memory up to here is copied at the call
constexpr unsigned kHostFlags = hcccrtHostAllocPortable | hcccrtHostAllocMapped |
                                hcccrtHostAllocWriteCombined | hcccrtHostAllocNumaUser |
                                hcccrtHostAllocCoherent;
constexpr unsigned kRegisterFlags = hcccrtHostRegisterPortable | hcccrtHostRegisterMapped |
                                    hcccrtHostRegisterIoMemory | hcccrtHostRegisterReadOnly;

hcccrtError_t allocate(void **pointer, size_t bytes, Kind kind) {
  Call call;
  if (call.error) return call.error;
  if (!pointer) return hcccrtErrorInvalidValue;
  if (const auto error = unsafe(call.s)) return error;
  return call.s.memory.allocate(pointer, bytes, kind, call.device->index);
}

hcccrtError_t allocate_host(void **pointer, size_t bytes, unsigned flags) {
  Call call;
  if (call.error) return call.error;
  if (!pointer || flags & ~kHostFlags) return hcccrtErrorInvalidValue;
  if (const auto error = unsafe(call.s)) return error;
  return call.s.memory.allocate_host(pointer, bytes, call.device->index);
}

// Waits for the device of a block, whose work may use it.
hcccrtError_t release(void *pointer, Kind kind, Kind or_kind) {
  Call call;
  if (call.error) return call.error;
  if (!pointer) return hcccrtSuccess;
  if (const auto error = unsafe(call.s)) return error;
  const Block *block = call.s.memory.at(pointer, kind, or_kind);
  if (!block) return hcccrtErrorInvalidValue;
  Device &device = *call.s.devices[static_cast<size_t>(block->device)];
  const auto error = call.wait(all_of(device), device);
  if (!call.s.memory.at(pointer, kind, or_kind)) return hcccrtErrorInvalidValue;
  call.s.memory.release(pointer);
  return error;
}

// Checks a range: device memory must be known, and known memory must contain all of it.
bool usable(const Memory &memory, const void *pointer, size_t bytes, bool on_device) {
  if (!pointer) return false;
  return memory.known(pointer, bytes) || (!on_device && memory.unknown(pointer, bytes));
}

hcccrtError_t check(const Memory &memory, void *to, const void *from, size_t bytes,
                    hcccrtMemcpyKind_t kind) {
  if (kind < hcccrtMemcpyHostToHost || kind > hcccrtMemcpyDefault)
    return hcccrtErrorInvalidMemcpyDirection;
  const bool to_device = kind == hcccrtMemcpyHostToDevice || kind == hcccrtMemcpyDeviceToDevice;
  const bool from_device = kind == hcccrtMemcpyDeviceToHost || kind == hcccrtMemcpyDeviceToDevice;
  return usable(memory, to, bytes, to_device) && usable(memory, from, bytes, from_device)
             ? hcccrtSuccess
             : hcccrtErrorInvalidValue;
}

// Runs work of the default stream in the calling thread, in its turn.
template <class F>
hcccrtError_t now(Call &call, F work) {
  if (const auto error = unsafe(call.s)) return error;
  const auto stream = call.stream(nullptr);
  if (const auto error = implicit_wait(call.s, *stream)) return error;
  std::vector<Ticket> tickets = order_of(call.s, *stream);
  tickets.push_back(stream->worker.tail());
  if (const auto error = call.wait(tickets, *call.device)) return error;
  call.lock.unlock();
  work();
  return hcccrtSuccess;
}

}  // namespace

hcccrtError_t Malloc(void **pointer, size_t bytes) {
  return allocate(pointer, bytes, Kind::device);
}

// Allocates as Malloc does: all memory here is coherent and cached by one hierarchy.
hcccrtError_t ExtMallocWithFlags(void **pointer, size_t bytes, unsigned flags) {
  if (flags > hcccrtExtMallocUncached) return hcccrtErrorInvalidValue;
  if (flags == hcccrtExtMallocSignal && bytes != 8) return hcccrtErrorInvalidValue;
  return allocate(pointer, bytes, Kind::device);
}

hcccrtError_t MallocManaged(void **pointer, size_t bytes, unsigned flags) {
  if (flags != hcccrtMemAttachGlobal && flags != hcccrtMemAttachHost)
    return hcccrtErrorInvalidValue;
  return allocate(pointer, bytes, Kind::managed);
}

hcccrtError_t Free(void *pointer) { return release(pointer, Kind::device, Kind::managed); }
hcccrtError_t FreeHost(void *pointer) { return release(pointer, Kind::host, Kind::host); }
hcccrtError_t HostFree(void *pointer) { return FreeHost(pointer); }

hcccrtError_t MallocHost(void **pointer, size_t bytes) {
  return allocate_host(pointer, bytes, hcccrtHostAllocDefault);
}

hcccrtError_t HostAlloc(void **pointer, size_t bytes, unsigned flags) {
  return allocate_host(pointer, bytes, flags);
}

hcccrtError_t HostMalloc(void **pointer, size_t bytes, unsigned flags) {
  return allocate_host(pointer, bytes, flags);
}

hcccrtError_t HostRegister(void *pointer, size_t bytes, unsigned flags) {
  Call call;
  if (call.error) return call.error;
  if (flags & ~kRegisterFlags) return hcccrtErrorInvalidValue;
  if (const auto error = unsafe(call.s)) return error;
  return call.s.memory.enlist(pointer, bytes, call.device->index);
}

hcccrtError_t HostUnregister(void *pointer) {
  Call call;
  if (call.error) return call.error;
  if (const auto error = unsafe(call.s)) return error;
  const Block *block = call.s.memory.at(pointer, Kind::registered, Kind::registered);
  if (!block) return hcccrtErrorHostMemoryNotRegistered;
  Device &device = *call.s.devices[static_cast<size_t>(block->device)];
  const auto error = call.wait(all_of(device), device);
  if (call.s.memory.at(pointer, Kind::registered, Kind::registered)) call.s.memory.release(pointer);
  return error;
}

hcccrtError_t HostGetDevicePointer(void **device_pointer, void *host_pointer, unsigned flags) {
  Call call;
  if (call.error) return call.error;
  char *begin;
  const Block *block = host_pointer ? call.s.memory.around(host_pointer, &begin) : nullptr;
  if (!device_pointer || flags || !block) return hcccrtErrorInvalidValue;
  if (block->kind != Kind::host && block->kind != Kind::registered) return hcccrtErrorInvalidValue;
  *device_pointer = host_pointer;
  return hcccrtSuccess;
}

hcccrtError_t PointerGetAttributes(hcccrtPointerAttributes *attributes, const void *pointer) {
  Call call;
  if (call.error) return call.error;
  if (!attributes) return hcccrtErrorInvalidValue;
  char *begin;
  void *const plain = const_cast<void *>(pointer);
  const Block *block = call.s.memory.around(pointer, &begin);
  if (!block) {
    *attributes = {hcccrtMemoryTypeUnregistered, -1, nullptr, plain};
    return hcccrtSuccess;
  }
  const bool host = block->kind == Kind::host || block->kind == Kind::registered;
  const auto type = host                            ? hcccrtMemoryTypeHost
                    : block->kind == Kind::managed ? hcccrtMemoryTypeManaged
                                                    : hcccrtMemoryTypeDevice;
  *attributes = {type, block->device, plain, type == hcccrtMemoryTypeDevice ? nullptr : plain};
  return hcccrtSuccess;
}

hcccrtError_t Memcpy(void *to, const void *from, size_t bytes, hcccrtMemcpyKind_t kind) {
  Call call;
  if (call.error) return call.error;
  if (bytes)
    if (const auto error = check(call.s.memory, to, from, bytes, kind)) return error;
  return now(call, [=] {
    if (bytes) std::memmove(to, from, bytes);
  });
}

// Copies asynchronously. Pageable memory may be reused when the call returns, as in CUDA: a small
// source is copied at once, otherwise the call waits. A graph reads and writes it when it runs.
hcccrtError_t MemcpyAsync(void *to, const void *from, size_t bytes, hcccrtMemcpyKind_t kind,
                          hcccrtStream_t handle) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (!bytes) return hcccrtSuccess;
  if (const auto error = check(call.s.memory, to, from, bytes, kind)) return error;
  const auto copy = [=] { return std::memmove(to, from, bytes), hcccrtSuccess; };
  const bool to_known = call.s.memory.known(to, bytes), from_known = call.s.memory.known(from, bytes);
  if (stream->capture || (to_known && from_known)) return submit(call.s, *stream, copy);
  Ticket ticket;
  if (to_known && bytes <= kStagedBytes) {
    const auto *bytes_of = static_cast<const char *>(from);
    const auto staged = std::make_shared<std::vector<char>>(bytes_of, bytes_of + bytes);
    return submit(call.s, *stream,
                  [=] { return std::memcpy(to, staged->data(), bytes), hcccrtSuccess; });
  }
  if (const auto error = submit(call.s, *stream, copy, {}, &ticket)) return error;
  return call.wait({ticket}, *call.s.devices[static_cast<size_t>(stream->device)]);
}

hcccrtError_t Memset(void *pointer, int value, size_t bytes) {
  Call call;
  if (call.error) return call.error;
  if (bytes && !usable(call.s.memory, pointer, bytes, true)) return hcccrtErrorInvalidValue;
  return now(call, [=] {
    if (bytes) std::memset(pointer, value, bytes);
  });
}

hcccrtError_t MemsetAsync(void *pointer, int value, size_t bytes, hcccrtStream_t handle) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (!bytes) return hcccrtSuccess;
  if (!usable(call.s.memory, pointer, bytes, true)) return hcccrtErrorInvalidValue;
  return submit(call.s, *stream,
                [=] { return std::memset(pointer, value, bytes), hcccrtSuccess; });
}

hcccrtError_t IpcGetMemHandle(hcccrtIpcMemHandle_t *handle, void *pointer) {
  Call call;
  if (call.error) return call.error;
  return handle ? call.s.memory.share(handle, pointer) : hcccrtErrorInvalidValue;
}

hcccrtError_t IpcOpenMemHandle(void **pointer, hcccrtIpcMemHandle_t handle, unsigned flags) {
  Call call;
  if (call.error) return call.error;
  if (!pointer || flags & ~unsigned{hcccrtIpcMemLazyEnablePeerAccess})
    return hcccrtErrorInvalidValue;
  return call.s.memory.open(pointer, handle, call.device->index);
}

hcccrtError_t IpcCloseMemHandle(void *pointer) {
  Call call;
  if (call.error) return call.error;
  if (!call.s.memory.at(pointer, Kind::opened, Kind::opened)) return hcccrtErrorInvalidValue;
  const auto error = call.wait(all_of(*call.device), *call.device);
  const auto closed = call.s.memory.close(pointer);
  return closed ? closed : error;
}

}  // namespace hcccrt::cpu
