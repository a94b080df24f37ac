// handles.cpp: the kinds of handles, their choice, and calls of the device layer for them.
#include "handles.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "log.h"

namespace hccc {
namespace {

constexpr size_t GRANULE = size_t{2} << 20;  // CUDA shares smaller allocations in common
constexpr HandleKind BEST_FIRST[] = {HandleKind::FABRIC, HandleKind::DESCRIPTOR, HandleKind::LEGACY};
static_assert(sizeof(hcccrtIpcMemHandle_t) == sizeof(Handle::bytes), "a handle has room");
static_assert(unsigned(HandleKind::LEGACY) == hcccrtHandleLegacy &&
                  unsigned(HandleKind::DESCRIPTOR) == hcccrtHandleDescriptor &&
                  unsigned(HandleKind::FABRIC) == hcccrtHandleFabric,
              "numbers are the device layer's");

// Returns the word of HCCC_HANDLES.
const char *word_of(HandleKind kind) {
  return kind == HandleKind::FABRIC ? "fabric" : kind == HandleKind::DESCRIPTOR ? "descriptor" : "legacy";
}

}  // namespace

const char *name_of(HandleKind kind) {
  switch (kind) {
    case HandleKind::FABRIC: return "fabric handles";
    case HandleKind::DESCRIPTOR: return "descriptors";
    default: return "legacy handles";
  }
}

unsigned handle_kinds_of(const Device &device) {
  const OnDevice on(device);
  unsigned kinds = 0;
  check_device(hcccrtExtGetHandleKinds(&kinds, device.number), "which handles its memory has");
  return kinds;
}

HandleKind handle_kind_of(const Device &device) {
  const unsigned kinds = handle_kinds_of(device);
  const char *wanted = getenv("HCCC_HANDLES");
  std::string has;
  bool known = !wanted || !*wanted;
  for (const HandleKind kind : BEST_FIRST) {
    const bool named = wanted && !strcmp(wanted, word_of(kind));
    known = known || named;
    if (!(kinds & unsigned(kind))) continue;
    if (named || !wanted || !*wanted) {
      HCCC_LOG(INFO, MEM, -1, "%s %d: memory is shared by %s%s", device.name(), device.number, name_of(kind),
               named ? ", as HCCC_HANDLES says" : "");
      return kind;
    }
    has += std::string(has.empty() ? "" : ", ") + word_of(kind);
  }
  if (!known) throw Error(hcccInvalidArgument, "HCCC_HANDLES is none of fabric, descriptor and legacy");
  throw Error(hcccInvalidUsage, text_of("HCCC_HANDLES is %s, and memory of %s %d has: %s", wanted ? wanted : "not set",
                                        device.name(), device.number, has.empty() ? "no handles" : has.c_str()));
}

void *allocate_shared(HandleKind kind, size_t *bytes) {
  void *made = nullptr;
  *bytes = (*bytes + GRANULE - 1) / GRANULE * GRANULE;
  check_device(hcccrtExtMallocShared(&made, bytes, unsigned(kind)), "memory of the device");
  return made;
}

void *allocate_coherent(size_t bytes) {
  void *made = nullptr;
  if (hcccrtExtMallocWithFlags(&made, bytes, hcccrtExtMallocUncached) == hcccrtSuccess) return made;
  hcccrtGetLastError();  // a device, or a runtime, without that
  check_device(hcccrtExtMallocWithFlags(&made, bytes, hcccrtExtMallocFinegrained), "memory of the device");
  return made;
}

void free_shared(void *base) noexcept {
  if (const hcccrtError_t error = hcccrtExtFreeShared(base))
    HCCC_LOG(WARN, MEM, -1, "giving memory of the device back: %s", hcccrtGetErrorString(error));
}

Handle handle_of(HandleKind kind, void *base, int *descriptor) {
  Handle made;
  made.kind = kind;
  hcccrtIpcMemHandle_t handle{};
  check_device(hcccrtExtGetSharedHandle(&handle, descriptor, base), "a handle of memory");
  memcpy(made.bytes, &handle, sizeof handle);
  return made;
}

void *open_shared(const Handle &handle, int descriptor, size_t bytes) {
  void *base = nullptr;
  hcccrtIpcMemHandle_t given;
  memcpy(&given, handle.bytes, sizeof given);
  check_device(hcccrtExtOpenSharedHandle(&base, &given, descriptor, bytes, unsigned(handle.kind)),
               "mapping another rank's memory");
  return base;
}

}  // namespace hccc
