// collectives.cpp: the collectives of the C interface.
#include <exception>
#include <utility>

#include "comm.h"
#include "device_layer.h"

namespace hccc {
namespace {

// Puts a call into a stream, after the checks that can be made now.
void put(const Request &request, hcccComm_t comm, void *stream) {
  const std::shared_ptr<Calls> calls = comm->calls;
  if (!group::open()) return calls->enqueue(request, stream);
  calls->check(request);
  device_layer::captures(static_cast<hcccrtStream_t>(stream));
  group::add({comm, comm, [=] { calls->enqueue(request, stream); }, {}});
}

// Makes a call without a stream: returns when this rank's part is done.
void make(const Wanted &wanted, hcccComm_t comm) {
  if (!group::open())
    return comm->calls->run([&](const Settings &settings) { comm->of.call(wanted, settings); });
  comm->of.check(wanted, comm->calls->settings());
  const Request request(wanted);
  in_turn(comm, [=](const Settings &settings) { comm->of.call(request.wanted(), settings); });
}

// Makes a call by a job, now or with the open group: returns when this rank's part is done.
void make(const std::shared_ptr<Job> &job, const Wanted &wanted, hcccComm_t comm) {
  in_turn(comm, [comm, request = Request(wanted, job)](const Settings &settings) { comm->calls->make(request, settings); });
}

void begin(Wanted &wanted, hcccComm_t comm, void *stream) {
  wanted.stream = stream;
  comm->multipliers.resolve(wanted);
  const std::shared_ptr<Job> job = comm->jobs.of(wanted);
  if (stream && !comm->of.on_gpu()) {
    if (job) wanted.stream = nullptr;  // which has come to the call when it is made
    put(Request(wanted, job), comm, stream);
  } else if (job) {
    make(job, wanted, comm);
  } else {
    make(wanted, comm);
  }
}

// Makes a call that is the last one again, of a communicator with a vendor's library. Throws Error.
bool again(const Wanted &wanted, hcccComm_t comm, void *stream) {
  if (!comm || stream || !comm->of.has_vendor() || !comm->process.is_this()) return false;
  return !group::open() && !comm->jobs.any() && comm->calls->again(wanted);
}

hcccResult_t call(Wanted &&wanted, hcccComm_t comm, void *stream) {
  try {
    if (again(wanted, comm, stream)) return hcccSuccess;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    return caught(comm, [&] { std::rethrow_exception(error); });
  }
  return caught(comm, [&] {
    check(comm);
    begin(wanted, comm, stream);
  });
}

Wanted wanted(const char *collective, const void *send, void *receive, size_t count, int type, int op,
              int root) {
  Wanted made;
  made.collective = collective, made.send = send, made.receive = receive;
  made.count = count, made.type = type, made.op = op, made.root = root;
  return made;
}

// Makes an uneven call. row: returns the blocks of the send (0) or the receive buffer (1), given what
// makes a row of a caller's lengths and places.
template <class Row>
hcccResult_t call_blocks(Wanted wanted, const Row &row, hcccComm_t comm, void *stream) {
  return caught(comm, [&] {
    check(comm);
    const auto read = [&](const size_t *lengths, const size_t *places, const char *buffer) {
      const auto numbers = [&](const size_t *at) {
        return comm->of.numbers(wanted.collective, at, comm->of.n_ranks(), stream);
      };
      return row_of(numbers(lengths), numbers(places), buffer);
    };
    wanted.blocks = std::make_shared<const OwnBlocks>(OwnBlocks{row(0, read), row(1, read)});
    begin(wanted, comm, stream);
  });
}

}  // namespace
}  // namespace hccc

HCCC_API hcccResult_t hcccAllReduce(const void *send, void *receive, size_t count, hcccDataType_t type,
                                    hcccRedOp_t op, hcccComm_t comm, void *stream) {
  return hccc::call(hccc::wanted("Allreduce", send, receive, count, type, op, -1), comm, stream);
}

HCCC_API hcccResult_t hcccAllGather(const void *send, void *receive, size_t send_count,
                                    hcccDataType_t type, hcccComm_t comm, void *stream) {
  return hccc::call(hccc::wanted("Allgather", send, receive, send_count, type, 0, -1), comm, stream);
}

HCCC_API hcccResult_t hcccReduceScatter(const void *send, void *receive, size_t receive_count,
                                        hcccDataType_t type, hcccRedOp_t op, hcccComm_t comm,
                                        void *stream) {
  return hccc::call(hccc::wanted("Reducescatter", send, receive, receive_count, type, op, -1), comm,
                    stream);
}

HCCC_API hcccResult_t hcccBroadcast(const void *send, void *receive, size_t count, hcccDataType_t type,
                                    int root, hcccComm_t comm, void *stream) {
  return hccc::call(hccc::wanted("Broadcast", send, receive, count, type, 0, root), comm, stream);
}

HCCC_API hcccResult_t hcccBcast(void *buffer, size_t count, hcccDataType_t type, int root,
                                hcccComm_t comm, void *stream) {
  return hcccBroadcast(buffer, buffer, count, type, root, comm, stream);
}

HCCC_API hcccResult_t hcccReduce(const void *send, void *receive, size_t count, hcccDataType_t type,
                                 hcccRedOp_t op, int root, hcccComm_t comm, void *stream) {
  return hccc::call(hccc::wanted("Reduce", send, receive, count, type, op, root), comm, stream);
}

HCCC_API hcccResult_t hcccGather(const void *send, void *receive, size_t count, hcccDataType_t type,
                                 int root, hcccComm_t comm, void *stream) {
  return hccc::call(hccc::wanted("Gather", send, receive, count, type, 0, root), comm, stream);
}

HCCC_API hcccResult_t hcccScatter(const void *send, void *receive, size_t count, hcccDataType_t type,
                                  int root, hcccComm_t comm, void *stream) {
  return hccc::call(hccc::wanted("Scatter", send, receive, count, type, 0, root), comm, stream);
}

HCCC_API hcccResult_t hcccAllToAll(const void *send, void *receive, size_t count, hcccDataType_t type,
                                   hcccComm_t comm, void *stream) {
  return hccc::call(hccc::wanted("Alltoall", send, receive, count, type, 0, -1), comm, stream);
}

HCCC_API hcccResult_t hcccAllGatherv(const void *send, size_t send_count, void *receive, const size_t *receive_counts,
                                     const size_t *places, hcccDataType_t type, hcccComm_t comm, void *stream) {
  return hccc::call_blocks(hccc::wanted("Allgatherv", send, receive, send_count, type, 0, -1),
                           [&](int which, const auto &read) {
                             return which ? read(receive_counts, places, "receive") : hccc::row_of(send_count);
                           },
                           comm, stream);
}

HCCC_API hcccResult_t hcccReduceScatterv(const void *send, const size_t *counts, const size_t *places, void *receive,
                                         hcccDataType_t type, hcccRedOp_t op, hcccComm_t comm, void *stream) {
  return hccc::call_blocks(hccc::wanted("Reducescatterv", send, receive, 0, type, op, -1),
                           [&](int which, const auto &read) {
                             const hccc::BlockRow all = read(counts, places, "send");
                             if (!which) return all;
                             return hccc::row_of(static_cast<size_t>(all.lengths[static_cast<size_t>(comm->of.rank())]));
                           },
                           comm, stream);
}

HCCC_API hcccResult_t hcccGatherv(const void *send, size_t send_count, void *receive, const size_t *receive_counts,
                                  const size_t *places, hcccDataType_t type, int root, hcccComm_t comm,
                                  void *stream) {
  return hccc::call_blocks(hccc::wanted("Gatherv", send, receive, send_count, type, 0, root),
                           [&](int which, const auto &read) {
                             if (!which) return hccc::row_of(send_count);
                             if (comm->of.rank() != root) return hccc::BlockRow();
                             return read(receive_counts, places, "receive");
                           },
                           comm, stream);
}

HCCC_API hcccResult_t hcccScatterv(const void *send, const size_t *send_counts, const size_t *places, void *receive,
                                   size_t receive_count, hcccDataType_t type, int root, hcccComm_t comm,
                                   void *stream) {
  return hccc::call_blocks(hccc::wanted("Scatterv", send, receive, receive_count, type, 0, root),
                           [&](int which, const auto &read) {
                             if (which) return hccc::row_of(receive_count);
                             if (comm->of.rank() != root) return hccc::BlockRow();
                             return read(send_counts, places, "send");
                           },
                           comm, stream);
}

HCCC_API hcccResult_t hcccAllToAllv(const void *send, const size_t *send_counts, const size_t *send_places,
                                    void *receive, const size_t *receive_counts, const size_t *receive_places,
                                    hcccDataType_t type, hcccComm_t comm, void *stream) {
  return hccc::call_blocks(hccc::wanted("Alltoallv", send, receive, 0, type, 0, -1),
                           [&](int which, const auto &read) {
                             return which ? read(receive_counts, receive_places, "receive")
                                          : read(send_counts, send_places, "send");
                           },
                           comm, stream);
}

HCCC_API hcccResult_t hcccRun(const char *library, const void *send, void *receive, size_t count,
                              hcccDataType_t type, hcccRedOp_t op, hcccComm_t comm, void *stream) {
  hccc::Wanted one = hccc::wanted(nullptr, send, receive, count, type, op, -1);
  one.library = library ? library : "";
  return hccc::call(std::move(one), comm, stream);
}
