// mpi.cpp: the engine of MPI, for libraries with MPI 5.0's ABI: MPICH 5 and Intel MPI. No mpirun is needed:
// `Pmi` is their launcher. Calls do not block: this thread asks MPI until they are done, so that it can
// leave at the deadline.
#include "mpi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "engine.h"
#include "pmi.h"
#include "worker.h"

namespace hccc::vendor {
namespace mpi {
namespace {

constexpr int TAG = 7;

mpi::Functions &of_mpi() {
  static mpi::Functions functions;
  return functions;
}

std::string library_name;

// MPI is started once in a process, with the ranks that make its first communicator: its world.
struct World {
  std::string name;  // "": not started
  int rank = -1;
};

World &world() {
  static World one;
  return one;
}

void must(int code) {
  if (code == mpi::SUCCESS) return;
  char text[mpi::MOST_ERROR_TEXT + 1] = "";
  int length = 0;
  of_mpi().Error_string(code, text, &length);
  throw Lost(hcccSystemError, library_name + ": " + (text[0] ? text : "an error without a text"));
}

mpi::Type reduced_type(int type) {
  switch (type) {
    case hcccInt8: return mpi::INT8;
    case hcccUint8: return mpi::UINT8;
    case hcccInt32: return mpi::INT32;
    case hcccUint32: return mpi::UINT32;
    case hcccInt64: return mpi::INT64;
    case hcccUint64: return mpi::UINT64;
    case hcccFloat32: return mpi::FLOAT;
    case hcccFloat64: return mpi::DOUBLE;
    case hcccInt16: return mpi::INT16;
    case hcccUint16: return mpi::UINT16;
    case hcccBool: return mpi::C_BOOL;
    case hcccComplex64: return mpi::C_FLOAT_COMPLEX;
    case hcccComplex128: return mpi::C_DOUBLE_COMPLEX;
    default: return mpi::NONE;
  }
}

mpi::Op reduction(int type, int op) {
  const bool logical = type == hcccBool;  // its sums and maxima are lor, its products and minima land
  switch (op) {
    case hcccSum: return logical ? mpi::LOR : mpi::SUM;
    case hcccProd: return logical ? mpi::LAND : mpi::PROD;
    case hcccMax: return logical ? mpi::LOR : mpi::MAX;
    case hcccMin: return logical ? mpi::LAND : mpi::MIN;
    case hcccBand: return logical ? mpi::LAND : mpi::BAND;
    case hcccBor: return logical ? mpi::LOR : mpi::BOR;
    case hcccBxor: return logical ? mpi::NO_OP : mpi::BXOR;
    case hcccLand: return mpi::LAND;
    case hcccLor: return mpi::LOR;
    default: return mpi::NO_OP;
  }
}

int can(int what, hcccDataType_t type, hcccRedOp_t op) {
  const bool reduces = what == HCCC_VENDOR_ALL_REDUCE || what == HCCC_VENDOR_REDUCE || what == HCCC_VENDOR_REDUCE_SCATTER;
  return !reduces || (reduced_type(type) != mpi::NONE && reduction(type, op) != mpi::NO_OP);
}

int size_of(mpi::Handle comm) {
  int n = 0;
  must(of_mpi().Comm_size(comm, &n));
  return n;
}

int rank_of(mpi::Handle comm) {
  int rank = -1;
  must(of_mpi().Comm_rank(comm, &rank));
  return rank;
}

// Unlinks the shared memory of MPICH, which all ranks of the host have mapped: MPI is never finalized, and
// its names would stay.
void unlink_segments() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (const size_t at = line.find("/dev/shm/mpich_shm_"); at != std::string::npos) unlink(line.c_str() + at);
}

class MpiComm : public hccc_vendor_comm {
 public:
  explicit MpiComm(const std::shared_ptr<Meeting> &all)
      : hccc_vendor_comm(all, numbers(all->n_ranks()), all->n_ranks(), all->rank()) {}
  MpiComm(std::shared_ptr<Meeting> meeting, std::vector<int> watched, mpi::Handle comm)
      : hccc_vendor_comm(std::move(meeting), std::move(watched), size_of(comm), rank_of(comm)), comm_(comm) {}
  ~MpiComm() override {
    // Freeing waits for what a lost communicator never ends.
    if (comm_ != mpi::COMM_NULL && failure == hcccSuccess) of_mpi().Comm_free(&comm_);
  }

  void make(const Call &call) override {
    Call c = call;
    const char *const own_block = static_cast<const char *>(call.send) + static_cast<size_t>(rank) * call.bytes();
    // In place MPI reduces into the first block.
    std::unique_ptr<char[]> apart;
    if (call.what == HCCC_VENDOR_REDUCE_SCATTER && call.receive == own_block && call.bytes())
      apart = std::make_unique<char[]>(call.bytes()), c.receive = apart.get();
    if (call.what == HCCC_VENDOR_BROADCAST && rank == call.peer && call.receive && call.send != call.receive)
      memcpy(call.receive, call.send, call.bytes());
    mpi::Handle request = mpi::REQUEST_NULL;
    must(start(c, &request));
    Waiting waiting(*this, call);
    try {
      for (int done = 0;;) {
        must(of_mpi().Test(&request, &done, nullptr));
        if (done) break;
        waiting.turn();
      }
    } catch (...) {
      apart.release();  // MPI may still write there
      throw;
    }
    if (apart) memcpy(call.receive, apart.get(), call.bytes());
  }

  bool begin(const Call &call) override {
    // These may need copies.
    if (call.what == HCCC_VENDOR_REDUCE_SCATTER || call.what == HCCC_VENDOR_BROADCAST) return false;
    must(start(call, &begun_));
    return true;
  }

  bool end(bool soon) override {
    int done = 0;
    for (unsigned k = 0; soon && k < Waiting::SPINS; ++k) {
      must(of_mpi().Test(&begun_, &done, nullptr));
      if (done) return true;
    }
    if (soon) return false;
    for (Waiting waiting(*this, checked);; waiting.turn()) {
      must(of_mpi().Test(&begun_, &done, nullptr));
      if (done) return true;
    }
  }

  void exchange(const std::vector<Call> &messages) override {
    std::vector<mpi::Handle> requests(messages.size(), mpi::REQUEST_NULL);
    std::vector<mpi::Status> statuses(messages.size());
    for (size_t k = 0; k < messages.size(); ++k) {
      const Call &c = messages[k];
      const auto bytes = static_cast<mpi::Count>(c.bytes());
      const mpi::Handle type = mpi::handle(mpi::BYTE);
      must(c.receives ? of_mpi().Irecv_c(c.receive, bytes, type, c.peer, TAG, comm_, &requests[k])
                      : of_mpi().Isend_c(c.send, bytes, type, c.peer, TAG, comm_, &requests[k]));
    }
    Waiting waiting = messages.size() == 1 ? Waiting(*this, messages[0]) : Waiting(*this, "a group of messages");
    for (int done = 0;;) {
      must(of_mpi().Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data()));
      if (done) break;
      waiting.turn();
    }
    for (size_t k = 0; k < messages.size(); ++k) check_came(messages[k], statuses[k]);
  }

  hccc_vendor_comm *split(int color, int key) override {
    const std::vector<int> others = watched_of(color);
    const int part = color < 0 ? mpi::UNDEFINED : color;
    const mpi::Handle made = guarded([comm = comm_, part, key](mpi::Handle *to) {
      return of_mpi().Comm_split(comm, part, key, to);
    }, "split");
    return color < 0 ? nullptr : new MpiComm(meeting, others, made);
  }

  // Starts MPI, or makes a communicator of ranks of its world.
  void begin(double limit) {
    timeout = limit;
    const std::vector<std::string> told = meeting->gather(own_word(), TimeLeft(limit));
    const bool first = told[0].empty() || told[0][0] == '?';
    for (size_t r = 1; r < told.size(); ++r)
      if ((told[r][0] == '?') != first || (!first && world_of(told[r]) != world_of(told[0])))
        throw Error(hcccInvalidUsage, text_of("MPI starts once in a process, and ranks 0 and %zu started with other "
                                              "ranks: make their communicator first, and split it", r));
    if (first) start_world(told[0].substr(1), limit);
    else make_of_world(told);
  }

 private:
  // "?" and a name for a world, before this process has one, else its rank and name.
  static std::string own_word() {
    if (world().name.empty()) return text_of("?hccc_%d_%lld", getpid(), static_cast<long long>(time(nullptr)));
    return std::to_string(world().rank) + " " + world().name;
  }
  static std::string world_of(const std::string &word) { return word.substr(word.find(' ')); }

  void start_world(const std::string &name, double limit) {
    int started = 0;
    must(of_mpi().Initialized(&started));
    if (started)
      throw Error(hcccInvalidUsage, "this program has started MPI by itself: hccc needs a process in which it has not");
    const auto pmi = Pmi::start(meeting, name, limit);
    world().name = name, world().rank = rank;
    comm_ = guarded([](mpi::Handle *to) {
      int given = 0;
      if (const int code = of_mpi().Init_thread(nullptr, nullptr, mpi::THREAD_MULTIPLE, &given)) return code;
      of_mpi().Comm_set_errhandler(mpi::COMM_WORLD, mpi::ERRORS_RETURN);
      return of_mpi().Comm_split(mpi::COMM_WORLD, 0, 0, to);
    }, "the start of MPI", pmi.get());
    const int n = size_of(comm_), me = rank_of(comm_);
    if (n != n_ranks || me != rank)
      throw Error(hcccSystemError, library_name + text_of(" took rank %d of %d for %d of %d: it does not ask its "
                                                          "launcher by PMI-1", rank, n_ranks, me, n));
    std::vector<char> met(static_cast<size_t>(n_ranks));
    meeting->gather(met.data(), 1, TimeLeft(limit));
    unlink_segments();
  }

  void make_of_world(const std::vector<std::string> &told) {
    std::vector<int> of_world;
    for (const std::string &word : told) of_world.push_back(atoi(word.c_str()));
    comm_ = guarded([of_world](mpi::Handle *to) {
      mpi::Handle all, group;
      if (const int code = of_mpi().Comm_group(mpi::COMM_WORLD, &all)) return code;
      int code = of_mpi().Group_incl(all, static_cast<int>(of_world.size()), of_world.data(), &group);
      if (code) return code;
      code = of_mpi().Comm_create_group(mpi::COMM_WORLD, group, TAG, to);
      of_mpi().Group_free(&group);
      of_mpi().Group_free(&all);
      return code;
    }, "a communicator");
  }

  // Has MPI make a communicator, in a thread that is left behind where it does not come back.
  template <class Body>
  mpi::Handle guarded(Body body, const char *what, const Pmi *pmi = nullptr) {
    struct Made {
      int code = mpi::SUCCESS;
      mpi::Handle comm = mpi::COMM_NULL;
    };
    const auto made = std::make_shared<Made>();
    Waiting waiting(*this, what);
    Worker().run([made, body] { made->code = body(&made->comm); }, [&] {
      if (pmi && !pmi->wrong().empty()) throw Lost(hcccRemoteError, std::string(what) + ": " + pmi->wrong());
      waiting.check();
    });
    must(made->code);
    return made->comm;
  }

  int start(const Call &c, mpi::Handle *request) const {
    const mpi::Functions &m = of_mpi();
    const auto n = static_cast<mpi::Count>(c.count), bytes = static_cast<mpi::Count>(c.bytes());
    const mpi::Handle type = mpi::handle(reduced_type(c.type)), op = mpi::handle(reduction(c.type, c.op)),
                      byte = mpi::handle(mpi::BYTE);
    const auto own = [&](const void *buffer) {
      return static_cast<const char *>(buffer) + static_cast<size_t>(rank) * c.bytes();
    };
    const bool root = rank == c.peer;
    const void *s = c.send;
    void *r = c.receive;
    switch (c.what) {
      case HCCC_VENDOR_ALL_REDUCE:
        return m.Iallreduce_c(s == r ? mpi::IN_PLACE : s, r, n, type, op, comm_, request);
      case HCCC_VENDOR_REDUCE:
        return m.Ireduce_c(root && s == r ? mpi::IN_PLACE : s, r, n, type, op, c.peer, comm_, request);
      case HCCC_VENDOR_REDUCE_SCATTER: return m.Ireduce_scatter_block_c(s, r, n, type, op, comm_, request);
      case HCCC_VENDOR_BROADCAST:
        return m.Ibcast_c(root && !r ? const_cast<void *>(s) : r, bytes, byte, c.peer, comm_, request);
      case HCCC_VENDOR_ALL_GATHER:
        return m.Iallgather_c(s == own(r) ? mpi::IN_PLACE : s, bytes, byte, r, bytes, byte, comm_, request);
      case HCCC_VENDOR_ALL_TO_ALL:
        return m.Ialltoall_c(s == r ? mpi::IN_PLACE : s, bytes, byte, r, bytes, byte, comm_, request);
      case HCCC_VENDOR_GATHER:
        return m.Igather_c(root && s == own(r) ? mpi::IN_PLACE : s, bytes, byte, r, bytes, byte, c.peer, comm_, request);
      default:
        return m.Iscatter_c(s, bytes, byte, root && r == own(s) ? mpi::IN_PLACE : r, bytes, byte, c.peer, comm_, request);
    }
  }

  void check_came(const Call &c, const mpi::Status &status) const {
    if (!c.receives) return;
    mpi::Count came = 0;
    must(of_mpi().Get_count_c(&status, mpi::handle(mpi::BYTE), &came));
    if (came != static_cast<mpi::Count>(c.bytes()))
      throw Lost(hcccInvalidUsage, text_of("%s: rank %d sent %lld bytes", text_of_call(c).c_str(), c.peer,
                                           static_cast<long long>(came)));
  }

  mpi::Handle comm_ = mpi::COMM_NULL, begun_ = mpi::REQUEST_NULL;  // the call of `begin`
};

hccc_vendor_comm *init(int n_ranks, const void *id, int rank, double timeout) {
  const TimeLeft left(timeout);
  auto made = std::make_unique<MpiComm>(std::make_shared<Meeting>(n_ranks, id, rank, library_name, left));
  made->begin(left.seconds());
  return made.release();
}

// Returns the first words of the library's version: "MPICH 5.0.2".
std::string version_of() {
  std::vector<char> text(mpi::MOST_VERSION_TEXT + 1);
  int length = 0;
  of_mpi().Get_library_version(text.data(), &length);
  std::string made(text.data());
  made = made.substr(0, made.find('\n'));
  if (const size_t at = made.find(" Version:"); at != std::string::npos)
    made = made.substr(0, at) + " " + made.substr(made.find_first_not_of(" \t", at + 9));
  return made;
}

}  // namespace
}  // namespace mpi

Engine load_mpi(const std::string &vendor, const char *path) {
  using namespace mpi;
  constexpr const char *USUAL = "libmpi_abi.so.1";
  void *const handle = open_library(vendor, path, USUAL);
  Engine made;
  made.library = file_of(handle);
  const char *missing = nullptr;
#define HCCC_MPI_BIND(name, parameters)                                                                 \
  of_mpi().name = reinterpret_cast<decltype(of_mpi().name)>(dlsym(handle, "MPI_" #name));               \
  if (!of_mpi().name && !missing) missing = "MPI_" #name;
  HCCC_MPI_FUNCTIONS(HCCC_MPI_BIND)
#undef HCCC_MPI_BIND
  int major = -1, minor = -1;
  if (of_mpi().Abi_get_version) of_mpi().Abi_get_version(&major, &minor);
  if (major < 1)
    throw Error(hcccInvalidUsage, made.library + " has not the ABI of MPI 5.0: name the " + USUAL + " of MPICH 5 or of a "
                                  "later Intel MPI in HCCC_VENDOR_LIBRARY");
  if (missing) throw Error(hcccInvalidUsage, made.library + " has no " + missing);
  library_name = made.name = version_of();
  made.table.engine = "mpi", made.table.flags = HCCC_VENDOR_ONE_WORLD, made.table.can = can;
  made.init = init;
  return made;
}

}  // namespace hccc::vendor
