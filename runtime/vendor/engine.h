// engine.h: what an engine implements; table.cpp makes the table of C functions of it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../communicator/error.h"
#include "../communicator/time_left.h"
#include "include/hccc_vendor.h"
#include "meeting.h"

namespace hccc::vendor {

// A call of the table. peer: the root, or the other end of a message.
struct Call {
  int what = 0;
  bool receives = false;  // of a message
  const void *send = nullptr;
  void *receive = nullptr;
  size_t count = 0;
  hcccDataType_t type = hcccInt8;
  hcccRedOp_t op = hcccSum;
  int peer = -1;
  void *stream = nullptr;

  // Returns whether a call differs from another in its buffers and its stream at most.
  bool is_like(const Call &other) const {
    return what == other.what && receives == other.receives && count == other.count && type == other.type &&
           op == other.op && peer == other.peer;
  }
  size_t width() const;
  size_t bytes() const { return count * width(); }
};

// A communicator is lost: its failure is kept, and every later call gets it.
struct Lost : Error {
  using Error::Error;
};

// Says whether a thread may go on waiting. Throws Lost.
class Waiting {
 public:
  static constexpr unsigned SPINS = 300;  // turns, of tens of microseconds, before others get the core
  Waiting(hccc_vendor_comm &of, std::string what);
  Waiting(hccc_vendor_comm &of, const Call &call);  // which outlives this
  // Looks at the time, for ranks that are gone, and whether the communicator is aborted.
  void check();
  // The same for a thread that asks the library again and again: looks now and then.
  void turn();

 private:
  std::string what() const;

  hccc_vendor_comm &of_;
  const Call *const call_ = nullptr;  // null: what_ is said
  const std::string what_;
  std::optional<TimeLeft> left_;  // from the first look on, where a thread asks again and again
  unsigned turns_ = 0;
};

const char *name_of_call(int what);
// Returns what can be said of a call: "ReduceScatter of 7 float32, sum".
std::string text_of_call(const Call &call);

// An engine. `table` has the engine's name, flags and `can`; table.cpp adds the rest.
struct Engine {
  hccc_vendor table{};
  std::string name, library;
  // Makes a communicator of a library's world. Throws Error.
  std::function<hccc_vendor_comm *(int n_ranks, const void *id, int rank, double timeout)> init;
};

// Load a library; path: null to have the loader find it. Throw Error.
Engine load_mpi(const std::string &vendor, const char *path);
Engine load_nccl(const std::string &vendor, const char *path);
Engine load_oneccl(const char *path);
Engine own();

// Lists 0, 1 ... n - 1.
std::vector<int> numbers(int n);
// Opens a library with its own names before those of this process. Throws Error.
void *open_library(const std::string &vendor, const char *path, const char *usual);
// Returns the file that a handle is of.
std::string file_of(void *handle);

}  // namespace hccc::vendor

// A communicator of an engine. Its functions throw Error; Lost where it is lost by that.
struct hccc_vendor_comm {
  hccc_vendor_comm(std::shared_ptr<hccc::vendor::Meeting> meeting, std::vector<int> watched, int n_ranks, int rank)
      : meeting(std::move(meeting)), watched(std::move(watched)), n_ranks(n_ranks), rank(rank) {}
  virtual ~hccc_vendor_comm();

  virtual void make(const hccc::vendor::Call &call) = 0;
  // Begins a call like `checked`, with other buffers. False: nothing has begun, and `make` is to make it.
  virtual bool begin(const hccc::vendor::Call &) { return false; }
  // Returns when it has ended, or, where that is not soon, false.
  virtual bool end(bool) { return true; }
  virtual void exchange(const std::vector<hccc::vendor::Call> &messages) = 0;
  virtual hccc_vendor_comm *split(int color, int key) = 0;
  virtual void set_timeout(double seconds) { timeout = seconds; }
  virtual void stop() {}
  virtual void wait(void *) {}
  // Returns an error that the library has found by itself; empty: none.
  virtual std::string found() { return ""; }
  // Returns the ranks to watch of a communicator that is split from this: those of its color. Of one
  // that is itself split, which has no meeting of its own, all of this.
  std::vector<int> watched_of(int color);

  const std::shared_ptr<hccc::vendor::Meeting> meeting;  // null: hccc's own
  const std::vector<int> watched;                        // ranks of the meeting that must not go
  const int n_ranks, rank;
  hccc::vendor::Call checked;  // the last call that was right but for its buffers, which are those it must have
  double timeout = 0;
  std::atomic<bool> aborted{false};
  std::atomic<hcccResult_t> failure{hcccSuccess};
  std::string failure_text;
};
