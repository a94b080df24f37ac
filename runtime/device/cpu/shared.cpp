// shared.cpp: memory shared by a kind of handle that the caller chooses: a descriptor of its file,
// or bytes that name process and file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"

namespace hcccrt::cpu {

constexpr unsigned kHandleKinds = hcccrtHandleLegacy | hcccrtHandleDescriptor;

hcccrtError_t Memory::allocate_shared(void **pointer, size_t *bytes, unsigned handles, int device) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (*bytes > total() || used_ + *bytes > total()) return hcccrtErrorMemoryAllocation;
  const size_t whole = (*bytes + page - 1) / page * page;
  arenas_.push_back(std::make_unique<Arena>(device, whole));
  Arena *arena = arenas_.back().get();
  char *made = arena->take(whole);
  blocks_[reinterpret_cast<uintptr_t>(made)] = {whole, Kind::device, device, arena, 1, handles};
  used_ += whole;
  *bytes = whole;
  *pointer = made;
  return hcccrtSuccess;
}

hcccrtError_t Memory::handle_of(hcccrtIpcMemHandle_t *handle, int *descriptor, void *pointer) const {
  const auto it = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == blocks_.end() || !it->second.handles) return hcccrtErrorInvalidValue;
  *descriptor = -1;
  if (it->second.handles == hcccrtHandleLegacy) return share(handle, pointer);
  *descriptor = fcntl(it->second.arena->file(), F_DUPFD_CLOEXEC, 0);
  return *descriptor < 0 ? hcccrtErrorOperatingSystem : hcccrtSuccess;
}

hcccrtError_t Memory::open(void **pointer, int descriptor, size_t bytes, int device) {
  struct stat status;
  if (fstat(descriptor, &status) || !S_ISREG(status.st_mode) || static_cast<size_t>(status.st_size) != bytes)
    return hcccrtErrorMapBufferObjectFailed;
  Opened *opened = map(descriptor, bytes);
  if (!opened) return hcccrtErrorMapBufferObjectFailed;
  *pointer = enter(*opened, 0, bytes, device);
  return hcccrtSuccess;
}

hcccrtError_t ExtGetHandleKinds(unsigned *kinds, int device) {
  Call call;
  if (call.error) return call.error;
  if (!kinds) return hcccrtErrorInvalidValue;
  if (device < 0 || static_cast<size_t>(device) >= call.s.devices.size()) return hcccrtErrorInvalidDevice;
  *kinds = kHandleKinds;
  return hcccrtSuccess;
}

hcccrtError_t ExtMallocShared(void **pointer, size_t *bytes, unsigned kind) {
  Call call;
  if (call.error) return call.error;
  if (!pointer || !bytes || !*bytes) return hcccrtErrorInvalidValue;
  if (kind == hcccrtHandleFabric) return hcccrtErrorNotSupported;
  if (kind != hcccrtHandleLegacy && kind != hcccrtHandleDescriptor) return hcccrtErrorInvalidValue;
  if (const auto error = unsafe(call.s)) return error;
  return call.s.memory.allocate_shared(pointer, bytes, kind, call.device->index);
}

hcccrtError_t ExtGetSharedHandle(hcccrtIpcMemHandle_t *handle, int *descriptor, void *pointer) {
  Call call;
  if (call.error) return call.error;
  if (!handle || !descriptor) return hcccrtErrorInvalidValue;
  return call.s.memory.handle_of(handle, descriptor, pointer);
}

hcccrtError_t ExtOpenSharedHandle(void **pointer, const hcccrtIpcMemHandle_t *handle, int descriptor,
                                  size_t bytes, unsigned kind) {
  Call call;
  if (call.error) return call.error;
  if (!pointer || !handle || !bytes) return hcccrtErrorInvalidValue;
  if (kind == hcccrtHandleFabric) return hcccrtErrorNotSupported;
  if (kind == hcccrtHandleLegacy) return call.s.memory.open(pointer, *handle, call.device->index);
  if (kind != hcccrtHandleDescriptor) return hcccrtErrorInvalidValue;
  return call.s.memory.open(pointer, descriptor, bytes, call.device->index);
}

hcccrtError_t ExtFreeShared(void *pointer) {
  bool own = false;
  {
    Call call;
    if (call.error) return call.error;
    const Block *block = call.s.memory.at(pointer, Kind::device, Kind::opened);
    if (!block || (block->kind == Kind::device && !block->handles)) return hcccrtErrorInvalidValue;
    own = block->kind == Kind::device;
  }
  return own ? Free(pointer) : IpcCloseMemHandle(pointer);
}

}  // namespace hcccrt::cpu
