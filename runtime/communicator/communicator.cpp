// communicator.cpp: creation of a communicator, its libraries and its collective calls.
#include "communicator.h"

#include <hccc/backoff.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "arguments.h"
#include "log.h"

namespace hccc {
namespace {

constexpr double DEFAULT_TIMEOUT_S = 600;
constexpr size_t SLICE_BYTES = 1 << 20;  // of a buffer that is copied
constexpr size_t LEAST_SLICE = 1024;     // elements of a block
constexpr double SMALL_CALL = 4 << 20;  // bytes up to which waking another core does not pay

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int workers_of_environment() {
  const char *wanted = getenv("HCCC_CPU_WORKERS");
  return wanted ? std::max(0, std::min(atoi(wanted), 1024)) : 0;
}

hccc_bootstrap *open_bootstrap(const hccc_unique_id &id, int n_ranks, int rank, double timeout_s) {
  hccc_bootstrap *made = nullptr;
  hccc_bootstrap_error error{};
  if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
    throw Error(hcccInvalidArgument, text_of("rank %d of %d makes no sense", rank, n_ranks));
  if (hccc_bootstrap_open(&made, &id, n_ranks, rank, timeout_s, &error)) fail_as(error);
  return made;
}

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

// Hashes a call. Never 0, which would mean not to compare.
uint64_t signature_of(const Called &called, uint64_t digest, long long micro_batch, int window) {
  uint64_t hash = mixed(static_cast<uint64_t>(micro_batch), static_cast<uint64_t>(window));
  for (const int64_t word :
       {static_cast<int64_t>(called.number), static_cast<int64_t>(digest), called.count,
        int64_t{called.type}, int64_t{called.op}, int64_t{called.root}, int64_t{called.in_place}})
    hash = mixed(hash, static_cast<uint64_t>(word));
  return hash ? hash : 1;
}

// Returns the blocks of the largest buffer of any rank.
int most_blocks(const hccc_library &library) {
  int most = 1;
  for (int r = 0; r < library.n_ranks; ++r)
    most = std::max({most, library.input_blocks(r), library.output_blocks(r)});
  return most;
}

// Returns the elements of a block that are copied at a time.
size_t slice_of(size_t size, int blocks) {
  const size_t wanted = SLICE_BYTES / size / static_cast<size_t>(blocks);
  return std::max<size_t>(LEAST_SLICE, wanted / LEAST_SLICE * LEAST_SLICE);
}

bool serves(const hccc_library &library, bool in_place) {
  const hccc_catalogue &c = *library.catalogue;
  return std::any_of(c.ranges, c.ranges + c.n_ranges,
                     [&](const hccc_range &range) { return (range.in_place != 0) == in_place; });
}

}  // namespace

double timeout_of_environment() {
  const char *wanted = getenv("HCCC_TIMEOUT");
  if (!wanted) return DEFAULT_TIMEOUT_S;
  char *end = nullptr;
  const double seconds = strtod(wanted, &end);
  if (end == wanted || *end || !(seconds >= 0) || std::isinf(seconds))
    throw Error(hcccInvalidArgument, "HCCC_TIMEOUT is not a number of seconds");
  return seconds;
}

Communicator::Communicator(const hccc_unique_id &id, int n_ranks, int rank)
    : rank_(rank), n_ranks_(n_ranks), timeout_(timeout_of_environment()),
      bootstrap_(open_bootstrap(id, n_ranks, rank, timeout_)) {
  host_ = std::make_unique<Host>(bootstrap_.get(), rank, n_ranks, timeout_);
  registrations_ = std::make_unique<Registrations>(*host_, rank);
  const int machine = cores();
  workers_ = workers_of_environment();
  const int near = host_->n_near();
  if (!workers_) workers_ = std::max(1, machine / near);
  oversubscribed_ = workers_ * near > machine;
  if (near < n_ranks)
    network_ = std::make_unique<Network>(bootstrap_.get(), *host_, failure_, rank, timeout_);
  if (host_->on_gpu()) {
    gpu_ = std::make_unique<GpuCalls>(host_->device_memory()->device(), host_->held());
    failure_.use(gpu_->fault());
  }
  monitor_ = std::make_unique<Monitor>(bootstrap_.get(), *host_, failure_, rank, [this] { watch(); });
  HCCC_LOG(INFO, INIT, rank, "%d ranks%s, %d thread%s each%s", n_ranks,
           host_->one_process() ? " in one process" : near < n_ranks ? " on several hosts" : "", workers_, workers_ == 1 ? "" : "s",
           oversubscribed_ ? ", more than there are cores" : "");
}

// Peers may still read this rank's memory: their mappings keep it.
Communicator::~Communicator() {
  if (host_) host_->control(rank_).standing.store(Standing::LEFT, std::memory_order_release);
  gpu_wait();
}

void Communicator::check_not_lost() const {
  const hcccResult_t code = failure_.code();
  if (code != hcccSuccess) throw Error(code, failure_.text());
}

void Communicator::load(const std::string &path, double timeout_s) {
  std::lock_guard<std::mutex> lock(calling_);
  check_not_lost();
  struct Loaded {
    uint64_t digest;
    int32_t code;
    char name[40];
  };
  std::vector<Loaded> all(static_cast<size_t>(n_ranks_));
  Loaded &own = all[static_cast<size_t>(rank_)];
  std::unique_ptr<Library> library;
  std::string problem;
  try {
    library = std::make_unique<Library>(path, n_ranks_, host_->target());
    own.digest = library->description().digest;
    strncpy(own.name, library->description().name, sizeof own.name - 1);
    check_domains(library->description());
    if (libraries_.flag_bytes() + library->flag_bytes() > host_->most_flag_bytes())
      throw Error(hcccInvalidUsage, "too many libraries are loaded");
  } catch (const Error &error) {
    own.code = error.code;
    problem = error.what();
  }
  hccc_bootstrap_error error{};
  if (hccc_bootstrap_allgather(bootstrap_.get(), all.data(), sizeof(Loaded), timeout_s, &error))
    fail_as(error);
  if (!problem.empty()) throw Error(static_cast<hcccResult_t>(own.code), problem);
  for (int r = 0; r < n_ranks_; ++r) {
    Loaded &one = all[static_cast<size_t>(r)];
    one.name[sizeof one.name - 1] = '\0';
    if (one.code) throw Error(hcccRemoteError, text_of("rank %d cannot load its library", r));
    if (one.digest != own.digest)
      throw Error(hcccInvalidUsage, text_of("rank %d loads another library (%s) than rank %d (%s)", r,
                                            one.name, rank_, own.name));
  }
  HCCC_LOG(INFO, INIT, rank_, "%s: %s, %d plan%s, from %s", own.name, library->description().collective,
           library->description().catalogue->n_plans, library->description().catalogue->n_plans == 1 ? "" : "s",
           path.c_str());
  std::lock_guard<std::mutex> changing(loading_);
  libraries_.add(std::move(library));
}

void Communicator::allgather(void *data, size_t bytes_each, double timeout_s) {
  std::lock_guard<std::mutex> lock(calling_);
  check_not_lost();
  hccc_bootstrap_error error{};
  if (hccc_bootstrap_allgather(bootstrap_.get(), data, bytes_each, timeout_s, &error))
    fail_as(error);
}

// Checks that ranks share memory where a library needs it.
void Communicator::check_domains(const hccc_library &library) const {
  for (int r = 0; r < n_ranks_; ++r) {
    const bool shares = !library.domain || library.domain[r] == library.domain[rank_];
    if (shares && !host_->near(r))
      throw Error(hcccInvalidUsage,
                  text_of("%s takes ranks %d and %d to share memory, and they are on different hosts: compile "
                          "it for a cluster of nodes", library.name, rank_, r));
  }
}

void Communicator::check(const Wanted &wanted) const {
  check_words(wanted);
  check_not_lost();
  std::lock_guard<std::mutex> lock(loading_);
  const Buffers buffers = buffers_of(wanted, libraries_.fit(wanted).front()->description(), rank_);
  if (gpu_) gpu_->check_buffers(buffers);
}

void Communicator::call(const Wanted &wanted, const Settings &settings) {
  check_words(wanted);
  std::lock_guard<std::mutex> lock(calling_);
  check_not_lost();
  timeout_ = settings.timeout_s;
  micro_batch_bytes_ = settings.micro_batch_bytes, window_ = settings.window;
  const std::vector<const Library *> libraries = libraries_.fit(wanted);
  const hccc_library &first = libraries.front()->description();
  Buffers buffers = buffers_of(wanted, first, rank_);
  std::optional<OnDevice> on;
  if (gpu_) on.emplace(host_->device_memory()->device()), gpu_->check_buffers(buffers);
  const bool copies = first.touches_peers;
  const auto reaches = [&](const char *at, size_t bytes) {
    return !copies || registrations_->reach_of(at, bytes) != Reach::COPIED;
  };
  if (buffers.in_place && (rooted(first.collective) || !serves(first, true))) {
    if (!strcmp(first.collective, "Broadcast"))
      buffers.in_place = false;  // the same bytes are copied over themselves
    else
      buffers = gpu_ ? gpu_->apart(buffers, static_cast<hcccrtStream_t>(wanted.stream))
                     : staging_.apart(host_->heap(), buffers);
  }
  Called called = called_of(wanted, first, buffers.in_place, ++number_);
  called.signature = signature_of(called, first.digest, micro_batch_bytes_, window_);
  publish(host_->control(rank_), called);
  HCCC_LOG(INFO, COLL, rank_, "%s", description(called).c_str());
  if (!called.count) return;
  monitor_->running.store(called.number, std::memory_order_release);
  const bool copied = !reaches(buffers.send, buffers.send_bytes) ||
                       !reaches(buffers.receive, buffers.receive_bytes);
  if (copied)
    HCCC_LOG(INFO, MEM, rank_, "%s: buffers are not of hcccMemAlloc: they are copied", first.name);
  if (gpu_) return launch(libraries, called, buffers, reaches, wanted.stream);
  const size_t size = static_cast<size_t>(bytes_of_type(wanted.type));
  const int most = most_blocks(first);
  size_t step = wanted.count;
  if (wanted.count * static_cast<size_t>(most) * size > SLICE_BYTES && !network_ && any_copied(copied, called))
    step = slice_of(size, most);
  for (size_t at = 0; at < wanted.count; at += step) {
    const size_t count = std::min(step, wanted.count - at);
    const Cut cut = {at * size, count * size, wanted.count * size, first.input_blocks(rank_),
                     first.output_blocks(rank_)};
    const Staged staged = staging_.before(host_->heap(), buffers, cut, reaches);
    if (copies && host_->device_memory()) share_with_peers(staged.used, called);
    run(libraries, called, staged, at, count, nullptr);
    staging_.after(staged, cut);
  }
  monitor_->running.store(0, std::memory_order_release);
}

// Returns whether any rank's buffers are copied: all ranks then cut the call into slices whose
// copies stay in a cache. An exchange that only long calls make: it takes some µs.
bool Communicator::any_copied(bool own, const Called &called) {
  const uint64_t turn = ++long_calls_;
  const size_t slot = turn % 2;  // no rank is more than one such call ahead of another
  host_->control(rank_).kinds[slot].store(turn << 1 | own, std::memory_order_release);
  bool found = own;
  const unsigned long long start = hccc_clock();
  for (int r = 0; r < n_ranks_; ++r) {
    const std::atomic<uint64_t> &kind = host_->control(r).kinds[slot];
    hccc_backoff backoff = {oversubscribed_, 0};
    while (kind.load(std::memory_order_acquire) >> 1 < turn) {
      if (__atomic_load_n(&failure_.fault()->claimed, __ATOMIC_ACQUIRE)) throw_reason(called);
      const unsigned long long waited = hccc_clock() - start;
      if (timeout_ > 0 && static_cast<double>(waited) > timeout_ * 1e9) fail_late(called, r);
      hccc_back_off(backoff);
      hccc_sleep_for_part(waited);
    }
    found = found || (kind.load(std::memory_order_acquire) & 1);
  }
  return found;
}

void Communicator::fail_late(const Called &called, int rank) {
  const std::string text = description(called) + text_of(": no progress for %g s: rank %d waited for rank %d to start the call",
                                                         timeout_, rank_, rank);
  abort(hcccTimeout, text);
  throw Error(failure_.code(), failure_.text());
}

// Runs elements [at, at + count) of a call, by the first of the libraries that was built for its
// type.
void Communicator::run(const std::vector<const Library *> &libraries, const Called &called,
                       const Staged &staged, size_t at, size_t count, void *stream) {
  const hccc_library &first = libraries.front()->description();
  if (network_) network_->wake();
  const hccc_local local = {const_cast<char *>(staged.used.send), staged.used.receive,
                            network_ ? network_->proxy_ring() : nullptr};
  hccc_call call = HCCC_CALL_INIT;
  call.count = static_cast<long long>(count);
  call.timeout_s = call.join_timeout_s = timeout_;
  call.in_place = staged.used.in_place;
  call.micro_batch_bytes = micro_batch_bytes_, call.window = window_;
  call.first_rank = rank_, call.n_local = 1, call.local = &local;
  call.signature = std::max<uint64_t>(1, mixed(called.signature, at));
  const double bytes = double(std::max(staged.used.send_bytes, staged.used.receive_bytes));
  call.workers = bytes <= SMALL_CALL ? 1 : workers_;
  call.oversubscribed = oversubscribed_;
  const long long scratch = hccc_scratch_of(first.catalogue, &call, bytes_of_type(called.type));
  if (scratch < 0 || scratch > host_->most_scratch_bytes())
    fail(hcccInvalidUsage, text_of("%s: no plan for so many elements", first.name));
  const char *type = name_of_type(called.type), *op = name_of_op(std::max(0, called.op));
  int status = HCCC_NOT_BUILT;
  for (size_t k = 0; k < libraries.size() && status == HCCC_NOT_BUILT; ++k) {
    const Library &library = *libraries[k];
    if (library.description().digest != first.digest) continue;
    const hccc_comm comm = {sizeof(hccc_comm), HCCC_ABI, sizeof(hccc_rank), n_ranks_, host_->ranks(),
                            gpu_ ? gpu_->fault_of_device() : failure_.fault(), library.flags_at};
    status = library.description().launch(&comm, &call, type, op, stream);
  }
  if (status == HCCC_TIMEOUT) throw_reason(called);
  if (status == HCCC_NOT_BUILT)
    fail(hcccInvalidUsage, text_of("%s is not built for %s, %s: see HCCC_DTYPES and HCCC_OPS of its "
                                      "CMakeLists.txt", first.name, type, op));
  if (status == HCCC_TOO_LARGE && gpu_)
    fail(hcccInvalidUsage, text_of("%s: its thread blocks do not fit on the device at once", first.name));
  if (status == HCCC_DEVICE)
    fail(hcccUnhandledDeviceError, text_of("%s: the device refused to launch", first.name));
  if (status != HCCC_OK) fail(hcccInternalError, text_of("%s: launch returned %d", first.name, status));
}

// Fails a call that other ranks may have begun already.
void Communicator::fail(hcccResult_t code, const std::string &text) {
  if (failure_.set(code, text)) monitor_->notify(code, text_of("rank %d: ", rank_) + text);
  throw Error(code, text);
}

// Returns why a launch was lost: by a wait of this rank, or by another rank's failure.
Error Communicator::reason_of(const Called &called) {
  const hccc_fault fault = failure_.place();
  const bool placed = fault.claimed == 1;
  if (failure_.code() == hcccSuccess && placed) {
    const bool other = fault.kind == HCCC_OTHER_CALL;
    const bool late = fault.kind >= HCCC_WAIT_FLAG && fault.kind <= HCCC_WAIT_PROXY;
    std::string text = description(called) + ": ";
    if (late) text += text_of("no progress for %g s: ", timeout_);
    text += description(fault);
    if (other && host_->near(fault.flag))
      text = text_of("rank %d calls ", fault.flag) + description(called_by(host_->control(fault.flag))) +
             text_of("; rank %d calls ", rank_) + description(called);
    const hcccResult_t code = other ? hcccInvalidUsage : late ? hcccTimeout : hcccInternalError;
    if (failure_.set(code, text)) {
      monitor_->notify(code, text);
      return Error(code, text);
    }
  }
  std::string text = failure_.text();
  if (placed) text += "; in " + description(called) + ", " + description(fault);
  else text += "; in " + description(called) + ", outside all primitives";
  return Error(failure_.code(), text);
}

void Communicator::abort(hcccResult_t code, const std::string &text) {
  if (failure_.set(code, text)) monitor_->notify(code, text);
}

}  // namespace hccc
