// life.cpp: communicators: how they are made of ids, of others, and ended; what they say of themselves.
#include <algorithm>
#include <numeric>
#include <thread>

#include "comm.h"

namespace hccc_nccl {
namespace {

constexpr int TAG = 0x6e63636c;  // of ids of new communicators, which ranks send each other

hcccUniqueId id_of(const ncclUniqueId &id) {
  hcccUniqueId made;
  static_assert(sizeof made == sizeof id, "one is the other");
  std::copy(std::begin(id.internal), std::end(id.internal), made.internal);
  return made;
}

// Checks settings of a communicator: all of NCCL's are hints here, of every version.
void check_config(const ncclConfig_t *config) {
  if (config && (config->magic != NCCL_API_MAGIC || config->size < 2 * sizeof(size_t)))
    throw Failed{ncclInvalidArgument, "the settings were not made by NCCL_CONFIG_INITIALIZER"};
}

// Makes a rank's communicator, now or with the open group.
void join(ncclComm_t *out, int n_ranks, const ncclUniqueId &id, int rank, int device = 0, bool blocks = true) {
  check(out, "comm");
  *out = nullptr;
  auto made = std::make_unique<ncclComm>();
  made->blocks = blocks;
  made->device = device;
  must(runtime().hcccCommInitRank(&made->of, n_ranks, id_of(id), rank));
  group::made(made.release(), out);
}

// Returns whether settings ask for a communicator that is made while its caller goes on.
bool blocks(const ncclConfig_t *config) {
  return !config || config->size < offsetof(ncclConfig_t, blocking) + sizeof config->blocking || config->blocking != 0;
}
// Returns whether a communicator that is made of another does: as that, unless settings say it.
bool blocks(const ncclConfig_t *config, ncclComm_t parent) {
  const bool says = config && config->size >= offsetof(ncclConfig_t, blocking) + sizeof config->blocking &&
                    config->blocking != NCCL_CONFIG_UNDEF_INT;
  return says ? config->blocking != 0 : parent->blocks;
}

// Makes a rank's communicator in a thread, on a device. What its caller has aborted meanwhile ends here.
void make_later(ncclComm_t made, int n_ranks, const ncclUniqueId &id, int rank, int device) {
  const ncclResult_t result = caught(made, [&] {
    runtime().hcccrtSetDevice(device);  // which a CPU may not have
    must(runtime().hcccCommInitRank(&made->of, n_ranks, id_of(id), rank));
    make_ready({made});
  });
  int known = ncclInProgress;
  if (!made->state.compare_exchange_strong(known, result, std::memory_order_acq_rel)) abandon(made);
}

// Begins to make a rank's communicator, without waiting for the others.
void begin(ncclComm_t *out, int n_ranks, const ncclUniqueId &id, int rank) {
  check(out, "comm");
  *out = nullptr;
  int device = 0;
  runtime().hcccrtGetDevice(&device);
  auto made = std::make_unique<ncclComm>();
  made->state = ncclInProgress, made->blocks = false;
  std::thread(make_later, made.get(), n_ranks, id, rank, device).detach();
  *out = made.release();
}

void check_no_group(const char *what) {
  if (group::open()) throw Failed{ncclInvalidUsage, std::string(what) + " is not made in a group"};
}

// Sends an id to ranks of a communicator.
void send_id(ncclComm_t comm, const ncclUniqueId &id, const std::vector<int> &to) {
  for (const int peer : to)
    must(runtime().hcccSendTagged(&id, sizeof id, hcccUint8, peer, TAG, comm->of, nullptr));
}

ncclUniqueId received_id(ncclComm_t comm, int from) {
  ncclUniqueId id;
  must(runtime().hcccRecvTagged(&id, sizeof id, hcccUint8, from, TAG, nullptr, comm->of, nullptr));
  return id;
}

// Lists the ranks of a communicator but the excluded ones. Throws Failed.
std::vector<int> ranks_without(ncclComm_t comm, const int *excluded, int n_excluded) {
  check(excluded, "the list of excluded ranks");
  std::vector<int> ranks;
  for (int r = 0; r < comm->n_ranks; ++r)
    if (std::find(excluded, excluded + n_excluded, r) == excluded + n_excluded) ranks.push_back(r);
  for (int k = 0; k < n_excluded; ++k)
    if (excluded[k] < 0 || excluded[k] >= comm->n_ranks)
      throw Failed{ncclInvalidArgument,
                   std::to_string(excluded[k]) + " is no rank of " + std::to_string(comm->n_ranks)};
  return ranks;
}

void shrink(ncclComm_t comm, const int *excluded, int n_excluded, ncclComm_t *out) {
  const std::vector<int> ranks = ranks_without(comm, excluded, n_excluded);
  const auto at = std::find(ranks.begin(), ranks.end(), comm->rank);
  if (at == ranks.end()) throw Failed{ncclInvalidUsage, "this rank is excluded: only others call"};
  hcccResult_t lost = hcccSuccess;
  must(runtime().hcccCommGetAsyncError(comm->of, &lost));
  if (lost != hcccSuccess)
    throw Failed{result_of(lost), std::string("a communicator that is lost is not shrunk; make one with "
                                              "ncclCommInitRank: ") + runtime().hcccGetLastError(comm->of)};
  ncclUniqueId id;
  if (at != ranks.begin()) {
    id = received_id(comm, ranks.front());
  } else {
    must(runtime().hcccGetUniqueId(reinterpret_cast<hcccUniqueId *>(&id)));
    send_id(comm, id, {ranks.begin() + 1, ranks.end()});
  }
  join(out, static_cast<int>(ranks.size()), id, static_cast<int>(at - ranks.begin()), comm->device);
}

// Has old ranks learn the id from the one of them that has it.
ncclUniqueId grown_id(ncclComm_t comm, const ncclUniqueId *id) {
  if (!id) return received_id(comm, HCCC_ANY_SOURCE);
  std::vector<int> others(static_cast<size_t>(comm->n_ranks));
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + comm->rank);
  send_id(comm, *id, others);
  return *id;
}

void grow(ncclComm_t comm, int n_ranks, const ncclUniqueId *id, int rank, ncclComm_t *out) {
  if (!comm) {
    check(id, "the id");
    return join(out, n_ranks, *id, rank);
  }
  check(comm);
  if (n_ranks <= comm->n_ranks)
    throw Failed{ncclInvalidArgument,
                 std::to_string(n_ranks) + " ranks are no more than " + std::to_string(comm->n_ranks)};
  join(out, n_ranks, grown_id(comm, id), comm->rank, comm->device);
}

// Ends it, after its calls.
void destroy(ncclComm_t comm) {
  if (comm->vendor) vendors(vendor()->ncclCommDestroy(comm->vendor));
  comm->vendor = nullptr;
  must(runtime().hcccCommDestroy(comm->of));
  comm->of = nullptr;
  abandon(comm);
}

}  // namespace
}  // namespace hccc_nccl

using hccc_nccl::caught;
using hccc_nccl::check;
using hccc_nccl::Failed;
using hccc_nccl::runtime;
using hccc_nccl::must;

NCCL_FUNCTION(ncclGetUniqueId, (ncclUniqueId *id)) {
  return caught(nullptr, [&] {
    check(id, "id");
    must(runtime().hcccGetUniqueId(reinterpret_cast<hcccUniqueId *>(id)));
  });
}

NCCL_FUNCTION(ncclCommInitRank, (ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank)) {
  return caught(nullptr, [&] { hccc_nccl::join(comm, n_ranks, id, rank); });
}

NCCL_FUNCTION(ncclCommInitRankConfig, (ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                       ncclConfig_t *config)) {
  bool begun = false;
  const ncclResult_t result = caught(nullptr, [&] {
    hccc_nccl::check_config(config);
    begun = !hccc_nccl::blocks(config) && !hccc_nccl::group::open();
    if (begun) hccc_nccl::begin(comm, n_ranks, id, rank);
    else hccc_nccl::join(comm, n_ranks, id, rank, 0, hccc_nccl::blocks(config));
  });
  return begun && result == ncclSuccess ? ncclInProgress : result;
}

NCCL_FUNCTION(ncclCommInitRankScalable, (ncclComm_t *comm, int n_ranks, int rank, int n_ids, ncclUniqueId *ids,
                                         ncclConfig_t *config)) {
  return caught(nullptr, [&] {
    hccc_nccl::check_config(config);
    check(ids, "ids");
    if (n_ids < 1) throw Failed{ncclInvalidArgument, std::to_string(n_ids) + " ids are none"};
    hccc_nccl::join(comm, n_ranks, ids[0], rank);
  });
}

NCCL_FUNCTION(ncclCommInitAll, (ncclComm_t *comms, int n, const int *devices)) {
  return caught(nullptr, [&] {
    check(comms, "comms");
    if (n < 1) throw Failed{ncclInvalidArgument, std::to_string(n) + " ranks are none"};
    ncclUniqueId id;
    must(runtime().hcccGetUniqueId(reinterpret_cast<hcccUniqueId *>(&id)));
    const hccc_nccl::SameDevice same;
    hccc_nccl::group::start();
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < n && result == ncclSuccess; ++r) {
      const int device = devices ? devices[r] : r;
      runtime().hcccrtSetDevice(device);  // which a CPU may not have
      result = caught(nullptr, [&] { hccc_nccl::join(&comms[r], n, id, r, device); });
    }
    hccc_nccl::group::end();
  });
}

NCCL_FUNCTION(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config)) {
  bool later = false;
  const ncclResult_t result = caught(comm, [&] {
    check(comm);
    check(made, "newcomm");
    hccc_nccl::check_config(config);
    *made = nullptr;
    auto one = std::make_unique<ncclComm>();
    one->device = comm->device, one->blocks = hccc_nccl::blocks(config, comm), one->colored = color != NCCL_SPLIT_NOCOLOR;
    // One that does not block is a group of its own.
    const bool own = !one->blocks && !hccc_nccl::group::open();
    if (own) hccc_nccl::group::start(), hccc_nccl::group::uses(comm);
    const ncclResult_t split = caught(comm, [&] {
      must(runtime().hcccCommSplit(comm->of, color, key, &one->of, nullptr));
      hccc_nccl::group::made(one.release(), made);
    });
    if (own) later = hccc_nccl::group::end();
    else if (split != ncclSuccess) throw Failed{split, hccc_nccl::thread_said().text};
  });
  return later ? ncclInProgress : result;
}

NCCL_FUNCTION(ncclCommShrink, (ncclComm_t comm, int *excluded, int n_excluded, ncclComm_t *made, ncclConfig_t *config,
                               int)) {
  return caught(comm, [&] {
    check(comm);
    check(made, "newcomm");
    hccc_nccl::check_config(config);
    hccc_nccl::check_no_group("a smaller communicator");
    *made = nullptr;
    hccc_nccl::shrink(comm, excluded, n_excluded, made);
  });
}

NCCL_FUNCTION(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id)) {
  return caught(comm, [&] {
    check(comm);
    check(id, "id");
    must(runtime().hcccGetUniqueId(reinterpret_cast<hcccUniqueId *>(id)));
  });
}

NCCL_FUNCTION(ncclCommGrow, (ncclComm_t comm, int n_ranks, const ncclUniqueId *id, int rank, ncclComm_t *made,
                             ncclConfig_t *config)) {
  return caught(comm, [&] {
    check(made, "newcomm");
    hccc_nccl::check_config(config);
    hccc_nccl::check_no_group("a larger communicator");
    *made = nullptr;
    hccc_nccl::grow(comm, n_ranks, id, rank, made);
  });
}

NCCL_FUNCTION(ncclCommFinalize, (ncclComm_t comm)) {
  return caught(comm, [&] {
    check(comm);
    must(runtime().hcccCommFinalize(comm->of));
    if (comm->vendor && hccc_nccl::vendor()->ncclCommFinalize)
      hccc_nccl::vendors(hccc_nccl::vendor()->ncclCommFinalize(comm->vendor));
  });
}

NCCL_FUNCTION(ncclCommDestroy, (ncclComm_t comm)) {
  return caught(comm, [&] {
    if (!comm) return;
    const int state = comm->state.load(std::memory_order_acquire);
    if (state != ncclSuccess && state != ncclInProgress) return hccc_nccl::abandon(comm);  // it was not made
    check(comm);
    hccc_nccl::destroy(comm);
  });
}

NCCL_FUNCTION(ncclCommAbort, (ncclComm_t comm)) {
  return caught(comm, [&] {
    if (!comm) return;
    int known = ncclInProgress;
    if (comm->calling) runtime().hcccCommStop(comm->of);
    if (comm->state.compare_exchange_strong(known, ncclComm::ABANDONED, std::memory_order_acq_rel)) return;
    if (known == ncclSuccess) check(comm);
    hccc_nccl::abandon(comm);
  });
}

NCCL_FUNCTION(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error)) {
  return caught(comm, [&] {
    check(error, "asyncError");
    check(comm, "the communicator");
    *error = static_cast<ncclResult_t>(comm->state.load(std::memory_order_acquire));
    if (*error != ncclSuccess) return;
    check(comm);
    hcccResult_t own = hcccSuccess;
    must(runtime().hcccCommGetAsyncError(comm->of, &own));
    *error = hccc_nccl::result_of(own);
    if (own != hcccSuccess) comm->last->set(hccc_nccl::said(runtime().hcccGetLastError(comm->of)));
    else if (comm->vendor) hccc_nccl::vendors(hccc_nccl::vendor()->ncclCommGetAsyncError(comm->vendor, error));
  });
}

NCCL_FUNCTION(ncclCommCount, (ncclComm_t comm, int *count)) {
  return caught(comm, [&] {
    check(comm);
    check(count, "count");
    *count = comm->n_ranks;
  });
}

NCCL_FUNCTION(ncclCommCuDevice, (ncclComm_t comm, int *device)) {
  return caught(comm, [&] {
    check(comm);
    check(device, "device");
    *device = comm->device;
  });
}

NCCL_FUNCTION(ncclCommUserRank, (ncclComm_t comm, int *rank)) {
  return caught(comm, [&] {
    check(comm);
    check(rank, "rank");
    *rank = comm->rank;
  });
}

NCCL_FUNCTION(ncclGetVersion, (int *version)) {
  return caught(nullptr, [&] {
    check(version, "version");
    *version = NCCL_VERSION_CODE;
  });
}

HCCC_NCCL_NAMED(const char *, ncclGetErrorString, pncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "a device refused (HCCC_DEBUG=WARN says more)";
    case ncclSystemError: return "the system refused (HCCC_DEBUG=WARN says more)";
    case ncclInternalError: return "a bug of hccc (HCCC_DEBUG=WARN says more)";
    case ncclInvalidArgument: return "an argument makes no sense (HCCC_DEBUG=WARN says more)";
    case ncclInvalidUsage: return "such a call cannot be made (HCCC_DEBUG=WARN says more)";
    case ncclRemoteError: return "another rank is gone, gave up, or did not come in time";
    case ncclInProgress: return "not yet done";
    default: return "unknown result";
  }
}

HCCC_NCCL_NAMED(const char *, ncclGetLastError, pncclGetLastError, (ncclComm_t comm)) {
  static thread_local std::string text;  // others may set it meanwhile
  const hccc_nccl::Said own = hccc_nccl::thread_said(), its = comm ? comm->last->get() : hccc_nccl::Said();
  text = own.number > its.number ? own.text : its.text;
  return text.c_str();
}

HCCC_NCCL_NAMED(void, ncclResetDebugInit, pncclResetDebugInit, (void)) {}  // HCCC_DEBUG is read once
HCCC_NCCL_NAMED(void, ncclResetDebugInitInternal, pncclResetDebugInitInternal, (void)) {}
