// device.h: a device of the device layer (docs/device-layer.md), and calls on it.
#pragma once

#include <functional>
#include <string>
#include <tuple>

#include "../device/include/hcccrt.h"

namespace hccc {

struct Device {
  hcccrtPlatform_t platform = hcccrtPlatformNone;  // none: no device, but the host
  int number = 0;

  // Returns the calling thread's device. Throws Error.
  static Device current();
  const char *name() const;  // of its platform, as libraries name their targets
  // Returns what its kernels are compiled for: HCCC_GPU_ARCH, or its own kind ("sm_90"); "" where it does
  // not say. Throws Error.
  std::string arch() const;
  bool operator<(const Device &other) const {
    return std::tie(platform, number) < std::tie(other.platform, other.number);
  }
};

// Sets the calling thread's device while it lives; the thread may then allocate and query events
// while streams are captured.
class OnDevice {
 public:
  // Throws Error.
  explicit OnDevice(const Device &device);
  ~OnDevice();
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;

 private:
  Device before_;
  hcccrtStreamCaptureMode_t mode_ = hcccrtStreamCaptureModeRelaxed;
  bool exchanged_ = false;
};

// Calls a function on a device and throws what it throws. On the CPU in another thread: the calling
// one may be a stream's, which must not call the device layer.
void call_on(const Device &device, const std::function<void()> &body);

// Throws Error, with `what` and the error's meaning, unless it is success.
void check_device(hcccrtError_t error, const char *what);

}  // namespace hccc
