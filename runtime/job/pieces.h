// pieces.h: memory of a device, in pieces of the host's memory.
#pragma once

#include <stddef.h>

#include <functional>

#include "../communicator/device.h"

namespace hccc::job {

constexpr size_t PIECE = size_t(1) << 20;  // bytes, in which a device's memory goes over a border

// Two pieces of the host's memory, each with a stream, by which one lane reads and writes memory of the
// thread's device: while one is used, the other is copied. Functions throw Error; where `go_on` says no,
// hcccAborted.
class Pieces {
 public:
  using GoOn = std::function<bool()>;
  // Uses n bytes at the host, which are those from `first` on.
  using Use = std::function<void(char *host, size_t first, size_t n)>;

  Pieces();
  ~Pieces();
  Pieces(const Pieces &) = delete;
  Pieces &operator=(const Pieces &) = delete;

  // Has each piece used. from: where it comes from, null: nowhere; to: where it goes then.
  void each(char *to, const char *from, size_t bytes, const Use &use, const GoOn &go_on);
  // Copies within the device.
  void copy(char *to, const char *from, size_t bytes, const GoOn &go_on);

  // Returns the stream for calls of libraries.
  hcccrtStream_t stream() const { return streams_[0]; }
  // Returns when a stream has done what is in it.
  static void wait(hcccrtStream_t stream, const GoOn &go_on);

 private:
  hcccrtStream_t streams_[2] = {};
  char *host_ = nullptr;
  bool locked_ = false;  // its pages are, so that copies go beside the host's work
};

}  // namespace hccc::job
