// staging.cpp: copies of buffers that peers cannot reach.
#include "staging.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hccc {

typedef unsigned char Wide __attribute__((vector_size(32), aligned(1), may_alias));

// Copies bytes. The empty asm keeps the compiler from calling memcpy instead.
void copy(char *to, const char *from, size_t bytes) {
  size_t i = 0;
  for (; i + 128 <= bytes; i += 128) {
    const Wide *in = reinterpret_cast<const Wide *>(from + i);
    Wide *out = reinterpret_cast<Wide *>(to + i);
    const Wide a = in[0], b = in[1], c = in[2], d = in[3];
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    asm volatile("" ::: "memory");
  }
  for (; i < bytes; ++i) {
    to[i] = from[i];
    asm volatile("" ::: "memory");
  }
}

namespace {

constexpr size_t PAST_CACHES = size_t{4} << 20;

#if defined(__x86_64__)
// Copies lines without reading what they overwrite.
void stream(char *to, const char *from, size_t bytes) {
  const size_t head = -reinterpret_cast<uintptr_t>(to) % 64;
  memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    const __m128i *in = reinterpret_cast<const __m128i *>(from + i);
    __m128i *out = reinterpret_cast<__m128i *>(to + i);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                  d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a), _mm_stream_si128(out + 1, b), _mm_stream_si128(out + 2, c),
        _mm_stream_si128(out + 3, d);
  }
  memcpy(to + i, from + i, bytes - i);
  _mm_sfence();
}
#else
void stream(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }
#endif

}  // namespace

void copy_message(char *to, const char *from, size_t bytes, size_t whole) {
  if (whole >= PAST_CACHES && bytes >= 4096) return stream(to, from, bytes);
  if (bytes >= 4096) return copy(to, from, bytes);
  memcpy(to, from, bytes);
}

void gather(char *to, const char *from, int blocks, const Cut &cut) {
  if (cut.bytes == cut.whole) return copy(to, from, static_cast<size_t>(blocks) * cut.whole);
  for (size_t k = 0; k < static_cast<size_t>(blocks); ++k)
    copy(to + k * cut.bytes, from + k * cut.whole + cut.at, cut.bytes);
}

void scatter(char *to, const char *from, int blocks, const Cut &cut) {
  if (cut.bytes == cut.whole) return copy(to, from, static_cast<size_t>(blocks) * cut.whole);
  for (size_t k = 0; k < static_cast<size_t>(blocks); ++k)
    copy(to + k * cut.whole + cut.at, from + k * cut.bytes, cut.bytes);
}

// Returns room that begins as far into a page as `like`: copies between places that differ by
// little modulo a page stall.
char *Staging::reserve(Heap &heap, Room &room, const char *like, size_t bytes) {
  heap_ = &heap;
  const size_t past = reinterpret_cast<uintptr_t>(like) % page_bytes();
  if (room.base && room.bytes >= past + bytes) return room.base + past;
  if (room.base) heap.give(room.base);
  room = Room();
  room.base = static_cast<char *>(heap.take(past + bytes));
  room.bytes = past + bytes;
  return room.base + past;
}

void Staging::after(const Staged &staged, const Cut &cut) const {
  if (staged.back) scatter(staged.back, staged.used.receive, cut.receive_blocks, cut);
}

Buffers Staging::apart(Heap &heap, const Buffers &given) {
  Buffers made = given;
  char *base = reserve(heap, apart_, given.send, given.send_bytes);
  copy(base, given.send, given.send_bytes);
  made.send = base;
  made.in_place = false;
  return made;
}

Staged Staging::before(Heap &heap, const Buffers &given, const CopiedBlocks &blocks) {
  Staged made{given, nullptr};
  if (blocks.send) {
    made.used.send_bytes = static_cast<size_t>(blocks.used.send.extent() * blocks.size);
    char *base = reserve(heap, input_, given.send, made.used.send_bytes);
    copy_blocks(base, blocks.used.send, given.send, blocks.given.send, blocks.size, copy);
    made.used.send = base;
  }
  if (blocks.receive) {
    made.used.receive_bytes = static_cast<size_t>(blocks.used.receive.extent() * blocks.size);
    made.used.receive = reserve(heap, output_, given.receive, made.used.receive_bytes);
    made.back = given.receive;
  }
  return made;
}

void Staging::after(const Staged &staged, const CopiedBlocks &blocks) const {
  if (!staged.back) return;
  copy_blocks(staged.back, blocks.given.receive, staged.used.receive, blocks.used.receive, blocks.size, copy);
}

Staging::~Staging() {
  for (const Room *room : {&input_, &output_, &apart_})
    if (room->base) heap_->give(room->base);
}

}  // namespace hccc
