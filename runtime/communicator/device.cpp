// device.cpp: the calling thread's device.
#include "device.h"

#include <stdlib.h>

#include <exception>
#include <thread>

#include "error.h"

namespace hccc {

void check_device(hcccrtError_t error, const char *what) {
  if (error == hcccrtSuccess) return;
  const hcccResult_t code =
      error == hcccrtErrorMemoryAllocation ? hcccSystemError : hcccUnhandledDeviceError;
  throw Error(code, text_of("%s: %s (%d)", what, hcccrtGetErrorString(error), static_cast<int>(error)));
}

Device Device::current() {
  Device found;
  if (hcccrtGetPlatform(&found.platform)) {
    char text[512] = "";
    hcccrtGetPlatformMessage(found.platform, text, sizeof text);
    throw Error(hcccInvalidUsage, text_of("the platform of HCCC_PLATFORM is not here: %s", text));
  }
  check_device(hcccrtGetDevice(&found.number), "the thread's device");
  return found;
}

const char *Device::name() const {
  switch (platform) {
    case hcccrtPlatformCPU: return "cpu";
    case hcccrtPlatformCUDA: return "cuda";
    case hcccrtPlatformHIP: return "hip";
    default: return "host";
  }
}

std::string Device::arch() const {
  if (const char *wanted = getenv("HCCC_GPU_ARCH")) return wanted;
  hcccrtDeviceProp found;
  const OnDevice on(*this);
  if (hcccrtGetDeviceProperties(&found, number) == hcccrtSuccess) return found.arch;
  hcccrtGetLastError();
  return "";
}

OnDevice::OnDevice(const Device &device) : before_(Device::current()) {
  check_device(hcccrtSetPlatform(device.platform), "its platform");
  check_device(hcccrtSetDevice(device.number), "its device");
  exchanged_ = hcccrtThreadExchangeStreamCaptureMode(&mode_) == hcccrtSuccess;
  if (!exchanged_) hcccrtGetLastError();  // a runtime that cannot capture
}

OnDevice::~OnDevice() {
  if (exchanged_) hcccrtThreadExchangeStreamCaptureMode(&mode_);
  hcccrtSetPlatform(before_.platform);
  hcccrtSetDevice(before_.number);
}

void call_on(const Device &device, const std::function<void()> &body) {
  std::exception_ptr thrown;
  const auto run = [&] {
    try {
      const OnDevice on(device);
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  if (device.platform == hcccrtPlatformCPU) std::thread(run).join();
  else run();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace hccc
