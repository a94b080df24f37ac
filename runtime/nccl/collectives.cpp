// collectives.cpp: collectives, sends and receives: by libhccc, or by the vendor's library where
// hccc has no kernels for a call.
#include "../communicator/log.h"
#include "comm.h"

namespace hccc_nccl {
namespace {

constexpr const char *TYPES[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                 "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr const char *OPS[] = {"sum", "prod", "max", "min", "avg"};
static_assert(sizeof TYPES / sizeof *TYPES == ncclNumTypes, "all types have names");
static_assert(sizeof OPS / sizeof *OPS == ncclNumOps, "all reductions have names");

// A call. op, root: -1 for none.
struct Call {
  const char *collective;
  ncclDataType_t type;
  int op = -1, root = -1;

  std::string text() const {
    std::string made = std::string(collective) + " of " + TYPES[type];
    if (op >= 0) made += std::string(", ") + (op < ncclNumOps ? OPS[op] : "premul_sum");
    return made;
  }
};

hcccDataType_t type_of(const Call &call) { return static_cast<hcccDataType_t>(call.type); }

bool is_own(int op) { return op >= ncclNumOps; }

// Returns what a number of ncclRedOpCreatePreMulSum's stands for. Throws Failed: nothing.
Multiplied &multiplied(ncclComm_t comm, int op) {
  const auto at = static_cast<size_t>(op - ncclNumOps);
  if (!is_own(op) || at >= comm->ops.size() || comm->ops[at].ended)
    throw Failed{ncclInvalidArgument, std::to_string(op) + " is no reduction of this communicator's"};
  return comm->ops[at];
}

hcccRedOp_t op_of(const Call &call, ncclComm_t comm) {
  if (is_own(call.op)) return multiplied(comm, call.op).own;
  return static_cast<hcccRedOp_t>(call.op < 0 ? 0 : call.op);
}

void check_type(ncclDataType_t type) {
  if (type < 0 || type >= ncclNumTypes)
    throw Failed{ncclInvalidArgument, std::to_string(type) + " is no type of NCCL's"};
}

void check_call(const Call &call, ncclComm_t comm) {
  check(comm);
  check_type(call.type);
  if (is_own(call.op)) multiplied(comm, call.op);
}

// Returns why a call is the vendor's; empty: it is hccc's.
std::string why_vendor(const Call &call, ncclComm_t comm) {
  hcccCan_t can = hcccCanNot;
  const hcccRedOp_t op = is_own(call.op) ? hcccPreMulSum : op_of(call, comm);
  must(runtime().hcccCommCan(comm->of, call.collective, call.root, type_of(call), op, &can));
  return can == hcccCanNot ? "no library of kernels does it" : "";
}

// Makes a call by libhccc, or by the vendor. own: the call of libhccc's; function: the vendor's, null
// where its version has none; theirs: calls it.
template <class Own, class Function, class Theirs>
ncclResult_t made(const Call &call, ncclComm_t comm, Function function, const Own &own, const Theirs &theirs) {
  return caught(comm, [&] {
    check_call(call, comm);
    const std::string why = comm->vendor ? why_vendor(call, comm) : "";
    if (comm->vendor)
      HCCC_LOG(INFO, COLL, comm->rank, "%s: by %s", call.text().c_str(),
               why.empty() ? "hccc" : ("the vendor's library, as " + why).c_str());
    if (why.empty()) return must(own());
    if (!function)
      throw Failed{ncclInvalidUsage, call.text() + ": " + why + ", and the vendor's library has no such function"};
    group::at_vendor(theirs);
  });
}

// A call of the vendor's is made when its group ends: the reduction may have been ended since.
ncclRedOp_t vendors_op(ncclComm_t comm, ncclRedOp_t op) {
  return is_own(op) ? comm->ops[static_cast<size_t>(op - ncclNumOps)].vendors : op;
}

// A function of the vendor's library; null: there is no library, or it has none.
template <class Function>
Function at(Function Vendor::*member) {
  try {
    const Vendor *const of = vendor();
    return of ? of->*member : nullptr;
  } catch (const Failed &) {
    return nullptr;
  }
}

// Makes a message: where memory is a device's, hccc has none.
template <class Own, class Function, class Theirs>
ncclResult_t message(const Call &call, ncclComm_t comm, Function function, const Own &own, const Theirs &theirs) {
  return caught(comm, [&] {
    check_call(call, comm);
    const bool is_vendors = comm->vendor && function && !on_cpu(comm);
    if (comm->vendor)
      HCCC_LOG(INFO, COLL, comm->rank, "%s: by %s", call.text().c_str(),
               is_vendors ? "the vendor's library, as memory is a device's" : "hccc");
    if (!is_vendors) return must(own());
    group::at_vendor(theirs);
  });
}

// Throws where settings of a call ask for what is not there.
void check_settings(const ncclCollConfig_t *config) {
  if (!config) return;
  if (config->magic != NCCL_API_MAGIC || config->size < sizeof(ncclCollConfig_t))
    throw Failed{ncclInvalidArgument, "the settings were not made by NCCL_COLLCONFIG_INITIALIZER"};
  if (config->algSelection && *config->algSelection && config->forceAlgSelection)
    throw Failed{ncclInvalidArgument, std::string("no algorithm is called `") + config->algSelection +
                                          "`: libraries of HCCC_LIBRARIES go before standard ones"};
  if (config->launchCompletionEvent)
    throw Failed{ncclInvalidArgument, "no event is recorded when a kernel is launched: pass null"};
}

}  // namespace
}  // namespace hccc_nccl

using hccc_nccl::runtime;

// Defines a function and its variant with settings.
#define COLLECTIVE(name, call_of, OWN, THEIRS, ...)                                                                \
  NCCL_FUNCTION(name, (const void *send, void *receive, size_t count, ncclDataType_t type __VA_ARGS__,             \
                       ncclComm_t comm, cudaStream_t stream)) {                                                    \
    const hccc_nccl::Call call = call_of;                                                                          \
    const auto function = hccc_nccl::at(&hccc_nccl::Vendor::name);                                                 \
    return hccc_nccl::made(                                                                                        \
        call, comm, function, [&] { return OWN; }, [=] { return THEIRS; });                                        \
  }
#define SETTINGS(name, ...)                                                                                        \
  {                                                                                                                \
    const ncclResult_t checked = hccc_nccl::caught(comm, [&] { hccc_nccl::check_settings(config); });              \
    return checked == ncclSuccess ? name(__VA_ARGS__) : checked;                                                   \
  }
#define BUFFERS send, receive, count, type
#define OWN_TYPE static_cast<hcccDataType_t>(type)
#define OWN_BUFFERS send, receive, count, OWN_TYPE
#define OWN_END comm->of, hccc_nccl::stream_of(comm, stream)
#define COMMA ,

COLLECTIVE(ncclAllReduce, (hccc_nccl::Call{"Allreduce", type, op}),
           runtime().hcccAllReduce(OWN_BUFFERS, hccc_nccl::op_of(call, comm), OWN_END),
           function(BUFFERS, hccc_nccl::vendors_op(comm, op), comm->vendor, stream), COMMA ncclRedOp_t op)
COLLECTIVE(ncclReduceScatter, (hccc_nccl::Call{"Reducescatter", type, op}),
           runtime().hcccReduceScatter(OWN_BUFFERS, hccc_nccl::op_of(call, comm), OWN_END),
           function(BUFFERS, hccc_nccl::vendors_op(comm, op), comm->vendor, stream), COMMA ncclRedOp_t op)
COLLECTIVE(ncclReduce, (hccc_nccl::Call{"Reduce", type, op, root}),
           runtime().hcccReduce(OWN_BUFFERS, hccc_nccl::op_of(call, comm), root, OWN_END),
           function(BUFFERS, hccc_nccl::vendors_op(comm, op), root, comm->vendor, stream),
           COMMA ncclRedOp_t op COMMA int root)
COLLECTIVE(ncclBroadcast, (hccc_nccl::Call{"Broadcast", type, -1, root}),
           runtime().hcccBroadcast(OWN_BUFFERS, root, OWN_END), function(BUFFERS, root, comm->vendor, stream),
           COMMA int root)
COLLECTIVE(ncclGather, (hccc_nccl::Call{"Gather", type, -1, root}), runtime().hcccGather(OWN_BUFFERS, root, OWN_END),
           function(BUFFERS, root, comm->vendor, stream), COMMA int root)
COLLECTIVE(ncclScatter, (hccc_nccl::Call{"Scatter", type, -1, root}),
           runtime().hcccScatter(OWN_BUFFERS, root, OWN_END), function(BUFFERS, root, comm->vendor, stream),
           COMMA int root)
COLLECTIVE(ncclAllGather, (hccc_nccl::Call{"Allgather", type}), runtime().hcccAllGather(OWN_BUFFERS, OWN_END),
           function(BUFFERS, comm->vendor, stream))
COLLECTIVE(ncclAlltoAll, (hccc_nccl::Call{"Alltoall", type}), runtime().hcccAllToAll(OWN_BUFFERS, OWN_END),
           function(BUFFERS, comm->vendor, stream))
COLLECTIVE(ncclAllToAll, (hccc_nccl::Call{"Alltoall", type}), runtime().hcccAllToAll(OWN_BUFFERS, OWN_END),
           function(BUFFERS, comm->vendor, stream))

NCCL_FUNCTION(ncclBcast, (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                          cudaStream_t stream)) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

NCCL_FUNCTION(ncclAllToAllv, (const void *send, const size_t send_counts[], const size_t send_places[], void *receive,
                              const size_t receive_counts[], const size_t receive_places[], ncclDataType_t type,
                              ncclComm_t comm, cudaStream_t stream)) {
  const auto function = hccc_nccl::at(&hccc_nccl::Vendor::ncclAllToAllv);
  return hccc_nccl::made(
      {"Alltoallv", type}, comm, function,
      [&] {
        return runtime().hcccAllToAllv(send, send_counts, send_places, receive, receive_counts, receive_places, OWN_TYPE,
                                    OWN_END);
      },
      [=] {
        return function(send, send_counts, send_places, receive, receive_counts, receive_places, type, comm->vendor,
                        stream);
      });
}

NCCL_FUNCTION(ncclSend, (const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream)) {
  const auto function = hccc_nccl::at(&hccc_nccl::Vendor::ncclSend);
  return hccc_nccl::message(
      {"Send", type}, comm, function, [&] { return runtime().hcccSend(buffer, count, OWN_TYPE, peer, OWN_END); },
      [=] { return function(buffer, count, type, peer, comm->vendor, stream); });
}

NCCL_FUNCTION(ncclRecv, (void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream)) {
  const auto function = hccc_nccl::at(&hccc_nccl::Vendor::ncclRecv);
  return hccc_nccl::message(
      {"Recv", type}, comm, function, [&] { return runtime().hcccRecv(buffer, count, OWN_TYPE, peer, OWN_END); },
      [=] { return function(buffer, count, type, peer, comm->vendor, stream); });
}

#define ONE_CONFIG(name, more, ...)                                                                                \
  NCCL_FUNCTION(name##Config, (const void *send, void *receive, size_t count, ncclDataType_t type more,            \
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))              \
  SETTINGS(name, BUFFERS __VA_ARGS__, comm, stream)

ONE_CONFIG(ncclAllReduce, COMMA ncclRedOp_t op, COMMA op)
ONE_CONFIG(ncclReduceScatter, COMMA ncclRedOp_t op, COMMA op)
ONE_CONFIG(ncclReduce, COMMA ncclRedOp_t op COMMA int root, COMMA op COMMA root)
ONE_CONFIG(ncclBroadcast, COMMA int root, COMMA root)
ONE_CONFIG(ncclGather, COMMA int root, COMMA root)
ONE_CONFIG(ncclScatter, COMMA int root, COMMA root)
ONE_CONFIG(ncclAllGather, )
ONE_CONFIG(ncclAlltoAll, )

NCCL_FUNCTION(ncclRedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                         ncclScalarResidence_t residence, ncclComm_t comm)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(comm);
    hccc_nccl::check(op, "op");
    hccc_nccl::check_type(type);
    hccc_nccl::Multiplied made{};
    const auto where = static_cast<hcccScalarResidence_t>(residence);
    hccc_nccl::must(runtime().hcccRedOpCreatePreMulSum(&made.own, scalar, OWN_TYPE, where, comm->of));
    const auto function = hccc_nccl::at(&hccc_nccl::Vendor::ncclRedOpCreatePreMulSum);
    if (comm->vendor && function) hccc_nccl::vendors(function(&made.vendors, scalar, type, residence, comm->vendor));
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
    const auto function = hccc_nccl::at(&hccc_nccl::Vendor::ncclRedOpDestroy);
    if (!comm->vendor || !function) return;
    hccc_nccl::group::at_vendor([=, theirs = made.vendors] { return function(theirs, comm->vendor); });
  });
}
