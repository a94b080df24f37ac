// api.cpp: the C interface without collectives, groups and splits. It throws nothing.
#include <string.h>

#include <algorithm>

#include "comm.h"
#include "device_layer.h"
#include "standard.h"

namespace hccc {
namespace {

constexpr int THREADS_DEVICE = -1;

// Makes a communicator now, or with the open group. device: of the memory, where it is a device's.
void join(hcccComm_t *comm, const hccc_unique_id &id, int n_ranks, int rank, const TimeLeft &left,
          int device = THREADS_DEVICE) {
  check(comm, "comm");
  *comm = nullptr;
  Device on = memory_of_thread();
  if (device != THREADS_DEVICE) on.number = device;
  const auto make = [=] { *comm = hcccComm::on(on, id, n_ranks, rank, {}, left); };
  if (!group::open()) return make();
  group::add({comm, nullptr, {}, make});
}

hccc_unique_id new_id() {
  hccc_unique_id made;
  hccc_bootstrap_error error{};
  if (hccc_bootstrap_unique_id(&made, &error)) fail_as(error);
  return made;
}

// Ends a communicator; calls in streams are done first, unless it is lost. In a child of fork() the
// parent's goes on, and its object stays: its destructors would end the parent's threads.
void destroy(hcccComm_t comm) {
  if (!comm->process.is_this()) return comm->of.forsake();
  const std::unique_ptr<hcccComm> last(comm);
  const Failure &failure = comm->of.failure();
  if (failure.code() != hcccSuccess) return comm->jobs.stop(failure.code(), failure.text());
  comm->calls->finish();
  comm->of.wait_for_launches();
}

void stop(hcccComm_t comm) {
  const std::string text = text_of("rank %d has aborted the communicator", comm->of.rank());
  comm->of.abort(hcccAborted, text);
  comm->jobs.stop(hcccAborted, text);
}

}  // namespace

hccc_unique_id from(const hcccUniqueId &id) {
  hccc_unique_id made;
  static_assert(sizeof made == sizeof id, "one is the other");
  memcpy(&made, &id, sizeof made);
  return made;
}

}  // namespace hccc

using hccc::check;
using hccc::Error;
using hccc::caught;

HCCC_API hcccResult_t hcccGetVersion(int *version) {
  return caught(nullptr, [&] {
    check(version, "version");
    *version = HCCC_RUNTIME_VERSION;
  });
}

HCCC_API const char *hcccGetErrorString(hcccResult_t result) {
  switch (result) {
    case hcccSuccess: return "no error";
    case hcccUnhandledDeviceError: return "a device refused";
    case hcccSystemError: return "the system refused";
    case hcccInternalError: return "a bug of hccc";
    case hcccInvalidArgument: return "an argument makes no sense";
    case hcccInvalidUsage: return "ranks call different things, or no library fits";
    case hcccRemoteError: return "another rank is gone, or gave up";
    case hcccInProgress: return "not yet done";
    case hcccTimeout: return "timed out: a rank did not come, or did not go on";
    case hcccAborted: return "the communicator was aborted";
  }
  return "unknown result";
}

HCCC_API const char *hcccGetLastError(hcccComm_t comm) {
  static thread_local std::string text;  // others may set it meanwhile
  if (!comm || !comm->process.is_this()) return hccc::thread_error().c_str();
  text = comm->last_error->text();
  return text.c_str();
}

HCCC_API hcccResult_t hcccGetUniqueId(hcccUniqueId *id) {
  return caught(nullptr, [&] {
    check(id, "id");
    const hccc_unique_id made = hccc::new_id();
    memcpy(id, &made, sizeof made);
  });
}

HCCC_API hcccResult_t hcccCommInitRank(hcccComm_t *comm, int n_ranks, hcccUniqueId id, int rank) {
  return caught(nullptr, [&] {
    hccc::join(comm, hccc::from(id), n_ranks, rank, hccc::TimeLeft(hccc::timeout_of_environment()));
  });
}

HCCC_API hcccResult_t hcccCommInitEnvironment(hcccComm_t *comm) {
  return caught(nullptr, [&] {
    check(comm, "comm");
    *comm = nullptr;
    const hccc::TimeLeft left(hccc::timeout_of_environment());
    int rank = -1, n_ranks = 0, local = -1;
    char address[256];
    hccc_unique_id id;
    hccc_bootstrap_error error{};
    if (hccc_bootstrap_environment(&rank, &n_ranks, &local, address, sizeof address, &error))
      hccc::fail_as(error);
    if (hccc_bootstrap_id_from_environment(&id, rank, &error)) hccc::fail_as(error);
    hccc::join(comm, id, n_ranks, rank, left);
  });
}

HCCC_API hcccResult_t hcccCommInitAll(hcccComm_t *comms, int n_ranks, const int *devices) {
  const hcccResult_t asked = caught(nullptr, [&] {
    check(comms, "comms");
    if (n_ranks < 1) throw Error(hcccInvalidArgument, hccc::text_of("%d ranks are none", n_ranks));
    for (int r = 0; devices && r < n_ranks; ++r)
      if (devices[r] < 0) throw Error(hcccInvalidArgument, hccc::text_of("%d is no device", devices[r]));
    const hccc_unique_id id = hccc::new_id();
    const hccc::TimeLeft left(hccc::timeout_of_environment());
    hcccGroupStart();
    for (int r = 0; r < n_ranks; ++r) hccc::join(&comms[r], id, n_ranks, r, left, devices ? devices[r] : 0);
  });
  if (asked != hcccSuccess) return asked;
  const hcccResult_t result = hcccGroupEnd();
  for (int r = 0; result != hcccSuccess && r < n_ranks; ++r) {
    if (comms[r]) hcccCommAbort(comms[r]);
    comms[r] = nullptr;
  }
  return result;
}

HCCC_API hcccResult_t hcccCommLoad(hcccComm_t comm, const char *path) {
  return caught(comm, [&] {
    check(comm);
    check(path, "path");
    hccc::in_turn(comm, [comm, file = std::string(path)](const hccc::Settings &settings) {
      if (!hccc::is_job(file)) return comm->of.load(file, settings.timeout_s);
      comm->jobs.add(hccc::load_job(comm, file, settings.timeout_s));
    });
  });
}

HCCC_API hcccResult_t hcccCommCan(hcccComm_t comm, const char *collective, int root, hcccDataType_t type,
                                  hcccRedOp_t op, hcccCan_t *answer) {
  return caught(comm, [&] {
    check(comm);
    check(collective, "collective");
    check(answer, "answer");
    hccc::Wanted wanted;
    wanted.collective = collective, wanted.root = root, wanted.type = type, wanted.op = op;
    *answer = comm->jobs.of(wanted) ? hcccCanNow : comm->of.can(wanted);
  });
}

HCCC_API hcccResult_t hcccRedOpCreatePreMulSum(hcccRedOp_t *op, void *scalar, hcccDataType_t type,
                                               hcccScalarResidence_t residence, hcccComm_t comm) {
  return caught(comm, [&] {
    check(comm);
    check(op, "op");
    check(scalar, "scalar");
    if (residence != hcccScalarDevice && residence != hcccScalarHostImmediate)
      throw Error(hcccInvalidArgument, hccc::text_of("residence %d is none", static_cast<int>(residence)));
    *op = static_cast<hcccRedOp_t>(comm->multipliers.make(scalar, type, residence == hcccScalarHostImmediate));
  });
}

HCCC_API hcccResult_t hcccRedOpDestroy(hcccRedOp_t op, hcccComm_t comm) {
  return caught(comm, [&] {
    check(comm);
    comm->multipliers.end(op);
  });
}

HCCC_API hcccResult_t hcccRedOpNamed(hcccRedOp_t *op, const char *name) {
  return caught(nullptr, [&] {
    check(op, "op");
    check(name, "name");
    *op = static_cast<hcccRedOp_t>(hccc::op_of(name));
  });
}

HCCC_API hcccResult_t hcccSetCommand(const char *const *words) {
  return caught(nullptr, [&] {
    std::vector<std::string> all;
    for (; words && *words; ++words) all.push_back(*words);
    hccc::set_maker(std::move(all));
  });
}

HCCC_API hcccResult_t hcccCommCount(hcccComm_t comm, int *count) {
  return caught(comm, [&] {
    check(comm);
    check(count, "count");
    *count = comm->of.n_ranks();
  });
}

HCCC_API hcccResult_t hcccCommUserRank(hcccComm_t comm, int *rank) {
  return caught(comm, [&] {
    check(comm);
    check(rank, "rank");
    *rank = comm->of.rank();
  });
}

HCCC_API hcccResult_t hcccCommCuDevice(hcccComm_t comm, int *device) {
  return caught(comm, [&] {
    check(comm);
    check(device, "device");
    *device = comm->of.device() ? comm->of.device()->number : comm->device;
  });
}

HCCC_API hcccResult_t hcccCommPlatform(hcccComm_t comm, const char **platform) {
  return caught(comm, [&] {
    check(comm);
    check(platform, "platform");
    *platform = comm->of.target();
  });
}

HCCC_API hcccResult_t hcccCommHosts(hcccComm_t comm, int *host_of_rank, int *any_device) {
  return hccc::caught(comm, [&] {
    hccc::check(comm);
    hccc::check(host_of_rank, "the place of the hosts");
    const std::vector<int> hosts = comm->of.hosts();
    std::copy(hosts.begin(), hosts.end(), host_of_rank);
    if (any_device) *any_device = comm->of.any_device();
  });
}

HCCC_API hcccResult_t hcccCommLibrary(hcccComm_t comm, const char **name) {
  return hccc::caught(comm, [&] {
    hccc::check(comm);
    hccc::check(name, "the place of the name");
    *name = comm->of.last_library();
  });
}

HCCC_API hcccResult_t hcccCommGetAsyncError(hcccComm_t comm, hcccResult_t *error) {
  return caught(comm, [&] {
    check(comm);
    check(error, "error");
    comm->of.look();
    *error = comm->of.failure().code();
    if (*error != hcccSuccess) return comm->last_error->set(comm->of.failure().text());
    const std::string refused = comm->of.refusal();
    if (refused.empty()) return;
    *error = hcccInvalidUsage;
    comm->last_error->set(refused);
  });
}

HCCC_API hcccResult_t hcccCommSetTimeout(hcccComm_t comm, double seconds) {
  return caught(comm, [&] {
    check(comm);
    comm->calls->set_timeout(seconds);
  });
}

HCCC_API hcccResult_t hcccCommSetCut(hcccComm_t comm, long long micro_batch_bytes, int window) {
  return caught(comm, [&] {
    check(comm);
    comm->calls->set_cut(micro_batch_bytes, window);
  });
}

HCCC_API hcccResult_t hcccCommQuery(hcccComm_t comm, unsigned long long *made, unsigned long long *done) {
  hcccResult_t state = hcccSuccess;
  const hcccResult_t result = caught(comm, [&] {
    check(comm);
    const hccc::Calls::Progress now = comm->calls->progress();
    if (made) *made = now.made;
    const size_t launched = comm->of.unfinished();
    if (done) *done = now.done - std::min<uint64_t>(now.done, launched);
    if (comm->of.failure().code() != hcccSuccess)
      throw Error(comm->of.failure().code(), comm->of.failure().text());
    if (now.made != now.done || now.running || launched) state = hcccInProgress;
  });
  return result == hcccSuccess ? state : result;
}

HCCC_API hcccResult_t hcccCommFinalize(hcccComm_t comm) {
  return caught(comm, [&] {
    check(comm);
    hccc::group::check_unused(comm);
    comm->calls->finish();
    comm->of.wait_for_launches();
  });
}

HCCC_API hcccResult_t hcccCommDestroy(hcccComm_t comm) {
  return caught(nullptr, [&] {
    if (!comm) return;
    hccc::group::check_unused(comm);
    hccc::destroy(comm);
  });
}

HCCC_API hcccResult_t hcccCommAbort(hcccComm_t comm) {
  return caught(nullptr, [&] {
    check(comm, "the communicator");
    hccc::group::check_unused(comm);
    if (!comm->process.is_this()) return comm->of.forsake();
    hccc::stop(comm);
    delete comm;
  });
}

HCCC_API hcccResult_t hcccCommStop(hcccComm_t comm) {
  return caught(comm, [&] {
    check(comm);
    hccc::stop(comm);
  });
}

HCCC_API hcccResult_t hcccCommRegister(hcccComm_t comm, void *buffer, size_t bytes, void **handle) {
  return caught(comm, [&] {
    check(comm);
    check(handle, "handle");
    *handle = nullptr;
    *handle = comm->of.register_buffer(buffer, bytes);
  });
}

HCCC_API hcccResult_t hcccCommDeregister(hcccComm_t comm, void *handle) {
  return caught(comm, [&] {
    check(comm);
    comm->of.registrations().remove(handle);
  });
}

HCCC_API hcccResult_t hcccSetDeviceLayer(void *library) {
  return caught(nullptr, [&] { hccc::device_layer::set(library); });
}

HCCC_API hcccResult_t hcccSetMemory(const char *platform, int device) {
  return caught(nullptr, [&] {
    if (!platform) return hccc::set_memory_of_thread(std::nullopt);
    for (const hccc::Device &one : {hccc::Device{}, hccc::Device{hcccrtPlatformCUDA, device}, hccc::Device{hcccrtPlatformHIP, device}})
      if (!strcmp(platform, one.platform == hcccrtPlatformNone ? "cpu" : one.name()))
        return hccc::set_memory_of_thread(one);
    throw Error(hcccInvalidArgument, hccc::text_of("%s is none of cpu, cuda, hip", platform));
  });
}

HCCC_API hcccResult_t hcccMemAlloc(void **pointer, size_t bytes) {
  return caught(nullptr, [&] {
    check(pointer, "pointer");
    *pointer = nullptr;
    *pointer = hccc::allocations::take(bytes);
  });
}

HCCC_API hcccResult_t hcccMemFree(void *pointer) {
  return caught(nullptr, [&] {
    if (pointer) hccc::allocations::give(pointer);
  });
}
