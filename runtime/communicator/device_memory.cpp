// device_memory.cpp: flags, scratch and segments on a device, shared with peers.
#include "device_memory.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <hccc/layout.h>
#include <hccc/network.h>

#include "error.h"
#include "log.h"

namespace hccc {
namespace {

constexpr long long DEVICE_FLAG_BYTES = 16 << 20;
constexpr long long DEVICE_SCRATCH_BYTES = 256 << 20;  // without HCCC_SCRATCH_BYTES
constexpr long long MOST_SCRATCH_BYTES = 1LL << 40;
constexpr int MEMORY = 0;                       // a rank's first piece: flags and scratch
constexpr useconds_t TURN_US = 20;
constexpr std::chrono::seconds CLOSES_WITHIN(2), JUST(1);  // JUST: until who waited for it says so
constexpr std::chrono::milliseconds SLOW(100);

long long scratch_of_environment() {
  const char *wanted = getenv("HCCC_SCRATCH_BYTES");
  char *end = nullptr;
  const long long asked = wanted ? strtoll(wanted, &end, 10) : DEVICE_SCRATCH_BYTES;
  if (wanted && (end == wanted || *end || asked < 0 || asked > MOST_SCRATCH_BYTES))
    throw Error(hcccInvalidArgument, "HCCC_SCRATCH_BYTES is not a number of bytes");
  return asked;
}

// Closes a descriptor.
struct Closing {
  int descriptor;
  ~Closing() {
    if (descriptor >= 0) close(descriptor);
  }
};

size_t window_at(int n_ranks, int rank, int window) {
  const size_t before = static_cast<size_t>(rank) * MOST_WINDOWS + static_cast<size_t>(window);
  return static_cast<size_t>(n_ranks) * sizeof(hccc_rank) + before * sizeof(hccc_window);
}

}  // namespace

unsigned DeviceMemory::opens() const { return handle_kinds_of(device()); }
long long DeviceMemory::flag_bytes() const { return DEVICE_FLAG_BYTES; }
long long DeviceMemory::scratch_bytes() const {
  static const long long bytes = scratch_of_environment();
  return bytes;
}

DeviceMemory::DeviceMemory(std::shared_ptr<DeviceHeap> heap, int rank, int n_ranks)
    : heap_(std::move(heap)), rank_(rank), n_ranks_(n_ranks), mailbox_(n_ranks),
      ranks_(static_cast<size_t>(n_ranks)) {
  try {
    allocate();
  } catch (...) {
    release();
    throw;
  }
}

void DeviceMemory::allocate() {
  const OnDevice on(device());
  own_bytes_ = static_cast<size_t>(flag_bytes() + scratch_bytes());
  const size_t table = window_at(n_ranks_, n_ranks_, 0);
  check_device(hcccrtStreamCreateWithFlags(&stream_, hcccrtStreamNonBlocking), "a stream");
  table_ = static_cast<char *>(allocate_coherent(table));
  own_ = allocate_shared(heap_->kind(), &own_bytes_);
  check_device(hcccrtMemsetAsync(own_, 0, static_cast<size_t>(DEVICE_FLAG_BYTES), stream_), "zeroing flags");
  check_device(hcccrtMemsetAsync(table_, 0, table, stream_), "zeroing tables");
  check_device(hcccrtStreamSynchronize(stream_), "zeroing flags");
  for (int r = 0; r < n_ranks_; ++r)
    ranks_[static_cast<size_t>(r)].windows =
        reinterpret_cast<const hccc_window *>(table_ + window_at(n_ranks_, r, 0));
}

void DeviceMemory::zero_flags(long long bytes) {
  const OnDevice on(device());
  std::lock_guard<std::mutex> lock(mutex_);
  check_device(hcccrtMemsetAsync(own_, 0, static_cast<size_t>(bytes), stream_), "zeroing flags");
  check_device(hcccrtStreamSynchronize(stream_), "zeroing flags");
}

// No launch may run any more, here or at a peer that reads this memory.
DeviceMemory::~DeviceMemory() { release(); }

void DeviceMemory::release() noexcept {
  try {
    const OnDevice on(device());
    for (void *base : opened_) free_shared(base);
    for (Control *one : controls_)
      if (one) one->released.fetch_add(1, std::memory_order_release);
    if (table_) hcccrtFree(table_);
    if (own_ && may_free()) free_shared(own_);
    if (stream_) hcccrtStreamDestroy(stream_);
  } catch (const Error &error) {
    HCCC_LOG(WARN, MEM, rank_, "%s", error.what());
  }
}

// Returns whether this rank's memory may be freed: memory with a legacy handle of CUDA or HIP must
// not be while a peer has it open. Where a peer does not close it soon, it stays until the process
// ends.
bool DeviceMemory::may_free() const {
  if (heap_->kind() != HandleKind::LEGACY || device().platform == hcccrtPlatformCPU || controls_.empty())
    return true;
  const auto all = static_cast<uint32_t>(
      std::count_if(controls_.begin(), controls_.end(), [](Control *one) { return one; }));
  const std::atomic<uint32_t> &released = controls_[static_cast<size_t>(rank_)]->released;
  const auto until = std::chrono::steady_clock::now() + CLOSES_WITHIN;
  while (std::chrono::steady_clock::now() < until) {
    if (released.load(std::memory_order_acquire) >= all) return true;
    usleep(TURN_US);
  }
  HCCC_LOG(WARN, MEM, rank_, "peers still have flags and scratch open: they stay allocated");
  return false;
}

void DeviceMemory::exchange(const std::vector<Control *> &controls, bool all_here, const Continue &go_on) {
  const OnDevice on(device());
  controls_ = controls, all_here_ = all_here;
  const auto peers = std::count_if(controls.begin(), controls.end(), [](Control *one) { return one; }) - 1;
  SharedPiece piece;
  piece.bytes = own_bytes_;
  piece.base = reinterpret_cast<uint64_t>(own_);
  int descriptor = -1;
  if (peers) piece.handle = handle_of(heap_->kind(), own_, &descriptor);
  const Closing closing{descriptor};
  set_memory(rank_, static_cast<char *>(own_));
  for (int r = 0; all_here && r < n_ranks_; ++r) set_window(r, 0, nullptr, HCCC_MOST_BYTES);
  announce(MEMORY, piece, descriptor, [&] {
    map_shared_pieces();
    return go_on();
  });
  const auto met = [&] {
    return std::all_of(controls.begin(), controls.end(), [&](Control *one) {
      return !one || ranks_[static_cast<size_t>(std::find(controls.begin(), controls.end(), one) -
                                                controls.begin())].flags;
    });
  };
  for (map_shared_pieces(); !met(); map_shared_pieces()) {
    if (!go_on()) return;
    usleep(TURN_US);
  }
}

void DeviceMemory::share_with_peers(const void *pointer, size_t bytes, const Continue &go_on) {
  if (!bytes || all_here_) return;
  const int segment = heap_->segment_of(pointer, bytes);
  if (segment < 0) throw Error(hcccInternalError, "a buffer of no segment was to be shown");
  const auto place = static_cast<size_t>(segment);
  if (place < shared_.size() && shared_[place]) return;
  if (n_shared_ + 1 >= MOST_WINDOWS)
    throw Error(hcccSystemError, text_of("buffers lie in more than %d segments of memory", MOST_WINDOWS - 1));
  const int number = ++n_shared_;
  call_on(device(), [&] {
    const DeviceHeap::Segment &of = heap_->segment(segment);
    SharedPiece piece;
    piece.bytes = of.pieces.bytes();
    piece.base = reinterpret_cast<uint64_t>(of.base);
    int descriptor = -1;
    piece.handle = handle_of(heap_->kind(), of.base, &descriptor);
    const Closing closing{descriptor};
    set_window(rank_, number - 1, of.base, piece.bytes);
    if (tell_hosts_) tell_hosts_(HCCC_WINDOW_USER + number - 1, of.base, piece.bytes, go_on);
    announce(number, piece, descriptor, go_on);
  });
  shared_.resize(std::max(shared_.size(), place + 1));
  shared_[place] = number;
}

// Announces a piece of memory to the peers, and waits until all have mapped it.
void DeviceMemory::announce(int number, const SharedPiece &what, int descriptor, const Continue &go_on) {
  SharedPiece piece = what;
  piece.from = rank_, piece.number = number, piece.process = getpid(), piece.device = device().number;
  uint32_t peers = 0;
  for (int r = 0; r < n_ranks_; ++r) {
    if (r == rank_ || !controls_[static_cast<size_t>(r)]) continue;
    ++peers;
    while (!mailbox_.send(r, piece, descriptor)) {
      if (!go_on()) return;
      usleep(TURN_US);
    }
  }
  const std::atomic<uint32_t> &mapped = controls_[static_cast<size_t>(rank_)]->mapped[number];
  while (mapped.load(std::memory_order_acquire) < peers) {
    if (!go_on()) return;
    usleep(TURN_US);
  }
}

void DeviceMemory::map_shared_pieces() {
  SharedPiece piece;
  for (int descriptor = -1; mailbox_.receive(&piece, &descriptor);) {
    const Closing closing{descriptor};
    const bool sound = piece.from >= 0 && piece.from < n_ranks_ && piece.from != rank_ && piece.number >= 0 &&
                       piece.number < MOST_WINDOWS && piece.bytes <= uint64_t{HCCC_MOST_BYTES} &&
                       controls_[static_cast<size_t>(piece.from)];
    if (!sound) throw Error(hcccRemoteError, "a rank announces memory that makes no sense");
    open(piece, descriptor);
    controls_[static_cast<size_t>(piece.from)]->mapped[piece.number].fetch_add(1, std::memory_order_release);
  }
}

// Notes a mapping while it lives.
struct DeviceMemory::MappingNow {
  MappingNow(DeviceMemory &of, int rank) : of(of) { note(rank, {Clock::now(), Clock::time_point::max(), rank}); }
  ~MappingNow() { note(-1, {of.mapping_.begin, Clock::now(), of.mapping_.rank}); }
  void note(int rank, const Mapping &mapping) {
    std::lock_guard<std::mutex> lock(of.mutex_);
    of.mapping_ = mapping;
    of.controls_[static_cast<size_t>(of.rank_)]->maps.store(static_cast<uint32_t>(rank + 1));
  }
  DeviceMemory &of;
};

int DeviceMemory::slow_mapping() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Clock::time_point now = Clock::now();
  const bool recent = mapping_.rank >= 0 && (mapping_.end > now || now - mapping_.end < JUST);
  return recent && std::min(mapping_.end, now) - mapping_.begin > SLOW ? mapping_.rank : -1;
}

void DeviceMemory::open(const SharedPiece &piece, int descriptor) {
  const OnDevice on(device());
  auto *base = reinterpret_cast<char *>(piece.base);
  if (piece.process == getpid()) {
    reach_device(piece.device);
  } else {
    const MappingNow now(*this, piece.from);
    base = static_cast<char *>(open_shared(piece.handle, descriptor, piece.bytes));
    std::lock_guard<std::mutex> lock(mutex_);
    opened_.push_back(base);
  }
  if (piece.number == MEMORY)
    set_memory(piece.from, base);
  else
    set_window(piece.from, piece.number - 1, base, piece.bytes);
  HCCC_LOG(INFO, MEM, rank_, "%s of rank %d, %llu bytes, by %s", piece.number ? "a segment" : "flags and scratch",
           piece.from, static_cast<unsigned long long>(piece.bytes),
           piece.process == getpid() ? "the same process" : name_of(piece.handle.kind));
}

// Enables access to another device of this process.
void DeviceMemory::reach_device(int other) {
  int can = 0;
  if (other == device().number) return;
  check_device(hcccrtDeviceCanAccessPeer(&can, device().number, other), "whether devices reach each other");
  if (!can)
    throw Error(hcccInvalidUsage, text_of("%s %d cannot reach memory of %s %d", device().name(), device().number,
                                          device().name(), other));
  const hcccrtError_t error = hcccrtDeviceEnablePeerAccess(other, 0);
  if (error == hcccrtErrorPeerAccessAlreadyEnabled) hcccrtGetLastError();
  else check_device(error, "access to a peer's memory");
}

void DeviceMemory::set_memory(int rank, char *base) {
  std::lock_guard<std::mutex> lock(mutex_);
  hccc_rank &one = ranks_[static_cast<size_t>(rank)];
  one.flags = base;
  one.scratch = base + flag_bytes();
  upload(static_cast<size_t>(rank) * sizeof one, &one, sizeof one);
}

// Writes a window. The window comes before the count: a kernel that reads the table meanwhile finds
// the old state or the new one.
void DeviceMemory::set_window(int rank, int number, void *base, uint64_t bytes) {
  if (all_here_ && number) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const hccc_window window = {base, static_cast<long long>(bytes)};
  upload(window_at(n_ranks_, rank, number), &window, sizeof window);
  hccc_rank &one = ranks_[static_cast<size_t>(rank)];
  one.n_windows = std::max(one.n_windows, number + 1);
  upload(static_cast<size_t>(rank) * sizeof one, &one, sizeof one);
}

void DeviceMemory::upload(size_t at, const void *from, size_t bytes) {
  const auto kind = hcccrtMemcpyHostToDevice;
  check_device(hcccrtMemcpyAsync(table_ + at, from, bytes, kind, stream_), "copying tables");
  check_device(hcccrtStreamSynchronize(stream_), "copying tables");
}

}  // namespace hccc
