// messages.h: sends and receives between two ranks: their matching by source and tag, and progress.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../transport/include/hccc_transport.h"
#include "failure.h"
#include "host.h"
#include "notices.h"
#include "parts.h"
#include "registration.h"
#include "rings.h"

namespace hccc {

// Tags of what ranks tell each other of an uneven call: this and lower ones. No caller has them, and no
// later call: what was told of one that was refused may still come.
constexpr int TOLD_TAG = -2;
inline int told_tag(uint64_t number) { return TOLD_TAG - static_cast<int>(number & 0xfffffff); }
constexpr int MOVED_TAG = -(1 << 29);  // of a block of a collective; lower than those

// A send or a receive as its caller makes it.
struct Message {
  bool sends = false;
  char *at = nullptr;  // a send only reads it
  size_t count = 0, bytes = 0;
  int type = 0, peer = 0, tag = 0;  // of a receive also HCCC_ANY_SOURCE, HCCC_ANY_TAG
  bool exact = false;               // a receive of so many elements, not of at most so many
  hcccStatus_t *status = nullptr;   // of a receive; null: nobody asks
  void (*done)(void *) = nullptr;   // is called with the next when it is done; null: nobody asks
  void *argument = nullptr;
};

// Describes it: `rank 0 sends 12 float32 with tag 3 to rank 1`.
std::string description(const Message &message, int rank);

// A send or receive that a rank waits for, in its control page.
uint64_t packed(const Message &message);
// Describes what a rank waits for; "": nothing.
std::string described_wait(const Control &control, int rank);

// Sends and receives that were made together: n of them, which live until all are done.
struct Exchange {
  const Message *messages;
  size_t n;
  double timeout_s;
  size_t open = 0;               // that are not done
  unsigned long long since = 0;  // by hccc_clock(), from about when it waits
  bool done = false;       // tells a thread whose messages another moves
  bool told = false;       // of an uneven call: it is withdrawn where that is refused
  bool withdrawn = false;  // so, or because another rank is in a later call than this one
};

// Threads make exchanges at once. One of them, the first that waits for its own, moves the messages
// of all until its own are done; then the next does. So a message that waits for its other end keeps
// no later one from going.
class Messages {
 public:
  using Silent = std::function<std::string()>;
  // Returns whether a rank is in a call that this one comes to after its messages.
  using Ahead = std::function<bool(int rank)>;

  // far: carries messages between hosts; null: there is one host.
  Messages(const Host &host, const Registrations &registrations, const Failure &failure, hccc_transport *far, int rank,
           bool oversubscribed, Ahead ahead);
  ~Messages();

  // Checks that what a rank sends to itself is received in the same group. Throws Error.
  void check_own(const Message *messages, size_t n) const;
  // Returns whether this rank may read the others' memory, as far as is known. No message is under way.
  bool reads_memory() const { return parts_.reads_memory(); }
  // Begins an exchange: its messages come behind those of earlier ones. It must be completed.
  void begin(Exchange &exchange);
  // Returns when an exchange is done. silent: says which ranks stand still, for the error at the
  // deadline. Throws Error; then the caller cancels.
  void complete(Exchange &exchange, const Silent &silent);
  // Ends all exchanges of a communicator that is lost, so that no memory of theirs is touched.
  void cancel();
  // Drops what was told of uneven calls, but of one.
  void drop_told(uint64_t but);
  // Return the message because of which exchanges were withdrawn, and, once, what their receivers drop.
  Message refused() const { return refused_; }
  std::vector<Withdrawn> take_withdrawn();
  // Notes that the receivers know.
  void have_told_withdrawn();
  // Returns whether messages move, or receivers have yet to know what they drop.
  bool busy();
  // Drops messages of a rank that it has withdrawn, when they are here. By any thread.
  void drop_later(int source, const Withdrawn &withdrawn);
  // Takes in what has come, so that the senders of what is dropped are free. No rank begins messages.
  void drop_withdrawn();

 private:
  struct Peer {
    Ring *in = nullptr, *out = nullptr;  // null: of another host
    uint64_t received = 0, sent = 0;
    uint64_t taken = 0;    // by the peer, as far as it is known
    uint64_t blocked = 0;  // the turn in which the ring was full
    std::vector<Withdrawn> withdrawn;  // of its messages to this rank
  };
  // What the sender says of a message.
  struct Envelope {
    int source, tag, type;
    uint64_t bytes;
    How how;
  };
  // A message that came before its receive.
  struct Early {
    Envelope envelope;
    uint64_t place;            // among the messages of its source
    std::vector<char> inside;  // its bytes, or where the record is
  };
  enum class Phase { WAITING, MOVING, DONE, WITHDRAWN };
  struct Sending {
    Exchange *in;
    const Message *of;
    Phase phase;
    Sender moves;
    hccc_transport_message *far = nullptr;  // to another host
    uint64_t place = UNSENT;                // among the messages to its peer
  };
  static constexpr uint64_t UNSENT = UINT64_MAX;
  struct Receiving {
    Exchange *in;
    const Message *of;
    Phase phase;
    Receiver moves;
    Envelope from;
    hccc_transport_message *far = nullptr;  // from another host
  };

  void move_all(Exchange &own, const Silent &silent);
  bool sleep(bool all);
  void wake(int rank) const;
  size_t take_begun();
  void post_from(size_t place);
  void remove_done(const Exchange &own);
  void ended(Exchange &exchange, const Message &message);
  void closed(Exchange &exchange);
  unsigned turns_to_spin() const;
  bool step(bool all);
  bool announce(Sending &sending);
  bool move(Sending &sending);
  bool move(Receiving &receiving);
  bool arrived(hccc_transport_message *&far, const Message &message) const;
  void forget();
  static void drop(const Early &early);
  bool dropped(int source, uint64_t place) const;
  void apply_withdrawn();
  bool drain(int source, bool all);
  bool drain_far();
  bool awaits(int source) const;
  Receiving *receive_of(const Envelope &envelope);
  void post(Receiving &receiving);
  bool deliver(Receiving &receiving, const Envelope &envelope, const char *inside);
  void finish(Receiving &receiving);
  void withdraw();
  void withdraw_told(Exchange &exchange);
  const Message *waits_for_a_later_call(unsigned long long idle);
  void look(unsigned long long now, unsigned long long idle, const Silent &silent);
  bool gone(const Message &message) const;
  [[noreturn]] void expire(const Exchange &exchange, const std::string &silent) const;
  const Message &first_open(const Exchange *of = nullptr) const;
  std::string state_of(int rank) const;

  const Host &host_;
  const Failure &failure_;
  hccc_transport *const far_;
  const int rank_;
  const bool oversubscribed_;
  const bool sleeps_;  // a long wait does: other ranks of the host wake it
  const Ahead ahead_;
  Parts parts_;
  std::vector<Peer> peers_;
  std::deque<Early> early_;  // in the order of their coming
  // Of the thread that moves messages, but what mutex_ is locked for.
  std::vector<Exchange *> exchanges_;
  std::vector<Sending> sending_;
  std::vector<Receiving> receiving_;
  size_t open_ = 0;            // of both
  uint64_t turn_ = 0;
  bool any_source_ = false;    // a receive takes any source
  bool any_done_ = false;      // an exchange is done and not removed
  bool drops_ = false;         // some messages that are yet to come
  Message refused_;
  std::vector<Withdrawn> withdrawn_;  // of this rank's messages
  std::vector<hccc_transport_message *> unsent_;  // of those, what UCX has
  std::mutex mutex_;           // of the next, and of `done` of exchanges
  std::condition_variable changed_;
  std::vector<Exchange *> begun_;
  std::atomic<bool> any_begun_{false};
  std::vector<std::pair<int, Withdrawn>> told_withdrawn_;  // by source
  bool moved_ = false;         // by a thread
  bool lost_ = false;
  bool telling_ = false;       // what receivers drop
};

}  // namespace hccc
