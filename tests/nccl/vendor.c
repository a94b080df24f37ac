/* vendor.c: a library with NCCL's names whose results tell that it ran: its version, and the number
 * of its group. It calls its own functions by their names, as libraries do.
 */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

struct ncclComm {
  int n_ranks, rank;
  char id[NCCL_UNIQUE_ID_BYTES];
};
static int groups, depth;

ncclResult_t ncclGetVersion(int *version) {
  *version = 21900;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  strcpy(id->internal, "of the vendor");
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t result) { return result ? "the vendor refuses" : "fine"; }
const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "a text of the vendor";
}
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank) {
  if (strcmp(id.internal, "of the vendor") || depth != 1) return ncclInternalError;
  *comm = calloc(1, sizeof **comm);
  (*comm)->n_ranks = n_ranks, (*comm)->rank = rank;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  free(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  (void)comm;
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart(void) {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  ++groups, --depth;
  return ncclSuccess;
}

/* Writes the version, the number of groups before, the reduction and the rank. */
static ncclResult_t tell(float *receive, size_t count, int op, ncclComm_t comm) {
  int version = 0;
  ncclGetVersion(&version);
  const float told[] = {(float)version, (float)groups, (float)op, (float)comm->rank};
  for (size_t k = 0; k < count; ++k) receive[k] = told[k % 4];
  return count == 3 ? ncclInvalidArgument : ncclSuccess;
}
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)type, (void)stream;
  return tell(receive, count, (int)op, comm);
}
ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduce(send, receive, count, type, op, comm, stream);
}
ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  (void)root;
  return ncclAllReduce(send, receive, count, type, op, comm, stream);
}
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduce(send, receive, count, type, (ncclRedOp_t)(100 + root), comm, stream);
}
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return ncclAllReduce(send, receive, count, type, (ncclRedOp_t)-1, comm, stream);
}
ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  (void)buffer, (void)count, (void)type, (void)stream;
  return peer == comm->rank ? ncclInvalidArgument : ncclSuccess;
}
ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return ncclAllReduce(buffer, buffer, count, type, (ncclRedOp_t)(200 + peer), comm, stream);
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  (void)scalar, (void)type, (void)residence, (void)comm;
  *op = (ncclRedOp_t)77;
  return ncclSuccess;
}
