// group.cpp: groups: libhccc's, and what is done at their end: new communicators made ready, and
// calls of the vendor's.
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "comm.h"

namespace hccc_nccl {

void must(hcccResult_t result) {
  if (result != hcccSuccess) throw Failed{result_of(result), runtime().hcccGetLastError(nullptr)};
}

void check(const void *pointer, const char *what) {
  if (!pointer) throw Failed{ncclInvalidArgument, std::string(what) + " is null"};
}

void check(ncclComm_t comm) {
  check(comm, "the communicator");
  const int state = comm->state.load(std::memory_order_acquire);
  if (state == ncclInProgress)
    throw Failed{ncclInvalidArgument, comm->of ? "calls of the communicator are not made yet: wait until "
                                                 "ncclCommGetAsyncError says so"
                                               : "the communicator is not made yet: wait until ncclCommGetAsyncError says so"};
  if (state != ncclSuccess)
    throw Failed{static_cast<ncclResult_t>(state),
                 (comm->of ? "a call of the communicator failed: " : "the communicator was not made: ") + comm->last->get().text};
  group::uses(comm);
  if (!comm->of) throw Failed{ncclInvalidUsage, "the communicator is made when the group ends: end it first"};
}

Said said(const std::string &text) {
  static std::atomic<uint64_t> number{0};
  return {++number, text};
}

Said &thread_said() {
  static thread_local Said last;
  return last;
}

std::string platform_of(ncclComm_t comm) {
  const char *platform = "";
  must(runtime().hcccCommPlatform(comm->of, &platform));
  return platform;
}

bool on_cpu(ncclComm_t comm) { return platform_of(comm) == "cpu"; }

void *stream_of(ncclComm_t comm, cudaStream_t stream) {
  constexpr uintptr_t PER_THREAD = 2;  // cudaStreamLegacy is 1
  if (reinterpret_cast<uintptr_t>(stream) > PER_THREAD) return stream;
  return on_cpu(comm) ? nullptr : static_cast<void *>(stream);
}

void abandon(ncclComm_t comm) {
  group::forget(comm);
  if (comm->vendor) vendor()->ncclCommAbort(comm->vendor);
  if (comm->of) runtime().hcccCommAbort(comm->of);
  for (Registered *one : comm->registered) delete one;
  delete comm;
}

namespace {

struct Made {
  ncclComm_t comm, *out;
};

// Makes new communicators ready. Those that libhccc has not made (of a split without a color) are
// none; where one fails, none is left.
void finish(const std::vector<Made> &all, bool usable) {
  std::vector<ncclComm_t> comms;
  for (const Made &one : all) {
    if (usable && one.comm->of) {
      comms.push_back(one.comm);
    } else {
      abandon(one.comm);
      *one.out = nullptr;
    }
  }
  if (comms.empty()) return;
  try {
    make_ready(comms);
  } catch (...) {
    for (const Made &one : all)
      if (*one.out) abandon(one.comm), *one.out = nullptr;
    throw;
  }
}

struct Open {
  int depth = 0;
  std::vector<Made> made;
  std::set<ncclComm_t> used;
  std::vector<std::function<ncclResult_t()>> vendors;
  ncclResult_t code = ncclSuccess;  // of the first call that failed
  std::string text;
};
thread_local Open current;

// Makes the vendor's calls of a group.
void run(const std::vector<std::function<ncclResult_t()>> &calls) {
  if (calls.empty()) return;
  vendors(vendor()->ncclGroupStart());
  ncclResult_t begun = ncclSuccess;
  for (const auto &call : calls)
    if (begun == ncclSuccess) begun = call();
  const ncclResult_t ended = vendor()->ncclGroupEnd();
  vendors(begun != ncclSuccess ? begun : ended);
}

// Makes the calls of a group, in a thread on a device, and says at its communicators what came of them.
void make_group_later(const Open &group, hcccGroup_t calls, int device) {
  const auto set = [](ncclComm_t comm, int state) {
    int known = ncclInProgress;
    comm->calling = false;
    if (!comm->state.compare_exchange_strong(known, state, std::memory_order_acq_rel)) abandon(comm);
  };
  std::vector<ncclComm_t> comms;
  const ncclResult_t result = caught(nullptr, [&] {
    runtime().hcccrtSetDevice(device);  // which a CPU may not have
    must(runtime().hcccGroupMake(calls));
    for (const Made &one : group.made)
      if (one.comm->of) comms.push_back(one.comm);
    if (!comms.empty()) make_ready(comms);
    run(group.vendors);
  });
  for (const Made &one : group.made) {
    if (!one.out) abandon(one.comm);  // a split without a color
    else if (result != ncclSuccess) one.comm->last->set(thread_said());
    if (one.out) set(one.comm, result);
  }
  for (ncclComm_t one : group.used) {
    if (result != ncclSuccess) one->last->set(thread_said());
    set(one, result);
  }
}

// Begins to make the calls of a group. Throws Failed.
void begin_group(Open group) {
  hcccGroup_t calls = nullptr;
  const hcccResult_t result = runtime().hcccGroupDetach(&calls);
  if (result != hcccSuccess) {
    const std::string text = runtime().hcccGetLastError(nullptr);
    finish(group.made, false);
    throw Failed{result_of(result), text};
  }
  for (Made &one : group.made) {
    group.used.erase(one.comm);
    one.comm->state = ncclInProgress;
    if (!one.comm->colored) *std::exchange(one.out, nullptr) = nullptr;
  }
  for (ncclComm_t one : group.used) one->calling = true, one->state = ncclInProgress;
  int device = 0;
  runtime().hcccrtGetDevice(&device);
  std::thread(make_group_later, std::move(group), calls, device).detach();
}

bool without_blocking(const Open &group) {
  for (const Made &one : group.made)
    if (!one.comm->blocks) return true;
  for (const ncclComm_t one : group.used)
    if (!one->blocks) return true;
  return false;
}

}  // namespace

namespace group {

bool open() { return current.depth > 0; }

void start() {
  if (!current.depth) must(runtime().hcccGroupStart());
  ++current.depth;
}

void uses(ncclComm_t comm) {
  if (open()) current.used.insert(comm);
}

void forget(ncclComm_t comm) { current.used.erase(comm); }

bool end() {
  if (!current.depth) throw Failed{ncclInvalidUsage, "no group is open"};
  if (current.depth > 1) {
    --current.depth;
    return false;
  }
  Open ended = std::exchange(current, {});
  if (ended.code != ncclSuccess) {
    runtime().hcccGroupCancel();
    finish(ended.made, false);
    throw Failed{ended.code, ended.text};
  }
  if (without_blocking(ended)) return begin_group(std::move(ended)), true;
  const hcccResult_t result = runtime().hcccGroupEnd();
  const std::string text = result ? runtime().hcccGetLastError(nullptr) : "";
  finish(ended.made, result == hcccSuccess);
  if (result != hcccSuccess) throw Failed{result_of(result), text};
  run(ended.vendors);
  return false;
}

void made(ncclComm_t comm, ncclComm_t *out) {
  *out = comm;
  if (open()) current.made.push_back({comm, out});
  else finish({{comm, out}}, true);
}

void at_vendor(std::function<ncclResult_t()> call) {
  if (open()) current.vendors.push_back(std::move(call));
  else vendors(call());
}

void failed(const Failed &failed) {
  if (open() && current.code == ncclSuccess) current.code = failed.code, current.text = failed.text;
}

}  // namespace group
}  // namespace hccc_nccl

NCCL_FUNCTION(ncclGroupStart, (void)) {
  return hccc_nccl::caught(nullptr, [] { hccc_nccl::group::start(); });
}

NCCL_FUNCTION(ncclGroupEnd, (void)) {
  bool later = false;
  const ncclResult_t result = hccc_nccl::caught(nullptr, [&] { later = hccc_nccl::group::end(); });
  return later ? ncclInProgress : result;
}

NCCL_FUNCTION(ncclGroupSimulateEnd, (void *)) {
  return hccc_nccl::caught(nullptr, [] {
    hccc_nccl::group::failed({ncclInvalidUsage, "no times are simulated here: `hccc sim` predicts them"});
    hccc_nccl::group::end();
  });
}
