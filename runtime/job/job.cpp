// job.cpp: a job that a communicator has loaded: its schedules, and calls of its lanes.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "../communicator/arguments.h"
#include "../communicator/device_layer.h"
#include "batches.h"
#include "include/hccc_job.h"
#include "joined.h"
#include "lanes.h"
#include "libraries_first.h"
#include "saved.h"
#include "schedule.h"

namespace hccc::job {
namespace {

constexpr int64_t SHORT_BYTES = int64_t{1} << 16;  // of calls that take less than waking threads of lanes does

double seconds_now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Returns bits of HCCC_VENDOR_ALL_REDUCE and so on: the calls of its library that a rank's steps may become.
uint32_t calls_of(const SavedJob &job) {
  constexpr auto bit = [](int call) { return 1u << call; };
  uint32_t found = 0;
  for (const Step &step : job.steps) switch (step.op) {
      case Op::REDUCE: found |= bit(HCCC_VENDOR_REDUCE) | bit(HCCC_VENDOR_REDUCE_SCATTER); break;
      case Op::BROADCAST: found |= bit(HCCC_VENDOR_BROADCAST) | bit(HCCC_VENDOR_ALL_GATHER); break;
      case Op::ALL_GATHER: found |= bit(HCCC_VENDOR_ALL_GATHER); break;
      case Op::GATHER:
      case Op::SCATTER:
      case Op::SEND: found |= bit(HCCC_VENDOR_SEND); break;
      default: break;
    }
  return found;
}

// Returns what steps do of a call's reduction: an average is divided after them, what premul_sum multiplies before.
hcccRedOp_t reduction_of(const Wanted &wanted) {
  const bool adds = wanted.op == hcccAvg || wanted.op == hcccPreMulSum;
  return adds ? hcccSum : static_cast<hcccRedOp_t>(wanted.op);
}

std::vector<std::string> texts_of(const SavedJob &job) {
  std::vector<std::string> found;
  for (const Step &step : job.steps) found.push_back(step.text());
  return found;
}

}  // namespace

// Memory that grows with calls.
class Room {
 public:
  ~Room() { free(); }
  char *provided(size_t bytes, const Device &device) {
    if (bytes <= bytes_) return static_cast<char *>(at_);
    free();
    const MemoryOn there(device);
    must(hcccMemAlloc(&at_, bytes));
    bytes_ = bytes;
    return static_cast<char *>(at_);
  }
  void forget() { at_ = nullptr; }

 private:
  void free() {
    bytes_ = 0;
    if (at_) hcccMemFree(std::exchange(at_, nullptr));
  }

  void *at_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hccc::job

struct hccc_job final : hccc::Job {
  hccc_job(hccc::job::SavedJob &&saved, int rank, const hccc_job_given &given, bool messages,
           const std::pair<std::shared_ptr<hccc::job::Joined>, hccc::job::Able> &with)
      : of(std::move(saved)),
        joined(with.first),
        rank_(rank),
        ordered_(given.ordered),
        messages_(messages),
        by_library_(given.by_library),
        clock_(given.clock ? given.clock : hccc::job::seconds_now),
        able_(with.second),
        lanes_(std::make_shared<hccc::job::Lanes>(*joined, hccc::job::texts_of(of))),
        libraries_(of),
        batches_(of.micro_batches, of.steps.size()) {}

  ~hccc_job() override {
    const bool left_behind = lanes_->left_behind();
    lanes_->end();
    for (std::thread &one : threads_) left_behind ? one.detach() : one.join();
    if (!left_behind) return;
    joined->forget();  // a thread of the library may use them until the process ends
    scratch_.forget(), scaled_.forget(), arrived_.forget(), arrived_there_.forget();
  }

  const char *name() const override { return of.name.c_str(); }

  bool does(const hccc::Wanted &wanted) const override {
    if (wanted.library) return of.name == wanted.library;
    if (strcmp(wanted.collective, of.collective.name())) return false;
    return !of.collective.rooted() || wanted.root < 0 || wanted.root == of.collective.root();
  }

  void check(const hccc::Wanted &wanted) const override { buffers(wanted); }
  void make(const hccc::Wanted &wanted, double timeout_s) override;

  void stop(hcccResult_t code, const std::string &text) override { lanes_->stop(code, text); }

  // Returns the bytes of a call's largest buffer.
  int64_t bytes(size_t count, size_t size) const {
    return static_cast<int64_t>(count * size) * of.collective.most_blocks();
  }
  const hccc::job::Batches &batches() const { return batches_; }
  unsigned long long sent() const { return lanes_->sent(); }

  const hccc::job::SavedJob of;
  const std::shared_ptr<hccc::job::Joined> joined;
  std::string error;

 private:
  // Count, micro-batches, whether it is in place, whether it is an ordered list, whose libraries reduce at borders, and an
  // uneven call's blocks.
  using Key = std::tuple<int64_t, int, bool, bool, std::vector<bool>, std::vector<long long>>;
  std::shared_ptr<const hccc::job::Schedule> schedule(const Key &key);
  hccc::Buffers buffers(const hccc::Wanted &wanted) const;
  void note_blocks(const std::vector<long long> &blocks) const;
  hccc::job::AllBlocks told(const hccc::Wanted &wanted) const;
  const char *scaled(const hccc::Buffers &given, const hccc::Wanted &wanted, size_t size);
  const hccc::job::DeviceCombine *on_device(hcccDataType_t type, hcccRedOp_t op);
  const std::vector<bool> &reducers(hcccDataType_t type, hcccRedOp_t op);
  bool reduces_at_border() const;
  void follow(hcccrtStream_t stream, double timeout) const;
  void divide(char *receive, const hccc::job::Call &call, int n) const;
  std::vector<double> gathered(const std::vector<double> &own) const;

  static constexpr size_t KEPT = 64;  // schedules
  const int rank_;
  const bool ordered_, messages_, by_library_;
  double (*const clock_)(void);
  const hccc::job::Able able_;
  const std::shared_ptr<hccc::job::Lanes> lanes_;
  hccc::job::LibrariesFirst libraries_;
  hccc::job::Batches batches_;
  std::list<std::pair<Key, std::shared_ptr<const hccc::job::Schedule>>> schedules_;  // the last used first
  std::vector<std::thread> threads_;
  hccc::job::Room scratch_, scaled_, arrived_, arrived_there_;  // the last on the device
  hccc::job::DeviceCombines combines_;
  std::map<std::pair<int, int>, std::vector<bool>> reducers_;  // of a type and a reduction
};

std::shared_ptr<const hccc::job::Schedule> hccc_job::schedule(const Key &key) {
  const auto found = std::find_if(schedules_.begin(), schedules_.end(), [&](const auto &one) { return one.first == key; });
  if (found != schedules_.end()) {
    schedules_.splice(schedules_.begin(), schedules_, found);
  } else {
    const auto &[count, batches, in_place, ordered, by_library, blocks] = key;
    note_blocks(blocks);
    schedules_.emplace_front(
        key, hccc::job::schedule_of(of, rank_, {count, batches, in_place, ordered, messages_, blocks, by_library}));
    if (schedules_.size() > KEPT) schedules_.pop_back();
  }
  return schedules_.front().second;
}

// Says what is made in place of a call that no library has.
void hccc_job::note_blocks(const std::vector<long long> &blocks) const {
  using namespace hccc::job;
  const int own = of.cluster_of[static_cast<size_t>(rank_)];
  const auto gathers = [&](const Step &step) { return step.op == Op::ALL_GATHER && step.src == own; };
  if (blocks.empty() || !joined->comm || std::none_of(of.steps.begin(), of.steps.end(), gathers)) return;
  const std::vector<int> &ranks = of.clusters[static_cast<size_t>(own)].ranks;
  long long longest = 0, sum = 0;
  bool alike = true;
  for (const int rank : ranks) {
    const long long length = blocks[static_cast<size_t>(rank)];
    longest = std::max(longest, length), sum += length, alike = alike && length == blocks[static_cast<size_t>(ranks[0])];
  }
  if (alike) return;
  HCCC_LOG(INFO, COLL, rank_, "%s has no AllGather of blocks of several lengths: %s", joined->vendor->name,
           is_padded(longest, sum, ranks.size()) ? "hccc gathers the longest, and copies" : "a Broadcast of each");
}

const hccc::job::DeviceCombine *hccc_job::on_device(hcccDataType_t type, hcccRedOp_t op) {
  return combines_.of(*joined->device, type, op, [&] { return joined->border->of.failure().code() != hcccSuccess; });
}

// Returns whether this rank's pieces of a part are reduced when they come over a border.
bool hccc_job::reduces_at_border() const {
  const int own = of.cluster_of[static_cast<size_t>(rank_)];
  const std::vector<int> &border = of.clusters[static_cast<size_t>(own)].border;
  const auto arrives = [&](const hccc::job::Step &step) { return step.op == hccc::job::Op::REDUCE_OVER && step.dst == own; };
  return std::count(border.begin(), border.end(), rank_) && std::any_of(of.steps.begin(), of.steps.end(), arrives);
}

// Returns of each vendor cluster whether its library reduces what comes over a border: where hccc has no kernel for it,
// or that is asked for. All ranks agree on it in the first call of a type and a reduction. Throws Error.
const std::vector<bool> &hccc_job::reducers(hcccDataType_t type, hcccRedOp_t op) {
  using namespace hccc::job;
  const auto [at, is_new] = reducers_.try_emplace({type, op});
  if (!is_new) return at->second;
  Reduces own;
  const bool reduces = reduces_at_border(), has = !reduces || !joined->device || on_device(type, op);
  own.by_hccc = has && !by_library_;
  const bool vendors = by_library_ || strcmp(joined->vendor->engine, OWN);  // hccc's own has what hccc has
  own.by_library = joined->comm && vendors && joined->vendor->can(HCCC_VENDOR_REDUCE, type, op);
  if (able_.agrees) {
    const std::vector<double> all = gathered({own.by_hccc, own.by_library});
    std::vector<Reduces> of_ranks;
    for (size_t k = 0; k < all.size(); k += 2) of_ranks.push_back({all[k], all[k + 1]});
    at->second = libraries_that_reduce(of, of_ranks);
  }
  const bool library = !at->second.empty() && at->second[static_cast<size_t>(of.cluster_of[static_cast<size_t>(rank_)])];
  if (library) joined->make_pairs();
  std::string who = library ? joined->vendor->name : joined->device && has ? "the device" : "the host";
  if (by_library_ && library) who += ", as is asked";
  else if (!has) who += ", as no kernel does it: " + combines_.why(type, op);
  else if (library) who += ", as other ranks have no kernel";
  if (reduces)
    HCCC_LOG(INFO, COLL, rank_, "%s of %s at borders: by %s", hccc::name_of_op(op), hccc::name_of_type(type), who.c_str());
  return at->second;
}

// Returns when a stream has done what was put into it before a call.
void hccc_job::follow(hcccrtStream_t stream, double timeout) const {
  const hccc::TimeLeft left(timeout);
  const auto go_on = [&] {
    if (left.over()) throw hccc::Error(hcccTimeout, hccc::text_of("the stream is not done after %g s", timeout));
    return !lanes_->failed() && joined->border->of.failure().code() == hcccSuccess;
  };
  const auto check = [&](bool captured) {
    if (captured) throw hccc::Error(hcccInvalidUsage, "a job returns when it is done: no graph captures its calls");
  };
  if (!joined->device) {
    if (!stream) return;
    check(hccc::device_layer::captures(stream));
    return hccc::device_layer::wait(stream, [&] {
      if (!go_on()) throw hccc::Error(hcccAborted, "the call has failed");
    });
  }
  hcccrtStreamCaptureStatus_t status = hcccrtStreamCaptureStatusNone;
  if (hcccrtStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, nullptr, nullptr)) hcccrtGetLastError();
  check(status != hcccrtStreamCaptureStatusNone);
  hccc::job::Pieces::wait(stream, go_on);
}

// Divides a receive buffer by n, as an average does at its end.
void hccc_job::divide(char *receive, const hccc::job::Call &call, int n) const {
  const hccc::job::Divide by = hccc::job::divide_of(call.type);
  const auto count = static_cast<size_t>(call.schedule->output);
  if (!joined->device) return by(receive, count, n);
  const hccc::job::MemoryOn here{hccc::Device()};
  hccc::job::Pieces pieces;
  const auto go_on = [] { return true; };
  if (call.on_device) {
    if (call.on_device->divide(receive, count, n, pieces.stream()))
      throw hccc::Error(hcccUnhandledDeviceError, "the device refuses a division");
    return hccc::job::Pieces::wait(pieces.stream(), go_on);
  }
  const auto use = [&](char *host, size_t, size_t bytes) { by(host, bytes / call.size, n); };
  pieces.each(receive, receive, count * call.size, use, go_on);
}

// Returns a call's buffers after checks of all that it says. Throws Error.
hccc::Buffers hccc_job::buffers(const hccc::Wanted &wanted) const {
  using namespace hccc::job;
  if (lanes_->failed()) throw hccc::Error(lanes_->code(), lanes_->text());
  able_.check(static_cast<hcccDataType_t>(wanted.type), reduction_of(wanted), combine_of(wanted.type, wanted.op) != nullptr);
  const Collective &c = of.collective;
  if (!wanted.blocks)
    return hccc::buffers_of(wanted, c.name(), c.input_blocks(rank_), c.output_blocks(rank_), rank_);
  hccc::Buffers given = hccc::buffers_of_blocks(wanted);
  const int size = hccc::bytes_of_type(wanted.type);
  given.in_place = hccc::overlaps_in_place(*wanted.blocks, given.send, given.receive, size, rank_);
  return given;
}

// Returns the blocks of all ranks of an uneven call. Throws Error, at every rank.
hccc::job::AllBlocks hccc_job::told(const hccc::Wanted &wanted) const {
  try {
    const auto signature = static_cast<uint64_t>(wanted.type) << 32 | static_cast<uint32_t>(wanted.op);
    return hccc::job::told_blocks(joined->border, of.collective, signature, *wanted.blocks);
  } catch (const hccc::RefusedCall &) {
    throw;
  } catch (const hccc::Error &error) {
    lanes_->stop(error.code, hccc::text_of("rank %d, telling lengths of blocks: ", rank_) + error.what());
    throw hccc::Error(lanes_->code(), lanes_->text());
  }
}

// Returns this rank's input, multiplied as premul_sum asks.
const char *hccc_job::scaled(const hccc::Buffers &given, const hccc::Wanted &wanted, size_t size) {
  using namespace hccc::job;
  const Scale by = scale_of(wanted.type);
  unsigned long long bits = wanted.scalar.bits;
  char *const to = scaled_.provided(given.send_bytes, joined->device.value_or(hccc::Device()));
  if (!joined->device) {
    if (wanted.scalar.at) memcpy(&bits, wanted.scalar.at, std::min(size, sizeof bits));
    by(to, given.send, given.send_bytes / size, bits);
    return to;
  }
  const MemoryOn here{hccc::Device()};
  Pieces pieces;
  const auto go_on = [] { return true; };
  if (wanted.scalar.at) {
    hccc::check_device(hcccrtMemcpyAsync(&bits, wanted.scalar.at, size, hcccrtMemcpyDefault, pieces.stream()), "copying a scalar");
    Pieces::wait(pieces.stream(), go_on);
  }
  pieces.each(to, given.send, given.send_bytes,
              [&](char *host, size_t, size_t bytes) { by(host, host, bytes / size, bits); }, go_on);
  return to;
}

std::vector<double> hccc_job::gathered(const std::vector<double> &own) const {
  std::vector<double> all(own.size() * static_cast<size_t>(of.collective.n_ranks()));
  std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(own.size() * static_cast<size_t>(rank_)));
  hccc::job::must(hcccCommGatherBytes(joined->border, all.data(), own.size() * sizeof(double)));
  return all;
}

void hccc_job::make(const hccc::Wanted &wanted, double timeout) {
  using namespace hccc::job;
  const hccc::Buffers given = buffers(wanted);
  const bool multiplies = wanted.op == hcccPreMulSum, averages = wanted.op == hcccAvg;
  Call call;
  call.type = static_cast<hcccDataType_t>(wanted.type), call.op = reduction_of(wanted);
  call.combine = combine_of(wanted.type, wanted.op);
  call.size = static_cast<size_t>(hccc::bytes_of_type(wanted.type));
  joined->set_timeout(timeout > 0 ? timeout + LATER_S : 0);
  AllBlocks blocks = {{}, wanted.count};
  if (wanted.blocks) blocks = told(wanted);
  const int64_t largest = bytes(blocks.longest, call.size);
  std::optional<hccc::OnDevice> there;
  if (joined->device) there.emplace(*joined->device);
  std::vector<bool> by_library;
  if (able_.reduces) try {
      by_library = reducers(call.type, call.op);
    } catch (const hccc::Error &error) {
      lanes_->stop(error.code, error.what());
      throw;
    }
  call.pairs = joined->pairs;
  const int batches = batches_.next(largest);
  const bool ordered = ordered_ || (batches == 1 && largest <= SHORT_BYTES);
  const bool in_place = given.in_place && !multiplies;
  call.schedule = schedule({static_cast<int64_t>(blocks.longest), batches, in_place, ordered, by_library, blocks.words});
  const double begun = clock_();
  const auto length = [&](int64_t elements) { return static_cast<size_t>(elements) * call.size; };
  call.buffers[HCCC_JOB_INPUT] = const_cast<char *>(given.send);
  call.buffers[HCCC_JOB_OUTPUT] = given.receive;
  call.buffers[HCCC_JOB_SCRATCH] = scratch_.provided(length(call.schedule->scratch), joined->device.value_or(hccc::Device()));
  const bool divides = averages && call.schedule->output;
  if (joined->device && (call.schedule->arrived || divides)) call.on_device = on_device(call.type, call.op);
  const bool library = !by_library.empty() && by_library[static_cast<size_t>(of.cluster_of[static_cast<size_t>(rank_)])];
  call.arrives_there = joined->device && (library || call.on_device);
  hccc::job::Room &arrived = call.arrives_there ? arrived_there_ : arrived_;
  call.buffers[HCCC_JOB_ARRIVED] = arrived.provided(length(call.schedule->arrived),
                                                    call.arrives_there ? *joined->device : hccc::Device());
  follow(static_cast<hcccrtStream_t>(wanted.stream), timeout);
  if (multiplies) call.buffers[HCCC_JOB_INPUT] = const_cast<char *>(scaled(given, wanted, call.size));
  while (threads_.size() + 1 < call.schedule->lane_begin.size())
    threads_.push_back(Lanes::started(lanes_, threads_.size()));
  try {
    libraries_.make(call, blocks, batches, *joined);
  } catch (const hccc::RefusedCall &) {
    throw;
  } catch (const hccc::Error &error) {
    lanes_->stop(error.code, error.what());
    throw;
  }
  if (!lanes_->run(call, timeout)) throw hccc::Error(lanes_->code(), lanes_->text());
  if (divides) divide(given.receive, call, of.collective.n_ranks());
  batches_.took(largest, clock_() - begun, [this](const std::vector<double> &own) { return gathered(own); });
}

namespace hccc::job {
namespace {

template <class Body>
hcccResult_t caught(hccc_job *job, const Body &body) {
  return guarded(body, [&](hcccResult_t code, const std::string &text) {
    if (job) job->error = text;
    thread_error() = text;
    return code;
  });
}

// Reads a job for a communicator of so many ranks; null, and why, where that is none.
std::unique_ptr<SavedJob> read(const std::string &table, int n_ranks, std::string &why) {
  try {
    auto made = std::make_unique<SavedJob>(table);
    if (made->collective.n_ranks() == n_ranks) return made;
    why = text_of("it is of %d ranks, and the communicator has %d", made->collective.n_ranks(), n_ranks);
  } catch (const Error &error) {
    why = error.what();
  }
  return nullptr;
}

// A schedule that C holds.
struct OwnSchedule : hccc_job_schedule {
  explicit OwnSchedule(Schedule made) : hccc_job_schedule(), of(std::move(made)) {
    static_cast<hccc_job_schedule &>(*this) = of.view();
  }
  const Schedule of;
};

// Makes a job in a call's turn. Collective. Throws Error.
std::unique_ptr<hccc_job> made(hcccComm_t comm, const hccc_job_given &given, double timeout_s) {
  Brought brought;
  if (given.failed) brought.failed = given.failed;
  const std::unique_ptr<SavedJob> job = read({given.table, given.bytes}, comm->of.n_ranks(), brought.failed);
  brought.job = job.get(), brought.functions = given.functions, brought.library = given.library;
  const char *const named = given.vendor ? given.vendor : getenv("HCCC_VENDOR");
  brought.vendor = named && *named ? named : OWN;
  if (given.beside) brought.beside = given.beside->joined;
  brought.by_library = given.by_library;
  // Kernels of hccc's own send nothing of a device's memory to one rank.
  const bool messages = comm->of.device() && !given.functions && brought.vendor == OWN;
  if (job) brought.calls = calls_of(*job);
  if (messages) brought.calls &= ~(1u << HCCC_VENDOR_SEND);
  const auto with = joined(comm, brought, timeout_s);
  return std::make_unique<hccc_job>(std::move(*job), comm->of.rank(), given, messages, with);
}

}  // namespace
}  // namespace hccc::job

namespace hccc {

bool is_job(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string word;
  return std::getline(file, word, ' ') && word == "hccc" && std::getline(file, word, ' ') && word == "job";
}

std::shared_ptr<Job> load_job(hcccComm_t comm, const std::string &path, double timeout_s) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const std::string table = text.str();
  hccc_job_given given{};
  given.table = table.data(), given.bytes = table.size();
  return job::made(comm, given, timeout_s);
}

}  // namespace hccc

HCCC_API hcccResult_t hccc_job_make(hccc_job **made, hcccComm_t comm, const hccc_job_given *given) {
  return hccc::job::caught(nullptr, [&] {
    hccc::check(comm);
    if (hccc::group::open()) throw hccc::Error(hcccInvalidUsage, "a group is open: jobs are made before it, or after");
    comm->calls->run([&](const hccc::Settings &settings) {
      *made = hccc::job::made(comm, *given, settings.timeout_s).release();
    });
  });
}

HCCC_API hcccResult_t hccc_job_use(hcccComm_t comm, hccc_job *job) {
  return hccc::job::caught(nullptr, [&] {
    hccc::check(comm);
    comm->jobs.add(std::shared_ptr<hccc::Job>(job));
  });
}

HCCC_API hcccResult_t hccc_job_run(hccc_job *job, const void *send, void *receive, size_t count, hcccDataType_t type,
                                   hcccRedOp_t op, double timeout, void *stream) {
  return hccc::job::caught(job, [&] {
    hccc::Wanted wanted;
    wanted.collective = job->of.collective.name(), wanted.root = job->of.collective.root();
    wanted.send = send, wanted.receive = receive, wanted.count = count, wanted.type = type, wanted.op = op;
    wanted.stream = stream;
    job->make(wanted, timeout);
  });
}

HCCC_API int hccc_job_batches(const hccc_job *job, size_t count, size_t size) {
  return job->batches().found(job->bytes(count, size));
}

HCCC_API int hccc_job_trials_left(const hccc_job *job, size_t count, size_t size) {
  return job->batches().left(job->bytes(count, size));
}

HCCC_API const char *hccc_job_error(const hccc_job *job) { return job->error.c_str(); }

HCCC_API unsigned long long hccc_job_sent(const hccc_job *job) { return job->sent(); }

HCCC_API void hccc_job_end(hccc_job *job) { delete job; }

HCCC_API hcccResult_t hccc_job_schedule_make(hccc_job_schedule **made, const hccc_job_shape *of) {
  return hccc::job::caught(nullptr, [&] {
    const hccc::job::SavedJob job({of->table, of->bytes});
    if (of->rank < 0 || of->rank >= job.collective.n_ranks() || of->count < 0 || of->batches < 1)
      throw hccc::Error(hcccInvalidArgument, "no call of the job's is of this shape");
    std::vector<bool> by_library;
    if (of->by_library) by_library.assign(of->by_library, of->by_library + job.clusters.size());
    std::vector<long long> blocks;
    if (of->blocks) blocks.assign(of->blocks, of->blocks + hccc::job::words_of_blocks(job.collective));
    const auto schedule = hccc::job::schedule_of(
        job, of->rank, {of->count, of->batches, of->in_place != 0, of->ordered != 0, of->messages != 0, blocks, by_library});
    *made = new hccc::job::OwnSchedule(*schedule);
  });
}

HCCC_API void hccc_job_schedule_free(hccc_job_schedule *schedule) {
  delete static_cast<hccc::job::OwnSchedule *>(schedule);
}
