// dispatcher.cpp: dispatches a thread's calls to its platform, and keeps their errors.
#include <strings.h>

#include <mutex>
#include <new>
#include <string>
#include <system_error>

#include "cpu/cpu.h"
#include "gpu/properties.h"

#include "generated/bind_cuda.inc"
#include "generated/bind_hip.inc"

namespace hcccrt {
namespace {

constexpr int kPlatforms = 4;
constexpr const char *kNames[kPlatforms] = {"none", "cpu", "cuda", "hip"};

struct Found {
  std::once_flag once;
  bool available = false;
  std::string text;
};

// Returns a platform. Never destroyed: threads may call while the process ends.
Found &found(hcccrtPlatform_t platform) {
  static auto *const all = new Found[kPlatforms];
  Found &f = all[platform];
  std::call_once(f.once, [&] {
    if (platform == hcccrtPlatformCPU) f.available = cpu::available(&f.text);
    if (platform == hcccrtPlatformCUDA) f.available = cuda::available(&f.text);
    if (platform == hcccrtPlatformHIP) f.available = hip::available(&f.text);
  });
  return f;
}

const Table *table_of(hcccrtPlatform_t platform) {
  static const Table *const tables[kPlatforms] = {nullptr, &cpu::table, &cuda::table, &hip::table};
  return tables[platform];
}

struct Default {
  hcccrtPlatform_t platform = hcccrtPlatformNone;
  std::string text;
};

Default *find_default() {
  auto *d = new Default;
  const char *named = std::getenv("HCCC_PLATFORM");
  if (named && *named && strcasecmp(named, "auto") != 0) {
    for (int p = 1; p < kPlatforms; ++p)
      if (strcasecmp(named, kNames[p]) == 0) d->platform = static_cast<hcccrtPlatform_t>(p);
    d->text = d->platform ? std::string("HCCC_PLATFORM is ") + named
                          : std::string("HCCC_PLATFORM is `") + named + "`: cpu, cuda, hip or auto";
    return d;
  }
  d->platform = found(hcccrtPlatformCUDA).available  ? hcccrtPlatformCUDA
                : found(hcccrtPlatformHIP).available ? hcccrtPlatformHIP
                                                     : hcccrtPlatformCPU;
  d->text = std::string("detected ") + kNames[d->platform];
  return d;
}

const Default &process_default() {
  static const Default *const d = find_default();
  return *d;
}

thread_local hcccrtPlatform_t chosen = hcccrtPlatformNone;
thread_local hcccrtError_t last = hcccrtSuccess;

hcccrtError_t noted(hcccrtError_t error) {
  if (error != hcccrtSuccess && error != hcccrtErrorNotReady) last = error;
  return error;
}

// Converts exceptions to codes: nothing is thrown out of the library.
template <class F>
hcccrtError_t guarded(F call) {
  try {
    return call();
  } catch (const std::bad_alloc &) {
    return hcccrtErrorMemoryAllocation;
  } catch (const std::system_error &) {
    return hcccrtErrorOperatingSystem;
  } catch (...) {
    return hcccrtErrorUnknown;
  }
}

hcccrtError_t current_platform(hcccrtPlatform_t *platform) {
  *platform = chosen ? chosen : process_default().platform;
  return *platform && found(*platform).available ? hcccrtSuccess : hcccrtErrorPlatformUnavailable;
}

template <class F>
hcccrtError_t dispatch(F call) {
  return noted(guarded([&] {
    hcccrtPlatform_t platform;
    if (const auto error = current_platform(&platform)) return error;
    return call(*table_of(platform));
  }));
}

// Returns an error that the platform reports by itself: of kernels launched elsewhere, of a lost
// device.
hcccrtError_t platform_error(bool keep) {
  return guarded([&] {
    hcccrtPlatform_t platform;
    if (current_platform(&platform)) return hcccrtSuccess;
    const Table &t = *table_of(platform);
    const auto error = keep ? t.PeekAtLastError() : t.GetLastError();
    return error == hcccrtErrorNotReady ? hcccrtSuccess : error;
  });
}

bool known(hcccrtPlatform_t p) { return p > hcccrtPlatformNone && p < kPlatforms; }

}  // namespace

}  // namespace hcccrt

#include "generated/meanings.inc"

using namespace hcccrt;

extern "C" {

hcccrtError_t hcccrtGetAvailablePlatforms(unsigned *mask) {
  return noted(guarded([&] {
    if (!mask) return hcccrtErrorInvalidValue;
    *mask = 0;
    for (int p = 1; p < kPlatforms; ++p)
      if (found(static_cast<hcccrtPlatform_t>(p)).available) *mask |= 1u << p;
    return hcccrtSuccess;
  }));
}

hcccrtError_t hcccrtSetPlatform(hcccrtPlatform_t platform) {
  return noted(guarded([&] {
    if (!known(platform)) return hcccrtErrorInvalidValue;
    if (!found(platform).available) return hcccrtErrorPlatformUnavailable;
    chosen = platform;
    return hcccrtSuccess;
  }));
}

hcccrtError_t hcccrtSetPlatformAuto(void) {
  return noted(guarded([&] {
    const auto platform = process_default().platform;
    if (!platform || !found(platform).available) return hcccrtErrorPlatformUnavailable;
    chosen = hcccrtPlatformNone;
    return hcccrtSuccess;
  }));
}

hcccrtError_t hcccrtGetPlatform(hcccrtPlatform_t *platform) {
  return noted(guarded([&] { return platform ? current_platform(platform) : hcccrtErrorInvalidValue; }));
}

hcccrtError_t hcccrtGetPlatformMessage(hcccrtPlatform_t platform, char *text, int bytes) {
  return noted(guarded([&] {
    if (!text || bytes < 1) return hcccrtErrorInvalidValue;
    if (platform && !known(platform)) return hcccrtErrorInvalidValue;
    const std::string &said = platform ? found(platform).text : process_default().text;
    std::snprintf(text, static_cast<size_t>(bytes), "%s", said.c_str());
    return hcccrtSuccess;
  }));
}

const char *hcccrtGetErrorString(hcccrtError_t error) {
  if (const char *text = meaning(error)) return text;
  const int code = static_cast<int>(error);
  const char *text = code >= 200000 && code < 300000   ? hip::string_of(code - 200000)
                     : code >= 100000 && code < 200000 ? cuda::string_of(code - 100000)
                                                       : nullptr;
  return text ? text : "not an error of the device layer";
}

hcccrtError_t hcccrtGetLastError(void) {
  const auto own = last, native = platform_error(false);
  last = hcccrtSuccess;
  return own ? own : native;
}

hcccrtError_t hcccrtPeekAtLastError(void) { return last ? last : platform_error(true); }

#include "generated/dispatch.inc"

}  // extern "C"
