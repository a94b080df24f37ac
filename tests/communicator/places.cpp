// places.cpp: what the runtime library computes of memory and arguments, by itself, over a heap that gives one
// piece after another.
#include "arguments.cpp"
#include "error.cpp"
#include "libraries.cpp"
#include "pieces.cpp"
#include "staging.cpp"
#include "uneven.cpp"

namespace hccc {

size_t page_bytes() { return 4096; }

struct OneAfterAnother final : Heap {
  char *next;
  int given = 0;
  explicit OneAfterAnother(char *memory) : next(memory) {}
  void *take(size_t bytes) override {
    char *const made = next;
    next += (bytes + 4095) / 4096 * 4096;
    return made;
  }
  bool give(void *) override { return ++given; }
  bool has(const void *, size_t) const override { return true; }
  bool spans(const void *) const override { return true; }
};

}  // namespace hccc

using namespace hccc;

extern "C" {
Pieces *pieces(size_t bytes) { return new Pieces(bytes); }
void pieces_end(Pieces *of) { delete of; }
long pieces_take(Pieces *of, size_t bytes) {
  size_t at = 0;
  return of->take(bytes, &at) ? static_cast<long>(at) : -1;
}
size_t pieces_give(Pieces *of, size_t at) { return of->give(at); }
int pieces_has(const Pieces *of, size_t at, size_t bytes) { return of->has(at, bytes); }

void copied(char *to, const char *from, size_t bytes, size_t whole) { copy_message(to, from, bytes, whole); }
void gathered(char *to, const char *from, int blocks, size_t at, size_t bytes, size_t whole) {
  gather(to, from, blocks, {at, bytes, whole, 0, 0});
}
void scattered(char *to, const char *from, int blocks, size_t at, size_t bytes, size_t whole) {
  scatter(to, from, blocks, {at, bytes, whole, 0, 0});
}

// Runs a cut of a call twice, with memory of a heap where peers do not reach it (`reach`), or it is not
// contiguous. A kernel is played: what it is given goes to `sent`, byte k of its result is k + 1. places: of its
// send and receive buffer, in bytes from `memory` and for each run, then how many pieces came back to the heap.
void staged(char *memory, const size_t *buffers, size_t block, const size_t *cut, const int *blocks, int in_place,
            int reach, char *sent, long *places) {
  OneAfterAnother heap(memory + (1 << 16));
  {
    Staging staging;
    Buffers given;
    if (blocks[0]) given.send = memory + buffers[0];
    if (blocks[1]) given.receive = memory + buffers[1];
    given.send_bytes = static_cast<size_t>(blocks[0]) * block;
    given.receive_bytes = static_cast<size_t>(blocks[1]) * block;
    given.in_place = in_place;
    const Cut of = {cut[0], cut[1], block, blocks[0], blocks[1]};
    for (int run = 0; run < 2; ++run) {
      const Staged made = staging.before(heap, given, of, [&](const char *, size_t) { return reach; });
      places[2 * run] = made.used.send - memory, places[2 * run + 1] = made.used.receive - memory;
      if (!run) memcpy(sent, made.used.send, made.used.send_bytes);
      if (!run) continue;
      for (size_t k = 0; k < made.used.receive_bytes; ++k) made.used.receive[k] = static_cast<char>(k + 1);
      staging.after(made, of);
    }
  }
  places[4] = heap.given;
}

// Copies the input of a call in place; returns where it is.
long set_apart(char *memory, size_t send, size_t bytes) {
  OneAfterAnother heap(memory + (1 << 16));
  Staging staging;
  Buffers given;
  given.send = memory + send, given.receive = memory + send;
  given.send_bytes = given.receive_bytes = bytes;
  given.in_place = true;
  const Buffers made = staging.apart(heap, given);
  return made.in_place || made.receive != given.receive ? -1 : made.send - memory;
}

// Fills in the buffers of a call, of a library with so many blocks; text: of the error. Returns its code.
int buffers_are(const char *collective, int rank, const int *blocks, size_t count, int type, size_t send,
                size_t receive, long *found, char *text) {
  static int of[2];
  of[0] = blocks[0], of[1] = blocks[1];
  hccc_library library = {};
  library.collective = collective;
  library.input_blocks = [](int rank) { return rank == 3 ? of[0] : -1; };
  library.output_blocks = [](int rank) { return rank == 3 ? of[1] : -1; };
  Wanted wanted;
  wanted.send = reinterpret_cast<void *>(send), wanted.receive = reinterpret_cast<void *>(receive);
  wanted.count = count, wanted.type = type;
  try {
    const Buffers got = buffers_of(wanted, library, rank);
    found[0] = reinterpret_cast<long>(got.send), found[1] = reinterpret_cast<long>(got.receive);
    found[2] = static_cast<long>(got.send_bytes), found[3] = static_cast<long>(got.receive_bytes);
    found[4] = got.in_place;
    return 0;
  } catch (const Error &error) {
    strcpy(text, error.what());
    return error.code;
  }
}

int message_is_wrong(int sends, int exact, int peer, int tag, int type, size_t count, size_t at, int ranks, char *text) {
  Message message;
  message.sends = sends, message.exact = exact, message.peer = peer, message.tag = tag, message.type = type;
  message.count = count, message.at = reinterpret_cast<char *>(at);
  try {
    check_message(message, ranks);
    return 0;
  } catch (const Error &error) {
    strcpy(text, error.what());
    return error.code;
  }
}

int words_are_wrong(const char *collective, int type, int op, int root, int ranks, char *text) {
  Wanted wanted;
  wanted.collective = collective, wanted.type = type, wanted.op = op, wanted.root = root;
  try {
    check_words(wanted, ranks);
    return 0;
  } catch (const Error &error) {
    strcpy(text, error.what());
    return error.code;
  }
}

// Of a call with `root` that names a library or not, as the library, whose root is 2, does it.
int root_of(const char *library, int root, int reduces, int *op, int *in_place, unsigned long *number) {
  hccc_library of = {};
  of.collective = "Reduce", of.name = "tree", of.root = 2, of.reduces = reduces;
  Wanted wanted;
  wanted.library = library, wanted.root = root, wanted.op = 3;
  const Called made = called_of(wanted, of, true, 9);
  *op = made.op, *in_place = made.in_place, *number = made.number;
  return strcmp(made.collective, "Reduce") || strcmp(made.library, "tree") ? -9 : made.root;
}

int type_bytes(int type) { return bytes_of_type(type); }
const char *moved_as(int bytes) { return name_of_moved(bytes); }
}
