// comm.h: a communicator as NCCL's callers have it: one of libhccc's, and perhaps one of the vendor's.
#pragma once

#include <nccl.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "failed.h"
#include "runtime.h"
#include "times.h"
#include "vendor.h"

namespace hccc_nccl {

// An error's text. Later ones have higher numbers, whichever thread they are of.
struct Said {
  uint64_t number = 0;
  std::string text;
};
Said said(const std::string &text);

// A communicator's last error, which outlives it where another thread aborts it.
class LastSaid {
 public:
  void set(const Said &said) {
    std::lock_guard<std::mutex> lock(mutex_);
    said_ = said;
  }
  Said get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return said_;
  }

 private:
  mutable std::mutex mutex_;
  Said said_;
};

// Memory that was registered; a window of NCCL's.
struct Registered {
  void *at, *handle;
};

// A reduction of ncclRedOpCreatePreMulSum's: libhccc's, and the vendor's where there is one.
struct Multiplied {
  hcccRedOp_t own;
  ncclRedOp_t vendors;
  bool ended;
};

// A collective. op, root: -1 for none; count: elements of a block, 0 for what has no times.
struct Call {
  const char *collective = nullptr;
  ncclDataType_t type = ncclInt8;
  int op = -1, root = -1;
  size_t count = 0;

  bool operator==(const Call &other) const {  // names are those of this library
    return count == other.count && collective == other.collective && type == other.type && op == other.op &&
           root == other.root;
  }
  std::string text() const;
};

}  // namespace hccc_nccl

struct ncclComm {
  static constexpr int ABANDONED = -1;
  hcccComm_t of = nullptr;      // null until the group ends in which it is made
  ncclComm_t vendor = nullptr;  // null: there is none
  // Of one without blocking: ncclInProgress while a thread makes it, which then writes all else, or makes its
  // calls; then what came of that. ABANDONED where its caller has aborted it meanwhile.
  std::atomic<int> state{ncclSuccess};
  std::atomic<bool> calling{false};  // a thread makes its calls
  bool blocks = true;
  bool colored = true;  // not of a split that leaves this rank out
  int n_ranks = 0, rank = 0;
  int device = 0;               // as its maker names it
  std::vector<hccc_nccl::Times> times;  // of HCCC_LIBRARIES
  hccc_nccl::Call direct;  // the last that is the vendor's: so is every one like it
  std::vector<hccc_nccl::Multiplied> ops;  // number ncclNumOps + k is ops[k]
  std::set<hccc_nccl::Registered *> registered;
  const std::shared_ptr<hccc_nccl::LastSaid> last = std::make_shared<hccc_nccl::LastSaid>();
};

namespace hccc_nccl {

// Returns the platform of a communicator's libraries: "cpu", "cuda" or "hip".
std::string platform_of(ncclComm_t comm);
// Returns whether memory of a communicator is the host's.
bool on_cpu(ncclComm_t comm);
// Returns the stream that a caller means: on a CPU NCCL's callers' default streams are none.
void *stream_of(ncclComm_t comm, cudaStream_t stream);

// Throws Failed where a result of libhccc's is no success.
void must(hcccResult_t result);
void check(const void *pointer, const char *what);
void check(ncclComm_t comm);  // that it is there, and made

// Loads the libraries of HCCC_LIBRARIES for new communicators, and makes the vendor's. Throws Failed.
void make_ready(const std::vector<ncclComm_t> &comms);

// The group that this thread has open.
namespace group {
bool open();
void start();
// Ends it. Returns whether a thread makes its calls: where a communicator does not block. Throws Failed.
bool end();
// Note that the open group has calls of a communicator, and that it has ended.
void uses(ncclComm_t comm);
void forget(ncclComm_t comm);
// Has a communicator, of which `out` is the caller's handle, made ready at the group's end, or now.
void made(ncclComm_t comm, ncclComm_t *out);
// Makes a call of the vendor's at the group's end, or now.
void at_vendor(std::function<ncclResult_t()> call);
void failed(const Failed &failed);
}  // namespace group

// Holds the error of this thread's last call that failed.
Said &thread_said();

// Runs `body`, and returns the result of what it throws, whose text it keeps.
template <class Body>
ncclResult_t caught(ncclComm_t comm, const Body &body) {
  const std::shared_ptr<LastSaid> last = comm ? comm->last : nullptr;
  const auto report = [&](const Failed &failed) {
    thread_said() = said(failed.text);
    if (last) last->set(thread_said());
    group::failed(failed);
    return failed.code;
  };
  try {
    body();
    return ncclSuccess;
  } catch (const Failed &failed) {
    return report(failed);
  } catch (const std::bad_alloc &) {
    return report({ncclSystemError, "no memory"});
  } catch (const std::exception &error) {
    return report({ncclInternalError, error.what()});
  }
}

// Sets the thread's device again, at its end.
class SameDevice {
 public:
  SameDevice() { known_ = runtime().hcccrtGetDevice(&device_) == hcccrtSuccess; }
  SameDevice(const SameDevice &) = delete;
  SameDevice &operator=(const SameDevice &) = delete;
  ~SameDevice() {
    if (known_) runtime().hcccrtSetDevice(device_);
  }

 private:
  int device_ = 0;
  bool known_;
};

// Ends a communicator without waiting.
void abandon(ncclComm_t comm);

}  // namespace hccc_nccl

// Begins a function of NCCL's, and of its other name, which profilers call.
#define HCCC_NCCL_NAMED(type, name, other, parameters)                                                        \
  extern "C" __attribute__((visibility("default"), alias(#name))) type other parameters;                      \
  extern "C" __attribute__((visibility("default"))) type name parameters
#define NCCL_FUNCTION(name, parameters) HCCC_NCCL_NAMED(ncclResult_t, name, p##name, parameters)
