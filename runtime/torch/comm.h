// comm.h: the communicator of a group: hccc's calls, with errors as exceptions.
#pragma once

#include <string.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "library.h"
#include "types.h"

namespace hccc_torch {

using Milliseconds = std::chrono::milliseconds;

// Finds what of one's own a collective runs by, by its name, root (or -1), type and reduction (or -1): the
// files of libraries, or a job.
class __attribute__((visibility("hidden"))) Finder {
 public:
  explicit Finder(py::object function) : function_(std::move(function)) {}
  ~Finder() {
    const py::gil_scoped_acquire lock;
    function_ = py::object();
  }
  Finder(const Finder &) = delete;
  Finder &operator=(const Finder &) = delete;

  // How often libraries or jobs were added.
  static std::atomic<int> &additions() {
    static std::atomic<int> count{0};
    return count;
  }

  std::vector<std::string> operator()(const char *collective, int root, int type, int op) const {
    const py::gil_scoped_acquire lock;
    return function_(collective, root, type, op).cast<std::vector<std::string>>();
  }

  // A job's name, and the error of its call, or nothing.
  using ByJob = std::optional<std::pair<std::string, std::string>>;

  // Makes a call by a job, which the communicator loads at the first; nothing: none is there for it.
  ByJob by_job(hcccComm_t comm, int rank, const char *collective, int root, const void *send, void *receive,
               size_t count, int type, int op, double timeout, void *stream) const {
    const auto number = [](const void *at) { return reinterpret_cast<uintptr_t>(at); };
    const py::gil_scoped_acquire lock;
    return function_.attr("jobs")
        .attr("run")(number(comm), rank, collective, root, number(send), number(receive), count,
                     py::make_tuple(type, op), timeout, number(stream))
        .cast<ByJob>();
  }
  // Returns whether jobs make calls of the communicator. The first time it may be collective.
  bool has_jobs(hcccComm_t comm, int rank) const {
    const py::gil_scoped_acquire lock;
    return function_.attr("jobs").attr("any")(reinterpret_cast<uintptr_t>(comm), rank).cast<bool>();
  }
  // Ends the jobs of the communicator, which goes next.
  void end_jobs() const {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire lock;
    function_.attr("jobs").attr("end")();
  }

  // Makes that of a group of so many ranks which is split from this one.
  std::shared_ptr<Finder> of(int size) const {
    const py::gil_scoped_acquire lock;
    return std::make_shared<Finder>(function_.attr("of")(size));
  }
  // Makes that of the same group for a platform of GPUs.
  std::shared_ptr<Finder> on(const char *platform) const {
    const py::gil_scoped_acquire lock;
    return std::make_shared<Finder>(function_.attr("on")(platform));
  }

 private:
  py::object function_;
};

// A send or a receive.
struct Message {
  bool sends;
  void *data;
  size_t count;
  hcccDataType_t type;
  int peer = 0, tag = 0;
  hcccStatus_t *status = nullptr;  // of a receive: gets what came
  void (*done)(void *) = nullptr;  // is called with the next when it is done, in a thread that moves messages
  void *argument = nullptr;
};
constexpr int ANY_PEER = -1;

// One rank. A group of one rank has no communicator: its collectives copy.
class Comm {
 public:
  // device: of its memory.
  Comm(hcccComm_t comm, int rank, int size, std::shared_ptr<Finder> finder, at::Device device = at::kCPU)
      : comm_(comm), rank_(rank), size_(size), device_(device), finder_(std::move(finder)) {}
  ~Comm() { end(); }
  Comm(const Comm &) = delete;
  Comm &operator=(const Comm &) = delete;

  static hcccComm_t joined(const std::string &id, int rank, int size) {
    hcccUniqueId where;
    TORCH_CHECK(id.size() == sizeof where, "hccc: an id has ", sizeof where, " bytes");
    memcpy(&where, id.data(), sizeof where);
    hcccComm_t made = nullptr;
    const InMemory of_host("cpu");
    check(library().hcccCommInitRank(&made, size, where, rank));
    return made;
  }

  // Makes another communicator of the same ranks.
  static hcccComm_t beside(hcccComm_t comm, int rank) {
    hcccComm_t made = nullptr;
    if (comm) check(library().hcccCommSplit(comm, 0, rank, &made, nullptr));
    return made;
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::shared_ptr<Finder> &finder() const { return finder_; }
  const at::Device &device() const { return device_; }

  // Sets the stream of the next calls, where memory is a device's.
  void set_stream(void *stream) { stream_ = stream; }

  Milliseconds timeout() const { return timeout_; }
  void set_timeout(Milliseconds timeout) {
    if (size_ == 1 || timeout == timeout_) return;
    const double seconds = timeout.count() > 0 ? static_cast<double>(timeout.count()) / 1e3 : 0;
    check(library().hcccCommSetTimeout(handle(), seconds));
    timeout_ = timeout;
  }

  // The collectives. `count` is the elements of a block, as in hccc_runtime.h.
  void all_reduce(void *data, size_t count, const Reduction &by) {
    if (!count) return;
    if (size_ == 1) return reduce_alone(data, data, count, by);
    if (multiplies_before(by)) return all_reduce(multiplied(data, data, count, by), count, sum_of(by));
    if (runs("allreduce", -1, data, data, count, by.type, by.op)) return;
    const Op op(by, handle());
    check(library().hcccAllReduce(data, data, count, by.type, op.number, handle(), stream_));
  }
  void reduce(const void *send, void *receive, size_t count, const Reduction &by, int root) {
    if (!count) return;
    if (size_ == 1) return reduce_alone(send, receive, count, by);
    if (multiplies_before(by)) {
      const at::Tensor own = empty(count, by);
      return reduce(multiplied(send, own.data_ptr(), count, by), receive, count, sum_of(by), root);
    }
    if (runs("reduce", root, send, receive, count, by.type, by.op)) return;
    const Op op(by, handle());
    check(library().hcccReduce(send, receive, count, by.type, op.number, root, handle(), stream_));
  }
  void reduce_scatter(const void *send, void *receive, size_t count, const Reduction &by) {
    if (!count) return;
    if (size_ == 1) return reduce_alone(send, receive, count, by);
    if (multiplies_before(by)) {
      const size_t all = count * static_cast<size_t>(size_);
      const at::Tensor own = empty(all, by);
      return reduce_scatter(multiplied(send, own.data_ptr(), all, by), receive, count, sum_of(by));
    }
    if (runs("reducescatter", -1, send, receive, count, by.type, by.op)) return;
    const Op op(by, handle());
    check(library().hcccReduceScatter(send, receive, count, by.type, op.number, handle(), stream_));
  }
  void broadcast(void *data, size_t count, hcccDataType_t of, int root) {
    if (size_ == 1 || !count) return;
    if (runs("broadcast", root, data, data, count, of)) return;
    check(library().hcccBroadcast(data, data, count, of, root, handle(), stream_));
  }
  void all_gather(const void *send, void *receive, size_t count, hcccDataType_t of) {
    if (!count) return;
    if (size_ == 1) return copy(send, receive, count, of);
    if (runs("allgather", -1, send, receive, count, of)) return;
    check(library().hcccAllGather(send, receive, count, of, handle(), stream_));
  }
  void gather(const void *send, void *receive, size_t count, hcccDataType_t of, int root) {
    if (!count) return;
    if (size_ == 1) return copy(send, receive, count, of);
    if (runs("gather", root, send, receive, count, of)) return;
    check(library().hcccGather(send, receive, count, of, root, handle(), stream_));
  }
  void scatter(const void *send, void *receive, size_t count, hcccDataType_t of, int root) {
    if (!count) return;
    if (size_ == 1) return copy(send, receive, count, of);
    if (runs("scatter", root, send, receive, count, of)) return;
    check(library().hcccScatter(send, receive, count, of, root, handle(), stream_));
  }
  void all_to_all(const void *send, void *receive, size_t count, hcccDataType_t of) {
    if (!count) return;
    if (size_ == 1) return copy(send, receive, count, of);
    if (runs("alltoall", -1, send, receive, count, of)) return;
    check(library().hcccAllToAll(send, receive, count, of, handle(), stream_));
  }

  // The uneven ones. A block of each rank follows the one before; lengths are in elements, zero too.
  using Lengths = std::vector<size_t>;
  void all_gather_v(const void *send, void *receive, const Lengths &lengths, hcccDataType_t of) {
    const size_t own = lengths[static_cast<size_t>(rank_)];
    if (size_ == 1) return copy(send, receive, own, of);
    use("allgatherv", -1, of);
    check(library().hcccAllGatherv(send, own, receive, lengths.data(), nullptr, of, handle(), stream_));
  }
  void reduce_scatter_v(const void *send, void *receive, const Lengths &lengths, const Reduction &by) {
    if (size_ == 1) return reduce_alone(send, receive, lengths[0], by);
    use("reducescatterv", -1, by.type, by.op);
    const Op op(by, handle());
    check(library().hcccReduceScatterv(send, lengths.data(), nullptr, receive, by.type, op.number, handle(), stream_));
  }
  void all_to_all_v(const void *send, const Lengths &sent, void *receive, const Lengths &received, hcccDataType_t of) {
    if (size_ == 1) return copy(send, receive, sent[0], of);
    use("alltoallv", -1, of);
    check(library().hcccAllToAllv(send, sent.data(), nullptr, receive, received.data(), nullptr, of, handle(), stream_));
  }

  // Returns whether a library of one's own does a collective, at all ranks or at none.
  bool has(const char *collective, hcccDataType_t of) {
    if (size_ == 1) return true;
    use(collective, -1, of);
    const auto known = has_.find({collective, of});
    if (known != has_.end()) return known->second;
    std::string name = collective;
    name[0] = static_cast<char>(std::toupper(name[0]));
    hcccCan_t found = hcccCanNot;
    check(library().hcccCommCan(handle(), name.c_str(), -1, of, hcccSum, &found));
    return has_[{collective, of}] = found == hcccCanNow;
  }

  // Returns the number of the next exchange, when all before it have their place among the
  // communicator's calls, which is their order. One thread at a time may ask.
  uint64_t next_exchange() {
    while (placed_ < exchanges_ && calls() <= before_) std::this_thread::yield();
    before_ = calls();
    return ++exchanges_;
  }
  // Makes the exchange of a number.
  void exchange(const std::vector<Message> &messages, uint64_t number) {
    const struct Ended {
      ~Ended() {
        for (uint64_t seen = placed; seen < number && !placed.compare_exchange_weak(seen, number);) continue;
      }
      std::atomic<uint64_t> &placed;
      uint64_t number;
    } ended{placed_, number};
    exchange(messages);
  }
  // Makes sends and receives, which go on together, and with those of other threads.
  void exchange(const std::vector<Message> &messages) {
    if (messages.empty()) return;
    check(library().hcccGroupStart());
    for (const Message &one : messages) {
      library().hcccGroupNotify(one.done, one.argument);
      const hcccResult_t put =
          one.sends ? library().hcccSendTagged(one.data, one.count, one.type, one.peer, one.tag, handle(), nullptr)
                    : library().hcccRecvTagged(one.data, one.count, one.type, one.peer, one.tag, one.status,
                                               handle(), nullptr);
      if (put != hcccSuccess) break;  // the group's end returns the error
    }
    check(library().hcccGroupEnd());
  }

  // Makes the communicator of some of the ranks; null where color is none.
  hcccComm_t split(int color, int key) {
    hcccComm_t made = nullptr;
    if (size_ > 1) check(library().hcccCommSplit(handle(), color, key, &made, nullptr));
    return made;
  }

  c10d::ErrorType error() const {
    const hcccComm_t comm = comm_;
    hcccResult_t found = hcccSuccess;
    if (comm) check(library().hcccCommGetAsyncError(comm, &found));
    if (found == hcccSuccess) return c10d::ErrorType::SUCCESS;
    if (found == hcccTimeout) return c10d::ErrorType::TIMEOUT;
    return found == hcccRemoteError ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
  }

  // Throws DistBackendError where the communicator is lost, or a call was refused that nobody was told of.
  void check_async() const {
    const hcccComm_t comm = comm_;
    if (!comm) return;
    hcccResult_t found = hcccSuccess;
    check(library().hcccCommGetAsyncError(comm, &found));
    if (found != hcccSuccess) C10_THROW_ERROR(DistBackendError, std::string("hccc: ") + library().hcccGetLastError(comm));
  }

  // Returns whether jobs make calls, which the host carries out. All ranks ask it before the same calls.
  bool has_jobs() {
    if (!finder_ || size_ == 1) return false;
    if (const int now = Finder::additions(); now != asked_at_) has_jobs_ = finder_->has_jobs(handle(), rank_), asked_at_ = now;
    return has_jobs_;
  }

  // Returns the name of the library or job that the last collective ran by.
  std::string last_library() const {
    if (!job_.empty()) return job_;
    const char *name = "";
    if (const hcccComm_t comm = comm_) library().hcccCommLibrary(comm, &name);
    return name;
  }

  // Ends the communicator, which no thread uses; the second time nothing.
  void end() noexcept {
    if (const hcccComm_t last = comm_.exchange(nullptr)) {
      if (finder_) finder_->end_jobs();
      library().hcccCommDestroy(last);
    }
    ended_ = true;
  }
  // Ends it at once, at every rank, while threads may be in calls.
  void abort() {
    ended_ = true;
    if (const hcccComm_t last = comm_.exchange(nullptr)) check(library().hcccCommAbort(last));
  }
  bool ended() const { return ended_; }

 private:
  // Counts the calls that were made.
  unsigned long long calls() const {
    unsigned long long made = 0;
    if (const hcccComm_t comm = comm_) library().hcccCommQuery(comm, &made, nullptr);
    return made;
  }
  hcccComm_t handle() const {
    const hcccComm_t found = comm_;
    if (!found) C10_THROW_ERROR(DistBackendError, "hccc: the process group was aborted");
    return found;
  }

  // Returns memory as a tensor.
  static at::Tensor elements(const void *data, size_t count, at::ScalarType type, at::Device device) {
    return at::for_blob(const_cast<void *>(data), {static_cast<int64_t>(count)})
        .options(at::TensorOptions(type).device(device)).target_device(device).make_tensor();
  }

  void copy(const void *send, void *receive, size_t count, hcccDataType_t of) const {
    if (send == receive) return;
    const at::ScalarType type = torchs(of);
    if (device_.is_cpu()) memmove(receive, send, count * c10::elementSize(type));
    else elements(receive, count, type, device_).copy_(elements(send, count, type, device_), true);
  }

  // Reduces what one rank gives, which is multiplied or stays what it is.
  void reduce_alone(const void *send, void *receive, size_t count, const Reduction &by) const {
    if (by.op != hcccPreMulSum) return copy(send, receive, count, by.type);
    multiplied(send, receive, count, by);
  }

  // Jobs have no factors: what is sent is multiplied before, and summed.
  bool multiplies_before(const Reduction &by) { return by.op == hcccPreMulSum && has_jobs(); }
  static Reduction sum_of(Reduction by) {
    by.op = hcccSum;
    return by;
  }
  at::Tensor empty(size_t count, const Reduction &by) const {
    return at::empty({static_cast<int64_t>(count)}, at::TensorOptions(torchs(by.type)).device(device_));
  }
  // Multiplies elements by a reduction's factor; returns where they then are.
  void *multiplied(const void *from, void *to, size_t count, const Reduction &by) const {
    const at::ScalarType type = torchs(by.type), wide = c10::isFloat8Type(type) ? at::kFloat : type;
    const at::Tensor scalar = elements(by.scalar.data(), 1, type, at::kCPU).to(wide).to(device_);
    elements(to, count, type, device_).copy_(elements(from, count, type, device_).to(wide) * scalar);
    return to;
  }

  // The reduction of one call, which is made where it has a scalar.
  struct Op {
    Op(const Reduction &by, hcccComm_t comm) : number(by.op), of(comm), made(by.op == hcccPreMulSum) {
      void *scalar = const_cast<unsigned char *>(by.scalar.data());
      if (made) check(library().hcccRedOpCreatePreMulSum(&number, scalar, by.type, hcccScalarHostImmediate, of));
    }
    ~Op() {
      if (made) library().hcccRedOpDestroy(number, of);
    }
    Op(const Op &) = delete;
    Op &operator=(const Op &) = delete;

    hcccRedOp_t number;
    const hcccComm_t of;
    const bool made;
  };

  // Makes a call by a job of one's own. False: there is none for it, and libraries of one's own are loaded.
  bool runs(const char *collective, int root, const void *send, void *receive, size_t count, int type, int op = -1) {
    job_.clear();
    if (finder_) look_again();
    if (!finder_ || without_job_.count({collective, root})) return use(collective, root, type, op), false;
    const double timeout = timeout_.count() > 0 ? static_cast<double>(timeout_.count()) / 1e3 : 0;
    const Finder::ByJob made = finder_->by_job(handle(), rank_, collective, root, send, receive, count, type,
                                               op < 0 ? hcccSum : op, timeout, stream_);
    if (!made) {
      without_job_.emplace(collective, root);
      return use(collective, root, type, op), false;
    }
    job_ = made->first;
    if (!made->second.empty()) C10_THROW_ERROR(DistBackendError, "hccc: " + made->second);
    return true;
  }

  // Forgets what was found, where something was added.
  void look_again() {
    if (const int now = Finder::additions(); now != additions_) used_.clear(), has_.clear(), without_job_.clear(), additions_ = now;
  }

  // Loads libraries of one's own before the first call that they fit.
  void use(const char *collective, int root, int type, int op = -1) {
    if (!finder_) return;
    look_again();
    if (!used_.emplace(collective, root, type, op).second) return;
    for (const std::string &path : (*finder_)(collective, root, type, op))
      check(library().hcccCommLoad(handle(), path.c_str()));
  }

  std::atomic<hcccComm_t> comm_;
  const int rank_, size_;
  const at::Device device_;
  void *stream_ = nullptr;  // of the device; of the host: none
  const std::shared_ptr<Finder> finder_;
  std::atomic<bool> ended_{false};
  Milliseconds timeout_{-1};
  std::atomic<int> asked_at_{-1};  // additions when it was asked whether there are jobs
  std::atomic<bool> has_jobs_{false};
  std::string job_;    // by which the last collective ran; empty: by a library
  int additions_ = 0;  // of libraries and jobs, when what was found was forgotten
  std::set<std::tuple<std::string, int, int, int>> used_;
  std::map<std::pair<std::string, int>, bool> has_;  // collectives and types: whether a library does them
  std::set<std::pair<std::string, int>> without_job_;  // collectives and roots
  uint64_t exchanges_ = 0;  // that have begun
  unsigned long long before_ = 0;     // calls that were made before the last of these
  std::atomic<uint64_t> placed_{0};   // the last exchange that is known to have its place
};

}  // namespace hccc_torch
