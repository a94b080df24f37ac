// staging.h: copies of buffers that peers cannot reach.
#pragma once

#include <hccc/library.h>

#include <memory>

#include "heap.h"
#include "libraries.h"

namespace hccc {

// A call's buffers. Null: the rank has none.
struct Buffers {
  const char *send = nullptr;
  char *receive = nullptr;
  size_t send_bytes = 0, receive_bytes = 0;
  bool in_place = false;  // send lies in receive, or receive in send, where the collective has it
};

// Bytes [at, at + bytes) of each block of `whole` bytes, and the number of blocks in both buffers.
struct Cut {
  size_t at, bytes, whole;
  int send_blocks, receive_blocks;

  // Returns whether they are contiguous in a buffer of so many blocks.
  bool is_buffer(int blocks) const { return bytes == whole || blocks <= 1; }
};

// The kernel's buffers, and where the result is copied to afterwards.
struct Staged {
  Buffers used;
  char *back = nullptr;  // the caller's receive buffer; null: no copy
};

// The blocks of an uneven call as its caller has them, and as the kernel has them: of a buffer that is
// copied one after another. size: bytes of an element.
struct CopiedBlocks {
  CopiedBlocks(const OwnBlocks &blocks, bool copies_send, bool copies_receive, int bytes)
      : given(blocks), used(blocks), send(copies_send), receive(copies_receive), size(bytes) {
    if (send) used.send = given.send.packed();
    if (receive) used.receive = given.receive.packed();
  }

  const OwnBlocks &given;
  OwnBlocks used;
  const bool send, receive;  // whether they are copied
  const int size;
};

class Staging {
 public:
  // Copies the kernel's input of a cut where peers do not reach it (`reaches`), or it is not
  // contiguous.
  template <class Reaches>
  Staged before(Heap &heap, const Buffers &given, const Cut &cut, const Reaches &reaches);
  void after(const Staged &staged, const Cut &cut) const;
  // The same of an uneven call.
  Staged before(Heap &heap, const Buffers &given, const CopiedBlocks &blocks);
  void after(const Staged &staged, const CopiedBlocks &blocks) const;
  // Copies the input of a call in place, to run it out of place.
  Buffers apart(Heap &heap, const Buffers &given);
  ~Staging();

 private:
  // Memory of the heap that stays from call to call.
  struct Room {
    char *base = nullptr;
    size_t bytes = 0;
  };
  char *reserve(Heap &heap, Room &room, const char *like, size_t bytes);
  Heap *heap_ = nullptr;
  Room input_, output_, apart_;
};

// Copies bytes; faster than memcpy where buffers lie a few bytes apart modulo a page.
void copy(char *to, const char *from, size_t bytes);
// Copies a part of a message of `whole` bytes, past the caches where it is long.
void copy_message(char *to, const char *from, size_t bytes, size_t whole);
// Copy the cuts of `blocks` blocks of a buffer into a contiguous one, and back.
void gather(char *to, const char *from, int blocks, const Cut &cut);
void scatter(char *to, const char *from, int blocks, const Cut &cut);
// Copies blocks of a buffer of elements of `size` bytes to where another has them. copy: of bytes.
template <class Copy>
void copy_blocks(char *to, const BlockRow &there, const char *from, const BlockRow &here, int size, const Copy &copy) {
  for (size_t k = 0; k < here.blocks(); ++k)
    if (here.lengths[k])
      copy(to + there.places[k] * size, from + here.places[k] * size, static_cast<size_t>(here.lengths[k] * size));
}

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
    char *base = reserve(heap, output_, outer + cut.at, static_cast<size_t>(blocks) * cut.bytes);
    const auto block = [&](const char *at) { return static_cast<size_t>(at - outer) / cut.whole * cut.bytes; };
    char *send = base + block(given.send);
    made.used.send = send;
    made.used.receive = base + block(given.receive);
    gather(send, given.send, cut.send_blocks, cut);
    made.back = given.receive;
    return made;
  }
  if (given.send && !direct(given.send, given.send_bytes, cut.send_blocks)) {
    char *base = reserve(heap, input_, given.send + cut.at, made.used.send_bytes);
    gather(base, given.send, cut.send_blocks, cut);
    made.used.send = base;
  }
  if (given.receive && !direct(given.receive, given.receive_bytes, cut.receive_blocks)) {
    made.used.receive = reserve(heap, output_, given.receive + cut.at, made.used.receive_bytes);
    made.back = given.receive;
  }
  return made;
}

}  // namespace hccc
