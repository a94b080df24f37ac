// communicator.h: one rank of a communicator.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>

#include "broadcasts.h"
#include "failure.h"
#include "gpu_calls.h"
#include "host.h"
#include "libraries.h"
#include "mapper.h"
#include "messages.h"
#include "monitor.h"
#include "network.h"
#include "registration.h"
#include "short_calls.h"
#include "staging.h"
#include "standard.h"
#include "time_left.h"
#include "vendor_calls.h"

namespace hccc {

// The settings of a call, from when it was made.
struct Settings {
  double timeout_s = 0;
  long long micro_batch_bytes = 0;  // 0: as the plan has it
  int window = 0;
};

class Communicator {
 public:
  // Connects to the other ranks in the time that is left. Collective. Throws Error.
  // device: of the memory, of no platform: the host's; family: of the communicator that it is split of.
  Communicator(const hccc_unique_id &id, int n_ranks, int rank, const Device &device, const Family &family,
               const TimeLeft &left);
  ~Communicator();
  // Frees what a child of fork() has of it, instead of destroying it: mappings and descriptors.
  // Nobody is told, and no lock is taken, which a thread of the parent may have held.
  void forsake();

  int rank() const { return rank_; }
  int n_ranks() const { return n_ranks_; }

  // Loads a library. Collective. Throws Error.
  void load(const std::string &path, double timeout_s);
  // What there is for a call, without making anything.
  hcccCan_t can(const Wanted &wanted) const;
  // Checks a call's arguments, also while another call runs. Throws Error.
  void check(const Wanted &wanted, const Settings &settings) const;
  // Makes a collective call; returns when this rank's part is done. Throws Error.
  void call(const Wanted &wanted, const Settings &settings);
  // The same, without most checks, of a call that is like the vendor's library's last one but for its buffers. NO: it is
  // not, and nothing was done; GOES_ON: end_again() waits for it.
  enum class Again { NO, DONE, GOES_ON };
  bool has_vendor() const { return vendor_ != nullptr; }
  Again begin_again(const Wanted &wanted, const Settings &settings);
  void end_again();
  // Reads numbers of an uneven call, wherever they lie: those in memory of the GPU when its stream comes
  // to the call, which waits for that. Null stays null. Throws Error.
  Numbers numbers(const char *collective, const size_t *at, int n, void *stream) const;
  // Checks a send or receive. Throws Error.
  void check(const Message &message) const;
  // Returns whether this rank has yet to be told of a refused call that it came to; tells it of that. Throws Error.
  bool is_to_be_told() const;
  void tell_refusal(double timeout_s);
  // Begins sends and receives, which go on together, in the order of these calls. Throws Error.
  void begin(Exchange &exchange);
  // Makes them; returns when this rank's part is done. Others may begin meanwhile. Throws Error.
  void complete(Exchange &exchange);
  // Returns the name of the library of the last collective; "": there was none.
  const char *last_library() const { return last_library_.load(std::memory_order_relaxed); }
  // Notes the name of the job that makes a collective, which lives as long as this.
  void note_library(const char *name) { last_library_.store(name, std::memory_order_relaxed); }
  // Makes the id of a job of some of the ranks, as hccc_bootstrap_unique_id_among.
  int unique_id_among(const std::vector<int> &ranks, hccc_unique_id *id, hccc_bootstrap_error *error) const {
    return hccc_bootstrap_unique_id_among(bootstrap_.get(), ranks.data(), static_cast<int>(ranks.size()), id, error);
  }
  // Gathers bytes of all ranks, as hccc_bootstrap_allgather. what: the call; null: it has begun. Throws
  // Error.
  void allgather(const char *what, void *data, size_t bytes_each, double timeout_s);
  // Ends the communicator with a failure, here and at all ranks, unless it has one.
  void abort(hcccResult_t code, const std::string &text);
  // Has a call that was refused be told once to who asks how the communicator is.
  void tell_later(const std::string &text) { failure_.tell_later(text); }
  const Failure &failure() const { return failure_; }
  // Looks now, rather than with the monitor, what became of launches.
  void look() {
    if (gpu_ && __atomic_load_n(&failure_.fault()->claimed, __ATOMIC_ACQUIRE)) watch();
  }
  // Returns which calls differed where no call has told this rank of it; "": none.
  std::string refusal() { return failure_.show_refusal(); }
  // Returns whether calls are launched on a GPU: asynchronously, in their streams.
  bool on_gpu() const { return gpu_ != nullptr; }
  // Counts the launches that have not ended.
  size_t unfinished() { return gpu_ ? gpu_->unfinished() : 0; }
  // Counts the launches on a GPU, and returns whether the first `launches` of them have ended.
  uint64_t launched() { return gpu_ ? gpu_->launched() : 0; }
  bool ended(uint64_t launches) noexcept;
  // Notes the buffers of a call that a graph has captured, and returns whether any is in a range.
  void note_captured(const Wanted &wanted);
  void note_captured(const std::vector<Message> &messages);
  bool captured(const void *at, size_t bytes) const;
  // Waits until all launches have ended. Throws Error where the communicator is lost.
  void wait_for_launches();
  Registrations &registrations() { return *registrations_; }
  // Registers a buffer; device memory is shared with the peers. Throws Error.
  void *register_buffer(void *at, size_t bytes);
  // Returns the host of each rank, and whether some rank's memory is a device's.
  std::vector<int> hosts() const;
  bool any_device() const { return host_->any_device(); }
  // Return the target of libraries, and the device of the memory; null: memory of the host.
  const char *target() const { return host_->target(); }
  // Returns the scratch that a communicator of some of these ranks shares with this one.
  Family family(const std::vector<int> &ranks) const { return host_->family(ranks); }
  const Device *device() const;

 private:
  struct CloseBootstrap {
    void operator()(hccc_bootstrap *bootstrap) const { hccc_bootstrap_close(bootstrap); }
  };

  // A call whose arguments are right. copied: peers do not reach all of its buffers; apart: its input
  // is copied, as no plan takes it in place.
  struct Prepared {
    const Library *library;
    Buffers buffers;
    bool copied, apart;
    int turn;  // by which the library's ranks are renumbered
    bool scratch = true;  // it may need some
    bool packets = false;  // which say what call they are of: ranks do not agree on it

    bool in_place() const { return buffers.in_place && !apart; }
  };

  // An even call, of the plan that its library has for it, or of the vendor's library: what a call of the same words,
  // count and cut need not find out again. Buffers are looked at where they are others.
  struct Known {
    const char *collective = nullptr;  // null: there was none
    size_t count = 0, libraries = 0;   // how many were loaded
    int type = 0, op = 0, root = 0;
    long long micro_batch_bytes = 0;
    int window = 0;
    const Library *library = nullptr;  // null: the vendor's
    Called called;  // but for its number
    bool scratch = false, packets = false, ahead = false;
    hccc_again again = {};  // of packets: the launch, once it was made; run: null
    const void *send = nullptr, *receive = nullptr;  // of the last call, as its caller had them
    uint64_t frees = 0;  // of the heap before
    Buffers buffers = {};
    int turn = 0;
  };

  // Whether any rank copies a buffer of a call, or makes it out of place; what ranks tell of their
  // blocks.
  struct Agreed {
    bool copied, out_of_place;
    bool inputs;  // all ranks have told their inputs
    bool reads;   // ranks may read each other's memory, as far as is known
    std::vector<int64_t> told;
  };

  void set_up(const TimeLeft &left);
  void load(const std::string &path, bool standard, double timeout_s);
  bool makes(const Wanted &wanted) const;
  StandardLibrary standard(const Wanted &wanted) const;
  void provide(const Wanted &wanted, double timeout_s);
  bool first_of_host() const;
  void leave();
  void check_not_lost() const;
  void check_not_lost(const Wanted &wanted) const;
  void check_not_refused(double timeout_s);
  uint64_t next_number();
  bool is_ahead(int rank) const;
  [[noreturn]] void refuse(const Message &message, double timeout_s);
  bool rest(AtRest &own, uint64_t number);
  bool reset_flags();
  void check_coming();
  void make(const Wanted &wanted, const Settings &settings, Known *known);
  void set_up_vendor(const TimeLeft &left);
  void make_own(const Wanted &wanted, const Settings &settings, Known *known);
  void make_by_vendor(Called called, const Wanted &wanted, const Settings &settings);
  bool run(const Prepared &prepared, const Wanted &wanted, const Called &called, const Settings &settings);
  void give_scratch();
  void publish(const Called &called);
  Called &recent(uint64_t number) { return recent_[number % kept_]; }
  template <class Body>
  void refusable(double timeout_s, const Body &body);
  void meet(Called called, double timeout_s);
  bool reaches(const char *at, size_t bytes) const;
  void check_allocated(const char *at, size_t bytes) const;
  Known *knows(const Wanted &wanted, const Settings &settings);
  Known &forget();
  bool repeat(Known &known, const Wanted &wanted, const Settings &settings);
  Prepared prepare(const Wanted &wanted, const Library &library, bool packets) const;
  Prepared prepare_blocks(const Wanted &wanted, const Library &library) const;
  void check_not_captured(const char *collective, void *stream) const;
  bool check_plan(const Wanted &wanted, const hccc_library &library, bool in_place, const Settings &settings) const;
  void perform(const Prepared &prepared, const Agreed &agreed, const Called &called, void *stream);
  void check_domains(const hccc_library &library) const;
  int role(int turn) const { return (rank_ - turn + n_ranks_) % n_ranks_; }
  Agreed agree(const Prepared *prepared, const Called &called, const OwnBlocks *blocks);
  bool goes_ahead(const Library &library, const Wanted &wanted) const;
  uint64_t begun_by_all() const;
  void broadcast(const Buffers &buffers, const Called &called);
  bool packets_say(const Prepared &prepared, const Wanted &wanted, const Settings &settings) const;
  const Offer &offer_of(int rank, uint64_t turn, unsigned long long start, const Called &called);
  bool tell_input(const Prepared &prepared, const Called &called) const;
  bool goes_as_messages(const Prepared &prepared, const Agreed &agreed, const Called &called) const;
  bool shares_cores() const;
  void perform_messages(const Prepared &prepared, const Called &called);
  void make(Exchange &exchange);
  bool perform_short(const Prepared &prepared, const Agreed &agreed, const Called &called);
  [[noreturn]] void fail_late(const Called &called);
  void run(const Library &library, const Called &called, const Staged &staged, size_t at, size_t count,
           void *stream, const long long *blocks = nullptr);
  CopiedBlocks copied_blocks(const Prepared &prepared, const OwnBlocks &own, const Called &called) const;
  void tell_hosts(const OwnBlocks &own, const Called &called, std::vector<int64_t> &told);
  void check_table(const BlockTable &table, const Wanted &wanted, const hccc_library &library, const Called &called,
                   const Settings &settings) const;
  void perform_blocks(const Prepared &prepared, const CopiedBlocks &blocks, const BlockTable &table,
                      const Called &called, void *stream);
  void launch(const Library &library, const Called &called, const Buffers &buffers,
              const GpuCalls::Reaches &reaches, void *stream);
  void watch();
  void gpu_wait() noexcept;
  void share_with_peers(const Buffers &buffers, const Called &called);
  void share_with_peers(const void *at, size_t bytes, const std::string &what, unsigned long long since);
  std::string describe_mapping() const;
  [[noreturn]] void fail(hcccResult_t code, const std::string &text);
  Error reason_of(const Called &called);
  [[noreturn]] void throw_reason(const Called &called) { throw reason_of(called); }

  const int rank_, n_ranks_;
  double timeout_;
  unsigned long long waited_ = 0;  // ns that the running call has waited for ranks before its launch
  std::unique_ptr<hccc_bootstrap, CloseBootstrap> bootstrap_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Registrations> registrations_;
  Libraries libraries_;
  Failure failure_;
  std::unique_ptr<Network> network_;  // where ranks are on other hosts
  std::atomic<bool> made_{false};  // all of it: the monitor's thread starts before
  std::unique_ptr<GpuCalls> gpu_;       // where calls are launched on one
  std::unique_ptr<Monitor> monitor_;
  std::unique_ptr<Mapper> mapper_;  // where memory is a device's
  Staging staging_;
  std::unique_ptr<ShortCalls> short_calls_;  // where all ranks share memory of the host
  std::unique_ptr<Messages> messages_;
  std::unique_ptr<Broadcasts> broadcasts_;  // where all ranks share memory of the host
  std::unique_ptr<VendorCalls> vendor_;  // where HCCC_VENDOR names one
  std::shared_mutex calling_;  // of a collective; sends and receives share it
  std::atomic<int> exchanging_{0};  // threads that make sends and receives
  std::mutex refusing_;             // sends and receives
  std::atomic<bool> telling_{false};  // a call waits for what other ranks call
  mutable std::mutex capturing_;           // of the next
  std::set<const void *> captured_;        // buffers of calls in graphs
  mutable std::mutex loading_;  // libraries_ changes; taken after calling_
  uint64_t coming_to_ = 0;                 // a refusal, of a call that this rank has not come to
  unsigned long long coming_since_ = 0;    // by hccc_clock(); both of the monitor
  std::atomic<uint64_t> refused_here_{0};  // the last refusal, from 1, of a call of this rank
  std::atomic<bool> touching_{false};  // a call touches flags and buffers, or is about to
  std::array<Called, RECENT> recent_;
  size_t kept_ = RECENT;  // of them: few stay in a cache
  const Called *shown_ = nullptr;  // of known_: whose words other ranks see
  Known *by_vendor_ = nullptr;     // of known_: the last call of the vendor's library; null: none was like the one before
  uint64_t number_ = 0, agreements_ = 0;  // read by the monitor where no call is touching
  long long micro_batch_bytes_ = 0;
  int window_ = 0;
  int turn_ = 0;  // of the last call
  uint64_t begun_ = 0;  // the number of a call that all ranks have begun, as far as is known
  bool packets_ = false;  // as Prepared has it, of the last call
  std::array<Known, 4> known_;  // the last calls; changed by collectives, which come one after the other
  size_t newest_ = 0, oldest_ = 0;  // of known_: which was made last, and which is known for the longest time
  hccc_again *again_ = nullptr;  // of the call that runs, to be filled in
  bool shares_ = false;  // the call has the shared scratch of this rank
  Scalar scalar_;
  std::atomic<const char *> last_library_{""};
  std::vector<std::vector<hccc_rank>> turned_;  // the ranks from each on; they stay where they are
  int workers_ = 1;
  bool oversubscribed_ = false;
};

// Returns the blocks of the largest buffer of any rank.
int most_blocks(const hccc_library &library);
// Returns HCCC_TIMEOUT, or 600 s. Throws Error.
double timeout_of_environment();

}  // namespace hccc
