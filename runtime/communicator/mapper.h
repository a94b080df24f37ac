// mapper.h: a thread that maps the device memory that peers share. A device may let that wait for
// kernels that run: the monitor, which ends them where they wait in vain, is another thread.
#pragma once

#include <functional>
#include <thread>

#include "descriptor.h"
#include "device_memory.h"
#include "error.h"

namespace hccc {

class Mapper {
 public:
  // failed: called where memory cannot be mapped; throws nothing.
  Mapper(DeviceMemory &memory, std::function<void(const Error &)> failed);
  // Waits for a mapping that is under way.
  ~Mapper();
  // Frees what a child of fork() has of its parent's.
  void forsake();
  Mapper(const Mapper &) = delete;
  Mapper &operator=(const Mapper &) = delete;

 private:
  void run();

  DeviceMemory &memory_;
  const std::function<void(const Error &)> failed_;
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace hccc
