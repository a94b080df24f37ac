// staging.h: what is done with buffers that peers cannot reach: they are copied.
#pragma once

#include <hccc/library.h>

#include <memory>

#include "heap.h"
#include "libraries.h"

namespace hccc {

// Where a call's buffers are, and how long. Null where the rank has none.
struct Buffers {
  const char *send = nullptr;
  char *receive = nullptr;
  size_t send_bytes = 0, receive_bytes = 0;
  bool in_place = false;  // send lies in receive, or receive in send, where the collective has it
};

// Bytes [at, at + bytes) of each block of `whole` bytes, of which the buffers have so many.
struct Cut {
  size_t at, bytes, whole;
  int send_blocks, receive_blocks;

  // Whether they lie side by side in a buffer of so many blocks.
  bool is_buffer(int blocks) const { return bytes == whole || blocks <= 1; }
};

// Those that the kernel is given, and what is to be copied to the caller's when it is done.
struct Staged {
  Buffers used;
  char *back = nullptr;  // the caller's receive buffer; null: nothing is to be copied
};

class Staging {
 public:
  // reaches: whether peers reach a buffer. Copies what the kernel reads of the cut, if they do not,
  // or if it is no buffer.
  template <class Reaches>
  Staged before(Heap &heap, const Buffers &given, const Cut &cut, const Reaches &reaches);
  void after(const Staged &staged, const Cut &cut) const;
  // An input of its own for a call in place that is to be run as one that is not.
  Buffers apart(Heap &heap, const Buffers &given);
  ~Staging();

 private:
  // Memory of the heap that is kept from call to call.
  struct Kept {
    char *base = nullptr;
    size_t bytes = 0;
  };
  char *room(Heap &heap, Kept &kept, const char *like, size_t bytes);
  Heap *heap_ = nullptr;
  Kept input_, output_, apart_;
};

// Faster than memcpy where buffers lie a few bytes apart modulo a page.
void copy(char *to, const char *from, size_t bytes);
// A buffer of the cuts of `blocks` blocks from where they lie in a whole one, and back.
void gather(char *to, const char *from, int blocks, const Cut &cut);
void scatter(char *to, const char *from, int blocks, const Cut &cut);

template <class Reaches>
Staged Staging::before(Heap &heap, const Buffers &given, const Cut &cut, const Reaches &reaches) {
  Staged made{given, nullptr};
  made.used.send_bytes = static_cast<size_t>(cut.send_blocks) * cut.bytes;
  made.used.receive_bytes = static_cast<size_t>(cut.receive_blocks) * cut.bytes;
  if (given.send) made.used.send = given.send + cut.at;
  if (given.receive) made.used.receive = given.receive + cut.at;
  const auto direct = [&](const char *at, size_t bytes, int blocks) {
    return cut.is_buffer(blocks) && reaches(at, bytes);
  };
  if (given.in_place && given.send && given.receive) {
    // One of the two holds the other.
    const bool within = given.send >= given.receive &&
                        given.send + given.send_bytes <= given.receive + given.receive_bytes;
    const char *outer = within ? given.receive : given.send;
    const size_t bytes = within ? given.receive_bytes : given.send_bytes;
    const int blocks = within ? cut.receive_blocks : cut.send_blocks;
    if (direct(outer, bytes, blocks)) return made;
    char *base = room(heap, output_, outer + cut.at, static_cast<size_t>(blocks) * cut.bytes);
    const auto block = [&](const char *at) { return static_cast<size_t>(at - outer) / cut.whole * cut.bytes; };
    char *send = base + block(given.send);
    made.used.send = send;
    made.used.receive = base + block(given.receive);
    gather(send, given.send, cut.send_blocks, cut);
    made.back = given.receive;
    return made;
  }
  if (given.send && !direct(given.send, given.send_bytes, cut.send_blocks)) {
    char *base = room(heap, input_, given.send + cut.at, made.used.send_bytes);
    gather(base, given.send, cut.send_blocks, cut);
    made.used.send = base;
  }
  if (given.receive && !direct(given.receive, given.receive_bytes, cut.receive_blocks)) {
    made.used.receive = room(heap, output_, given.receive + cut.at, made.used.receive_bytes);
    made.back = given.receive;
  }
  return made;
}

}  // namespace hccc
