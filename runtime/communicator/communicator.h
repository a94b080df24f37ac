// communicator.h: one rank of a communicator.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "failure.h"
#include "gpu_calls.h"
#include "host.h"
#include "libraries.h"
#include "monitor.h"
#include "network.h"
#include "registration.h"
#include "staging.h"

namespace hccc {

// How a call runs, as it was set when the call was made.
struct Settings {
  double timeout_s = 0;
  long long micro_batch_bytes = 0;  // 0: as the plan has it
  int window = 0;
};

class Communicator {
 public:
  // Meets the other ranks. Throws Error.
  Communicator(const hccc_unique_id &id, int n_ranks, int rank);
  ~Communicator();

  int rank() const { return rank_; }
  int n_ranks() const { return n_ranks_; }

  // All ranks at once. Throws Error.
  void load(const std::string &path, double timeout_s);
  // Whether a call could be made now. May be asked while one runs. Throws Error.
  void check(const Wanted &wanted) const;
  // One collective: returns when this rank's part is done. Throws Error.
  void call(const Wanted &wanted, const Settings &settings);
  // As hccc_bootstrap_allgather. Throws Error.
  void allgather(void *data, size_t bytes_each, double timeout_s);
  // The communicator is lost, and all ranks are told, unless it is already.
  void lose(hcccResult_t code, const std::string &text);
  const Failure &failure() const { return failure_; }
  // Whether calls are launched on a GPU: in the stream that is given with them, asynchronously.
  bool on_gpu() const { return gpu_ != nullptr; }
  // How many launches have not ended.
  size_t unfinished() { return gpu_ ? gpu_->unfinished() : 0; }
  // Returns when all launches have ended. Throws Error where the communicator is lost.
  void settle();
  Registrations &registrations() { return *registrations_; }
  // A registration; device memory is shown to the peers. Throws Error.
  void *enlist(void *at, size_t bytes);
  // What libraries are to be for, and the device whose memory it is; null where it is the host's.
  const char *target() const { return host_->target(); }
  const Device *device() const;

 private:
  struct Meeting {
    void operator()(hccc_bootstrap *bootstrap) const { hccc_bootstrap_close(bootstrap); }
  };

  void check_going() const;
  void check_domains(const hccc_library &library) const;
  bool any_foreign(bool own, const Called &called);
  void run(const std::vector<const Library *> &libraries, const Called &called, const Staged &staged,
           size_t at, size_t count, void *stream);
  void launch(const std::vector<const Library *> &libraries, const Called &called, const Buffers &buffers,
              const GpuCalls::Reaches &reaches, void *stream);
  void watch();
  void gpu_wait() noexcept;
  void show(const Buffers &buffers, const Called &called);
  void show(const void *at, size_t bytes, const std::string &what, double timeout_s);
  [[noreturn]] void late(const Called &called, int rank);
  [[noreturn]] void give_up(hcccResult_t code, const std::string &text);
  Error reason_of(const Called &called);
  [[noreturn]] void lost(const Called &called) { throw reason_of(called); }

  const int rank_, n_ranks_;
  double timeout_;
  std::unique_ptr<hccc_bootstrap, Meeting> bootstrap_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Registrations> registrations_;
  Libraries libraries_;
  Failure failure_;
  std::unique_ptr<Network> network_;  // where ranks are on other hosts
  std::unique_ptr<GpuCalls> gpu_;       // where calls are launched on one
  std::unique_ptr<Monitor> monitor_;
  Staging staging_;
  std::mutex calling_;
  mutable std::mutex loading_;  // libraries_ changes; taken after calling_
  uint64_t number_ = 0, long_calls_ = 0;
  long long micro_batch_bytes_ = 0;
  int window_ = 0;
  int workers_ = 1;
  bool crowded_ = false;
};

// HCCC_TIMEOUT, or 600. Throws Error.
double timeout_of_environment();

}  // namespace hccc
