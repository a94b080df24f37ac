// stand_in.cpp: a vendor's library for tests: hccc's own, but for calls that fail, hang, or never end.
#include <hccc_vendor.h>
#include <unistd.h>

#include <atomic>

namespace {

const hccc_vendor *own;
hccc_vendor table;
int mode;             // 0: as own; 1: fails; 2: hangs until it is aborted; 3: never returns
std::atomic<int> left;  // calls before that
std::atomic<bool> aborted;
thread_local const char *text = "";

const char *last_error() { return *text ? text : own->last_error(); }

// Returns whether a call is the one that goes wrong, and its result. Those of no elements, by which libraries are made
// first, do not count.
bool wrong(size_t count, hcccResult_t *result) {
  text = "";
  if (!mode || !count || left-- > 0) return false;
  while (mode == 3 || (mode == 2 && !aborted)) usleep(1000);
  text = mode == 1 ? "the device is on fire" : "it was aborted";
  *result = mode == 1 ? hcccSystemError : hcccAborted;
  return true;
}

hcccResult_t reduce(const void *send, void *receive, size_t count, hcccDataType_t type, hcccRedOp_t op, int root,
                    hccc_vendor_comm *comm, void *stream) {
  hcccResult_t result;
  return wrong(count, &result) ? result : own->reduce(send, receive, count, type, op, root, comm, stream);
}

hcccResult_t all_gather(const void *send, void *receive, size_t count, hcccDataType_t type, hccc_vendor_comm *comm,
                        void *stream) {
  hcccResult_t result;
  return wrong(count, &result) ? result : own->all_gather(send, receive, count, type, comm, stream);
}

hcccResult_t abort_it(hccc_vendor_comm *comm) {
  aborted = true;
  return own->abort(comm);
}

}  // namespace

extern "C" const hccc_vendor *stand_in(const hccc_vendor *of, int how, int after) {
  own = of, mode = how, left = after;
  table = *of;
  table.name = "stand-in", table.last_error = last_error;
  table.reduce = reduce, table.all_gather = all_gather, table.abort = abort_it;
  return &table;
}
