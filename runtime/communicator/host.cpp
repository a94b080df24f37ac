// host.cpp: exchange and mapping of what the ranks of a host share.
#include "host.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "error.h"
#include "log.h"
#include "vendor_calls.h"

namespace hccc {
namespace {

constexpr size_t CONTROL_BYTES = 64 << 10, FLAG_BYTES = size_t{256} << 20;
constexpr size_t FIRST_FLAGS = size_t{1} << 20, FIRST_SCRATCH = size_t{1} << 20;  // mapped from the beginning
// Address space for the heaps of all ranks of a host: half of what a process has. Heaps may have
// more bytes together, but no host has the memory to fill them.
constexpr size_t HEAP_ADDRESSES = size_t{1} << 46;

// Returns the bytes between what a rank tells of two calls: whole cache lines, which come in pairs.
size_t told_bytes(int n_ranks) { return (told_words(n_ranks) * sizeof(int64_t) + 127) / 128 * 128; }

size_t whole_pages(size_t bytes) { return (bytes + CONTROL_BYTES - 1) / CONTROL_BYTES * CONTROL_BYTES; }

}  // namespace

[[noreturn]] void fail_as(const hccc_bootstrap_error &error) {
  const hcccResult_t code = error.code == HCCC_BOOTSTRAP_TIMEOUT        ? hcccTimeout
                            : error.code == HCCC_BOOTSTRAP_LOST         ? hcccRemoteError
                            : error.code == HCCC_BOOTSTRAP_REFUSED      ? hcccInvalidUsage
                            : error.code == HCCC_BOOTSTRAP_BAD_ARGUMENT ? hcccInvalidArgument
                                                                        : hcccSystemError;
  throw Error(code, (code == hcccTimeout ? "timed out: " : "") + std::string(error.message));
}

Host::Host(hccc_bootstrap *bootstrap, int rank, int n_ranks, const Device &device, const Family &family,
           const TimeLeft &left)
    : rank_(rank), heap_(Heap::held(device)), joined_(static_cast<size_t>(n_ranks)),
      family_(device.platform == hcccrtPlatformNone ? family : Family()),
      shares_(static_cast<size_t>(n_ranks)) {
  if (DeviceHeap *of_device = heap_->of_device())
    device_memory_ = std::make_unique<DeviceMemory>(std::shared_ptr<DeviceHeap>(heap_, of_device), rank, n_ranks);
  exchange(bootstrap, left);
  fill_tables();
  if (device_memory_) exchange_device_memory(bootstrap, left);
}

void Host::exchange(hccc_bootstrap *bootstrap, const TimeLeft &left) {
  const auto self = static_cast<size_t>(rank_);
  hccc_bootstrap_error error{};
  const SharedFile *own = heap_->file();
  joined_[self].process = getpid();
  joined_[self].vendor = VendorCalls::wish();
  if (own) {
    joined_[self].heap_bytes = own->bytes();
    joined_[self].heap_base = reinterpret_cast<uint64_t>(heap_->base());
    joined_[self].scratch_bytes = static_cast<int64_t>(own->bytes());
  } else {
    joined_[self].platform = device_memory_->device().platform;
    joined_[self].scratch_bytes = device_memory_->scratch_bytes();
    joined_[self].handles = static_cast<uint32_t>(device_memory_->kind());
    joined_[self].opens = device_memory_->opens();
  }
  if (hccc_bootstrap_allgather(bootstrap, joined_.data(), sizeof(Joined), left.seconds(), &error))
    fail_as(error);
  scratch_bytes_ = static_cast<size_t>(joined_[self].scratch_bytes);
  for (const Joined &one : joined_)
    scratch_bytes_ = std::min(scratch_bytes_, static_cast<size_t>(one.scratch_bytes));
  // The own scratch, and behind it what communicators that are split of this one will share.
  const size_t scratch = scratch_bytes_ * (family_.scratch ? 1 : 2);
  SharedFile arena = SharedFile::make("hccc-arena", head_bytes() + FLAG_BYTES + scratch);
  const int shared[2] = {arena.descriptor(), own ? own->descriptor() : device_memory_->mailbox().for_peers()};
  std::vector<int> files(2 * joined_.size(), -1);
  if (hccc_bootstrap_share(bootstrap, shared, 2, files.data(), left.seconds(), &error)) fail_as(error);
  try {
    check_platforms(files);
    map(files, arena.bytes());
  } catch (...) {
    for (const int file : files)
      if (file >= 0) close(file);
    throw;
  }
}

// Checks that ranks of this host, whose files are here, have memory of one kind.
void Host::check_platforms(const std::vector<int> &files) const {
  const auto name = [&](size_t rank) {
    return Device{static_cast<hcccrtPlatform_t>(joined_[rank].platform), 0}.name();
  };
  const auto own = static_cast<size_t>(rank_);
  for (size_t r = 0; r < joined_.size(); ++r)
    if (files[2 * r] >= 0 && joined_[r].platform != joined_[own].platform)
      throw Error(hcccInvalidUsage, text_of("rank %zu has memory of %s, rank %zu of %s, and they are on one host: HCCC_HEAP "
                                            "and HCCC_PLATFORM must be alike there", r, name(r), own, name(own)));
}

bool Host::any_device() const {
  return std::any_of(joined_.begin(), joined_.end(), [](const Joined &one) { return one.platform != 0; });
}

// Checks that every rank can map the memory of this one, and the other way round.
void Host::check_handles() const {
  const size_t self = static_cast<size_t>(rank_);
  for (size_t r = 0; r < joined_.size(); ++r)
    for (const auto &[of, to] : {std::pair(r, self), std::pair(self, r)})
      if (near(static_cast<int>(r)) && !(joined_[of].handles & joined_[to].opens))
        throw Error(hcccInvalidUsage,
                    text_of("memory of rank %zu is shared by %s, which rank %zu's device does not have: set "
                            "HCCC_HANDLES to what all have", of,
                            name_of(static_cast<HandleKind>(joined_[of].handles)), to));
}

// Exchanges flags and scratch of a device.
void Host::exchange_device_memory(hccc_bootstrap *bootstrap, const TimeLeft &left) {
  if (!one_process_) check_handles();
  std::vector<Control *> controls;
  for (int r = 0; r < n_ranks(); ++r) controls.push_back(near(r) ? &control(r) : nullptr);
  const double timeout_s = left.seconds();
  const auto start = std::chrono::steady_clock::now();
  device_memory_->exchange(controls, one_process_, [&] {
    int rank = -1, orderly = 0;
    const bool gone = hccc_bootstrap_next_departure(bootstrap, &rank, &orderly);
    if (gone && near(rank) && control(rank).standing.load(std::memory_order_acquire) != Standing::LEFT)
      throw Error(hcccRemoteError, text_of("rank %d is gone before all had met", rank));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (timeout_s > 0 && waited.count() > timeout_s)
      throw Error(hcccTimeout, text_of("timed out after %g s: flags of all ranks were not mapped", timeout_s));
    return true;
  });
}

// Maps the files of every rank: its arena and its heap (of a device: its mailbox). -1: a rank of
// another host, or a file that has an owner by now.
void Host::map(std::vector<int> &files, size_t arena_bytes) {
  const bool begins = !family_.scratch && !device_memory_;  // a family of its own
  if (!device_memory_) scratch_ = std::make_unique<Scratch>(joined_.size(), scratch_bytes_);
  if (begins) {
    family_.scratch = std::make_shared<Scratch>(joined_.size(), scratch_bytes_);
    for (int r = 0; r < n_ranks(); ++r) family_.ranks.push_back(r);
  }
  size_t all_near = 0;
  for (size_t r = 0; r < joined_.size(); ++r) all_near += files[2 * r] >= 0;
  for (size_t r = 0; r < joined_.size(); ++r) {
    const bool near = files[2 * r] >= 0;
    const bool here = near && joined_[r].process == getpid();
    one_process_ = one_process_ && here;
    arenas_.emplace_back();
    flags_.emplace_back();
    heaps_.emplace_back();
    if (!near) continue;
    const SharedFile file = SharedFile::open(std::exchange(files[2 * r], -1), arena_bytes);
    const size_t fixed = head_bytes() + FLAG_BYTES;
    // The network may write into the own flags and scratch at any time: all of it stays where it is.
    const bool whole = all_near < joined_.size() && r == static_cast<size_t>(rank_);
    arenas_.back() = Mapping(file.descriptor(), 0, head_bytes());
    flags_.back() = Mapping(file.descriptor(), head_bytes(), whole ? FLAG_BYTES : FIRST_FLAGS);
    if (!device_memory_) {
      scratch_->add(r, Mapping(file.descriptor(), fixed, whole ? scratch_bytes_ : page_bytes()));
    }
    if (begins)
      family_.scratch->add(r, Mapping(file.descriptor(), fixed + scratch_bytes_, std::min(scratch_bytes_, FIRST_SCRATCH)));
    const int second = std::exchange(files[2 * r + 1], -1);
    if (device_memory_) {
      device_memory_->mailbox().connect(static_cast<int>(r), second);
      continue;
    }
    const size_t most = HEAP_ADDRESSES / all_near / page_bytes() * page_bytes();
    joined_[r].heap_bytes = std::min<uint64_t>(joined_[r].heap_bytes, most);
    const SharedFile heap = SharedFile::open(second, joined_[r].heap_bytes);
    if (!here) heaps_.back() = shared_mapping(heap, joined_[r].process, joined_[r].heap_bytes);
  }
}

void Host::map_flags(long long bytes) {
  for (size_t r = 0; !device_memory_ && r < flags_.size(); ++r) {
    Mapping &flags = flags_[r];
    const auto needed = static_cast<size_t>(bytes);
    if (!flags.base() || flags.bytes() >= needed) continue;
    flags.grow(std::min(FLAG_BYTES, std::max(whole_pages(needed), 2 * flags.bytes())));
    ranks_[r].flags = flags.base();
  }
}

void Host::map_scratch(size_t bytes) {
  for (size_t r = 0; scratch_ && bytes && r < arenas_.size(); ++r)
    ranks_[r].scratch = shares_[r] ? family_.scratch->at(static_cast<size_t>(family_.ranks[r]), bytes) : scratch_->at(r, bytes);
}

Family Host::family(const std::vector<int> &ranks) const {
  Family made = {family_.scratch, {}};
  for (const int r : ranks)
    if (made.scratch) made.ranks.push_back(family_.ranks[static_cast<size_t>(r)]);
  return made;
}

void Host::zero_flags(long long bytes) {
  if (device_memory_) device_memory_->zero_flags(bytes);
  else memset(ranks_[static_cast<size_t>(rank_)].flags, 0, static_cast<size_t>(bytes));
}

// Locks nothing: threads of the parent may have held any lock as it forked.
void Host::forsake() {
  arenas_.clear();
  flags_.clear();
  heaps_.clear();
  scratch_.reset();
  family_.scratch.reset();
  if (device_memory_) device_memory_->mailbox().close_all();
  else heap_.reset();
}

void Host::fill_tables() {
  for (size_t r = 0; r < joined_.size(); ++r) {
    void *base = heaps_[r] ? heaps_[r]->base() : nullptr;
    if (arenas_[r].base() && !base) base = reinterpret_cast<void *>(joined_[r].heap_base);
    hccc_window window = {base, static_cast<long long>(joined_[r].heap_bytes)};
    if (one_process_) window = HCCC_ALL_MEMORY;
    windows_.push_back(window);
  }
  for (size_t r = 0; r < joined_.size(); ++r) {
    ranks_.push_back({flags_[r].base(), scratch_ ? scratch_->at(r, 0) : nullptr, &windows_[r], 1, 0});
  }
}

int Host::n_near() const {
  int found = 0;
  for (const Mapping &one : arenas_) found += one.base() != nullptr;
  return found;
}

std::vector<Host::Window> Host::own_windows() const {
  const auto own = static_cast<size_t>(rank_);
  if (device_memory_)
    return {{HCCC_WINDOW_FLAGS, device_memory_->flags(), most_flag_bytes()},
            {HCCC_WINDOW_SCRATCH, device_memory_->scratch(), most_scratch_bytes()}};
  return {{HCCC_WINDOW_FLAGS, ranks_[own].flags, most_flag_bytes()},
          {HCCC_WINDOW_SCRATCH, ranks_[own].scratch, most_scratch_bytes()},
          {HCCC_WINDOW_USER, heap_->base(), static_cast<long long>(joined_[own].heap_bytes)}};
}

Control &Host::control(int rank) const {
  return *reinterpret_cast<Control *>(arenas_[static_cast<size_t>(rank)].base());
}

size_t Host::told_at() const { return CONTROL_BYTES + whole_pages(joined_.size() * sizeof(Ring)); }

size_t Host::inputs_at() const { return told_at() + whole_pages(2 * told_bytes(n_ranks())); }

size_t Host::broadcasts_at() const { return inputs_at() + whole_pages(2 * sizeof(ToldInput)); }

size_t Host::head_bytes() const { return broadcasts_at() + whole_pages(BroadcastRing::bytes(joined_.size())); }

int64_t *Host::told_by(int rank, uint64_t call) const {
  char *first = arenas_[static_cast<size_t>(rank)].base() + told_at();
  return reinterpret_cast<int64_t *>(first + call % 2 * told_bytes(n_ranks()));
}

ToldInput &Host::told_input(int rank, uint64_t call) const {
  char *first = arenas_[static_cast<size_t>(rank)].base() + inputs_at();
  return reinterpret_cast<ToldInput *>(first)[call % 2];
}

std::vector<BroadcastRing *> Host::broadcast_rings() const {
  std::vector<BroadcastRing *> found;
  for (const Mapping &one : arenas_) found.push_back(reinterpret_cast<BroadcastRing *>(one.base() + broadcasts_at()));
  return found;
}

Ring &Host::ring(int from, int to) const {
  char *first = arenas_[static_cast<size_t>(to)].base() + CONTROL_BYTES;
  return reinterpret_cast<Ring *>(first)[from];
}

char *Host::heap_of(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return heaps_[r] ? heaps_[r]->base() : reinterpret_cast<char *>(joined_[r].heap_base);
}

bool Host::reaches(const void *pointer, size_t bytes) const {
  if (one_process_) return true;
  if (!heap_->has(pointer, bytes)) return false;
  const uint64_t mapped = joined_[static_cast<size_t>(rank_)].heap_bytes;  // by peers
  return !heap_->base() || static_cast<size_t>(static_cast<const char *>(pointer) - heap_->base()) + bytes <= mapped;
}

long long Host::most_flag_bytes() const {
  return device_memory_ ? device_memory_->flag_bytes() : static_cast<long long>(FLAG_BYTES);
}

}  // namespace hccc
