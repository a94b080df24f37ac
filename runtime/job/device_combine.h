// device_combine.h: reductions of a border in memory of a GPU, by kernels of hccc's, each compiled when a call first
// needs it and kept beside the standard collectives.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "../communicator/device.h"

namespace hccc::job {

struct DeviceCombine {
  // Put into a stream: to = a op b, element by element; and the division of an average. Not 0: the device refuses.
  int (*combine)(void *to, const void *a, const void *b, size_t n, void *stream) = nullptr;
  int (*divide)(void *at, size_t n, int by, void *stream) = nullptr;
};

class DeviceCombines {
 public:
  // Returns the functions of a type and a reduction on the thread's device; null: the host must do it, and
  // the log has said why. The first time it may compile them; stopped: asked ten times a second, ends that.
  const DeviceCombine *of(const Device &device, int type, int op, int rank, const std::function<bool()> &stopped);

 private:
  std::map<std::pair<int, int>, std::optional<DeviceCombine>> known_;
};

}  // namespace hccc::job
