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

// Those that the kernel is given, and what is to be copied to the caller's when it is done.
struct Staged {
  Buffers used;
  char *back = nullptr;  // the caller's receive buffer; null: nothing is to be copied
};

class Staging {
 public:
  // reaches: whether peers reach a buffer. Copies what the kernel reads.
  template <class Reaches>
  Staged before(Heap &heap, const Buffers &given, const Reaches &reaches);
  void after(const Staged &staged) const;
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

template <class Reaches>
Staged Staging::before(Heap &heap, const Buffers &given, const Reaches &reaches) {
  Staged made{given, nullptr};
  if (given.in_place && given.send && given.receive) {
    // One of the two holds the other.
    const bool within = given.send >= given.receive &&
                        given.send + given.send_bytes <= given.receive + given.receive_bytes;
    const char *outer = within ? given.receive : given.send;
    const size_t bytes = within ? given.receive_bytes : given.send_bytes;
    if (reaches(outer, bytes)) return made;
    char *base = room(heap, output_, outer, bytes);
    made.used.send = base + (given.send - outer);
    made.used.receive = base + (given.receive - outer);
    copy(base + (given.send - outer), given.send, given.send_bytes);
    made.back = given.receive;
    return made;
  }
  if (given.send && !reaches(given.send, given.send_bytes)) {
    char *base = room(heap, input_, given.send, given.send_bytes);
    copy(base, given.send, given.send_bytes);
    made.used.send = base;
  }
  if (given.receive && !reaches(given.receive, given.receive_bytes)) {
    made.used.receive = room(heap, output_, given.receive, given.receive_bytes);
    made.back = given.receive;
  }
  return made;
}

}  // namespace hccc
