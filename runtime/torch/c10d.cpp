// c10d.cpp: the Python module of the backend.
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "backend.h"
#include "blocks.h"

#include "backend.inc"
#include "collectives.inc"
#include "memory.inc"

namespace {

using namespace hccc_torch;

c10::intrusive_ptr<c10d::Backend> made(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                       double timeout, const std::string &id, py::object finder) {
  auto found = finder.is_none() ? nullptr : std::make_shared<Finder>(std::move(finder));
  const py::gil_scoped_release released;
  const hcccComm_t comm = size > 1 ? Comm::joined(id, rank, size) : nullptr;
  const Milliseconds limit(static_cast<int64_t>(timeout * 1e3));
  return c10::make_intrusive<HcccBackend>(store, comm, rank, size, limit, std::move(found));
}

}  // namespace

PYBIND11_MODULE(hccc_c10d, module) {
  module.def("open", [](uintptr_t runtime, uintptr_t device_layer) {
    library().open(reinterpret_cast<void *>(runtime), reinterpret_cast<void *>(device_layer));
  });
  // Says which platform of the device layer a type of PyTorch's devices is of.
  module.def("set_platform", [](const std::string &type, const std::string &platform) {
    for (const char *known : {"cuda", "hip"})
      if (platform == known) platform_of(c10::Device(type).type()) = known;
  });
  module.def("backend", &made);
  module.def("registered_bytes", [](int64_t bytes, const std::string &device) {
    return registered_bytes(bytes, c10::Device(device));
  });
  module.def("use_allocator", &use_allocator);
  module.def("look_again", [] { ++Finder::additions(); });
}
