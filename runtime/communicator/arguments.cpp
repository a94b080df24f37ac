// arguments.cpp: checks of a call's arguments.
#include "arguments.h"

#include <string.h>

#include <algorithm>

#include "error.h"

namespace hccc {
namespace {

bool is(const char *a, const char *b) { return !strcmp(a, b); }

// Returns the bytes from the beginning of the receive buffer to the send buffer, in place, as in NCCL.
long long place_of_send(const char *collective, int rank, long long block) {
  const long long own = rank * block;
  if (is(collective, "Allgather") || is(collective, "Gather")) return own;
  return is(collective, "Reducescatter") || is(collective, "Scatter") ? -own : 0;
}

// Throws Error where a buffer with elements is null, or not aligned to them.
void check_addresses(const Buffers &b, int size) {
  if ((b.send_bytes && !b.send) || (b.receive_bytes && !b.receive))
    throw Error(hcccInvalidArgument, text_of("the %s buffer is null", b.send_bytes && !b.send ? "send" : "receive"));
  const auto bits = reinterpret_cast<uintptr_t>(b.send) | reinterpret_cast<uintptr_t>(b.receive);
  const int align = std::min(size, 8);  // a complex128 is two float64
  if (bits % static_cast<uintptr_t>(align))
    throw Error(hcccInvalidArgument, text_of("a buffer is not aligned to %d bytes, as its elements are", align));
}

bool overlap(const Buffers &b) {
  return b.send && b.receive && b.send < b.receive + b.receive_bytes &&
         b.receive < b.send + b.send_bytes;
}

}  // namespace

bool rooted(const char *collective) {
  return is(collective, "Broadcast") || is(collective, "Reduce") || is(collective, "Gather") ||
         is(collective, "Scatter") || is(collective, "Gatherv") || is(collective, "Scatterv");
}

void check_words(const Wanted &wanted, int n_ranks) {
  if (!name_of_type(wanted.type))
    throw Error(hcccInvalidArgument, text_of("type %d is none", wanted.type));
  if (!name_of_op(wanted.op))
    throw Error(hcccInvalidArgument, text_of("reduction %d is none", wanted.op));
  if (wanted.collective && rooted(wanted.collective) && (wanted.root < 0 || wanted.root >= n_ranks))
    throw Error(hcccInvalidArgument, text_of("root %d is no rank: there are %d", wanted.root, n_ranks));
  if (!has_op(wanted.type, wanted.op))
    throw Error(hcccInvalidArgument,
                text_of("there is no %s of %s", name_of_op(wanted.op), name_of_type(wanted.type)));
}

Buffers buffers_of(const Wanted &wanted, const hccc_library &library, int rank) {
  return buffers_of(wanted, library.collective, library.input_blocks(rank), library.output_blocks(rank), rank);
}

Buffers buffers_of(const Wanted &wanted, const char *collective, int input_blocks, int output_blocks, int rank) {
  const int size = bytes_of_type(wanted.type);
  const auto count = static_cast<long long>(wanted.count);
  const long long send = hccc_buffer_bytes(input_blocks, count, size);
  const long long receive = hccc_buffer_bytes(output_blocks, count, size);
  if (count < 0 || send < 0 || receive < 0)
    throw Error(hcccInvalidArgument, text_of("%zu elements are too many", wanted.count));
  Buffers found;
  if (send) found.send = static_cast<const char *>(wanted.send);
  if (receive) found.receive = static_cast<char *>(wanted.receive);
  found.send_bytes = static_cast<size_t>(send);
  found.receive_bytes = static_cast<size_t>(receive);
  check_addresses(found, size);
  if (found.send && found.receive) {
    const long long past = found.send - found.receive, own = rank * count * size;
    const bool may_be = past == 0 || past == own || past == -own;  // the name is looked at only then
    found.in_place = may_be && past == place_of_send(collective, rank, count * size);
    if (!found.in_place && overlap(found))
      throw Error(hcccInvalidArgument, "send and receive overlap, and not as they do in place");
  }
  return found;
}

Buffers buffers_of_blocks(const Wanted &wanted) {
  const OwnBlocks &own = *wanted.blocks;
  const int size = bytes_of_type(wanted.type);
  Buffers found;
  found.send = static_cast<const char *>(wanted.send), found.receive = static_cast<char *>(wanted.receive);
  const int64_t send = own.send.extent(), receive = own.receive.extent();
  if (send > HCCC_MOST_BYTES / size || receive > HCCC_MOST_BYTES / size)
    throw Error(hcccInvalidArgument, "the blocks of a buffer have too many elements");
  found.send_bytes = static_cast<size_t>(send * size), found.receive_bytes = static_cast<size_t>(receive * size);
  check_addresses(found, size);
  return found;
}

void check_message(const Message &message, int n_ranks) {
  if (!name_of_type(message.type)) throw Error(hcccInvalidArgument, text_of("type %d is none", message.type));
  const bool any = !message.sends && !message.exact;
  if ((message.peer < 0 || message.peer >= n_ranks) && !(any && message.peer == HCCC_ANY_SOURCE))
    throw Error(hcccInvalidArgument, text_of("rank %d is none of %d", message.peer, n_ranks));
  if (message.tag < 0 && !(any && message.tag == HCCC_ANY_TAG))
    throw Error(hcccInvalidArgument, text_of("tag %d is negative", message.tag));
  const auto size = static_cast<size_t>(bytes_of_type(message.type));
  if (message.count > SIZE_MAX / 2 / size)
    throw Error(hcccInvalidArgument, text_of("%zu elements are too many", message.count));
  if (message.count && !message.at) throw Error(hcccInvalidArgument, "the buffer is null");
  if (reinterpret_cast<uintptr_t>(message.at) % size)
    throw Error(hcccInvalidArgument, text_of("a buffer is not aligned to %zu bytes, as its elements are", size));
}

Called called_of(const Wanted &wanted, uint64_t number) {
  Called made;
  made.number = number;
  made.count = wanted.blocks ? -1 : static_cast<int64_t>(wanted.count);
  made.type = wanted.type, made.root = wanted.root;
  made.op = !wanted.collective || strstr(wanted.collective, "educe") ? wanted.op : -1;
  strncpy(made.collective, wanted.collective ? wanted.collective : "A collective", sizeof made.collective - 1);
  strncpy(made.library, wanted.collective ? "no library yet" : wanted.library, sizeof made.library - 1);
  return made;
}

Called called_of(const Wanted &wanted, const hccc_library &library, bool in_place, uint64_t number) {
  Called made;
  made.number = number;
  made.count = wanted.blocks ? -1 : static_cast<int64_t>(wanted.count);
  made.type = wanted.type;
  made.op = library.reduces ? wanted.op : -1;
  made.root = wanted.library || wanted.root < 0 ? library.root : wanted.root;
  made.in_place = in_place;
  strncpy(made.collective, library.collective, sizeof made.collective - 1);
  strncpy(made.library, library.name, sizeof made.library - 1);
  return made;
}

Called called_of(const char *name, size_t count, uint64_t number) {
  Called made;
  made.number = number, made.count = static_cast<int64_t>(count), made.type = -1;
  strncpy(made.collective, name, sizeof made.collective - 1);
  return made;
}

Called called_of(const Message &message, uint64_t number) {
  Called made = called_of(message.sends ? SEND : RECEIVE, message.count, number);
  made.type = message.type, made.root = message.peer, made.op = message.tag;
  return made;
}

}  // namespace hccc
