// handles.h: device memory that other processes can map, by the best kind of handle of the device.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "device.h"

namespace hccc {

enum class HandleKind : uint32_t { LEGACY = 1, DESCRIPTOR = 2, FABRIC = 4 };
const char *name_of(HandleKind kind);

// A handle that one process sends to another; its descriptor is sent beside it.
struct Handle {
  HandleKind kind = HandleKind::LEGACY;
  char bytes[64] = {};
};

// Returns the kinds of handles that a device has, as bits. Throws Error.
unsigned handle_kinds_of(const Device &device);
// Returns the best kind that a device has, or the one that HCCC_HANDLES names. Throws Error.
HandleKind handle_kind_of(const Device &device);

// The functions below use the calling thread's device. All but the last throw Error.

// Allocates memory in which running kernels see the host's writes.
void *allocate_coherent(size_t bytes);
// Allocates memory to share. bytes: rounded up to what the device can share.
void *allocate_shared(HandleKind kind, size_t *bytes);
// Makes a handle. descriptor: closed by the caller; -1: the kind has none.
Handle handle_of(HandleKind kind, void *base, int *descriptor);
// Maps another process's memory. bytes: as many as were allocated.
void *open_shared(const Handle &handle, int descriptor, size_t bytes);
// Frees allocated memory, or unmaps opened memory.
void free_shared(void *base) noexcept;

}  // namespace hccc
