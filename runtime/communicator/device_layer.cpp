// device_layer.cpp: the functions of the device layer that streams of the CPU need.
#include "device_layer.h"

#include <dlfcn.h>

#include <chrono>
#include <future>
#include <memory>

#include "error.h"
#include "forks.h"

namespace hccc::device_layer {
namespace {

struct Functions {
  decltype(&hcccrtGetPlatform) get_platform = &hcccrtGetPlatform;
  decltype(&hcccrtSetPlatform) set_platform = &hcccrtSetPlatform;
  decltype(&hcccrtSetPlatformAuto) set_platform_auto = &hcccrtSetPlatformAuto;
  decltype(&hcccrtStreamGetCaptureInfo_v2) capture_info = &hcccrtStreamGetCaptureInfo_v2;
  decltype(&hcccrtLaunchHostFunc) launch = &hcccrtLaunchHostFunc;
  decltype(&hcccrtGetErrorString) error_string = &hcccrtGetErrorString;
};

Functions functions;

template <class F>
void find(void *library, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) throw Error(hcccInvalidArgument, text_of("the library has no %s", name));
}

Functions found_in(void *library) {
  Functions f;
  find(library, "hcccrtGetPlatform", f.get_platform);
  find(library, "hcccrtSetPlatform", f.set_platform);
  find(library, "hcccrtSetPlatformAuto", f.set_platform_auto);
  find(library, "hcccrtStreamGetCaptureInfo_v2", f.capture_info);
  find(library, "hcccrtLaunchHostFunc", f.launch);
  find(library, "hcccrtGetErrorString", f.error_string);
  return f;
}

Functions found() {
  std::lock_guard<std::mutex> lock(process_mutex());
  return functions;
}

// Sets the thread's platform to the CPU while it lives.
class OnCpu {
 public:
  explicit OnCpu(const Functions &f) : f_(f) {
    if (f.get_platform(&before_)) before_ = hcccrtPlatformNone;
    f.set_platform(hcccrtPlatformCPU);
  }
  ~OnCpu() {
    if (before_ == hcccrtPlatformNone) f_.set_platform_auto();
    else f_.set_platform(before_);
  }

 private:
  const Functions &f_;
  hcccrtPlatform_t before_ = hcccrtPlatformNone;
};

void check(const Functions &f, hcccrtError_t error) {
  if (error == hcccrtSuccess) return;
  if (error == hcccrtErrorInvalidResourceHandle)
    throw Error(hcccInvalidArgument, "the stream is none of the device layer's CPU platform");
  const bool usage = error == hcccrtErrorNotPermitted ||
                     (error >= hcccrtErrorStreamCaptureUnsupported &&
                      error <= hcccrtErrorStreamCaptureWrongThread);
  throw Error(usage ? hcccInvalidUsage : hcccUnhandledDeviceError,
              std::string("the stream refuses: ") + f.error_string(error));
}

}  // namespace

void set(void *library) {
  const Functions f = library ? found_in(library) : Functions();
  std::lock_guard<std::mutex> lock(process_mutex());
  functions = f;
}

bool captures(hcccrtStream_t stream) {
  const Functions f = found();
  const OnCpu cpu(f);
  hcccrtStreamCaptureStatus_t status = hcccrtStreamCaptureStatusNone;
  check(f, f.capture_info(stream, &status, nullptr, nullptr, nullptr, nullptr));
  return status != hcccrtStreamCaptureStatusNone;
}

void launch(hcccrtStream_t stream, hcccrtHostFn_t function, void *argument) {
  const Functions f = found();
  const OnCpu cpu(f);
  check(f, f.launch(stream, function, argument));
}

void wait(hcccrtStream_t stream, const std::function<void()> &go_on) {
  using Reached = std::shared_ptr<std::promise<void>>;
  auto told = std::make_unique<Reached>(std::make_shared<std::promise<void>>());
  const std::future<void> reached = (*told)->get_future();
  launch(stream, [](void *of) { (*std::unique_ptr<Reached>(static_cast<Reached *>(of)))->set_value(); }, told.get());
  told.release();  // the stream frees it
  while (reached.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) go_on();
}

}  // namespace hccc::device_layer
