// collectives.cpp: collectives, sends and receives: by libhccc, or by the vendor's library where
// hccc has no kernels for a call, or it is predicted to be faster.
#include <stdio.h>

#include <algorithm>

#include "../communicator/log.h"
#include "comm.h"

namespace hccc_nccl {
namespace {

constexpr const char *TYPES[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                 "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr const char *OPS[] = {"sum", "prod", "max", "min", "avg"};
static_assert(sizeof TYPES / sizeof *TYPES == ncclNumTypes, "all types have names");
static_assert(sizeof OPS / sizeof *OPS == ncclNumOps, "all reductions have names");

hcccDataType_t type_of(const Call &call) { return static_cast<hcccDataType_t>(call.type); }

bool is_own(int op) { return op >= ncclNumOps; }

// Returns what a number of ncclRedOpCreatePreMulSum's stands for. Throws Failed: nothing.
Multiplied &multiplied(ncclComm_t comm, int op) {
  const auto at = static_cast<size_t>(op - ncclNumOps);
  if (!is_own(op) || at >= comm->ops.size() || comm->ops[at].ended)
    throw Failed{ncclInvalidArgument, std::to_string(op) + " is no reduction of this communicator's"};
  return comm->ops[at];
}

void check_type(int type) {
  if (type < 0 || type >= ncclNumTypes)
    throw Failed{ncclInvalidArgument, std::to_string(type) + " is no type of NCCL's"};
}

void check_call(const Call &call, ncclComm_t comm) {
  check(comm);
  check_type(call.type);
  if (is_own(call.op)) multiplied(comm, call.op);
}

// Returns the bytes of a rank's largest buffer.
size_t bytes_of(const Call &call, ncclComm_t comm) {
  static constexpr size_t WIDTHS[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  static_assert(sizeof WIDTHS / sizeof *WIDTHS == ncclNumTypes, "all types have widths");
  const std::string what = call.collective;
  const bool one = what == "Allreduce" || what == "Broadcast" || what == "Reduce";
  return call.count * WIDTHS[call.type] * (one ? 1 : static_cast<size_t>(comm->n_ranks));
}

// Returns why a call is the vendor's; empty: it is hccc's. On a GPU no standard library is made for what
// the vendor's has.
std::string why_vendor(const Call &call, ncclComm_t comm, bool has) {
  hcccCan_t can = hcccCanNot;
  const auto op = is_own(call.op) ? hcccPreMulSum : static_cast<hcccRedOp_t>(std::max(call.op, 0));
  must(runtime().hcccCommCan(comm->of, call.collective, call.root, type_of(call), op, &can));
  const bool made = can == hcccCanNow || (can != hcccCanNot && (!has || on_cpu(comm)));
  if (!made) return "no library of kernels does it";
  const Times::Row *const row = has && call.count ? row_of(comm->times, call.collective, call.root, bytes_of(call, comm)) : nullptr;
  if (!row || row->own <= row->vendors) return "";
  char text[96];
  snprintf(text, sizeof text, "it is predicted to take %.1f us there and %.1f by hccc", row->vendors, row->own);
  return text;
}

// Makes a call by libhccc, or by the vendor. has: whether the vendor's library has such a function.
template <class Own, class Theirs>
ncclResult_t made(const Call &call, ncclComm_t comm, bool has, const Own &own, const Theirs &theirs) {
  return caught(comm, [&] {
    check_call(call, comm);
    const std::string why = comm->vendor ? why_vendor(call, comm, has) : "";
    if (comm->vendor)
      HCCC_LOG(INFO, COLL, comm->rank, "%s: by %s", call.text().c_str(),
               why.empty() ? "hccc" : ("the vendor's library, as " + why).c_str());
    if (why.empty()) return must(own());
    if (has && !is_own(call.op)) comm->direct = call;
    if (!has)
      throw Failed{ncclInvalidUsage, call.text() + ": " + why + ", and the vendor's library has no such function"};
    group::at_vendor(theirs);
  });
}

// Makes a message: where memory is a device's, hccc has none.
template <class Own, class Theirs>
ncclResult_t message(const Call &call, ncclComm_t comm, bool has, const Own &own, const Theirs &theirs) {
  return caught(comm, [&] {
    check_call(call, comm);
    const bool is_vendors = comm->vendor && has && !on_cpu(comm);
    if (comm->vendor)
      HCCC_LOG(INFO, COLL, comm->rank, "%s: by %s", call.text().c_str(),
               is_vendors ? "the vendor's library, as memory is a device's" : "hccc");
    if (!is_vendors) return must(own());
    group::at_vendor(theirs);
  });
}

// Returns a function of the vendor's library; null: there is no library, or it has none.
template <class Function>
Function theirs(Function Vendor::*member) {
  try {
    const Vendor *const of = vendor();
    return of ? of->*member : nullptr;
  } catch (const Failed &) {
    return nullptr;
  }
}

// Return an argument as libhccc has it, and as the vendor's library has it, whose call is made when its
// group ends: the reduction may have been ended since.
int as_own(ncclComm_t, int root) { return root; }
hcccRedOp_t as_own(ncclComm_t comm, ncclRedOp_t op) {
  return is_own(op) ? multiplied(comm, op).own : static_cast<hcccRedOp_t>(op);
}
int as_vendors(ncclComm_t, int root) { return root; }
ncclRedOp_t as_vendors(ncclComm_t comm, ncclRedOp_t op) {
  return is_own(op) ? comm->ops[static_cast<size_t>(op - ncclNumOps)].vendors : op;
}

struct Buffers {
  const void *send;
  void *receive;
  size_t count;
};

// Returns whether the vendor's library can be called at once: no group is open, nothing is lost, and nothing is logged.
bool goes_direct(ncclComm_t comm) {
  if (group::open() || comm->state != ncclSuccess || hccc::log::enabled(hccc::log::INFO, hccc::log::COLL)) return false;
  const hcccResult_t now = runtime().hcccCommQuery(comm->of, nullptr, nullptr);
  return now == hcccSuccess || now == hcccInProgress;
}

// Makes a collective call, of functions with the same parameters. more: reduction and root, where
// it has them.
template <class Own, class Theirs, class... More>
ncclResult_t collective(const Call &call, const Buffers &of, ncclComm_t comm, cudaStream_t stream,
                        Own Runtime::*function, Theirs Vendor::*other, More... more) {
  const Theirs its = theirs(other);
  if (comm && its && call == comm->direct && goes_direct(comm)) {
    const ncclResult_t result = its(of.send, of.receive, of.count, call.type, more..., comm->vendor, stream);
    if (result == ncclSuccess) return result;
    return caught(comm, [&] { vendors(result); });
  }
  return made(
      call, comm, its != nullptr,
      [&] {
        return (runtime().*function)(of.send, of.receive, of.count, type_of(call), as_own(comm, more)..., comm->of,
                                     stream_of(comm, stream));
      },
      [=] {
        return its(of.send, of.receive, of.count, call.type, as_vendors(comm, more)..., comm->vendor, stream);
      });
}

// Makes a call after its settings are checked: none has an effect.
template <class Body>
ncclResult_t with(const ncclCollConfig_t *config, ncclComm_t comm, const Body &body) {
  const ncclResult_t checked = caught(comm, [&] {
    if (!config) return;
    if (config->magic != NCCL_API_MAGIC || config->size < sizeof(ncclCollConfig_t))
      throw Failed{ncclInvalidArgument, "the settings were not made by NCCL_COLLCONFIG_INITIALIZER"};
    if (config->algSelection && *config->algSelection && config->forceAlgSelection)
      throw Failed{ncclInvalidArgument, std::string("no algorithm is called `") + config->algSelection +
                                            "`: libraries of HCCC_LIBRARIES go before standard ones"};
    if (config->launchCompletionEvent)
      throw Failed{ncclInvalidArgument, "no event is recorded when a kernel is launched: pass null"};
  });
  return checked == ncclSuccess ? body() : checked;
}

}  // namespace

std::string Call::text() const {
  std::string made = std::string(collective) + " of " + TYPES[type];
  if (op >= 0) made += std::string(", ") + (op < ncclNumOps ? OPS[op] : "premul_sum");
  return made;
}

}  // namespace hccc_nccl

using hccc_nccl::collective;
using hccc_nccl::Runtime;
using hccc_nccl::runtime;
using hccc_nccl::theirs;
using hccc_nccl::Vendor;
using hccc_nccl::with;

NCCL_FUNCTION(ncclAllReduce, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                              ncclComm_t comm, cudaStream_t stream)) {
  return collective({"Allreduce", type, op, -1, count}, {send, receive, count}, comm, stream, &Runtime::hcccAllReduce,
                    &Vendor::ncclAllReduce, op);
}

NCCL_FUNCTION(ncclReduceScatter, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t stream)) {
  return collective({"Reducescatter", type, op, -1, count}, {send, receive, count}, comm, stream, &Runtime::hcccReduceScatter,
                    &Vendor::ncclReduceScatter, op);
}

NCCL_FUNCTION(ncclReduce, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           int root, ncclComm_t comm, cudaStream_t stream)) {
  return collective({"Reduce", type, op, root, count}, {send, receive, count}, comm, stream, &Runtime::hcccReduce,
                    &Vendor::ncclReduce, op, root);
}

NCCL_FUNCTION(ncclBroadcast, (const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream)) {
  return collective({"Broadcast", type, -1, root, count}, {send, receive, count}, comm, stream, &Runtime::hcccBroadcast,
                    &Vendor::ncclBroadcast, root);
}

NCCL_FUNCTION(ncclGather, (const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)) {
  return collective({"Gather", type, -1, root, count}, {send, receive, count}, comm, stream, &Runtime::hcccGather,
                    &Vendor::ncclGather, root);
}

NCCL_FUNCTION(ncclScatter, (const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream)) {
  return collective({"Scatter", type, -1, root, count}, {send, receive, count}, comm, stream, &Runtime::hcccScatter,
                    &Vendor::ncclScatter, root);
}

NCCL_FUNCTION(ncclAllGather, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                              cudaStream_t stream)) {
  return collective({"Allgather", type, -1, -1, count}, {send, receive, count}, comm, stream, &Runtime::hcccAllGather,
                    &Vendor::ncclAllGather);
}

NCCL_FUNCTION(ncclAlltoAll, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream)) {
  return collective({"Alltoall", type, -1, -1, count}, {send, receive, count}, comm, stream, &Runtime::hcccAllToAll,
                    &Vendor::ncclAlltoAll);
}

NCCL_FUNCTION(ncclAllToAll, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream)) {
  return collective({"Alltoall", type, -1, -1, count}, {send, receive, count}, comm, stream, &Runtime::hcccAllToAll,
                    &Vendor::ncclAllToAll);
}

NCCL_FUNCTION(ncclAllReduceConfig, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t
                                    op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclAllReduce(send, receive, count, type, op, comm, stream); });
}

NCCL_FUNCTION(ncclReduceScatterConfig, (const void *send, void *receive, size_t count, ncclDataType_t type,
                                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                        const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclReduceScatter(send, receive, count, type, op, comm, stream); });
}

NCCL_FUNCTION(ncclReduceConfig, (const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclReduce(send, receive, count, type, op, root, comm, stream); });
}

NCCL_FUNCTION(ncclBroadcastConfig, (const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclBroadcast(send, receive, count, type, root, comm, stream); });
}

NCCL_FUNCTION(ncclGatherConfig, (const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclGather(send, receive, count, type, root, comm, stream); });
}

NCCL_FUNCTION(ncclScatterConfig, (const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclScatter(send, receive, count, type, root, comm, stream); });
}

NCCL_FUNCTION(ncclAllGatherConfig, (const void *send, void *receive, size_t count, ncclDataType_t type,
                                    ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclAllGather(send, receive, count, type, comm, stream); });
}

NCCL_FUNCTION(ncclAlltoAllConfig, (const void *send, void *receive, size_t count, ncclDataType_t type,
                                   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) {
  return with(config, comm, [&] { return ncclAlltoAll(send, receive, count, type, comm, stream); });
}

NCCL_FUNCTION(ncclBcast, (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                          cudaStream_t stream)) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

NCCL_FUNCTION(ncclAllToAllv, (const void *send, const size_t send_counts[], const size_t send_places[], void *receive,
                              const size_t receive_counts[], const size_t receive_places[], ncclDataType_t type,
                              ncclComm_t comm, cudaStream_t stream)) {
  const auto other = theirs(&Vendor::ncclAllToAllv);
  return hccc_nccl::made(
      {"Alltoallv", type}, comm, other != nullptr,
      [&] {
        return runtime().hcccAllToAllv(send, send_counts, send_places, receive, receive_counts, receive_places,
                                       static_cast<hcccDataType_t>(type), comm->of,
                                       hccc_nccl::stream_of(comm, stream));
      },
      [=] {
        return other(send, send_counts, send_places, receive, receive_counts, receive_places, type, comm->vendor,
                     stream);
      });
}

NCCL_FUNCTION(ncclSend, (const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream)) {
  const auto other = theirs(&Vendor::ncclSend);
  return hccc_nccl::message(
      {"Send", type}, comm, other != nullptr,
      [&] {
        return runtime().hcccSend(buffer, count, static_cast<hcccDataType_t>(type), peer, comm->of,
                                  hccc_nccl::stream_of(comm, stream));
      },
      [=] { return other(buffer, count, type, peer, comm->vendor, stream); });
}

NCCL_FUNCTION(ncclRecv, (void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream)) {
  const auto other = theirs(&Vendor::ncclRecv);
  return hccc_nccl::message(
      {"Recv", type}, comm, other != nullptr,
      [&] {
        return runtime().hcccRecv(buffer, count, static_cast<hcccDataType_t>(type), peer, comm->of,
                                  hccc_nccl::stream_of(comm, stream));
      },
      [=] { return other(buffer, count, type, peer, comm->vendor, stream); });
}

NCCL_FUNCTION(ncclRedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                         ncclScalarResidence_t residence, ncclComm_t comm)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(comm);
    hccc_nccl::check(op, "op");
    hccc_nccl::check_type(type);
    hccc_nccl::Multiplied made{};
    const auto where = static_cast<hcccScalarResidence_t>(residence);
    hccc_nccl::must(
        runtime().hcccRedOpCreatePreMulSum(&made.own, scalar, static_cast<hcccDataType_t>(type), where, comm->of));
    const auto other = theirs(&Vendor::ncclRedOpCreatePreMulSum);
    if (comm->vendor && other) hccc_nccl::vendors(other(&made.vendors, scalar, type, residence, comm->vendor));
    comm->ops.push_back(made);
    *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->ops.size()) - 1);
  });
}

NCCL_FUNCTION(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(comm);
    hccc_nccl::Multiplied &made = hccc_nccl::multiplied(comm, op);
    made.ended = true;
    hccc_nccl::must(runtime().hcccRedOpDestroy(made.own, comm->of));
    const auto other = theirs(&Vendor::ncclRedOpDestroy);
    if (!comm->vendor || !other) return;
    hccc_nccl::group::at_vendor([=, vendors = made.vendors] { return other(vendors, comm->vendor); });
  });
}
