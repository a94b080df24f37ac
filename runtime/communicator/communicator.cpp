// communicator.cpp: creation of a communicator, its libraries and its collective calls.
#include "communicator.h"

#include <hccc/backoff.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
constexpr size_t FEW_RECENT = 2 * PIECES;  // calls that are kept where no rank is further ahead of another than that lets it
constexpr useconds_t REFUSED_US = 500;  // between looks at a refusal
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

uint64_t signature_of(const char *name) {
  uint64_t hash = 0;
  for (; *name; ++name) hash = mixed(hash, static_cast<unsigned char>(*name));
  return hash;
}

// Hashes a call, but for its number.
uint64_t signature_of(const Called &called, uint64_t digest, long long micro_batch, int window) {
  uint64_t hash = mixed(static_cast<uint64_t>(micro_batch), static_cast<uint64_t>(window));
  for (const int64_t word : {static_cast<int64_t>(digest), called.count, int64_t{called.type}, int64_t{called.op},
                             int64_t{called.root}})
    hash = mixed(hash, static_cast<uint64_t>(word));
  return hash;
}

// Hashes what a launch is of: elements of a call from `at` on. both: one plan serves it in place and out of place.
uint64_t launch_signature(const Called &called, size_t at, bool both, bool in_place) {
  return std::max<uint64_t>(1, mixed(mixed(called.signature, at), both ? 2 : in_place));
}

hccc_call call_of(size_t count, bool in_place, long long micro_batch_bytes) {
  hccc_call call = HCCC_CALL_INIT;
  call.count = static_cast<long long>(count);
  call.in_place = in_place;
  call.micro_batch_bytes = micro_batch_bytes;
  return call;
}

// Returns whether some ranks may make a launch in place and others out of place: one plan then serves
// both in the same way, and stages nothing. Primitives of such a plan that depend on the place copy
// within one rank, and only that rank's memory lies in another way, so each rank's is proved.
bool serves_both(const hccc_catalogue &c, hccc_call call, int size) {
  const hccc_range *one = hccc_range_of(&c, &call, size);
  call.in_place = !call.in_place;
  const hccc_range *other = hccc_range_of(&c, &call, size);
  return one && other && one->plan == other->plan && one->window == other->window && one->grain == other->grain &&
         !c.shapes[one->plan]->stage;
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

// Marks a call as waiting for what other ranks call, while this lives.
struct Telling {
  explicit Telling(std::atomic<bool> &mark) : mark(mark) { mark.store(true, std::memory_order_release); }
  ~Telling() { mark.store(false, std::memory_order_release); }
  Telling(const Telling &) = delete;
  Telling &operator=(const Telling &) = delete;

  std::atomic<bool> &mark;
};

// Marks a call as running until it ends, or, on a GPU, is launched.
struct Running {
  Running(Monitor &monitor, uint64_t number, double limit_s) : monitor(monitor) {
    monitor.limit_s.store(limit_s, std::memory_order_relaxed);
    monitor.running.store(number, std::memory_order_release);
  }
  Running(const Running &) = delete;
  Running &operator=(const Running &) = delete;
  ~Running() {
    if (!launched) monitor.running.store(0, std::memory_order_release);
  }

  Monitor &monitor;
  bool launched = false;
};

// Marks a call as touching flags and buffers, while this lives: a refusal does not end meanwhile.
struct Touching {
  explicit Touching(std::atomic<bool> &mark) : mark(mark) { set(true); }
  ~Touching() { mark.store(false, std::memory_order_release); }
  void set(bool touches) { mark.store(touches, std::memory_order_seq_cst); }
  Touching(const Touching &) = delete;
  Touching &operator=(const Touching &) = delete;

  std::atomic<bool> &mark;
};

// Lets the monitor ask ranks of other hosts for signs of life while messages are waited for.
struct Asking {
  Asking(Monitor &monitor, std::atomic<int> &threads, bool asks) : monitor(monitor), threads(threads), asks(asks) {
    if (asks && !threads.fetch_add(1)) monitor.messaging.fetch_add(1, std::memory_order_release);
  }
  ~Asking() {
    if (asks && threads.fetch_sub(1) == 1) monitor.messaging.fetch_add(1, std::memory_order_release);
  }
  Asking(const Asking &) = delete;
  Asking &operator=(const Asking &) = delete;

  Monitor &monitor;
  std::atomic<int> &threads;
  const bool asks;
};

}  // namespace

int most_blocks(const hccc_library &library) {
  int most = 1;
  for (int r = 0; r < library.n_ranks; ++r)
    most = std::max({most, library.input_blocks(r), library.output_blocks(r)});
  return most;
}

double timeout_of_environment() {
  const char *wanted = getenv("HCCC_TIMEOUT");
  if (!wanted) return DEFAULT_TIMEOUT_S;
  char *end = nullptr;
  const double seconds = strtod(wanted, &end);
  if (end == wanted || *end || !(seconds >= 0) || std::isinf(seconds))
    throw Error(hcccInvalidArgument, "HCCC_TIMEOUT is not a number of seconds");
  return seconds;
}

Communicator::Communicator(const hccc_unique_id &id, int n_ranks, int rank, const Device &device, const Family &family,
                           const TimeLeft &left)
    : rank_(rank), n_ranks_(n_ranks), timeout_(timeout_of_environment()),
      bootstrap_(open_bootstrap(id, n_ranks, rank, left.seconds())) {
  try {
    host_ = std::make_unique<Host>(bootstrap_.get(), rank, n_ranks, device, family, left);
    set_up(left);
  } catch (const std::exception &error) {  // ranks that have met may be in a call by now
    hccc_bootstrap_give_up(bootstrap_.get(), error.what());
    if (host_) leave();
    throw;
  }
}

void Communicator::set_up(const TimeLeft &left) {
  registrations_ = std::make_unique<Registrations>(*host_, rank_);
  const int machine = cores();
  workers_ = workers_of_environment();
  const int near = host_->n_near();
  if (!workers_) workers_ = std::max(1, machine / near);
  oversubscribed_ = workers_ * near > machine;
  host_->control(rank_).shares_cores.store(oversubscribed_, std::memory_order_relaxed);
  if (near < n_ranks_)
    network_ = std::make_unique<Network>(bootstrap_.get(), *host_, failure_, rank_, timeout_, left);
  if (host_->on_gpu()) {
    gpu_ = std::make_unique<GpuCalls>(host_->device_memory()->device(), host_->held());
    failure_.use(gpu_->fault());
  }
  if (!network_ && !host_->device_memory()) broadcasts_ = std::make_unique<Broadcasts>(host_->broadcast_rings(), rank_);
  monitor_ = std::make_unique<Monitor>(
      bootstrap_.get(), *host_, failure_, rank_, [this] { watch(); },
      Refusals::Steps{[this](AtRest &own, uint64_t number) { return rest(own, number); }, [this] { return reset_flags(); },
                      [this](int rank, const Withdrawn &its) { if (messages_) messages_->drop_later(rank, its); }});
  if (!network_ && !host_->device_memory()) short_calls_ = std::make_unique<ShortCalls>(n_ranks_, oversubscribed_);
  if (!host_->device_memory())
    messages_ = std::make_unique<Messages>(*host_, *registrations_, failure_, network_ ? network_->transport() : nullptr,
                                           rank_, oversubscribed_, [this](int rank) { return is_ahead(rank); });
  if (DeviceMemory *memory = host_->device_memory())
    mapper_ = std::make_unique<Mapper>(*memory, [this](const Error &error) {
      abort(error.code, text_of("rank %d: ", rank_) + error.what());  // a kernel would need the memory
    });
  set_up_vendor(left);
  if (!network_ && !host_->device_memory() && !vendor_) kept_ = FEW_RECENT;
  HCCC_LOG(INFO, INIT, rank_, "%d ranks%s, %d thread%s each%s", n_ranks_,
           host_->one_process() ? " in one process" : near < n_ranks_ ? " on several hosts" : "", workers_, workers_ == 1 ? "" : "s",
           oversubscribed_ ? ", more than there are cores" : "");
  made_.store(true, std::memory_order_release);
}

// Meets by the vendor's library that HCCC_VENDOR names, at all ranks alike, where each is a process. No library
// serves ranks of several vendors: jobs do.
void Communicator::set_up_vendor(const TimeLeft &left) {
  for (int r = 1; r < n_ranks_; ++r)
    if (host_->vendor(r) != host_->vendor(0)) {
      HCCC_LOG(WARN, INIT, rank_, "HCCC_VENDOR differs at ranks 0 and %d: no vendor's library makes calls of all ranks", r);
      return;
    }
  if (!host_->vendor(0)) return;
  bool threads = false;
  for (int r = 0; r < n_ranks_; ++r)
    for (int q = 0; q < r; ++q)
      threads = threads || (host_->process(r) == host_->process(q) &&
                            hccc_bootstrap_host(bootstrap_.get(), r) == hccc_bootstrap_host(bootstrap_.get(), q));
  if (threads || host_->any_device())
    HCCC_LOG(WARN, INIT, rank_, "HCCC_VENDOR is for ranks that are processes with memory of the host: left out");
  else vendor_ = std::make_unique<VendorCalls>(bootstrap_.get(), rank_, n_ranks_, left);
}

void Communicator::forsake() {
  if (monitor_) monitor_->forsake();
  if (mapper_) mapper_->forsake();
  host_->forsake();
}

// Peers may still read this rank's memory: their mappings keep it.
Communicator::~Communicator() {
  if (vendor_ && failure_.code() != hcccSuccess) vendor_->abort();  // or its end waits for ranks that are gone
  leave();
  gpu_wait();
}

void Communicator::leave() {
  if (monitor_) return monitor_->leave();
  host_->control(rank_).standing.store(Standing::LEFT, std::memory_order_release);
}

void Communicator::check_not_lost() const {
  const hcccResult_t code = failure_.code();
  if (code != hcccSuccess) throw Error(code, failure_.text());
}

// The same, where a call begins: its text names the call.
void Communicator::check_not_lost(const Wanted &wanted) const {
  const hcccResult_t code = failure_.code();
  if (code == hcccSuccess) return;
  const uint64_t number = called_by(host_->control(rank_)).number + 1;
  std::lock_guard<std::mutex> lock(loading_);
  const Library *library = libraries_.find(wanted);
  const Called called = library ? called_of(wanted, library->description(), false, number) : called_of(wanted, number);
  throw Error(code, failure_.text() + "; in " + description(called) + ", at its beginning");
}

// Runs what ranks do together: where it is refused, at all. Throws Error.
template <class Body>
void Communicator::refusable(double timeout_s, const Body &body) {
  check_not_refused(timeout_s);
  Touching touching(touching_);
  while (failure_.refused() || failure_.has_refusal()) {
    touching.set(false);
    tell_refusal(timeout_s);
    touching.set(true);
  }
  try {
    body();
  } catch (const Error &) {
    if (!failure_.refused()) throw;
    touching.set(false);
    tell_refusal(timeout_s);
    throw RefusedCall(failure_.last_refusal());  // another thread has asked for the text
  }
}

void Communicator::load(const std::string &path, double timeout_s) {
  std::lock_guard<std::shared_mutex> lock(calling_);
  refusable(timeout_s, [&] {
    meet(called_of("hcccCommLoad", 0, next_number()), timeout_s);
    load(path, false, timeout_s);
  });
}

void Communicator::load(const std::string &path, bool standard, double timeout_s) {
  struct Loaded {
    uint64_t digest;
    Library::Built built;
    int32_t code;
    char name[40];
  };
  std::vector<Loaded> all(static_cast<size_t>(n_ranks_));
  Loaded &own = all[static_cast<size_t>(rank_)];
  std::unique_ptr<Library> library;
  std::string problem;
  try {
    library = std::make_unique<Library>(path, n_ranks_, host_->target(), standard);
    own.digest = library->description().digest;
    own.built = library->built();
    strncpy(own.name, library->description().name, sizeof own.name - 1);
    check_domains(library->description());
    if (gpu_) {
      const OnDevice on(*device());
      library->load_kernels();
    }
    if (libraries_.flag_bytes() + library->all_flag_bytes() > host_->most_flag_bytes())
      throw Error(hcccInvalidUsage, "too many libraries are loaded");
    std::lock_guard<std::mutex> changing(loading_);
    host_->map_flags(libraries_.flag_bytes() + library->all_flag_bytes());
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
    if (one.digest != all[0].digest)
      throw Error(hcccInvalidUsage, text_of("rank %d loads another library (%s) than rank 0 (%s)", r, one.name, all[0].name));
    library->keep(one.built);
  }
  HCCC_LOG(INFO, INIT, rank_, "%s: %s, %d plan%s, from %s", own.name, library->description().collective,
           library->description().catalogue->n_plans, library->description().catalogue->n_plans == 1 ? "" : "s",
           path.c_str());
  std::lock_guard<std::mutex> changing(loading_);
  libraries_.add(std::move(library));
}

// Returns the host of each rank; hosts are numbered in the order of their lowest ranks.
std::vector<int> Communicator::hosts() const {
  std::vector<int> found;
  for (int r = 0; r < n_ranks_; ++r) found.push_back(hccc_bootstrap_host(bootstrap_.get(), r));
  return found;
}

bool Communicator::first_of_host() const {
  for (int r = 0; r < rank_; ++r)
    if (host_->near(r)) return false;
  return true;
}

// Returns whether a call that no library does may have one made.
bool Communicator::makes(const Wanted &wanted) const {
  if (!wanted.collective || !StandardLibrary::serves(wanted.collective) || is_own(wanted.op)) return false;
  if (network_ && host_->any_device()) return false;  // all ranks know that
  return rooted(wanted.collective) || wanted.root == -1;
}

// Returns the standard library of a call: the one of root 0 where that serves all roots.
StandardLibrary Communicator::standard(const Wanted &wanted) const {
  Wanted its = wanted;
  const bool turns = !strcmp(wanted.collective, "Broadcast") || !strcmp(wanted.collective, "Reduce");
  if (turns && !network_ && !gpu_) its.root = 0;
  return StandardLibrary(its, hosts(), host_->target(), gpu_ ? device()->arch() : "");
}

hcccCan_t Communicator::can(const Wanted &wanted) const {
  if (name_of_type(wanted.type) && name_of_op(wanted.op) && !has_op(wanted.type, wanted.op)) return hcccCanNot;
  check_words(wanted, n_ranks_);
  check_not_lost();
  std::lock_guard<std::mutex> lock(loading_);
  if (libraries_.find(wanted)) return hcccCanNow;
  if (!makes(wanted)) return hcccCanNot;
  return standard(wanted).places() ? hcccCanLoad : hcccCanMake;
}

// Returns when all ranks make a call that runs no kernel: it loads or splits, or has no library yet. Throws
// Error where some rank makes another.
void Communicator::meet(Called called, double timeout_s) {
  const bool collective = called.type >= 0;  // those that have no library yet compare what they want later
  const uint64_t what = collective ? 0 : mixed(signature_of(called.collective), static_cast<uint64_t>(called.count));
  called.signature = mixed(called.number, what);
  timeout_ = timeout_s;
  publish(called);
  Running running(*monitor_, called.number, timeout_s);
  running.launched = gpu_ != nullptr;  // earlier launches may go on: watch() notices their end
  if (!network_ && !gpu_) {
    agree(nullptr, called, nullptr);
    return;
  }
  const Telling telling(telling_);
  const unsigned long long start = hccc_clock();
  monitor_->show(called);
  while (!monitor_->all_call(called)) {
    if (failure_.refused()) throw Error(hcccInvalidUsage, "");
    check_not_lost();
    if (gpu_ && timeout_s > 0 && static_cast<double>(hccc_clock() - start) > timeout_s * 1e9) fail_late(called);
    usleep(REFUSED_US);
  }
}

// Loads the standard library of a call that no library does: from the cache where all ranks find it
// there, else from the package. Where neither is so the first rank of each host that lacks it makes it
// there, and the others wait for as long as that takes. All ranks have loaded the same libraries, so all
// come here in the same call; where they do not want the same, all are told, and nothing is lost.
void Communicator::provide(const Wanted &wanted, double timeout_s) {
  struct Asked {
    uint64_t identity;
    int32_t places, code;
    char text[496];
  };
  const StandardLibrary library = standard(wanted);
  meet(called_of(wanted, next_number()), timeout_s);
  std::vector<Asked> all(static_cast<size_t>(n_ranks_));
  Asked &own = all[static_cast<size_t>(rank_)];
  const auto share = [&](double seconds) {
    hccc_bootstrap_error error{};
    if (hccc_bootstrap_allgather(bootstrap_.get(), all.data(), sizeof(Asked), seconds, &error)) fail_as(error);
    for (Asked &one : all) one.text[sizeof one.text - 1] = '\0';
  };
  own.identity = library.identity(), own.places = library.places();
  strncpy(own.text, library.text().c_str(), sizeof own.text - 1);
  share(timeout_s);
  for (int r = 0; r < n_ranks_; ++r)
    if (const Asked &one = all[static_cast<size_t>(r)]; one.identity != own.identity)
      throw RefusedCall(text_of("rank %d calls %s, for which no library is loaded; rank %d calls %s", r, one.text, rank_,
                            library.text().c_str()));
  int places = own.places;
  for (const Asked &one : all) places &= one.places;
  if (!places) {
    if (first_of_host() && !(library.places() & StandardLibrary::CACHE)) try {
        library.make([this] { return failure_.code() != hcccSuccess; });
      } catch (const Error &error) {
        own.code = error.code;
        strncpy(own.text, error.what(), sizeof own.text - 1);
      }
    share(0);
    check_not_lost();
    for (int r = 0; r < n_ranks_; ++r)
      if (const Asked &one = all[static_cast<size_t>(r)]; one.code)
        throw RefusedCall((network_ ? text_of("rank %d: ", r) : "") + one.text, static_cast<hcccResult_t>(one.code));
  }
  const bool packaged = places == StandardLibrary::PACKAGE;
  load(library.file(packaged ? StandardLibrary::PACKAGE : StandardLibrary::CACHE), true, timeout_s);
}

void Communicator::allgather(const char *what, void *data, size_t bytes_each, double timeout_s) {
  std::lock_guard<std::shared_mutex> lock(calling_);
  refusable(timeout_s, [&] {
    if (what) meet(called_of(what, bytes_each, next_number()), timeout_s);
    hccc_bootstrap_error error{};
    if (hccc_bootstrap_allgather(bootstrap_.get(), data, bytes_each, timeout_s, &error)) fail_as(error);
  });
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

void Communicator::check(const Wanted &wanted, const Settings &settings) const {
  check_words(wanted, n_ranks_);
  check_not_lost(wanted);
  std::lock_guard<std::mutex> lock(loading_);
  if (!libraries_.find(wanted) && makes(wanted)) return;  // the rest is checked when there is a library
  const Prepared prepared = prepare(wanted, libraries_.fit(wanted), false);
  if (!wanted.blocks) check_plan(wanted, prepared.library->description(), prepared.in_place(), settings);
}

// Returns what is known of a call as this one, but for its buffers; null: nothing.
Communicator::Known *Communicator::knows(const Wanted &wanted, const Settings &settings) {
  if (wanted.library || wanted.blocks) return nullptr;
  for (size_t back = 0; back < known_.size(); ++back) {
    const size_t at = (newest_ + back) % known_.size();
    Known &one = known_[at];
    if (one.collective && wanted.collective == one.collective && wanted.count == one.count && wanted.type == one.type &&
        wanted.op == one.op && wanted.root == one.root && settings.micro_batch_bytes == one.micro_batch_bytes &&
        settings.window == one.window && libraries_.size() == one.libraries)
      return newest_ = at, &one;
  }
  return nullptr;
}

// Forgets the call that is known for the longest time, for another one's sake.
Communicator::Known &Communicator::forget() {
  newest_ = oldest_, oldest_ = (oldest_ + 1) % known_.size();
  return known_[newest_];
}

// Checks the buffers of a call: with check_plan() all that can be known before other ranks hear of it. packets:
// no rank touches another's buffers. Throws Error; that costs nobody anything.
Communicator::Prepared Communicator::prepare(const Wanted &wanted, const Library &library, bool packets) const {
  if (wanted.blocks) return prepare_blocks(wanted, library);
  const hccc_library &description = library.description();
  const int turn = library.turn_of(wanted);
  Prepared made{&library, buffers_of(wanted, description, role(turn)), false, false, turn};
  if (gpu_) gpu_->check_buffers(made.buffers);
  if (packets) {
    check_allocated(made.buffers.send, made.buffers.send_bytes);
    check_allocated(made.buffers.receive, made.buffers.receive_bytes);
  } else if (description.touches_peers) {
    const auto copies = [&](const char *at, size_t bytes) { return bytes && !reaches(at, bytes); };
    const bool send = copies(made.buffers.send, made.buffers.send_bytes);
    made.copied = copies(made.buffers.receive, made.buffers.receive_bytes) || send;
  }
  if (made.buffers.in_place && (description.root >= 0 || !serves(description, true))) {
    made.apart = strcmp(description.collective, "Broadcast") != 0;
    if (!made.apart) made.buffers.in_place = false;  // the same bytes are copied over themselves
  }
  return made;
}

// The same for an uneven call. Its plan is chosen when the lengths of all ranks are known.
Communicator::Prepared Communicator::prepare_blocks(const Wanted &wanted, const Library &library) const {
  check_not_captured(wanted.collective, wanted.stream);
  const Buffers buffers = buffers_of_blocks(wanted);
  if (gpu_) gpu_->check_buffers(buffers);
  check_allocated(buffers.send, buffers.send_bytes);
  check_allocated(buffers.receive, buffers.receive_bytes);
  const bool in_place =
      overlaps_in_place(*wanted.blocks, buffers.send, buffers.receive, bytes_of_type(wanted.type), rank_);
  // A block that only moves, and stays where it is, is copied over itself.
  const bool changes = library.description().reduces || !strcmp(wanted.collective, "Alltoallv");
  return {&library, buffers, false, in_place && changes, 0};
}

void Communicator::check_not_captured(const char *collective, void *stream) const {
  if (gpu_ && gpu_->captures(static_cast<hcccrtStream_t>(stream)))
    throw Error(hcccInvalidUsage, text_of("%s cannot be captured in a graph: the host compares the lengths of all ranks",
                                          collective));
}

Numbers Communicator::numbers(const char *collective, const size_t *at, int n, void *stream) const {
  if (!at) return {};
  if (!gpu_ || !gpu_->holds(at)) return std::vector<size_t>(at, at + n);
  check_not_captured(collective, stream);
  std::vector<size_t> made(static_cast<size_t>(n));
  gpu_->fetch(made.data(), at, made.size() * sizeof(size_t), static_cast<hcccrtStream_t>(stream));
  return made;
}

// Returns whether peers reach all of a buffer. Throws Error where it lies in the heap, but in no
// allocation: it was freed, or reaches beyond its end.
bool Communicator::reaches(const char *at, size_t bytes) const {
  if (registrations_->reach_of(at, bytes) != Reach::COPIED) return true;
  check_allocated(at, bytes);
  return false;
}

void Communicator::check_allocated(const char *at, size_t bytes) const {
  if (bytes && host_->heap().spans(at) && !host_->heap().has(at, bytes))
    throw Error(hcccInvalidArgument, text_of("%zu bytes at %p are in no allocation of hcccMemAlloc: they were freed, "
                                             "or reach beyond its end", bytes, static_cast<const void *>(at)));
}

// Checks that there is a plan for so many elements, or for the slices that long calls are cut into. Returns
// whether they need scratch.
bool Communicator::check_plan(const Wanted &wanted, const hccc_library &library, bool in_place,
                              const Settings &settings) const {
  const int size = bytes_of_type(wanted.type);
  hccc_call call = call_of(wanted.count, in_place, settings.micro_batch_bytes);
  const size_t slice = slice_of(static_cast<size_t>(size), most_blocks(library));
  if (!network_ && !gpu_ && !wanted.blocks) call.count = std::min(call.count, static_cast<long long>(slice));
  const hccc_range *range = hccc_range_of(library.catalogue, &call, size);
  const bool fits = range && hccc_fits(hccc_shape_of(library.catalogue, range), static_cast<long long>(wanted.count),
                                       size, call.micro_batch_bytes);
  const long long scratch = hccc_scratch_of(library.catalogue, &call, size);
  if (!fits || scratch > host_->most_scratch_bytes())
    throw Error(hcccInvalidUsage, text_of("%s: no plan for %zu elements%s", library.name, wanted.count,
                                          in_place ? " in place" : ""));
  return scratch > 0;
}

void Communicator::call(const Wanted &wanted, const Settings &settings) {
  std::lock_guard<std::shared_mutex> lock(calling_);
  Known *known = knows(wanted, settings);
  if (!known) check_words(wanted, n_ranks_);
  std::optional<OnDevice> on;
  if (gpu_) on.emplace(host_->device_memory()->device());
  check_not_lost(wanted);
  refusable(settings.timeout_s, [&] { make(wanted, settings, known); });
}

// Makes a call, by hccc or by the vendor's library. Throws Error, also where it is refused.
void Communicator::make(const Wanted &wanted, const Settings &settings, Known *known) {
  if (known && (known->again.run || known->ahead) && repeat(*known, wanted, settings)) return;
  if (!vendor_) return make_own(wanted, settings, known);
  if (known && !known->library) {
    make_by_vendor(known->called, wanted, settings);
    by_vendor_ = known;
    return;
  }
  const bool has_own = libraries_.find(wanted) || makes(wanted);
  const auto gather = [&](void *data, size_t bytes_each) {
    hccc_bootstrap_error error{};
    if (hccc_bootstrap_allgather(bootstrap_.get(), data, bytes_each, settings.timeout_s, &error)) fail_as(error);
  };
  const bool theirs = vendor_->takes(wanted, has_own, gather);
  const auto start = std::chrono::steady_clock::now();
  if (theirs) {
    Called called = called_of(wanted, 0);
    snprintf(called.library, sizeof called.library, "%s", vendor_->name());
    make_by_vendor(called, wanted, settings);
    if (!wanted.library && vendor_->makes_all(wanted, has_own))
      forget() = {wanted.collective, wanted.count, libraries_.size(), wanted.type, wanted.op, wanted.root,
                  settings.micro_batch_bytes, settings.window, nullptr, called};
  } else {
    make_own(wanted, settings, known);
  }
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  vendor_->took(wanted, spent.count());
}

// called: but for its number.
void Communicator::make_by_vendor(Called called, const Wanted &wanted, const Settings &settings) {
  timeout_ = settings.timeout_s;
  called.number = next_number();
  publish(called);
  last_library_.store(vendor_->name(), std::memory_order_relaxed);
  HCCC_LOG(INFO, COLL, rank_, "%s", description(called).c_str());
  const Running running(*monitor_, called.number, timeout_);
  try {
    vendor_->make(wanted, settings.timeout_s);
  } catch (const Error &error) {
    if (error.code == hcccInvalidArgument) throw;  // a buffer is null: nothing has moved
    fail(error.code, error.what());
  }
}

// Once the library's call has begun other ranks' part of it is under way: all else is done meanwhile.
Communicator::Again Communicator::begin_again(const Wanted &wanted, const Settings &settings) {
  Known *const known = by_vendor_;
  if (!known || known->library || wanted.library || wanted.blocks) return Again::NO;
  if (wanted.collective != known->collective || wanted.count != known->count || wanted.type != known->type ||
      wanted.op != known->op || wanted.root != known->root || libraries_.size() != known->libraries)
    return Again::NO;
  if (settings.micro_batch_bytes != known->micro_batch_bytes || settings.window != known->window) return Again::NO;
  if (failure_.code() != hcccSuccess) return Again::NO;
  touching_.store(true, std::memory_order_seq_cst);
  bool goes_on = false;
  struct Leaving {
    Communicator &of;
    const bool &stays;
    ~Leaving() {
      if (stays) return;
      of.monitor_->running.store(0, std::memory_order_release);
      of.touching_.store(false, std::memory_order_release);
    }
  } const leaving{*this, goes_on};
  if (failure_.refused() || failure_.has_refusal()) return Again::NO;
  try {
    if (!vendor_->begin(wanted, settings.timeout_s)) return Again::NO;
    timeout_ = settings.timeout_s;
    Called &called = known->called;
    called.number = next_number();
    monitor_->limit_s.store(timeout_, std::memory_order_relaxed);
    monitor_->running.store(called.number, std::memory_order_release);
    if (shown_ == &called) {
      hccc::publish(host_->control(rank_), called.number, called.signature);
      recent(called.number) = called;
    } else {
      publish(called);
      shown_ = &called;
    }
    last_library_.store(vendor_->name(), std::memory_order_relaxed);
    HCCC_LOG(INFO, COLL, rank_, "%s", description(called).c_str());
    goes_on = !vendor_->end(true);
  } catch (const Error &error) {
    fail(error.code, error.what());
  }
  return goes_on ? Again::GOES_ON : Again::DONE;
}

void Communicator::end_again() {
  struct Leaving {
    Communicator &of;
    ~Leaving() {
      of.monitor_->running.store(0, std::memory_order_release);
      of.touching_.store(false, std::memory_order_release);
    }
  } const leaving{*this};
  try {
    vendor_->end(false);
  } catch (const Error &error) {
    fail(error.code, error.what());
  }
}

// Makes a call by a library of hccc's.
void Communicator::make_own(const Wanted &wanted, const Settings &settings, Known *known) {
  const Library *found = known ? known->library : libraries_.find(wanted);
  if (!found && makes(wanted)) provide(wanted, settings.timeout_s);
  const Library &fits = found ? *found : libraries_.fit(wanted);
  const bool ahead = goes_ahead(fits, wanted);
  Prepared prepared = prepare(wanted, fits, ahead || (known && known->packets));
  const hccc_library &library = fits.description();
  Called called;
  if (known && prepared.in_place() == (known->called.in_place != 0)) {
    prepared.scratch = known->scratch, prepared.packets = known->packets, called = known->called;
  } else {
    called = called_of(wanted, library, prepared.in_place(), 0);
    called.signature = signature_of(called, library.digest, settings.micro_batch_bytes, settings.window);
    if (!wanted.blocks) {
      prepared.scratch = check_plan(wanted, library, prepared.in_place(), settings);
      prepared.packets = !ahead && packets_say(prepared, wanted, settings);
      if (!known) known = &forget();
      *known = {wanted.library ? nullptr : wanted.collective, wanted.count, libraries_.size(), wanted.type, wanted.op,
                wanted.root, settings.micro_batch_bytes, settings.window, prepared.library, called, prepared.scratch,
                prepared.packets};
      known->turn = prepared.turn, known->ahead = ahead;
    }
  }
  again_ = known && prepared.packets && !prepared.apart ? &known->again : nullptr;
  timeout_ = settings.timeout_s, turn_ = prepared.turn, scalar_ = wanted.scalar, packets_ = prepared.packets;
  micro_batch_bytes_ = settings.micro_batch_bytes, window_ = settings.window;
  if (gpu_ && gpu_->captures(static_cast<hcccrtStream_t>(wanted.stream))) note_captured(wanted);
  called.number = next_number();
  called.signature = std::max<uint64_t>(1, mixed(called.signature, called.number));  // 0: not to compare
  publish(called);
  last_library_.store(library.name, std::memory_order_relaxed);
  HCCC_LOG(INFO, COLL, rank_, "%s", description(called).c_str());
  Running running(*monitor_, called.number, timeout_);
  struct Giving {
    Communicator &of;
    ~Giving() { of.give_scratch(); }
  } const giving{*this};
  if (ahead) return broadcast(prepared.buffers, called);
  running.launched = run(prepared, wanted, called, settings) && gpu_;
}

// Makes a call that ranks do not agree on and that was made before, with these buffers or others: what make_own() finds
// out is known. False: it is to be made as any other. Throws Error.
bool Communicator::repeat(Known &known, const Wanted &wanted, const Settings &settings) {
  const uint64_t frees = host_->heap().frees();
  if (wanted.send != known.send || wanted.receive != known.receive || frees != known.frees) {
    const Prepared prepared = prepare(wanted, *known.library, true);
    if (prepared.apart || prepared.in_place() != (known.called.in_place != 0)) return false;
    known.send = wanted.send, known.receive = wanted.receive, known.frees = frees, known.buffers = prepared.buffers;
  }
  timeout_ = settings.timeout_s, turn_ = known.turn, packets_ = !known.ahead;
  Called &called = known.called;
  const uint64_t words = called.signature;
  called.number = next_number();
  called.signature = std::max<uint64_t>(1, mixed(words, called.number));
  if (shown_ == &called) {
    hccc::publish(host_->control(rank_), called.number, called.signature);
    recent(called.number) = called;
  } else {
    publish(called);
    shown_ = &called;
  }
  const char *name = known.library->description().name;
  last_library_.store(name, std::memory_order_relaxed);
  HCCC_LOG(INFO, COLL, rank_, "%s", description(called).c_str());
  const Running running(*monitor_, called.number, timeout_);
  if (known.ahead) {
    called.signature = words;
    return broadcast(known.buffers, recent(called.number)), true;
  }
  const hccc_local local = {const_cast<char *>(known.buffers.send), known.buffers.receive, nullptr, wanted.scalar.bits,
                            wanted.scalar.at};
  const int status = known.again.run(&known.again, &local, launch_signature(called, 0, true, false));
  called.signature = words;
  if (status == HCCC_OK) return true;
  if (status == HCCC_TIMEOUT) throw_reason(recent(called.number));
  fail(hcccInternalError, text_of("%s: launch returned %d", name, status));
}

// Gives the shared scratch back when a call has ended: then no rank touches it any more, unless the
// communicator is lost. A call that is refused keeps it for the next one, by when all ranks have left it.
void Communicator::give_scratch() {
  if (shares_ && failure_.code() == hcccSuccess && !failure_.refused()) host_->give_scratch(), shares_ = false;
}

// Shows other ranks what this one calls.
void Communicator::publish(const Called &called) {
  hccc::publish(host_->control(rank_), called);
  recent(called.number) = called;
  shown_ = nullptr;
}

// Runs a call that other ranks may have begun. False: it has no elements. Throws Error.
bool Communicator::run(const Prepared &prepared, const Wanted &wanted, const Called &called, const Settings &settings) {
  const hccc_library &library = prepared.library->description();
  std::optional<CopiedBlocks> blocks;
  if (wanted.blocks) blocks.emplace(copied_blocks(prepared, *wanted.blocks, called));
  Agreed agreed = {false, !called.in_place, false, false, {}};
  if (!prepared.packets) {
    const unsigned long long start = hccc_clock();
    agreed = agree(&prepared, called, blocks ? &blocks->used : nullptr);
    waited_ = hccc_clock() - start;
  }
  std::optional<BlockTable> table;
  if (blocks) {
    table.emplace(library.collective, n_ranks_, agreed.told);
    check_table(*table, wanted, library, called, settings);
  }
  if (!(table ? table->longest() : called.count)) return false;
  try {
    if (agreed.inputs && perform_short(prepared, agreed, called)) return true;
    if (!table && goes_as_messages(prepared, agreed, called)) return perform_messages(prepared, called), true;
    if (table) perform_blocks(prepared, *blocks, *table, called, wanted.stream);
    else perform(prepared, agreed, called, wanted.stream);
    return true;
  } catch (const Error &error) {  // other ranks wait for this one
    if (failure_.code() != hcccSuccess || failure_.refused()) throw;
    fail(error.code, error.what());
  } catch (const std::bad_alloc &) {
    fail(hcccSystemError, "no memory");
  }
}

// Returns the number of the next call: one that no rank has come to before a refusal.
uint64_t Communicator::next_number() {
  number_ = std::max(number_, monitor_->settled()) + 1;
  return number_;
}

// Throws Error where the communicator is lost, or a call was refused that this rank has not been told of.
void Communicator::check_not_refused(double timeout_s) {
  check_not_lost();
  look();
  if (failure_.refused() || failure_.has_refusal()) tell_refusal(timeout_s);
}

// Waits until all ranks have come back from a call that differs at one, and throws what all are told,
// unless this rank was told of it before its call.
void Communicator::tell_refusal(double timeout_s) {
  const unsigned long long start = hccc_clock();
  const uint64_t refusal = failure_.refusals() + 1;
  std::optional<Running> running;
  if (failure_.refused()) running.emplace(*monitor_, std::max(called_by(host_->control(rank_)).number, monitor_->refused()), timeout_s);
  while (failure_.refused() && !failure_.has_refusal() && failure_.refusals() + 1 == refusal) {  // not the next one
    refused_here_.store(refusal, std::memory_order_release);
    check_not_lost();
    if (timeout_s > 0 && static_cast<double>(hccc_clock() - start) > timeout_s * 1e9)
      fail(hcccTimeout, text_of("timed out after %g s: ranks make calls that differ; ", timeout_s) +
                            monitor_->describe_late(called_by(host_->control(rank_))));
    usleep(REFUSED_US);
  }
  if (messages_) messages_->drop_withdrawn();
  const std::string text = failure_.end_refusal();
  if (!text.empty()) throw RefusedCall(text);
}

// Fills in how far this rank has come, where none of its launches runs, and it has come to the call that
// is refused: others would take what it calls for a later one. Earlier calls end as they would have.
// Called by the monitor's thread.
bool Communicator::rest(AtRest &own, uint64_t number) {
  try {
    Called first;
    const bool launched = gpu_ && gpu_->running(&first);
    if (touching_.load(std::memory_order_seq_cst) || launched) {
      if (!launched) first = called_by(host_->control(rank_));
      if (first.number >= number) failure_.end_launches();
      return false;
    }
    if (messages_ && messages_->busy()) return false;
    const bool here = refused_here_.load(std::memory_order_acquire) == failure_.refusals() + 1;
    if (!here && number_ < number) return check_coming(), false;
    if (network_ && !network_->idle(&own.sent, &own.received)) return false;
    own.number = std::max(number_, monitor_->settled()), own.agreements = agreements_, number = std::min(number, number_);
    for (const uint64_t back : {0, 1})
      if (const Called &one = recent(number - back); one.number == number - back) own.called[back] = one;
    return true;
  } catch (const Error &error) {
    abort(error.code, text_of("rank %d: ", rank_) + error.what());
    return false;
  }
}

// Ends the communicator where this rank does not come, in time, to a call that is refused. Others than
// those of GPUs wait for it in the call.
void Communicator::check_coming() {
  const unsigned long long now = hccc_clock();
  if (coming_to_ != failure_.refusals() + 1) coming_to_ = failure_.refusals() + 1, coming_since_ = now;
  if (gpu_ && timeout_ > 0 && static_cast<double>(now - coming_since_) > timeout_ * 1e9)
    abort(hcccTimeout, text_of("timed out after %g s: ranks make calls that differ; rank %d has not come to them", timeout_, rank_));
}

// Zeroes the flags of all libraries, so that they begin anew; called by the monitor's thread, when no
// rank touches them.
bool Communicator::reset_flags() {
  try {
    std::lock_guard<std::mutex> lock(loading_);
    host_->zero_flags(libraries_.flag_bytes());
    if (broadcasts_) broadcasts_->reset();
    return true;
  } catch (const Error &error) {
    abort(error.code, text_of("rank %d: ", rank_) + error.what());
    return false;
  }
}

// Tells all ranks of this host's memory what this rank calls, and hears it of them, before a byte
// moves. On a GPU, and between hosts, ranks hear it of their neighbours, in the kernel; but of an uneven
// call they tell each other their blocks here. prepared: null: no library is there yet. blocks: the own
// ones; null: of an even call.
//
// O(ranks), some 0.1 us each, of a wait that a call begins with anyhow. Throws Error where a rank makes
// another call: at every rank, and nothing is lost.
Communicator::Agreed Communicator::agree(const Prepared *prepared, const Called &called, const OwnBlocks *blocks) {
  const bool copied = prepared && prepared->copied;
  Agreed found = {copied, !called.in_place, false, false, {}};
  if (blocks) found.told.resize(told_words(n_ranks_) * static_cast<size_t>(n_ranks_));
  if (blocks && network_) return tell_hosts(*blocks, called, found.told), found;
  if (network_ || (gpu_ && !blocks)) return found;
  const Telling telling(telling_);
  const unsigned long long start = hccc_clock();
  const uint64_t turn = agreements_ = std::max(agreements_, monitor_->agreements()) + 1;
  Offer &own = host_->control(rank_).offers[turn % 2];
  store(own.called, called);
  if (blocks) tell(host_->told_by(rank_, turn), n_ranks_, called.signature, *blocks);
  found.inputs = prepared && !blocks && tell_input(*prepared, called);
  found.reads = messages_ && messages_->reads_memory();
  if (prepared && prepared->scratch && !found.inputs && !shares_) shares_ = host_->take_scratch();
  const uint64_t told = uint64_t{shares_} << 3 | uint64_t{found.reads} << 2 | uint64_t{found.inputs} << 1 | copied;
  own.turn.store(turn << 4 | told, std::memory_order_release);
  for (int r = 0; r < n_ranks_; ++r) {
    const Offer &offer = offer_of(r, turn, start, called);
    const uint64_t there = offer.turn.load(std::memory_order_relaxed);
    const Called other = hccc::load(offer.called);
    if (other.signature != called.signature) {
      monitor_->refuse(called.number);
      throw Error(hcccInvalidUsage, "");
    }
    found.copied |= there & 1, found.inputs &= there >> 1 & 1, found.reads &= there >> 2 & 1;
    found.out_of_place |= !other.in_place;
    host_->share_scratch(r, there >> 3 & 1);
    if (!blocks) continue;
    const size_t each = told_words(n_ranks_);
    const int64_t *its = host_->told_by(r, turn);
    std::copy(its, its + each, &found.told[each * static_cast<size_t>(r)]);
  }
  return found;
}

// Returns whether the packets of a call say which call it is, so that ranks need not agree on it before. All
// ranks that make this call decide alike, whether it is in place or not. One that makes another is told of by
// the packets, or, where it waits for something else, by the monitor: nobody ends a call that some rank
// does not make, for each output depends on the inputs of all ranks (but where somebody's own demand says else).
bool Communicator::packets_say(const Prepared &prepared, const Wanted &wanted, const Settings &settings) const {
  if (network_ || host_->device_memory() || prepared.scratch || !wanted.count) return false;
  const hccc_library &library = prepared.library->description();
  if (!strcmp(library.collective, "custom")) return false;
  const int size = bytes_of_type(wanted.type);
  const hccc_call call = call_of(wanted.count, prepared.in_place(), settings.micro_batch_bytes);
  const hccc_range *range = hccc_range_of(library.catalogue, &call, size);
  return range && library.catalogue->shapes[range->plan]->packets && serves_both(*library.catalogue, call, size);
}

// Waits until a rank of this host has made the offer of a turn, and returns it. It stays until this rank has
// made the offer of the next turn.
const Offer &Communicator::offer_of(int rank, uint64_t turn, unsigned long long start, const Called &called) {
  const Offer &offer = host_->control(rank).offers[turn % 2];
  hccc_backoff backoff = {oversubscribed_, 0};
  while (offer.turn.load(std::memory_order_acquire) >> 4 < turn) {
    if (__atomic_load_n(&failure_.fault()->claimed, __ATOMIC_ACQUIRE)) throw_reason(called);
    hccc_back_off(backoff);
    const unsigned long long waited = hccc_clock() - start;
    if (gpu_ && timeout_ > 0 && static_cast<double>(waited) > timeout_ * 1e9) fail_late(called);
    hccc_sleep_for_part(waited);
  }
  return offer;
}

// Tells the other ranks this one's input, if the call is short. All ranks decide alike, unless their
// environments differ.
bool Communicator::tell_input(const Prepared &prepared, const Called &called) const {
  const size_t size = static_cast<size_t>(bytes_of_type(called.type)), all = static_cast<size_t>(called.count);
  const auto most = static_cast<size_t>(most_blocks(prepared.library->description()));
  if (!short_calls_ || all > MOST_SHORT_BYTES || !short_calls_->tells(all * size * most)) return false;
  ToldInput &told = host_->told_input(rank_, agreements_);
  told.scalar = scalar_.bits;
  if (scalar_.at) memcpy(&told.scalar, scalar_.at, std::min(size, sizeof told.scalar));
  if (prepared.buffers.send) memcpy(told.input, prepared.buffers.send, prepared.buffers.send_bytes);
  return true;
}

// Makes a call whose inputs all ranks have told. False: its plan is too much work for one rank.
bool Communicator::perform_short(const Prepared &prepared, const Agreed &agreed, const Called &called) {
  const hccc_library &library = prepared.library->description();
  const int size = bytes_of_type(called.type);
  hccc_call call = call_of(static_cast<size_t>(called.count), !agreed.out_of_place, micro_batch_bytes_);
  call.window = window_;
  if (!short_calls_->begin(*prepared.library, call, size)) return false;
  const size_t block = static_cast<size_t>(called.count) * static_cast<size_t>(size);
  for (int r = 0; r < n_ranks_; ++r) {
    const int part = (r - turn_ + n_ranks_) % n_ranks_;  // as role() of this rank
    const ToldInput &told = host_->told_input(r, agreements_);
    memcpy(short_calls_->input(part), told.input, static_cast<size_t>(library.input_blocks(part)) * block);
    short_calls_->set_scalar(part, told.scalar);
  }
  HCCC_LOG(INFO, COLL, rank_, "%s: each rank does it for all", library.name);
  const char *type = name_of_type(called.type), *op = name_of_op(std::max(0, called.op));
  const int status = short_calls_->run(type, op);
  if (status != HCCC_OK) fail(hcccInternalError, text_of("%s: launch returned %d", library.name, status));
  if (prepared.buffers.receive)
    memcpy(prepared.buffers.receive, short_calls_->output(role(turn_)), prepared.buffers.receive_bytes);
  return true;
}

void Communicator::perform(const Prepared &prepared, const Agreed &agreed, const Called &called, void *stream) {
  const hccc_library &library = prepared.library->description();
  const bool copies = library.touches_peers;
  const auto reaches = [&](const char *at, size_t bytes) { return !copies || this->reaches(at, bytes); };
  const size_t size = static_cast<size_t>(bytes_of_type(called.type)), all = static_cast<size_t>(called.count);
  if (prepared.packets) {
    const Buffers used = prepared.apart ? staging_.apart(host_->heap(), prepared.buffers) : prepared.buffers;
    return run(*prepared.library, called, {used, nullptr}, 0, all, nullptr);
  }
  const int most = most_blocks(library);
  size_t step = all;
  if (all * static_cast<size_t>(most) * size > SLICE_BYTES && !network_ && !gpu_ && agreed.copied)
    step = slice_of(size, most);
  bool apart = prepared.apart;
  if (called.in_place && agreed.out_of_place)
    for (const size_t count : {step, all % step})
      if (count && !serves_both(*library.catalogue, call_of(count, true, micro_batch_bytes_), static_cast<int>(size)))
        apart = true;
  Buffers buffers = prepared.buffers;
  if (apart)
    buffers = gpu_ ? gpu_->apart(buffers, static_cast<hcccrtStream_t>(stream)) : staging_.apart(host_->heap(), buffers);
  if (copies && (!reaches(buffers.send, buffers.send_bytes) || !reaches(buffers.receive, buffers.receive_bytes)))
    HCCC_LOG(INFO, MEM, rank_, "%s: buffers are not of hcccMemAlloc: they are copied", library.name);
  if (gpu_) return launch(*prepared.library, called, buffers, reaches, stream);
  for (size_t at = 0; at < all; at += step) {
    const size_t count = std::min(step, all - at);
    const Cut cut = {at * size, count * size, all * size, library.input_blocks(role(turn_)),
                     library.output_blocks(role(turn_))};
    const Staged staged = staging_.before(host_->heap(), buffers, cut, reaches);
    if (copies && host_->device_memory()) share_with_peers(staged.used, called);
    run(*prepared.library, called, staged, at, count, nullptr);
    staging_.after(staged, cut);
  }
}

// Runs elements [at, at + count) of a call.
void Communicator::run(const Library &library, const Called &called, const Staged &staged, size_t at,
                       size_t count, void *stream, const long long *blocks) {
  const hccc_library &of = library.description();
  if (network_) network_->wake();
  const hccc_local local = {const_cast<char *>(staged.used.send), staged.used.receive,
                            network_ ? network_->proxy_ring() : nullptr, scalar_.bits, scalar_.at};
  hccc_call call = call_of(count, staged.used.in_place, micro_batch_bytes_);
  // On the CPU the monitor ends a call at its deadline. A kernel of a GPU does that itself, for the host
  // does not see when it begins to run. A graph launches it again, and nobody waits before that.
  if (gpu_) {
    const bool captured = gpu_->captures(static_cast<hcccrtStream_t>(stream));
    call.deadline_s = std::max(timeout_ - (captured ? 0 : static_cast<double>(waited_) * 1e-9), 0.01 * timeout_);
  }
  call.window = window_, call.blocks = blocks;
  call.first_rank = role(turn_), call.n_local = 1, call.local = &local;
  const int size = bytes_of_type(called.type);
  const bool both = packets_ || serves_both(*of.catalogue, call, size);
  call.signature = launch_signature(called, at, both, call.in_place != 0);
  call.again = again_;
  const double bytes = double(std::max(staged.used.send_bytes, staged.used.receive_bytes));
  call.workers = bytes <= SMALL_CALL ? 1 : workers_;
  call.oversubscribed = oversubscribed_;
  const long long scratch = packets_ ? 0 : hccc_scratch_of(of.catalogue, &call, size);
  if (scratch < 0 || scratch > host_->most_scratch_bytes())
    fail(hcccInvalidUsage, text_of("%s: no plan for so many elements", of.name));
  host_->map_scratch(static_cast<size_t>(scratch));
  const hccc_rank *ranks = host_->ranks();
  if (turn_) {
    turned_.resize(static_cast<size_t>(n_ranks_));
    std::vector<hccc_rank> &turned = turned_[static_cast<size_t>(turn_)];
    turned.resize(static_cast<size_t>(n_ranks_));
    for (int r = 0; r < n_ranks_; ++r) turned[static_cast<size_t>(r)] = ranks[(r + turn_) % n_ranks_];
    ranks = turned.data();
  }
  const hccc_comm comm = {sizeof(hccc_comm), HCCC_ABI, sizeof(hccc_rank), n_ranks_, ranks,
                          gpu_ ? gpu_->fault_of_device() : failure_.fault(), library.flags_at(turn_)};
  const int status = of.launch(&comm, &call, name_of_type(called.type), name_of_op(std::max(0, called.op)), stream);
  if (status == HCCC_TIMEOUT) throw_reason(called);
  if (status == HCCC_TOO_LARGE && gpu_)
    fail(hcccInvalidUsage, text_of("%s: its thread blocks do not fit on the device at once", of.name));
  if (status == HCCC_DEVICE)
    fail(hcccUnhandledDeviceError, text_of("%s: the device refused to launch", of.name));
  if (status != HCCC_OK) fail(hcccInternalError, text_of("%s: launch returned %d", of.name, status));
}

// Fails a call that other ranks may have begun already.
void Communicator::fail(hcccResult_t code, const std::string &text) {
  if (failure_.set(code, text)) monitor_->notify(code, text_of("rank %d: ", rank_) + text);
  throw Error(code, text);
}

void Communicator::check(const Message &message) const {
  check_not_lost();
  check_message(message, n_ranks_);
  if (!messages_)
    throw Error(hcccInvalidUsage, text_of("sends and receives of memory of %s are not there yet: HCCC_HEAP=host",
                                          host_->device_memory()->device().name()));
  if (message.peer >= 0 && host_->of_device(message.peer))
    throw Error(hcccInvalidUsage, text_of("rank %d has memory of a device: sends and receives of it are not there yet",
                                          message.peer));
  const size_t bytes = message.count * static_cast<size_t>(bytes_of_type(message.type));
  if (bytes > SLOT_BYTES) reaches(message.at, bytes);  // of short messages nobody else touches the buffer
}

void Communicator::begin(Exchange &exchange) {
  check_not_lost();
  messages_->check_own(exchange.messages, exchange.n);
  messages_->begin(exchange);
}

// Returns whether a rank waits in a call that this one comes to after its sends and receives.
bool Communicator::is_ahead(int rank) const {
  if (touching_.load(std::memory_order_acquire)) return false;  // these are a collective's
  return is_to_be_told() || monitor_->ahead(rank, std::max(called_by(host_->control(rank_)).number, monitor_->settled()));
}

bool Communicator::is_to_be_told() const {
  return failure_.has_refusal() || (failure_.refused() && called_by(host_->control(rank_)).number >= monitor_->refused());
}

// Refuses the next call of this rank, which is to it a send or receive that waits for a rank in another call.
void Communicator::refuse(const Message &message, double timeout_s) {
  std::optional<Running> running;
  {
    std::lock_guard<std::mutex> lock(refusing_);
    monitor_->tell_withdrawn(messages_->take_withdrawn());
    if (!is_to_be_told()) {
      const Touching touching(touching_);
      Called called = called_of(message, next_number());
      called.signature = mixed(called.number, signature_of(SEND));  // of all messages
      publish(called);
      HCCC_LOG(INFO, COLL, rank_, "%s: a rank that it waits for is in another call", description(called).c_str());
      running.emplace(*monitor_, called.number, timeout_s);
      monitor_->refuse(called.number);
    }
    messages_->have_told_withdrawn();
  }
  tell_refusal(timeout_s);
  throw RefusedCall(failure_.last_refusal());  // another thread has asked for the text
}

void Communicator::complete(Exchange &exchange) {
  std::shared_lock<std::shared_mutex> lock(calling_);
  const Asking asking(*monitor_, exchanging_, network_ != nullptr);
  try {
    messages_->complete(exchange, [&] { return monitor_->describe_silent(exchange.timeout_s); });
    if (exchange.withdrawn) refuse(messages_->refused(), exchange.timeout_s);
  } catch (const RefusedCall &) {
    throw;
  } catch (const Error &error) {  // other ranks wait for this one; the text names both ends
    abort(error.code, error.what());
    messages_->cancel();
    throw;
  } catch (const std::bad_alloc &) {
    if (failure_.set(hcccSystemError, "no memory")) monitor_->notify(hcccSystemError, text_of("rank %d: no memory", rank_));
    messages_->cancel();
    throw Error(hcccSystemError, "no memory");
  }
}

// Sends and receives what is part of a collective.
void Communicator::make(Exchange &exchange) {
  try {
    messages_->begin(exchange);
    messages_->complete(exchange, [this] { return monitor_->describe_silent(timeout_); });
  } catch (const Error &error) {  // other ranks wait for this one
    messages_->cancel();
    if (failure_.code() != hcccSuccess) throw;
    fail(error.code, error.what());
  } catch (const std::bad_alloc &) {
    messages_->cancel();
    fail(hcccSystemError, "no memory");
  }
}

// Returns why a launch was lost: by a wait of this rank, or by another rank's failure.
Error Communicator::reason_of(const Called &called) {
  if (failure_.refused()) return Error(hcccInvalidUsage, "");  // tell_refusal() has the text
  hccc_fault fault = failure_.place();
  const bool placed = fault.claimed == 1;
  fault.rank = (fault.rank + turn_) % n_ranks_;  // its ranks are the plan's
  if (failure_.code() == hcccSuccess && placed) {
    const bool other = fault.kind == HCCC_OTHER_CALL;
    const bool late = fault.kind == HCCC_WAIT_PACKET ||
                      (fault.kind >= HCCC_WAIT_FLAG && fault.kind <= HCCC_WAIT_PROXY);
    std::string text = description(called) + ": ";
    if (late) text += text_of("timed out after %g s: ", timeout_);
    const std::string who = late ? monitor_->describe_late(called) : "";
    if (!who.empty()) text += who + "; ";
    text += description(fault);
    if (late) text += describe_mapping();
    if (other) {
      monitor_->refuse(called.number);
      return Error(hcccInvalidUsage, "");
    }
    const hcccResult_t code = late ? hcccTimeout : hcccInternalError;
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
  if (vendor_) vendor_->abort();
}

}  // namespace hccc
