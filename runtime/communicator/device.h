// device.h: a device of the device layer (docs/device-layer.md), and calls to it that may fail.
#pragma once

#include <functional>
#include <tuple>

#include "../device/include/hcccrt.h"

namespace hccc {

struct Device {
  hcccrtPlatform_t platform = hcccrtPlatformNone;  // none: no device, but the host
  int number = 0;

  // The calling thread's. Throws Error.
  static Device current();
  const char *name() const;  // of its platform, as libraries name their targets
  bool operator<(const Device &other) const {
    return std::tie(platform, number) < std::tie(other.platform, other.number);
  }
};

// The calling thread's device, until this ends; meanwhile the thread may allocate and look at events, whatever
// streams are captured.
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

// Calls a function on a device: on the CPU in another thread, for the calling one may be that of a stream,
// which must not call the device layer. Throws what it throws.
void call_on(const Device &device, const std::function<void()> &body);

// Throws Error: `what` and what the error means, unless it is none.
void check_device(hcccrtError_t error, const char *what);

}  // namespace hccc
