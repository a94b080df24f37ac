// oneccl_shim.cpp: oneCCL's C++ functions for the host's memory, with the names and the shape of NCCL's. It is
// a library of its own, built with oneCCL's headers. (The C functions of libccl.so.2 return before a call of
// the host's memory is done, and have nothing to wait with.)
#include <string.h>

#include <exception>
#include <functional>
#include <memory>
#include <oneapi/ccl.hpp>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int SUCCESS = 0, FAILED = 2;
constexpr size_t ID_BYTES = 256;
static_assert(ccl::kvs::address_max_size <= ID_BYTES, "an id has room for oneCCL's");

struct Id {
  char of[ID_BYTES];
};

struct Comm {
  std::shared_ptr<ccl::kvs> store;
  ccl::communicator of;
};

std::shared_ptr<ccl::kvs> own_store;  // of the id that this process made last
std::string last_error;
int groups = 0;

// A send or receive of the open group.
struct Message {
  bool sends;
  int peer;
  size_t round;
  std::function<ccl::event()> begin;
};
std::vector<Message> messages;

template <class Body>
int caught(const Body &body) {
  try {
    body();
    return SUCCESS;
  } catch (const std::exception &error) {
    last_error = error.what();
    return FAILED;
  }
}

// NCCL's numbers.
constexpr ccl::datatype TYPES[] = {ccl::datatype::int8,    ccl::datatype::uint8,   ccl::datatype::int32,
                                   ccl::datatype::uint32,  ccl::datatype::int64,   ccl::datatype::uint64,
                                   ccl::datatype::float16, ccl::datatype::float32, ccl::datatype::float64,
                                   ccl::datatype::bfloat16};
constexpr ccl::reduction OPS[] = {ccl::reduction::sum, ccl::reduction::prod, ccl::reduction::max,
                                  ccl::reduction::min};

void *writable(const void *buffer) { return const_cast<void *>(buffer); }

// Makes a message at the end of the group, or now.
int passed(bool sends, int peer, std::function<ccl::event()> begin) {
  if (!groups) return caught([&] { begin().wait(); });
  size_t round = 0;
  for (const Message &one : messages) round += one.sends == sends && one.peer == peer;
  messages.push_back({sends, peer, round, std::move(begin)});
  return SUCCESS;
}

}  // namespace

#define SHIM extern "C" __attribute__((visibility("default")))

SHIM int hccc_onecclGetVersion(int *version) {
  return caught([&] {
    const ccl::library_version found = ccl::get_library_version();
    *version = static_cast<int>(found.major * 10000 + found.minor * 100 + found.update);
  });
}
SHIM const char *hccc_onecclGetErrorString(int) { return "it failed"; }
SHIM const char *hccc_onecclGetLastError(void *) { return last_error.c_str(); }

SHIM int hccc_onecclGetUniqueId(Id *id) {
  return caught([&] {
    ccl::init();
    own_store = ccl::create_main_kvs();
    const ccl::kvs::address_type address = own_store->get_address();
    memcpy(id->of, address.data(), address.size());
  });
}

SHIM int hccc_onecclCommInitRank(void **made, int n, Id id, int rank) {
  return caught([&] {
    ccl::init();
    std::shared_ptr<ccl::kvs> store = own_store;
    if (rank) {
      ccl::kvs::address_type address;
      memcpy(address.data(), id.of, address.size());
      store = ccl::create_kvs(address);
    }
    *made = new Comm{store, ccl::create_communicator(n, rank, store)};
  });
}

SHIM int hccc_onecclCommDestroy(Comm *comm) {
  return caught([&] { delete comm; });
}

SHIM int hccc_onecclAllReduce(const void *s, void *r, size_t n, int type, int op, Comm *comm, void *) {
  return caught([&] { ccl::allreduce(writable(s), r, n, TYPES[type], OPS[op], comm->of).wait(); });
}
SHIM int hccc_onecclReduce(const void *s, void *r, size_t n, int type, int op, int root, Comm *comm, void *) {
  return caught([&] { ccl::reduce(writable(s), r, n, TYPES[type], OPS[op], root, comm->of).wait(); });
}
SHIM int hccc_onecclReduceScatter(const void *s, void *r, size_t n, int type, int op, Comm *comm, void *) {
  return caught([&] { ccl::reduce_scatter(writable(s), r, n, TYPES[type], OPS[op], comm->of).wait(); });
}
SHIM int hccc_onecclAllGather(const void *s, void *r, size_t n, int type, Comm *comm, void *) {
  return caught([&] { ccl::allgather(writable(s), r, n, TYPES[type], comm->of).wait(); });
}
// type: of a byte.
SHIM int hccc_onecclBroadcast(const void *s, void *r, size_t n, int type, int root, Comm *comm, void *) {
  return caught([&] {
    if (s != r && comm->of.rank() == root) memcpy(r, s, n);
    ccl::broadcast(r, n, TYPES[type], root, comm->of).wait();
  });
}

// oneCCL pairs the messages of two ranks in any order. So those of a group go in rounds, the first to and
// from each rank, then the second; each rank comes to a message in the round in which the other does.
SHIM int hccc_onecclGroupStart(void) {
  ++groups;
  return SUCCESS;
}
SHIM int hccc_onecclGroupEnd(void) {
  if (--groups) return SUCCESS;
  return caught([&] {
    std::vector<Message> all;
    all.swap(messages);
    for (size_t round = 0, left = all.size(); left; ++round) {
      std::vector<ccl::event> begun;
      for (const Message &one : all)
        if (one.round == round) begun.push_back(one.begin()), --left;
      for (ccl::event &one : begun) one.wait();
    }
  });
}
SHIM int hccc_onecclSend(const void *s, size_t n, int type, int peer, Comm *comm, void *) {
  return passed(true, peer, [=] { return ccl::send(writable(s), n, TYPES[type], peer, comm->of); });
}
SHIM int hccc_onecclRecv(void *r, size_t n, int type, int peer, Comm *comm, void *) {
  return passed(false, peer, [=] { return ccl::recv(r, n, TYPES[type], peer, comm->of); });
}
