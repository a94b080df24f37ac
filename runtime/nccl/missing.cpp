// missing.cpp: functions of NCCL's and RCCL's that cannot be served: each says why, and none crashes.
// Their arguments are not read, so that they are declared without any.
#include <string.h>

#include "comm.h"

namespace hccc_nccl {
namespace {

ncclResult_t refused(const char *name, const char *why) {
  return caught(nullptr, [&] { throw Failed{ncclInvalidUsage, std::string(name) + " is not there: " + why}; });
}

constexpr const char *DEVICE = "kernels of one's own cannot call hccc from a device";
constexpr const char *SIGNALS = "ranks signal each other by ncclSend and ncclRecv";
constexpr const char *PARAMETERS = "hccc is set by variables HCCC_* (docs/communicator.md)";
constexpr const char *WHOLE = "a communicator keeps its memory until it is destroyed";
constexpr const char *MSCCL = "`hccc FILE.xml -o DIR` compiles it, and HCCC_LIBRARIES names DIR";

}  // namespace
}  // namespace hccc_nccl

#define MISSING(name, why) \
  NCCL_FUNCTION(name, (void)) { return hccc_nccl::refused(#name, hccc_nccl::why); }

MISSING(ncclPutSignal, SIGNALS)
MISSING(ncclSignal, SIGNALS)
MISSING(ncclWaitSignal, SIGNALS)
MISSING(ncclCommSuspend, WHOLE)
MISSING(ncclCommResume, WHOLE)
MISSING(ncclDevCommCreate, DEVICE)
MISSING(ncclDevCommDestroy, DEVICE)
MISSING(ncclGetLsaDevicePointer, DEVICE)
MISSING(ncclGetLsaMultimemDevicePointer, DEVICE)
MISSING(ncclGetMultimemDevicePointer, DEVICE)
MISSING(ncclGetPeerDevicePointer, DEVICE)
MISSING(ncclGetCftDeviceLeInfo, DEVICE)
MISSING(ncclGetMultimemDeviceLeInfo, DEVICE)
MISSING(ncclGetPeerDeviceLeInfo, DEVICE)
MISSING(ncclLsaBarrierCreateRequirement, DEVICE)
MISSING(ncclGinBarrierCreateRequirement, DEVICE)
MISSING(ncclCftBarrierCreateRequirement, DEVICE)
MISSING(ncclGinInboxA2ACreateRequirement, DEVICE)
MISSING(ncclGinOutboxCreateRequirement, DEVICE)
MISSING(ncclLLA2ACreateRequirement, DEVICE)
MISSING(ncclSetEncryption, PARAMETERS)
MISSING(ncclParamBind, PARAMETERS)
MISSING(ncclParamGet, PARAMETERS)
MISSING(ncclParamGetI8, PARAMETERS)
MISSING(ncclParamGetI16, PARAMETERS)
MISSING(ncclParamGetI32, PARAMETERS)
MISSING(ncclParamGetI64, PARAMETERS)
MISSING(ncclParamGetU8, PARAMETERS)
MISSING(ncclParamGetU16, PARAMETERS)
MISSING(ncclParamGetU32, PARAMETERS)
MISSING(ncclParamGetU64, PARAMETERS)
MISSING(ncclParamGetStr, PARAMETERS)
MISSING(ncclParamGetParameter, PARAMETERS)
MISSING(mscclLoadAlgo, MSCCL)
MISSING(mscclRunAlgo, MSCCL)
MISSING(mscclUnloadAlgo, MSCCL)

NCCL_FUNCTION(ncclCommRevoke, (ncclComm_t comm, int)) {
  return hccc_nccl::caught(comm, [] {
    throw hccc_nccl::Failed{ncclInvalidUsage,
                            "ncclCommRevoke is not there: ncclCommAbort ends a communicator at every rank"};
  });
}

// No parameter of NCCL's has an effect.
NCCL_FUNCTION(ncclParamGetAllParameterKeys, (const char ***table, int *length)) {
  return hccc_nccl::caught(nullptr, [&] {
    hccc_nccl::check(table, "table");
    hccc_nccl::check(length, "tableLen");
    static const char *none[] = {nullptr};
    *table = none, *length = 0;
  });
}
HCCC_NCCL_NAMED(void, ncclParamDumpAll, pncclParamDumpAll, (void)) {}

NCCL_FUNCTION(ncclCommMemStats, (ncclComm_t comm, int which, uint64_t *value)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(comm);
    hccc_nccl::check(value, "value");
    if (which < 0 || which > 3)
      throw hccc_nccl::Failed{ncclInvalidArgument, std::to_string(which) + " is no statistic"};
    if (!hccc_nccl::on_cpu(comm)) throw hccc_nccl::Failed{ncclInvalidUsage, "memory of devices is not counted"};
    *value = 0;  // there is none of a GPU
  });
}

NCCL_FUNCTION(ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t *properties)) {
  return hccc_nccl::caught(comm, [&] {
    hccc_nccl::check(comm);
    hccc_nccl::check(properties, "props");
    constexpr size_t MOST = 4096;  // bytes of any version's
    if (properties->magic != NCCL_API_MAGIC || properties->size < sizeof *properties || properties->size > MOST)
      throw hccc_nccl::Failed{ncclInvalidArgument, "the properties were not made by NCCL_COMM_PROPERTIES_INITIALIZER"};
    memset(reinterpret_cast<char *>(properties) + sizeof *properties, 0, properties->size - sizeof *properties);
    properties->rank = comm->rank, properties->nRanks = comm->n_ranks;
    properties->cudaDev = properties->nvmlDev = comm->device;
  });
}

// Teams, of which functions of a device ask: all ranks, and this rank alone.
namespace hccc_nccl {
namespace {
ncclTeam_t all(ncclComm_t comm) { return comm ? ncclTeam_t{comm->n_ranks, comm->rank, 1} : ncclTeam_t{0, 0, 0}; }
constexpr ncclTeam_t ALONE = {1, 0, 1};
}  // namespace
}  // namespace hccc_nccl

#define TEAM(name, parameters, team) \
  HCCC_NCCL_NAMED(ncclTeam_t, name, p##name, parameters) { return team; }
TEAM(ncclTeamWorld, (ncclComm_t comm), hccc_nccl::all(comm))
TEAM(ncclTeamRail, (ncclComm_t comm), hccc_nccl::all(comm))
TEAM(ncclTeamLsa, (ncclComm_t), hccc_nccl::ALONE)
TEAM(ncclTeamCft, (ncclComm_t, int), hccc_nccl::ALONE)
TEAM(ncclTeamCftMultimem, (ncclComm_t), hccc_nccl::ALONE)
HCCC_NCCL_NAMED(int, ncclTeamRankToWorld, pncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return (comm ? comm->rank : 0) + (rank - team.rank) * team.stride;
}
HCCC_NCCL_NAMED(int, ncclTeamRankToLsa, pncclTeamRankToLsa, (ncclComm_t, ncclTeam_t team, int rank)) {
  return (rank - team.rank) * team.stride;
}
HCCC_NCCL_NAMED(int, ncclLLA2ACalcSlots, pncclLLA2ACalcSlots, (int, int)) { return 0; }
