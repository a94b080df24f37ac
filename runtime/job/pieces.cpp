// pieces.cpp: copies between a device and two pieces of the host's memory.
#include "pieces.h"

#include <algorithm>
#include <thread>

#include "../communicator/comm.h"

namespace hccc::job {

Pieces::Pieces() {
  for (hcccrtStream_t &one : streams_)
    check_device(hcccrtStreamCreateWithFlags(&one, hcccrtStreamNonBlocking), "a stream of a job");
  void *made = nullptr;
  if (hcccMemAlloc(&made, 2 * PIECE) != hcccSuccess) throw Error(hcccSystemError, thread_error());
  host_ = static_cast<char *>(made);
  locked_ = hcccrtHostRegister(host_, 2 * PIECE, hcccrtHostRegisterDefault) == hcccrtSuccess;
  if (!locked_) hcccrtGetLastError();  // copies are slower then
}

Pieces::~Pieces() {
  if (locked_) hcccrtHostUnregister(host_);
  if (host_) hcccMemFree(host_);
  for (const hcccrtStream_t one : streams_)
    if (one) hcccrtStreamDestroy(one);
}

void Pieces::each(char *to, const char *from, size_t bytes, const Use &use, const GoOn &go_on) {
  const auto length = [&](size_t first) { return std::min(PIECE, bytes - first); };
  const auto move = [&](void *into, const void *of, size_t first) {
    check_device(hcccrtMemcpyAsync(into, of, length(first), hcccrtMemcpyDefault, streams_[first / PIECE % 2]),
                 "copying a piece");
  };
  const auto host = [&](size_t first) { return host_ + first / PIECE % 2 * PIECE; };
  if (from && bytes) move(host(0), from, 0);
  for (size_t first = 0; first < bytes; first += PIECE) {
    // The stream of the next piece has done what was before it.
    if (const size_t next = first + PIECE; from && next < bytes) move(host(next), from + next, next);
    wait(streams_[first / PIECE % 2], go_on);
    use(host(first), first, length(first));
    if (to) move(to + first, host(first), first);
  }
  if (to)
    for (const hcccrtStream_t one : streams_) wait(one, go_on);
}

void Pieces::copy(char *to, const char *from, size_t bytes, const GoOn &go_on) {
  check_device(hcccrtMemcpyAsync(to, from, bytes, hcccrtMemcpyDefault, stream()), "copying");
  wait(stream(), go_on);
}

void Pieces::wait(hcccrtStream_t stream, const GoOn &go_on) {
  for (hcccrtError_t now; (now = hcccrtStreamQuery(stream)) != hcccrtSuccess; std::this_thread::yield()) {
    if (now != hcccrtErrorNotReady) check_device(now, "a stream of a job");
    if (!go_on()) throw Error(hcccAborted, "the call has failed");
  }
}

}  // namespace hccc::job
