// handles.h: device memory that other processes can map, by the best kind of handle that the device has.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "device.h"

namespace hccc {

enum class HandleKind : uint32_t { LEGACY = 1, DESCRIPTOR = 2, FABRIC = 4 };
const char *name_of(HandleKind kind);

// What a process sends to another. The descriptor goes beside it.
struct Handle {
  HandleKind kind = HandleKind::LEGACY;
  char bytes[64] = {};
};

// Bits of what a device has. Throws Error.
unsigned handle_kinds_of(const Device &device);
// The best that a device has, or what HCCC_HANDLES names. Logged. Throws Error.
HandleKind handle_kind_of(const Device &device);

// All of these: on the calling thread's device. They throw Error, but the last.

// Memory that kernels which run see the host's copies to.
void *allocate_coherent(size_t bytes);
// bytes: rounded up to what the device can share.
void *allocate_shared(HandleKind kind, size_t *bytes);
// descriptor: to be closed by the caller; -1 where the kind has none.
Handle handle_of(HandleKind kind, void *base, int *descriptor);
// bytes: as many as were allocated.
void *open_shared(const Handle &handle, int descriptor, size_t bytes);
// What was allocated, or opened.
void free_shared(void *base) noexcept;

}  // namespace hccc
