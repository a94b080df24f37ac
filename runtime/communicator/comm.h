// comm.h: the handle of the C interface, and the conversion of exceptions to results.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "allocations.h"
#include "calls.h"
#include "communicator.h"
#include "forks.h"
#include "group.h"
#include "jobs.h"
#include "log.h"
#include "multipliers.h"

#define HCCC_API extern "C" __attribute__((visibility("default")))

namespace hccc {

// The last error. A call may end after its communicator, which another thread has aborted.
class LastError {
 public:
  void set(const std::string &text) {
    std::lock_guard<std::mutex> lock(mutex_);
    text_ = text;
  }
  std::string text() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace hccc

struct hcccComm {
  hcccComm(const hccc_unique_id &id, int n_ranks, int rank, const hccc::Device &device, const hccc::Family &family,
           const hccc::TimeLeft &left)
      : of(id, n_ranks, rank, device, family, left), calls(std::make_shared<hccc::Calls>(of)), device(device.number) {
    enlisted.open(*this);
  }
  ~hcccComm() {
    enlisted.close();
    calls->abandon();
    jobs.end();
  }
  // Makes a communicator with the thread's device set; without a platform only the number matters.
  static hcccComm *on(const hccc::Device &device, const hccc_unique_id &id, int n_ranks, int rank,
                      const hccc::Family &family, const hccc::TimeLeft &left) {
    std::optional<hccc::OnDevice> there;
    if (device.platform != hcccrtPlatformNone) there.emplace(device);
    return new hcccComm(id, n_ranks, rank, device, family, left);
  }

  hccc::allocations::Enlisted enlisted;  // until launches have ended: destroyed after `of`
  hccc::Communicator of;
  const std::shared_ptr<hccc::Calls> calls;
  const std::shared_ptr<hccc::LastError> last_error = std::make_shared<hccc::LastError>();
  hccc::Multipliers multipliers;
  hccc::Jobs jobs;
  const hccc::Process process;  // a child of fork() has no part in it
  const int device;
};

namespace hccc {

inline void check(const void *pointer, const char *what) {
  if (!pointer) throw Error(hcccInvalidArgument, text_of("%s is null", what));
}
inline void check(hcccComm_t comm) {
  check(comm, "the communicator");
  if (!comm->process.is_this())
    throw Error(hcccInvalidUsage, "this process was forked after the communicator was made, which is its parent's: "
                                  "make one here");
}

hccc_unique_id from(const hcccUniqueId &id);

// Runs `body`, and has `report` tell the code and the text of what it throws.
template <class Body, class Report>
hcccResult_t guarded(const Body &body, const Report &report) {
  try {
    body();
    return hcccSuccess;
  } catch (const Error &error) {
    return report(error.code, error.what());
  } catch (const std::bad_alloc &) {
    return report(hcccSystemError, "no memory");
  } catch (const std::exception &error) {
    return report(hcccInternalError, error.what());
  }
}

// Runs `body` and returns the result of what it throws. Keeps its text for hcccGetLastError, of the
// communicator and of the thread, and fails the open group.
template <class Body>
hcccResult_t caught(hcccComm_t comm, const Body &body) {
  const bool own = comm && comm->process.is_this();  // in a child its lock may never be free
  const std::shared_ptr<LastError> error = own ? comm->last_error : nullptr;
  const int rank = comm ? comm->of.rank() : -1;
  return guarded(body, [&](hcccResult_t code, const std::string &text) {
    if (error) error->set(text);
    thread_error() = text;
    group::failed(code, text);
    HCCC_LOG(WARN, INIT, rank, "%s", text.c_str());
    return code;
  });
}

// Runs a collective operation in its turn among a communicator's calls: now, or with the open
// group.
void in_turn(hcccComm_t comm, std::function<void(const Settings &)> body);
// Makes the communicator of a color, in a call's turn; null for a rank without one. device: of its memory. Collective.
// Throws Error.
hcccComm_t split(Communicator &of, int color, int key, const Device &device, const TimeLeft &left);

}  // namespace hccc
