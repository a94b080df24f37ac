// short_calls.cpp: runs calls of few bytes for all ranks at once.
#include "short_calls.h"

#include <string.h>

#include <algorithm>
#include <new>

namespace hccc {
namespace {

constexpr size_t LINE = 128;
constexpr int MOST_SHORT_BLOCKS = 64;  // thread blocks of all ranks: more cost more than two waits
constexpr size_t ROOM = 2 * MOST_SHORT_BYTES;  // for both buffers of a rank

// Ranks that have a core each wait as long as it takes to copy so many bytes from another's cache.
constexpr size_t BYTES_OF_A_WAIT = 1024;

size_t most_bytes(bool oversubscribed) {
  const char *wanted = getenv("HCCC_SHORT_BYTES");
  if (!wanted) return oversubscribed ? MOST_SHORT_BYTES : BYTES_OF_A_WAIT;
  return static_cast<size_t>(std::max(0LL, std::min(atoll(wanted), static_cast<long long>(MOST_SHORT_BYTES))));
}

size_t lines(long long bytes) { return (static_cast<size_t>(bytes) + LINE - 1) / LINE * LINE; }

}  // namespace

ShortCalls::ShortCalls(int n_ranks, bool oversubscribed)
    : n_(static_cast<size_t>(n_ranks)), most_bytes_(most_bytes(oversubscribed)), ranks_(n_), locals_(n_) {}

ShortCalls::Memory ShortCalls::zeroed(size_t bytes) {
  void *memory = nullptr;
  if (posix_memalign(&memory, LINE, std::max(bytes, LINE))) throw std::bad_alloc();
  memset(memory, 0, bytes);
  return Memory(static_cast<char *>(memory));
}

ShortCalls::Memory &ShortCalls::flags_of(const Library &library) {
  Memory &flags = flags_[&library];
  if (!flags) flags = zeroed(n_ * static_cast<size_t>(library.flag_bytes()));
  return flags;
}

bool ShortCalls::begin(const Library &library, const hccc_call &call, int size) {
  if (&library == library_ && size == size_ && call.count == call_.count && call.in_place == call_.in_place &&
      call.window == call_.window && call.micro_batch_bytes == call_.micro_batch_bytes)
    return true;  // as the last one
  const hccc_library &of = library.description();
  const hccc_range *range = hccc_range_of(of.catalogue, &call, size);
  const long long scratch = hccc_scratch_of(of.catalogue, &call, size);
  if (!range || scratch < 0) return false;
  const hccc_shape &shape = *of.catalogue->shapes[range->plan];
  if (static_cast<long long>(n_) * shape.blocks * shape.channels > MOST_SHORT_BLOCKS) return false;
  if (!buffers_) buffers_ = zeroed(n_ * ROOM);
  const size_t each = lines(scratch);
  if (each > scratch_bytes_) scratch_ = zeroed(n_ * each), scratch_bytes_ = each;
  const Memory &flags = flags_of(library);
  const size_t block = static_cast<size_t>(call.count) * static_cast<size_t>(size);
  for (size_t r = 0; r < n_; ++r) {
    char *first = buffers_.get() + r * ROOM, *second = first + MOST_SHORT_BYTES;
    const int sent = of.input_blocks(static_cast<int>(r)), received = of.output_blocks(static_cast<int>(r));
    // In place the smaller buffer is the rank's block of the larger one.
    if (call.in_place) second = first + (sent == received ? 0 : r * block);
    locals_[r] = hccc_local{};
    locals_[r].input = call.in_place && sent < received ? second : first;
    locals_[r].output = call.in_place && sent < received ? first : second;
    ranks_[r] = {flags.get() + r * static_cast<size_t>(library.flag_bytes()),
                 scratch_.get() + r * scratch_bytes_, &window_, 1, 0};
  }
  library_ = &library, size_ = size, call_ = call;
  call_.first_rank = 0, call_.n_local = static_cast<int>(n_), call_.local = locals_.data();
  call_.workers = 1, call_.timeout_s = call_.join_timeout_s = 0;
  return true;
}

int ShortCalls::run(const char *type, const char *op) {
  const hccc_comm comm = {sizeof(hccc_comm), HCCC_ABI, sizeof(hccc_rank), static_cast<int>(n_), ranks_.data(), &fault_,
                          0};
  return library_->description().launch(&comm, &call_, type, op, nullptr);
}

}  // namespace hccc
