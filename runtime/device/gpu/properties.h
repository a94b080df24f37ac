// properties.h: a GPU's properties, read as attributes, which keep their meaning between versions.
#pragma once

#include <cstdio>
#include <cstring>

#include "library.h"

namespace hcccrt {

// Reads the properties. native: a structure that begins with the name; memory_at: the offset of its
// bytes of memory.
inline void fill_properties(hcccrtDeviceProp *p, int device, const char *native, size_t memory_at,
                            hcccrtError_t (*attribute)(int *, hcccrtDeviceAttr_t, int)) {
  const auto number = [&](hcccrtDeviceAttr_t which) {
    int value = 0;
    return attribute(&value, which, device) == hcccrtSuccess ? value : 0;
  };
  *p = {};
  std::snprintf(p->name, sizeof p->name, "%.*s", static_cast<int>(sizeof p->name) - 1, native);
  std::memcpy(&p->totalGlobalMem, native + memory_at, sizeof p->totalGlobalMem);
  p->sharedMemPerBlock = static_cast<size_t>(number(hcccrtDevAttrMaxSharedMemoryPerBlock));
  p->major = number(hcccrtDevAttrComputeCapabilityMajor);
  p->minor = number(hcccrtDevAttrComputeCapabilityMinor);
  p->multiProcessorCount = number(hcccrtDevAttrMultiProcessorCount);
  p->warpSize = number(hcccrtDevAttrWarpSize);
  p->maxThreadsPerBlock = number(hcccrtDevAttrMaxThreadsPerBlock);
  p->maxThreadsPerMultiProcessor = number(hcccrtDevAttrMaxThreadsPerMultiProcessor);
  p->clockRate = number(hcccrtDevAttrClockRate);
  p->memoryClockRate = number(hcccrtDevAttrMemoryClockRate);
  p->memoryBusWidth = number(hcccrtDevAttrGlobalMemoryBusWidth);
  p->l2CacheSize = number(hcccrtDevAttrL2CacheSize);
  p->pciDomainID = number(hcccrtDevAttrPciDomainId);
  p->pciBusID = number(hcccrtDevAttrPciBusId);
  p->pciDeviceID = number(hcccrtDevAttrPciDeviceId);
  p->integrated = number(hcccrtDevAttrIntegrated);
  p->canMapHostMemory = number(hcccrtDevAttrCanMapHostMemory);
  p->unifiedAddressing = number(hcccrtDevAttrUnifiedAddressing);
  p->managedMemory = number(hcccrtDevAttrManagedMemory);
  p->cooperativeLaunch = number(hcccrtDevAttrCooperativeLaunch);
}

}  // namespace hcccrt
