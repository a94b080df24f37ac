// table.cpp: the functions of the table, the same for every engine: they check a call, have the engine
// make it, and keep the failure of a communicator.
#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>
#include <new>

#include "../communicator/libraries.h"
#include "../communicator/log.h"
#include "apart.h"
#include "engine.h"

#define HCCC_API extern "C" __attribute__((visibility("default")))

namespace hccc::vendor {
namespace {

thread_local std::string last_text;
thread_local int groups = 0;
struct Noted {
  hccc_vendor_comm *comm;
  Call call;
};
thread_local std::vector<Noted> noted;

// Runs a body and returns the result of what it throws. comm: which is lost by Lost, or null.
template <class Body>
hcccResult_t caught(hccc_vendor_comm *comm, const Body &body) {
  const auto report = [](hcccResult_t code, const char *text) {
    last_text = text;
    return code;
  };
  try {
    body();
    return hcccSuccess;
  } catch (const Lost &lost) {
    if (comm && comm->failure == hcccSuccess) {
      comm->failure_text = lost.what();
      comm->failure = lost.code;
      HCCC_LOG(WARN, COLL, comm->rank, "%s", lost.what());
    }
    return report(lost.code, lost.what());
  } catch (const Error &error) {
    return report(error.code, error.what());
  } catch (const std::bad_alloc &) {
    return report(hcccSystemError, "no memory");
  } catch (const std::exception &error) {
    return report(hcccInternalError, error.what());
  }
}

// The library of this process, which stays; null: none is loaded.
struct Loaded {
  std::mutex mutex;
  std::unique_ptr<Engine> engine;
  std::string vendor, path;
};

Loaded &loaded() {
  static auto *made = new Loaded;  // outlives every thread
  return *made;
}

const Engine &library_engine() { return *loaded().engine; }

bool is_rooted(int what) {
  return what == HCCC_VENDOR_BROADCAST || what == HCCC_VENDOR_REDUCE || what == HCCC_VENDOR_GATHER ||
         what == HCCC_VENDOR_SCATTER;
}

bool reduces(int what) {
  return what == HCCC_VENDOR_ALL_REDUCE || what == HCCC_VENDOR_REDUCE || what == HCCC_VENDOR_REDUCE_SCATTER;
}

// Returns how many blocks this rank's send (0) and receive (1) buffer have.
size_t blocks_of(const Call &call, const hccc_vendor_comm &comm, int side) {
  const auto n = static_cast<size_t>(comm.n_ranks);
  const bool root = comm.rank == call.peer;
  switch (call.what) {
    case HCCC_VENDOR_BROADCAST: return side || root;
    case HCCC_VENDOR_REDUCE: return !side || root;
    case HCCC_VENDOR_ALL_GATHER: return side ? n : 1;
    case HCCC_VENDOR_REDUCE_SCATTER: return side ? 1 : n;
    case HCCC_VENDOR_ALL_TO_ALL: return n;
    case HCCC_VENDOR_GATHER: return side ? (root ? n : 0) : 1;
    case HCCC_VENDOR_SCATTER: return side ? 1 : (root ? n : 0);
    case HCCC_VENDOR_SEND: return side == (call.receives ? 1 : 0);
    default: return 1;
  }
}

void check(const hccc_vendor_comm *comm) {
  if (!comm) throw Error(hcccInvalidArgument, "the communicator is null");
}

// Checks a call; of one like the last that was right only its buffers.
void check(hccc_vendor_comm &comm, const Call &call, const hccc_vendor &table) {
  if (comm.failure != hcccSuccess)
    throw Error(comm.failure, "the communicator is lost: " + comm.failure_text);
  const Call &known = comm.checked;
  if (known.count && call.is_like(known) && (call.send || !known.send) && (call.receive || !known.receive)) return;
  if (!name_of_type(call.type)) throw Error(hcccInvalidArgument, text_of("type %d is none", call.type));
  if (reduces(call.what) && (!name_of_op(call.op) || !has_op(call.type, call.op)))
    throw Error(hcccInvalidArgument, text_of("there is no reduction %d of %s", call.op, name_of_type(call.type)));
  if ((is_rooted(call.what) || call.what == HCCC_VENDOR_SEND) && (call.peer < 0 || call.peer >= comm.n_ranks))
    throw Error(hcccInvalidArgument, text_of("rank %d is none of %d", call.peer, comm.n_ranks));
  if (call.count > SIZE_MAX / 2 / call.width() / static_cast<size_t>(comm.n_ranks))
    throw Error(hcccInvalidArgument, text_of("%zu elements are too many", call.count));
  for (const int side : {0, 1})
    if (call.count && blocks_of(call, comm, side) && !(side ? call.receive : call.send))
      throw Error(hcccInvalidArgument, text_of("the %s buffer is null", side ? "receive" : "send"));
  if (!table.can(call.what, call.type, call.op))
    throw Error(hcccInvalidUsage, std::string(table.name) + " does no " + text_of_call(call));
  comm.checked = call;
  if (!blocks_of(call, comm, 0)) comm.checked.send = nullptr;
  if (!blocks_of(call, comm, 1)) comm.checked.receive = nullptr;
}

hcccResult_t make(const hccc_vendor &table, hccc_vendor_comm *comm, const Call &call) {
  return caught(comm, [&] {
    check(comm);
    check(*comm, call, table);
    if (groups && call.what != HCCC_VENDOR_SEND)
      throw Error(hcccInvalidUsage, text_of_call(call) + " in a group: sends and receives are grouped, no other calls");
    if (groups) noted.push_back({comm, call});
    else if (call.what == HCCC_VENDOR_SEND) comm->exchange({call});
    else comm->make(call);
  });
}

hcccResult_t begin(int what, const void *send, void *receive, size_t n, hcccDataType_t type, hcccRedOp_t op, int root,
                   hccc_vendor_comm *comm) {
  const Call &known = comm->checked;
  Call call = known;
  call.what = what, call.receives = false, call.count = n, call.type = type, call.op = op, call.peer = root;
  if (!n || !call.is_like(known) || comm->failure != hcccSuccess) return hcccInvalidUsage;
  if ((known.send && !send) || (known.receive && !receive)) return hcccInvalidUsage;
  call.send = send, call.receive = receive;
  bool begun = false;
  const hcccResult_t result = caught(comm, [&] { begun = comm->begin(call); });
  return result == hcccSuccess && !begun ? hcccInvalidUsage : result;
}

hcccResult_t end(int soon, hccc_vendor_comm *comm) {
  bool ended = false;
  const hcccResult_t result = caught(comm, [&] { ended = comm->end(soon != 0); });
  return result == hcccSuccess && !ended ? hcccInProgress : result;
}

hcccResult_t group_start() {
  ++groups;
  return hcccSuccess;
}

hcccResult_t group_end() {
  if (!groups) return caught(nullptr, [] { throw Error(hcccInvalidUsage, "no group is open"); });
  if (--groups) return hcccSuccess;
  std::vector<Noted> all;
  all.swap(noted);
  hcccResult_t result = hcccSuccess;
  while (!all.empty() && result == hcccSuccess) {
    hccc_vendor_comm *const comm = all.front().comm;
    std::vector<Call> calls;
    std::vector<Noted> others;
    for (const Noted &one : all)
      if (one.comm == comm) calls.push_back(one.call);
      else others.push_back(one);
    result = caught(comm, [&] { comm->exchange(calls); });
    all.swap(others);
  }
  return result;
}

hcccResult_t unique_id(void *id) {
  return caught(nullptr, [&] {
    hcccUniqueId made;
    if (!id) throw Error(hcccInvalidArgument, "id is null");
    if (const hcccResult_t result = hcccGetUniqueId(&made)) throw Error(result, hcccGetLastError(nullptr));
    memcpy(id, &made, sizeof made);
  });
}

hcccResult_t init(const Engine &engine, hccc_vendor_comm **made, int n_ranks, const void *id, int rank,
                  double timeout) {
  return caught(nullptr, [&] {
    if (!made || !id) throw Error(hcccInvalidArgument, made ? "id is null" : "made is null");
    *made = nullptr;
    if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
      throw Error(hcccInvalidArgument, text_of("rank %d is none of %d", rank, n_ranks));
    *made = engine.init(n_ranks, id, rank, timeout);
    (*made)->timeout = timeout;
    HCCC_LOG(INFO, INIT, rank, "%s, rank %d of %d: %s", engine.table.name, rank, n_ranks,
             engine.library.empty() ? "part of hccc" : engine.library.c_str());
  });
}

hcccResult_t split(hccc_vendor_comm *comm, int color, int key, hccc_vendor_comm **made) {
  return caught(comm, [&] {
    check(comm);
    if (!made) throw Error(hcccInvalidArgument, "made is null");
    *made = nullptr;
    if (color < 0 && color != HCCC_SPLIT_NOCOLOR) throw Error(hcccInvalidArgument, text_of("color %d", color));
    if (comm->failure != hcccSuccess) throw Error(comm->failure, "the communicator is lost: " + comm->failure_text);
    *made = comm->split(color, key);
    if (*made) (*made)->timeout = comm->timeout;
  });
}

hcccResult_t told(hccc_vendor_comm *comm, int *to, const int hccc_vendor_comm::*which) {
  return caught(nullptr, [&] {
    check(comm);
    if (!to) throw Error(hcccInvalidArgument, "the result is null");
    *to = comm->*which;
  });
}

hcccResult_t count(hccc_vendor_comm *comm, int *n_ranks) { return told(comm, n_ranks, &hccc_vendor_comm::n_ranks); }
hcccResult_t user_rank(hccc_vendor_comm *comm, int *rank) { return told(comm, rank, &hccc_vendor_comm::rank); }

hcccResult_t set_timeout(hccc_vendor_comm *comm, double timeout) {
  return caught(comm, [&] {
    check(comm);
    if (!(timeout >= 0)) throw Error(hcccInvalidArgument, "the timeout is negative");
    comm->set_timeout(timeout);
  });
}

hcccResult_t destroy(hccc_vendor_comm *comm) {
  return caught(nullptr, [&] {
    check(comm);
    delete comm;
  });
}

hcccResult_t abort(hccc_vendor_comm *comm) {
  return caught(nullptr, [&] {
    check(comm);
    comm->aborted = true;
    if (comm->failure == hcccSuccess) {
      comm->failure_text = "it was aborted";
      comm->failure = hcccAborted;
    }
    comm->stop();
  });
}

hcccResult_t async_error(hccc_vendor_comm *comm, hcccResult_t *error) {
  return caught(nullptr, [&] {
    check(comm);
    if (!error) throw Error(hcccInvalidArgument, "error is null");
    if (comm->failure == hcccSuccess)
      if (const std::string found = comm->found(); !found.empty())
        comm->failure_text = found, comm->failure = hcccRemoteError;
    *error = comm->failure;
    if (comm->failure != hcccSuccess) last_text = comm->failure_text;
  });
}

hcccResult_t wait(hccc_vendor_comm *comm, void *stream) {
  return caught(comm, [&] {
    check(comm);
    if (comm->failure != hcccSuccess) throw Error(comm->failure, "the communicator is lost: " + comm->failure_text);
    comm->wait(stream);
  });
}

Call call_of(int what, const void *send, void *receive, size_t count, hcccDataType_t type, void *stream) {
  Call made;
  made.what = what, made.send = send, made.receive = receive, made.count = count, made.type = type;
  made.stream = stream;
  return made;
}

// The functions that know their engine, which is `get()`.
template <const Engine &(*get)()>
struct Functions {
  static const hccc_vendor &table() { return get().table; }
  static hcccResult_t init_rank(hccc_vendor_comm **made, int n, const void *id, int rank, double timeout) {
    return init(get(), made, n, id, rank, timeout);
  }
  static hcccResult_t all_reduce(const void *s, void *r, size_t n, hcccDataType_t t, hcccRedOp_t op,
                                 hccc_vendor_comm *c, void *stream) {
    Call call = call_of(HCCC_VENDOR_ALL_REDUCE, s, r, n, t, stream);
    call.op = op;
    return make(table(), c, call);
  }
  static hcccResult_t reduce_scatter(const void *s, void *r, size_t n, hcccDataType_t t, hcccRedOp_t op,
                                     hccc_vendor_comm *c, void *stream) {
    Call call = call_of(HCCC_VENDOR_REDUCE_SCATTER, s, r, n, t, stream);
    call.op = op;
    return make(table(), c, call);
  }
  static hcccResult_t reduce(const void *s, void *r, size_t n, hcccDataType_t t, hcccRedOp_t op, int root,
                             hccc_vendor_comm *c, void *stream) {
    Call call = call_of(HCCC_VENDOR_REDUCE, s, r, n, t, stream);
    call.op = op, call.peer = root;
    return make(table(), c, call);
  }
  template <int what>
  static hcccResult_t plain(const void *s, void *r, size_t n, hcccDataType_t t, hccc_vendor_comm *c, void *stream) {
    return make(table(), c, call_of(what, s, r, n, t, stream));
  }
  template <int what>
  static hcccResult_t rooted(const void *s, void *r, size_t n, hcccDataType_t t, int root, hccc_vendor_comm *c,
                             void *stream) {
    Call call = call_of(what, s, r, n, t, stream);
    call.peer = root;
    return make(table(), c, call);
  }
  static hcccResult_t send(const void *at, size_t n, hcccDataType_t t, int peer, hccc_vendor_comm *c, void *stream) {
    Call call = call_of(HCCC_VENDOR_SEND, at, nullptr, n, t, stream);
    call.peer = peer;
    return make(table(), c, call);
  }
  static hcccResult_t recv(void *at, size_t n, hcccDataType_t t, int peer, hccc_vendor_comm *c, void *stream) {
    Call call = call_of(HCCC_VENDOR_SEND, nullptr, at, n, t, stream);
    call.peer = peer, call.receives = true;
    return make(table(), c, call);
  }

  static void fill(Engine &engine) {
    hccc_vendor &t = engine.table;
    t.abi = HCCC_VENDOR_ABI;
    t.name = engine.name.c_str(), t.library = engine.library.c_str();
    t.id_bytes = HCCC_VENDOR_ID_BYTES;
    t.last_error = hccc_vendor_error;
    t.unique_id = unique_id, t.init_rank = init_rank;
    t.count = count, t.user_rank = user_rank;
    t.split = vendor::split, t.set_timeout = vendor::set_timeout, t.destroy = vendor::destroy;
    t.abort = vendor::abort, t.async_error = vendor::async_error, t.wait = vendor::wait;
    t.all_reduce = all_reduce, t.reduce = reduce, t.reduce_scatter = reduce_scatter;
    t.broadcast = rooted<HCCC_VENDOR_BROADCAST>, t.all_gather = plain<HCCC_VENDOR_ALL_GATHER>;
    t.send = send, t.recv = recv, t.group_start = group_start, t.group_end = group_end;
    t.begin = vendor::begin, t.end = vendor::end;
    // What has not even bytes has nothing.
    if (t.can(HCCC_VENDOR_ALL_TO_ALL, hcccInt8, hcccSum)) t.all_to_all = plain<HCCC_VENDOR_ALL_TO_ALL>;
    if (t.can(HCCC_VENDOR_GATHER, hcccInt8, hcccSum)) t.gather = rooted<HCCC_VENDOR_GATHER>;
    if (t.can(HCCC_VENDOR_SCATTER, hcccInt8, hcccSum)) t.scatter = rooted<HCCC_VENDOR_SCATTER>;
  }
};

const Engine &own_engine() {
  static const Engine *const made = [] {
    auto *engine = new Engine(own());
    Functions<own_engine>::fill(*engine);
    return engine;
  }();
  return *made;
}

Engine load(const std::string &vendor, const char *path) {
  if (vendor == "nccl" || vendor == "rccl") return load_nccl(vendor, path);
  if (vendor == "oneccl") return load_oneccl(path);
  if (vendor == "mpi" || vendor == "mpich" || vendor == "impi") return load_mpi(vendor, path);
  throw Error(hcccInvalidArgument, "there is no vendor " + vendor + ": nccl, rccl, mpich, impi, mpi, oneccl and own "
                                   "are known");
}

const hccc_vendor &load_once(const std::string &vendor, const char *path) {
  if (vendor == "own") return own_engine().table;
  const char *const named = path && *path ? path : getenv("HCCC_VENDOR_LIBRARY");
  const std::string wanted = named ? named : "";
  Loaded &here = loaded();
  std::lock_guard<std::mutex> lock(here.mutex);
  if (!here.engine) {
    auto made = std::make_unique<Engine>(load(vendor, wanted.empty() ? nullptr : wanted.c_str()));
    here.engine = std::move(made), here.vendor = vendor, here.path = wanted;
    Functions<library_engine>::fill(*here.engine);
  } else if (here.vendor != vendor || (!wanted.empty() && here.path != wanted)) {
    throw Error(hcccInvalidUsage, "this process has loaded " + here.engine->library + " (" + here.engine->name +
                                      "): it loads one vendor's library, and " +
                                      (wanted.empty() ? vendor : wanted) + " is another");
  }
  return here.engine->table;
}

}  // namespace

size_t Call::width() const { return static_cast<size_t>(bytes_of_type(type)); }

const char *name_of_call(int what) {
  static constexpr const char *names[] = {"AllReduce", "Broadcast", "Reduce",  "AllGather", "ReduceScatter",
                                          "AllToAll",  "Gather",    "Scatter", "Send"};
  return names[what];
}

std::string text_of_call(const Call &call) {
  std::string made = call.receives ? "Recv" : name_of_call(call.what);
  made += text_of(" of %zu %s", call.count, name_of_type(call.type));
  return reduces(call.what) ? made + ", " + name_of_op(call.op) : made;
}

void *open_library(const std::string &vendor, const char *path, const char *usual) {
  void *const handle = open_apart(path ? path : usual);
  if (handle) return handle;
  const char *const why = dlerror();
  throw Error(hcccInvalidUsage, "the library of " + vendor + " cannot be loaded: " + (why ? why : "?") +
                                    "; name its file in HCCC_VENDOR_LIBRARY (usually " + usual + ")");
}

std::string file_of(void *handle) {
  link_map *map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "";
}

Waiting::Waiting(hccc_vendor_comm &of, std::string what) : of_(of), what_(std::move(what)), left_(of.timeout) {}
Waiting::Waiting(hccc_vendor_comm &of, const Call &call) : of_(of), call_(&call) {}

std::string Waiting::what() const { return call_ ? text_of_call(*call_) : what_; }

void Waiting::check() {
  if (!left_) left_.emplace(of_.timeout);
  if (of_.aborted) throw Lost(hcccAborted, what() + ": the communicator was aborted");
  const int gone = of_.meeting ? of_.meeting->gone(of_.watched) : -1;
  if (gone >= 0)
    throw Lost(hcccRemoteError, what() + text_of(": rank %d is gone", gone) +
                                    (of_.n_ranks < of_.meeting->n_ranks() ? ", by its number before the split" : ""));
  if (left_->over())
    throw Lost(hcccTimeout, what() + text_of(": timed out after %g s at rank %d: a rank did not make the call, or the "
                                            "library does not go on", of_.timeout, of_.rank));
}

void Waiting::turn() {
  // Tens of microseconds; then others get the core: lanes of a job, ranks that are more than there are cores.
  constexpr unsigned PERIOD = 1024;
  if (++turns_ > SPINS) sched_yield();
  // Where others keep the cores a turn takes milliseconds, and a period longer than a deadline.
  const bool late = left_ && left_->over();
  if (turns_ == SPINS || turns_ % PERIOD == 0 || late || of_.aborted) check();
}

std::vector<int> numbers(int n) {
  std::vector<int> made;
  for (int r = 0; r < n; ++r) made.push_back(r);
  return made;
}

}  // namespace hccc::vendor

hccc_vendor_comm::~hccc_vendor_comm() {
  if (meeting && failure != hcccSuccess) meeting->give_up(failure_text);
}

std::vector<int> hccc_vendor_comm::watched_of(int color) {
  if (n_ranks < meeting->n_ranks()) return watched;
  std::vector<int> colors(static_cast<size_t>(n_ranks)), made;
  colors[static_cast<size_t>(rank)] = color;
  meeting->gather(colors.data(), sizeof(int), hccc::TimeLeft(timeout));
  for (int r = 0; r < n_ranks; ++r)
    if (colors[static_cast<size_t>(r)] == color) made.push_back(r);
  return made;
}

HCCC_API const char *hccc_vendor_error(void) { return hccc::vendor::last_text.c_str(); }

HCCC_API hcccResult_t hccc_vendor_load(const char *vendor, const char *library, const hccc_vendor **made) {
  using namespace hccc;
  return vendor::caught(nullptr, [&] {
    if (!vendor || !made) throw Error(hcccInvalidArgument, vendor ? "made is null" : "vendor is null");
    *made = nullptr;
    *made = &vendor::load_once(vendor, library);
  });
}
