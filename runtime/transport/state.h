// state.h: the state of a transport. One lock guards it; the progress thread holds it while it
// works.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "blob.h"
#include "include/hccc_transport.h"
#include "library.h"
#include "pool.h"

namespace hccc::transport {

using Clock = std::chrono::steady_clock;

// The header of every active message. Ranks have the same byte order (blob.cpp).
struct Header {
  uint64_t key;     // the receiver's, from its blob
  int32_t rank;     // the sender
  uint32_t kind;
  uint32_t order;   // of the message among all of that rank for this one, from 0, around 2^32
  uint32_t turn;    // of the message among those of its thread block
  int32_t tb, channel;
  int32_t window;
  uint32_t value;
  uint64_t target;  // of this slice
  uint64_t bytes;   // of the whole message
  int64_t counter;
};
// A WINDOW has its number, `bytes`, and its memory in `value`; KNOWN says that the peer has noted it. A MESSAGE whose
// `window` is LATER comes without its bytes: an ASK with its order has them sent as PIECEs, UNWANTED frees its sender.
enum Kind : uint32_t { HELLO, TRANSFER, LEAVING, MESSAGE, WINDOW, KNOWN, ASK, UNWANTED, PIECE };
enum : int32_t { LATER = 1 };
enum : unsigned { MESSAGE_ID = 0x68 };  // of UCX's active message
enum : uint32_t { MAX_MESSAGES_AHEAD = 1 << 20 };  // of a peer, that UCX passes on too early

struct Window {
  char *base;
  uint64_t bytes;
  int memory;
  bool staged;
  ucp::Memory registered;  // null: UCX registers what it needs
};

struct Peer;
struct Stream;

// A transfer that was taken and is not complete.
struct Message {
  hccc_transfer transfer;
  Peer *peer;
  uint32_t order, turn;
  long long cut;   // bytes in slices
  int in_flight;   // slices
  bool begun;
  hccc_transport_message *of;  // whose bytes these are; null: of a window
};

// A part of a message: being copied into a slot of the pool, waiting to be sent, or sent.
struct Slice {
  struct hccc_transport *t;
  Message *message;  // null: of the transport itself
  Peer *peer;
  Header header;
  const char *data;
  size_t bytes;
  int memory;
  int slot;  // of the pool; -1: none
  void *ticket;
  ucp::Memory registered;
  uint32_t flags;  // of UCX
  bool quick;      // goes by the peer's second connection
};

// The messages of one thread block for one peer, in order.
struct Stream {
  std::deque<Message *> messages;
  uint32_t turns = 0;
};

// A message that is arriving.
struct Arrival {
  bool known = false;
  uint32_t order = 0, value = 0;
  uint64_t missing = 0;
  int64_t counter = -1;
};

// Messages of one thread block of a peer that arrive, from the first whose counter is not raised.
struct ArrivalQueue {
  uint32_t first = 0;
  std::deque<Arrival> arrivals;
};

}  // namespace hccc::transport

// A message of a rank, sent or received. UCX may touch the caller's memory while it is pending.
// Its header has the tag for `tb` and the type for `channel`.
struct hccc_transport_message {
  hccc_transport *t;
  hccc::transport::Peer *peer;
  hccc::transport::Header header;
  std::vector<char> data;  // of one that came with its header
  void *descriptor;        // of UCX, for one that is to be fetched
  bool later = false;      // it has come without its bytes, and nobody has asked for them
  const char *from = nullptr;
  char *to = nullptr;      // null: nobody wants what comes
  uint64_t missing = 0;    // bytes
  std::atomic<int> state{0};  // 1: done, -1: failed
  bool pending = false, dropped = false;
};

namespace hccc::transport {

enum class PeerState { UNKNOWN, CONNECTED, LEFT, FAILED };

struct Peer {
  int rank = -1;
  struct hccc_transport *t = nullptr;
  PeerState state = PeerState::UNKNOWN;
  bool reported = false, busy = false;
  bool hello_posted = false, hello_sent = false, hello_received = false;
  ucp::Endpoint endpoint = nullptr;
  ucp::Endpoint quick = nullptr;  // a second connection over TCP, for what must not stand behind long ones
  Blob blob;
  std::set<int> knows;     // windows that it was told of
  std::vector<int> noted;  // its windows, of which it is to hear that they are known
  // Sending.
  std::unordered_map<uint64_t, Stream> streams;
  std::deque<Stream *> waiting[2];  // with a message to cut: small ones, large ones
  uint32_t orders = 0;
  long long bytes_in_flight = 0;
  int in_flight = 0;
  Clock::time_point moved{};  // when a slice was last sent or done
  // Receiving.
  std::unordered_map<uint64_t, ArrivalQueue> arrival_queues;
  uint32_t first = 0;         // the first message whose counter was not raised
  std::deque<char> raised;    // whether each message's counter was, from that one on
  // Of messages between ranks.
  uint32_t messages_sent = 0, messages_received = 0;
  std::map<uint32_t, hccc_transport_message *> early;  // that came before earlier ones
  std::map<uint32_t, hccc_transport_message *> told, asked;  // without bytes: sent; received, and asked for
};

// Bytes on their way into a window.
struct Receipt {
  struct hccc_transport *t;
  Peer *peer;
  Header header;
  size_t bytes;
  char *target;
  void *descriptor;  // of UCX, while it waits for a slot
  int slot;
  void *ticket;
};

struct Notice {
  int rank;
  std::string text;
};

}  // namespace hccc::transport

struct hccc_transport {
  // Of the caller.
  hccc_transport_options options{};
  hccc_transport_copier copier{};
  bool has_copier = false;
  std::string network;
  long long slice_bytes = 0, pool_bytes = 0, flight_bytes = 0;
  bool eager = false;  // slices go without UCX's agreement (endpoint.cpp)
  // UCX.
  hccc::transport::ucp::Context context = nullptr;
  hccc::transport::ucp::Worker worker = nullptr;
  uint64_t memory_types = 0;
  int efd = -1, wake_fd = -1;
  // Windows and peers.
  uint64_t key = 0;
  std::map<int, hccc::transport::Window> windows;
  std::vector<std::unique_ptr<hccc::transport::Peer>> peers;
  std::vector<hccc::transport::Peer *> busy;  // with messages to cut
  // Of some peer: a HELLO is due, a KNOWN is due, it is to be closed.
  bool hello_due = false, known_due = false, failed_peers = false;
  std::vector<unsigned char> address, blob;
  // Staging, made at its first use.
  hccc::transport::Pool out_pool, in_pool;
  std::deque<hccc::transport::Slice *> copying_out;
  std::deque<hccc::transport::Receipt *> copying_in, without_slot;
  hccc::transport::Cells cells;
  // The own rank's ring; null: it only receives.
  const hccc_proxy_ring *proxy_ring = nullptr;
  uint32_t taken = 0;
  size_t messages = 0, slices = 0, receipts = 0;
  // Messages that have come, in each sender's order, and how many there are; and the callers' that
  // are under way.
  std::deque<hccc_transport_message *> inbox;
  std::atomic<size_t> arrived{0};
  size_t requests = 0;
  int closing = 0;  // endpoints
  // The thread.
  std::mutex lock;
  std::atomic<int> callers{0};  // waiting for the lock
  std::thread thread;
  std::mutex thread_lock;  // of start and stop
  std::atomic<bool> running{false};
  bool leaving = false;
  std::vector<hccc::transport::Notice> notices;
  hccc_transport_counters_t counters{};
};

namespace hccc::transport {

using Transport = ::hccc_transport;

// Takes the lock for a caller; the progress thread then yields it.
class Hold {
 public:
  explicit Hold(Transport &t) : t_(t) {
    ++t.callers;
    t.lock.lock();
    --t.callers;
  }
  ~Hold() { t_.lock.unlock(); }
  Hold(const Hold &) = delete;
  Hold &operator=(const Hold &) = delete;

 private:
  Transport &t_;
};

// Returns the key of a stream. All transfers without a block are one stream.
inline uint64_t key_of(int tb, int channel) {
  return tb < 0 ? ~uint64_t(0) : uint64_t(uint32_t(tb)) << 32 | uint32_t(channel);
}

// failure.cpp
void log_line(Transport &t, const std::string &line);
void fail_peer(Transport &t, Peer &peer, const std::string &why);
void report(Transport &t, Peer &peer, const std::string &why);  // once
void fail_self(Transport &t, const std::string &why);  // for errors of the own rank
void deliver_notices(Transport &t);
void close_failed(Transport &t);
void check_deadlines(Transport &t, Clock::time_point now);

// send.cpp
int take(Transport &t);
int send(Transport &t);
int send_known(Transport &t);
bool post(Transport &t, Peer &peer, Kind kind, bool quick);
bool post(Transport &t, Peer &peer, const Header &header, bool quick = true);
void send_pieces(Transport &t, hccc_transport_message *of);
bool tell(Transport &t, Peer &peer, int window);
int finish_copies_out(Transport &t);
void drop_messages(Transport &t, Peer &peer);

// receive.cpp
bool listen(Transport &t, std::string &why);
int finish_copies_in(Transport &t);
void drop_receipts(Transport &t, const Peer *peer);

// message.cpp
hccc_transport_message *send_message(Transport &t, int rank, int tag, int type, const void *data, size_t bytes);
ucp::Status take_message(Transport &t, Peer &peer, const Header &h, void *data, size_t bytes, bool rendezvous);
void take_piece(Transport &t, Peer &peer, const Header &h, const void *data, size_t bytes);
void take_answer(Transport &t, Peer &peer, const Header &h);
void settle(hccc_transport_message *message, ucp::Status status);
void drop_told(Peer &peer);
void fetch_message(hccc_transport_message *message, void *to);
void free_message(hccc_transport_message *message);
void cancel_messages(Transport &t);
void drop_inbox(Transport &t);

// endpoint.cpp
bool open_worker(Transport &t, std::string &why);
bool open_endpoint(Transport &t, Peer &peer, std::string &why);
void close_endpoint(Transport &t, Peer &peer);
void close_worker(Transport &t);

// progress.cpp
int work(Transport &t, bool taking);
void run(Transport &t);
void watch_for_abort();

}  // namespace hccc::transport
