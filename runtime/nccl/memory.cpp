// memory.cpp: memory that peers reach, registered buffers, and windows, which are registered buffers.
#include "comm.h"

namespace hccc_nccl {
namespace {

Registered *add(ncclComm_t comm, void *buffer, size_t bytes) {
  check(comm);
  auto made = std::make_unique<Registered>();
  made->at = buffer;
  must(runtime().hcccCommRegister(comm->of, buffer, bytes, &made->handle));
  comm->registered.insert(made.get());
  return made.release();
}

// Returns what a caller's handle is. Throws Failed.
Registered *found(ncclComm_t comm, void *handle) {
  check(comm);
  const auto at = comm->registered.find(static_cast<Registered *>(handle));
  if (at == comm->registered.end())
    throw Failed{ncclInvalidArgument, "nothing has this handle: it was not registered here"};
  return *at;
}

void remove(ncclComm_t comm, void *handle) {
  const std::unique_ptr<Registered> last(found(comm, handle));
  comm->registered.erase(last.get());
  must(runtime().hcccCommDeregister(comm->of, last->handle));
}

}  // namespace
}  // namespace hccc_nccl

NCCL_FUNCTION(ncclMemAlloc, (void **pointer, size_t bytes)) {
  return hccc_nccl::caught(nullptr, [&] { hccc_nccl::must(hccc_nccl::runtime().hcccMemAlloc(pointer, bytes)); });
}

NCCL_FUNCTION(ncclMemFree, (void *pointer)) {
  return hccc_nccl::caught(nullptr, [&] { hccc_nccl::must(hccc_nccl::runtime().hcccMemFree(pointer)); });
}

NCCL_FUNCTION(ncclCommRegister, (ncclComm_t comm, void *buffer, size_t bytes, void **handle)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(handle, "handle");
    *handle = hccc_nccl::add(comm, buffer, bytes);
  });
}

NCCL_FUNCTION(ncclCommDeregister, (ncclComm_t comm, void *handle)) {
  return hccc_nccl::caught(comm, [&] { hccc_nccl::remove(comm, handle); });
}

NCCL_FUNCTION(ncclCommWindowRegister, (ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(window, "win");
    *window = reinterpret_cast<ncclWindow_t>(hccc_nccl::add(comm, buffer, bytes));
  });
}

NCCL_FUNCTION(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window)) {
  return hccc_nccl::caught(comm, [&] { hccc_nccl::remove(comm, window); });
}

NCCL_FUNCTION(ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void **pointer)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(pointer, "outUserPtr");
    *pointer = hccc_nccl::found(comm, window)->at;
  });
}
