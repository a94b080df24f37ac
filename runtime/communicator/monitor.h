// monitor.h: notices failures that no kernel can: the end of a rank's process, a rank that aborts,
// different calls at two ranks, a call's deadline. It wakes up ten times a second, in a thread of its own, at
// rank 0 in that of the bootstrap's hub.
#pragma once

#include <poll.h>
#include <stdint.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "descriptor.h"
#include "failure.h"
#include "host.h"
#include "liveness.h"
#include "refusals.h"

namespace hccc {

// Sends all other ranks the reason why this one aborts.
void notify_ranks(hccc_bootstrap *bootstrap, hcccResult_t code, const std::string &text);

class Monitor {
 public:
  // watch: called at every turn; throws nothing.
  Monitor(hccc_bootstrap *bootstrap, const Host &host, Failure &failure, int rank, std::function<void()> watch,
          Refusals::Steps steps);
  ~Monitor();

  // The number of the running call, 0 for none, for all of the host: calls are compared while one runs.
  std::atomic<uint64_t> &running;
  // How long a call may last, in seconds; 0: without end. Not for calls on a GPU: their kernels
  // know when they began.
  std::atomic<double> limit_s{0};

  // Odd while sends and receives are made: ranks of other hosts are then asked for signs of life.
  std::atomic<uint64_t> messaging{0};

  // Sends all other ranks the reason why this one aborts.
  void notify(hcccResult_t code, const std::string &text);
  // Refuses a call at all ranks: it differs at one of them.
  void refuse(uint64_t number);
  // Return the number of the last call, and the agreements, before the last refusal ended.
  uint64_t settled() const { return refusals_.settled(); }
  uint64_t agreements() const { return refusals_.agreements(); }
  // Returns the lowest number of a call that is refused.
  uint64_t refused() const { return refusals_.number(); }
  // Tells other ranks which messages of this one they drop, as it has withdrawn them.
  void tell_withdrawn(const std::vector<Withdrawn> &all) { refusals_.tell_withdrawn(all); }
  // Returns whether a rank is in a later call than this one, as far as it is known.
  bool ahead(int rank, uint64_t number) const;
  // Returns whether all ranks make a call; refuses it where one makes another.
  bool all_call(const Called &own);
  // Tells ranks of other hosts which call this one makes.
  void show(const Called &own);
  // Says that this rank leaves, and why where its communicator is lost. Its last message.
  void leave();
  // Says on whom a call waits that is not done in time; "": nobody stands out.
  std::string describe_late(const Called &own) const;
  // Says which ranks stand still, by a call's deadline; "": none.
  std::string describe_silent(double limit_s) const;

  // Closes the descriptors, in a child of fork() that has no such thread.
  void forsake();

 private:
  void start();
  void run();
  const std::vector<pollfd> &files();
  int turn(const pollfd *polled);
  void read_messages();
  void share_failure();
  bool adopt_failure(int rank);
  void check_deadline();
  void ask_for_messages(std::chrono::steady_clock::time_point now);
  void handle_departure(int rank, bool orderly);
  void compare_calls();
  uint64_t differs(int rank, const Called &own);
  uint64_t differs_near(int rank, uint64_t *compared) const;

  hccc_bootstrap *bootstrap_;
  const Host &host_;
  Failure &failure_;
  const int rank_;
  const std::function<void()> watch_;
  Liveness liveness_;
  Refusals refusals_;
  const bool several_hosts_;
  std::mutex sharing_;  // of this rank's Told
  // Of every other process of this host; null: none, or it has ended.
  std::vector<std::shared_ptr<const Descriptor>> processes_;
  std::vector<bool> left_;
  std::vector<Called> last_calls_;  // of ranks of other hosts that have left; number 0: of none
  std::vector<bool> knows_last_call_;
  std::vector<uint64_t> compared_;  // calls of each rank of this host, up to a number
  using Clock = std::chrono::steady_clock;
  uint64_t messages_watched_ = 0;  // the same of sends and receives
  Clock::time_point messages_since_;
  uint64_t watched_ = 0;  // the running call, and since when it is known, and was last asked about
  Clock::time_point since_, asked_;
  std::vector<pollfd> files_;  // to poll: the bootstrap's, and one of each process that lives
  std::vector<int> files_of_;  // its ranks, from the second on
  Descriptor stop_;     // of a thread of its own
  std::thread thread_;
};

}  // namespace hccc
