// mailbox.cpp: datagrams with descriptors between ranks of a host.
#include "mailbox.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "error.h"

namespace hccc {

Mailbox::Mailbox(int n_ranks) : peers_(static_cast<size_t>(n_ranks), -1) {
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends_))
    throw system_error("no pair of sockets");
}

void Mailbox::close_all() {
  for (int &end : ends_)
    if (end >= 0) close(std::exchange(end, -1));
  for (int &end : peers_)
    if (end >= 0) close(std::exchange(end, -1));
}

void Mailbox::connect(int rank, int descriptor) { peers_[static_cast<size_t>(rank)] = descriptor; }

bool Mailbox::send(int rank, const SharedPiece &piece, int descriptor) {
  iovec part = {const_cast<SharedPiece *>(&piece), sizeof piece};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = space, message.msg_controllen = sizeof space;
    cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  }
  for (;;) {
    if (sendmsg(peers_[static_cast<size_t>(rank)], &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
    return true;  // the rank has gone, which the monitor notices
  }
}

bool Mailbox::receive(SharedPiece *piece, int *descriptor) {
  *descriptor = -1;
  for (;;) {
    iovec part = {piece, sizeof *piece};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = space, message.msg_controllen = sizeof space;
    const ssize_t got = recvmsg(ends_[0], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    for (cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head))
      if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(descriptor, CMSG_DATA(head), sizeof *descriptor);
    if (static_cast<size_t>(got) == sizeof *piece && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
      return true;
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
  }
}

}  // namespace hccc
