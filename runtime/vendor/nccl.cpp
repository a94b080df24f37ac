// nccl.cpp: the engines of NCCL, RCCL and, by oneccl_shim.cpp, oneCCL, whose functions have one shape. NCCL
// and RCCL put calls into streams of a device; oneCCL's calls of the host's memory block, and are made in a
// thread that is left behind at the deadline.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "../communicator/device.h"
#include "engine.h"
#include "worker.h"

namespace hccc::vendor {
namespace nccl {
namespace {

template <size_t bytes>
struct Id {
  char of[bytes];
};
using NcclId = Id<128>;
using OneCclId = Id<256>;

// name, parameters; the names after `ncclMay` a library may lack.
#define HCCC_NCCL_FUNCTIONS(F)                                                                          \
  F(GetVersion, (int *))                                                                                \
  F(CommDestroy, (void *))                                                                              \
  F(GroupStart, ())                                                                                     \
  F(GroupEnd, ())                                                                                       \
  F(AllReduce, (const void *, void *, size_t, int, int, void *, void *))                                \
  F(Broadcast, (const void *, void *, size_t, int, int, void *, void *))                                \
  F(Reduce, (const void *, void *, size_t, int, int, int, void *, void *))                              \
  F(AllGather, (const void *, void *, size_t, int, void *, void *))                                     \
  F(ReduceScatter, (const void *, void *, size_t, int, int, void *, void *))                            \
  F(Send, (const void *, size_t, int, int, void *, void *))                                             \
  F(Recv, (void *, size_t, int, int, void *, void *))
#define HCCC_NCCL_MAY_HAVE(F)                                                                           \
  F(CommSplit, (void *, int, int, void **, void *))                                                     \
  F(CommCount, (void *, int *))                                                                         \
  F(CommUserRank, (void *, int *))                                                                      \
  F(CommAbort, (void *))                                                                                \
  F(CommGetAsyncError, (void *, int *))

struct Functions {
#define HCCC_NCCL_MEMBER(name, parameters) int(*name) parameters = nullptr;
  HCCC_NCCL_FUNCTIONS(HCCC_NCCL_MEMBER)
  HCCC_NCCL_MAY_HAVE(HCCC_NCCL_MEMBER)
#undef HCCC_NCCL_MEMBER
  const char *(*GetErrorString)(int) = nullptr;
  const char *(*GetLastError)(void *) = nullptr;
  int (*NcclGetUniqueId)(NcclId *) = nullptr;
  int (*NcclCommInitRank)(void **, int, NcclId, int) = nullptr;
  int (*OneCclGetUniqueId)(OneCclId *) = nullptr;
  int (*OneCclCommInitRank)(void **, int, OneCclId, int) = nullptr;

  bool is_oneccl = false;
  int version = 0;
  std::string name, file;
};

Functions &functions() {
  static Functions one;
  return one;
}

void must(int code, void *comm = nullptr) {
  constexpr int REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7;
  const Functions &f = functions();
  if (!code || (!f.is_oneccl && code == NCCL_IN_PROGRESS)) return;
  const char *const said = f.GetLastError ? f.GetLastError(comm) : nullptr;
  throw Lost(!f.is_oneccl && code == REMOTE_ERROR ? hcccRemoteError : hcccSystemError,
             f.name + ": " + f.GetErrorString(code) + (said && *said ? std::string(": ") + said : ""));
}

// Types and reductions have NCCL's numbers. What only moves goes as bytes.
constexpr int BYTES = hcccUint8;

int can(int what, hcccDataType_t type, hcccRedOp_t op) {
  if (what != HCCC_VENDOR_ALL_REDUCE && what != HCCC_VENDOR_REDUCE && what != HCCC_VENDOR_REDUCE_SCATTER) return 1;
  const int types = functions().is_oneccl || functions().version < 22400 ? hcccBfloat16 : hcccFloat8e5m2;
  return type <= types && op <= (functions().is_oneccl ? hcccMin : hcccAvg);
}

bool on_gpu() {
  hcccrtPlatform_t platform = hcccrtPlatformNone;
  hcccrtGetPlatform(&platform);
  return platform != hcccrtPlatformNone && platform != hcccrtPlatformCPU;
}

class NcclComm : public hccc_vendor_comm {
 public:
  explicit NcclComm(const std::shared_ptr<Meeting> &all)
      : hccc_vendor_comm(all, numbers(all->n_ranks()), all->n_ranks(), all->rank()) {}
  NcclComm(std::shared_ptr<Meeting> meeting, std::vector<int> watched, int n_ranks, int rank, void *comm)
      : hccc_vendor_comm(std::move(meeting), std::move(watched), n_ranks, rank), comm_(comm) {}
  ~NcclComm() override {
    void *const last = comm_.exchange(nullptr);
    if (!last || (worker_ && worker_->left())) return;
    if (failure == hcccSuccess) functions().CommDestroy(last);
    else if (functions().CommAbort && !functions().is_oneccl) functions().CommAbort(last);
  }

  void begin() {
    if (functions().is_oneccl) begin_oneccl();
    else run_init(functions().NcclGetUniqueId, functions().NcclCommInitRank);
  }

  void make(const Call &call) override {
    if (!call.count) return;
    if (call.what >= HCCC_VENDOR_ALL_TO_ALL) return by_messages(call);
    if (!functions().is_oneccl) return must(start(call, comm_), comm_);
    run(text_of_call(call), [call, comm = comm_.load()] { must(start(call, comm), comm); });
  }

  void exchange(const std::vector<Call> &messages) override {
    std::vector<Call> all;
    for (const Call &c : messages)
      if (c.count) all.push_back(c);
    if (all.empty()) return;
    run(all.size() == 1 ? text_of_call(all[0]) : "a group of messages", [all, comm = comm_.load()] {
      const Functions &f = functions();
      must(f.GroupStart(), comm);
      int first = 0;
      for (const Call &c : all) {
        const int code = c.receives ? f.Recv(c.receive, c.bytes(), BYTES, c.peer, comm, c.stream)
                                    : f.Send(c.send, c.bytes(), BYTES, c.peer, comm, c.stream);
        if (!first) first = code;
      }
      const int ended = f.GroupEnd();
      must(first ? first : ended, comm);
    });
  }

  hccc_vendor_comm *split(int color, int key) override {
    const Functions &f = functions();
    if (f.is_oneccl) return split_oneccl(color, key);
    if (!f.CommSplit || !f.CommCount || !f.CommUserRank) throw Error(hcccInvalidUsage, f.name + " cannot split");
    const std::vector<int> others = watched_of(color);
    struct Made {
      void *comm = nullptr;
      int n = 0, rank = 0;
    };
    const auto made = std::make_shared<Made>();
    run("split", [made, color, key, comm = comm_.load()] {
      const Functions &f = functions();
      must(f.CommSplit(comm, color, key, &made->comm, nullptr), comm);
      if (!made->comm || color < 0) return;
      must(f.CommCount(made->comm, &made->n), made->comm);
      must(f.CommUserRank(made->comm, &made->rank), made->comm);
    }, true);
    if (color < 0 || !made->comm) return nullptr;
    return new NcclComm(meeting, others, made->n, made->rank, made->comm);
  }

  void stop() override {
    if (functions().is_oneccl || !functions().CommAbort) return;
    if (void *last = comm_.exchange(nullptr)) functions().CommAbort(last);
  }

  std::string found() override {
    const Functions &f = functions();
    int code = 0;
    void *const comm = comm_;
    if (!f.CommGetAsyncError || f.is_oneccl || !comm) return "";
    if (f.CommGetAsyncError(comm, &code)) return "";
    try {
      must(code, comm);
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  }

  void wait(void *stream) override {
    if (!stream && !on_gpu()) return;
    Waiting waiting(*this, "a stream");
    for (hcccrtError_t now; (now = hcccrtStreamQuery(static_cast<hcccrtStream_t>(stream))) != hcccrtSuccess;) {
      if (now != hcccrtErrorNotReady) throw Lost(hcccUnhandledDeviceError, "the device lost a stream");
      if (const std::string error = found(); !error.empty()) throw Lost(hcccRemoteError, error);
      waiting.turn();
    }
  }

 private:
  // Makes calls of the library: in the worker, where they may block for ever.
  void run(const std::string &what, std::function<void()> body, bool may_block = functions().is_oneccl) {
    if (!may_block) return body();
    if (!worker_) worker_ = std::make_unique<Worker>();
    Waiting waiting(*this, what);
    const Device device = Device::current();
    worker_->run([device, body = std::move(body)] {
      if (functions().is_oneccl || device.platform == hcccrtPlatformNone) return body();
      const OnDevice there(device);
      body();
    }, [&] { waiting.check(); });
  }

  void begin_oneccl() {
    setenv("CCL_PROCESS_LAUNCHER", "none", 1);
    setenv("CCL_LOCAL_RANK", std::to_string(meeting->local_rank()).c_str(), 1);
    setenv("CCL_LOCAL_SIZE", std::to_string(meeting->n_local()).c_str(), 1);
    setenv("CCL_KVS_IFACE", meeting->interface(), 0);
    if (static_cast<unsigned>(meeting->n_local()) > std::thread::hardware_concurrency())
      setenv("CCL_SPIN_COUNT", "1", 0);  // its threads wait for each other without end
    run_init(functions().OneCclGetUniqueId, functions().OneCclCommInitRank);
  }

  // Has rank 0 make the library's id, and all ranks a communicator of it.
  template <class Id>
  void run_init(int (*get_id)(Id *), int (*init_rank)(void **, int, Id, int)) {
    std::vector<Id> all(static_cast<size_t>(n_ranks));
    if (!rank) must(get_id(&all[0]));
    meeting->gather(all.data(), sizeof(Id), TimeLeft(timeout));
    join(all[0], init_rank);
  }

  template <class Id>
  void join(const Id &id, int (*init_rank)(void **, int, Id, int)) {
    const auto made = std::make_shared<void *>(nullptr);
    run("a communicator of " + functions().name, [made, init_rank, id, n = n_ranks, me = rank] {
      must(init_rank(made.get(), n, id, me));
    }, true);
    comm_ = *made;
  }

  // oneCCL's own split leaves keys out: ranks of a color meet by an id of their first.
  hccc_vendor_comm *split_oneccl(int color, int key) {
    struct Said {
      int color, key;
      OneCclId id;
    };
    std::vector<Said> all(static_cast<size_t>(n_ranks));
    Said &own = all[static_cast<size_t>(rank)];
    own.color = color, own.key = key;
    Call gather;
    gather.what = HCCC_VENDOR_ALL_GATHER, gather.send = &own, gather.receive = all.data();
    gather.count = sizeof(Said), gather.type = hcccUint8;
    make(gather);
    std::vector<int> order, others;
    for (int r = 0; r < n_ranks; ++r)
      if (all[static_cast<size_t>(r)].color == color) order.push_back(r);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key;
    });
    if (color >= 0 && order[0] == rank) must(functions().OneCclGetUniqueId(&own.id));
    make(gather);
    if (color < 0) return nullptr;
    for (const int r : order) others.push_back(watched[static_cast<size_t>(r)]);
    const auto at = std::find(order.begin(), order.end(), rank) - order.begin();
    const int n = static_cast<int>(order.size());
    auto made = std::make_unique<NcclComm>(meeting, others, n, static_cast<int>(at), nullptr);
    made->timeout = timeout;
    made->join(all[static_cast<size_t>(order[0])].id, functions().OneCclCommInitRank);
    return made.release();
  }

  static int start(const Call &c, void *comm) {
    const Functions &f = functions();
    switch (c.what) {
      case HCCC_VENDOR_ALL_REDUCE: return f.AllReduce(c.send, c.receive, c.count, c.type, c.op, comm, c.stream);
      case HCCC_VENDOR_REDUCE: return f.Reduce(c.send, c.receive, c.count, c.type, c.op, c.peer, comm, c.stream);
      case HCCC_VENDOR_ALL_GATHER: return f.AllGather(c.send, c.receive, c.bytes(), BYTES, comm, c.stream);
      case HCCC_VENDOR_REDUCE_SCATTER:
        return f.ReduceScatter(c.send, c.receive, c.count, c.type, c.op, comm, c.stream);
      default: return f.Broadcast(c.send, c.receive, c.bytes(), BYTES, c.peer, comm, c.stream);
    }
  }

  // Makes AllToAll, Gather and Scatter of sends and receives, which all versions have.
  void by_messages(const Call &call) {
    if (call.what == HCCC_VENDOR_ALL_TO_ALL && call.send == call.receive && call.count)
      return in_place_all_to_all(call);
    std::vector<Call> all;
    const auto at = [&](const void *buffer, int block) {
      return const_cast<char *>(static_cast<const char *>(buffer)) + static_cast<size_t>(block) * call.bytes();
    };
    const auto add = [&](bool receives, int peer, void *buffer) {
      Call c = call;
      c.what = HCCC_VENDOR_SEND, c.receives = receives, c.peer = peer, c.send = c.receive = buffer;
      all.push_back(c);
    };
    const bool root = rank == call.peer, to_all = call.what == HCCC_VENDOR_ALL_TO_ALL;
    const bool gather = call.what == HCCC_VENDOR_GATHER;
    const auto moves = [&](const void *from, void *to) { return from != to; };
    for (int r = 0; r < n_ranks; ++r) {
      if (to_all || (root && !gather))
        if (r != rank || to_all || moves(at(call.send, r), call.receive)) add(false, r, at(call.send, r));
      if (to_all || (root && gather))
        if (r != rank || to_all || moves(call.send, at(call.receive, r))) add(true, r, at(call.receive, r));
    }
    if (!to_all && gather && (!root || moves(call.send, at(call.receive, rank)))) add(false, call.peer, at(call.send, 0));
    if (!to_all && !gather && (!root || moves(at(call.send, rank), call.receive))) add(true, call.peer, call.receive);
    exchange(all);
  }

  void in_place_all_to_all(const Call &call) {
    if (on_gpu())  // the copy would have to live as long as the stream needs it
      throw Error(hcccInvalidUsage, functions().name + " does no AllToAll in place: give two buffers");
    const size_t bytes = static_cast<size_t>(n_ranks) * call.bytes();
    auto copy = std::make_unique<char[]>(bytes);
    memcpy(copy.get(), call.send, bytes);
    Call c = call;
    c.send = copy.get();
    try {
      by_messages(c);
    } catch (...) {
      copy.release();  // the library may still read it
      throw;
    }
  }

  std::atomic<void *> comm_{nullptr};
  std::unique_ptr<Worker> worker_;
};

hccc_vendor_comm *init(int n_ranks, const void *id, int rank, double timeout) {
  const TimeLeft left(timeout);
  auto made = std::make_unique<NcclComm>(std::make_shared<Meeting>(n_ranks, id, rank, functions().name, left));
  made->timeout = left.seconds();
  made->begin();
  return made.release();
}

// Binds the functions of a prefix, and returns the first that is missing; empty: none.
std::string bind(void *handle, const std::string &prefix) {
  Functions &f = functions();
  std::string missing;
  const auto find = [&](const std::string &name, bool needed = true) {
    void *const found = dlsym(handle, (prefix + name).c_str());
    if (!found && needed && missing.empty()) missing = prefix + name;
    return found;
  };
#define HCCC_NCCL_BIND(name, parameters) f.name = reinterpret_cast<decltype(f.name)>(find(#name));
#define HCCC_NCCL_MAY_BIND(name, parameters) f.name = reinterpret_cast<decltype(f.name)>(find(#name, false));
  HCCC_NCCL_FUNCTIONS(HCCC_NCCL_BIND)
  HCCC_NCCL_MAY_HAVE(HCCC_NCCL_MAY_BIND)
#undef HCCC_NCCL_BIND
#undef HCCC_NCCL_MAY_BIND
  f.GetErrorString = reinterpret_cast<decltype(f.GetErrorString)>(find("GetErrorString"));
  f.GetLastError = reinterpret_cast<decltype(f.GetLastError)>(find("GetLastError", false));
  if (f.is_oneccl) {
    f.OneCclGetUniqueId = reinterpret_cast<decltype(f.OneCclGetUniqueId)>(find("GetUniqueId"));
    f.OneCclCommInitRank = reinterpret_cast<decltype(f.OneCclCommInitRank)>(find("CommInitRank"));
  } else {
    f.NcclGetUniqueId = reinterpret_cast<decltype(f.NcclGetUniqueId)>(find("GetUniqueId"));
    f.NcclCommInitRank = reinterpret_cast<decltype(f.NcclCommInitRank)>(find("CommInitRank"));
  }
  return missing;
}

Engine loaded_from(void *handle, const std::string &prefix, const std::string &brand) {
  Functions &f = functions();
  f.file = file_of(handle);
  const std::string missing = bind(handle, prefix);
  if (!f.GetVersion) throw Error(hcccInvalidUsage, f.file + " is no " + brand + ": it has no " + prefix + "GetVersion");
  if (f.GetVersion(&f.version) || f.version <= 0) throw Error(hcccInvalidUsage, f.file + " does not say its version");
  f.name = brand + " " + (f.is_oneccl ? text_of("%d.%d.%d", f.version / 10000, f.version / 100 % 100, f.version % 100)
                          : f.version < 10000
                              ? text_of("%d.%d.%d", f.version / 1000, f.version / 100 % 10, f.version % 100)
                              : text_of("%d.%d.%d", f.version / 10000, f.version / 100 % 100, f.version % 100));
  if (!missing.empty()) throw Error(hcccInvalidUsage, f.file + " is " + f.name + " without " + missing);
  Engine made;
  made.name = f.name, made.library = f.file, made.table.can = can, made.init = init;
  return made;
}

}  // namespace
}  // namespace nccl

Engine load_nccl(const std::string &vendor, const char *path) {
  using namespace nccl;
  const bool amd = vendor == "rccl";
  void *const handle = open_library(vendor, path, amd ? "librccl.so.1" : "libnccl.so.2");
  if (dlsym(handle, "hccc_nccl_library"))
    throw Error(hcccInvalidUsage, file_of(handle) + " is hccc's own library with NCCL's names: name the vendor's");
  Engine made = loaded_from(handle, "nccl", amd ? "RCCL" : "NCCL");
  made.table.engine = "nccl", made.table.flags = HCCC_VENDOR_STREAM | HCCC_VENDOR_STOPS;
  return made;
}

Engine load_oneccl(const char *path) {
  using namespace nccl;
  functions().is_oneccl = true;
  if (!path)
    throw Error(hcccInvalidUsage, "oneCCL is loaded by a library that is built with its headers: "
                                  "`hccc.runtime.vendor.files.shim(libccl.so.1)` builds it, HCCC_VENDOR_LIBRARY names it");
  Engine made = loaded_from(open_library("oneccl", path, "libhccc_oneccl.so"), "hccc_oneccl", "oneCCL");
  // One transport by default, of every machine's, and few words.
  setenv("CCL_ATL_TRANSPORT", "ofi", 0);
  setenv("FI_PROVIDER", "tcp", 0);
  setenv("CCL_LOG_LEVEL", "error", 0);
  setenv("CCL_WORKER_COUNT", "1", 0);
  setenv("CCL_YIELD", "sched_yield", 0);
  made.table.engine = "oneccl", made.table.flags = 0;
  return made;
}

}  // namespace hccc::vendor
