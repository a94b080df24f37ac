// send_receive.cpp: the sends and receives of the C interface.
#include <limits.h>

#include "comm.h"

namespace hccc {
namespace {

hcccResult_t make(Message message, hcccDataType_t type, hcccComm_t comm, void *stream) {
  return caught(comm, [&] {
    check(comm);
    message.type = type;
    comm->of.check(message);
    message.bytes = message.count * static_cast<size_t>(bytes_of_type(type));
    if (group::open()) return group::add(message, comm, stream);
    if (stream)
      return comm->calls->enqueue(Request(std::make_shared<std::vector<Message>>(1, message)), stream);
    comm->calls->exchange(&message, 1);
  });
}

Message send_of(const void *buffer, size_t count, int peer, int tag) {
  Message made;
  made.sends = true, made.at = static_cast<char *>(const_cast<void *>(buffer));
  made.count = count, made.peer = peer, made.tag = tag;
  return made;
}

Message receive_of(void *buffer, size_t count, int peer, int tag, bool exact, hcccStatus_t *status) {
  Message made;
  made.at = static_cast<char *>(buffer);
  made.count = count, made.peer = peer, made.tag = tag;
  made.exact = exact, made.status = status;
  return made;
}

}  // namespace
}  // namespace hccc

HCCC_API hcccResult_t hcccSend(const void *buffer, size_t count, hcccDataType_t type, int peer,
                               hcccComm_t comm, void *stream) {
  return hccc::make(hccc::send_of(buffer, count, peer, 0), type, comm, stream);
}

HCCC_API hcccResult_t hcccSendTagged(const void *buffer, size_t count, hcccDataType_t type, int peer, int tag,
                                     hcccComm_t comm, void *stream) {
  return hccc::make(hccc::send_of(buffer, count, peer, tag), type, comm, stream);
}

HCCC_API hcccResult_t hcccRecv(void *buffer, size_t count, hcccDataType_t type, int peer, hcccComm_t comm,
                               void *stream) {
  return hccc::make(hccc::receive_of(buffer, count, peer, 0, true, nullptr), type, comm, stream);
}

HCCC_API hcccResult_t hcccRecvTagged(void *buffer, size_t count, hcccDataType_t type, int peer, int tag,
                                     hcccStatus_t *status, hcccComm_t comm, void *stream) {
  return hccc::make(hccc::receive_of(buffer, count, peer, tag, false, status), type, comm, stream);
}
