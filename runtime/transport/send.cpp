// send.cpp: sends transfers of the ring by UCX. They wait in a queue for each thread block and
// peer. Queues take turns, a slice at a time, so that small transfers do not wait for large ones.
#include <algorithm>

#include "state.h"

namespace hccc::transport {
namespace {

constexpr size_t MAX_MESSAGES = 1 << 14;  // taken and not complete
constexpr int MAX_SLICES = 256;           // in flight to a peer
constexpr long long SMALL = 8192;         // bytes of a message that may overtake others
constexpr long long EAGER = 56 << 10;     // bytes of an eager slice: a packet of UCX's holds it, over TCP
constexpr long long EAGER_FLIGHT = 1 << 20;  // bytes of eager slices in flight to a peer
constexpr uint64_t PIECES = ~uint64_t(1);  // the stream of messages between ranks

bool is_inside(long long at, long long bytes, uint64_t size) {
  return at >= 0 && bytes >= 0 && uint64_t(bytes) <= size && uint64_t(at) <= size - uint64_t(bytes);
}

std::string place(int window, long long at, long long bytes) {
  return std::to_string(bytes) + " bytes at " + std::to_string(at) + " of window " +
         std::to_string(window);
}

// Returns what is wrong with a descriptor whose peer is known; empty: nothing.
std::string mistake(const Transport &t, const Peer &peer, const hccc_transfer &x) {
  const auto to_rank = " of rank " + std::to_string(peer.rank);
  if (x.bytes != 0) {
    const auto source = t.windows.find(x.source_window);
    if (source == t.windows.end() || !is_inside(x.source, x.bytes, source->second.bytes))
      return "a transfer reads " + place(x.source_window, x.source, x.bytes) +
             ", which are not there";
    const auto target = peer.blob.windows.find(x.target_window);
    if (target == peer.blob.windows.end() || !is_inside(x.target, x.bytes, target->second.bytes))
      return "a transfer writes " + place(x.target_window, x.target, x.bytes) + to_rank +
             ", which are not there";
  }
  if (x.counter < 0) return "";
  const auto flags = peer.blob.windows.find(HCCC_WINDOW_FLAGS);
  if (flags == peer.blob.windows.end() || x.counter % 4 ||
      !is_inside(x.counter, 4, flags->second.bytes))
    return "a transfer raises a counter at " + std::to_string(x.counter) + " of the flags" + to_rank +
           ", which is not there";
  return "";
}

void count_complete(Transport &t) {
  if (t.proxy_ring) __atomic_fetch_add(t.proxy_ring->completed, 1u, __ATOMIC_RELEASE);
}

void complete(Transport &t, Message *message) {
  if (hccc_transport_message *const of = message->of) {
    const bool all = uint64_t(message->cut) == of->header.bytes && message->peer->state != PeerState::FAILED;
    settle(of, all ? ucp::OK : ucp::CANCELED);
  } else {
    count_complete(t);
    ++t.counters.sent_transfers;
  }
  --t.messages;
  delete message;
}

void wait_in_line(Peer &peer, Stream &stream) {
  if (!peer.busy) peer.t->busy.push_back(&peer);
  peer.busy = true;
  peer.waiting[stream.messages.front()->transfer.bytes > SMALL].push_back(&stream);
}

void line_up(Transport &t, Stream &stream, Message *message) {
  ++t.messages;
  stream.messages.push_back(message);
  if (stream.messages.size() == 1) wait_in_line(*message->peer, stream);
}

// Takes a descriptor. One that cannot be sent is complete: its bytes are not read.
void accept(Transport &t, const hccc_transfer &x) {
  if (x.peer < 0 || x.peer >= t.options.n_ranks)
    return fail_self(t, "a transfer is for rank " + std::to_string(x.peer) + ", which is none"),
           count_complete(t);
  Peer &peer = *t.peers[size_t(x.peer)];
  if (peer.state != PeerState::CONNECTED) {
    if (peer.state == PeerState::UNKNOWN)
      fail_self(t, "a transfer is for rank " + std::to_string(x.peer) + ", which is not connected");
    else
      report(t, peer, "it has left, and there is a transfer for it");
    return count_complete(t);
  }
  const std::string wrong = mistake(t, peer, x);
  if (!wrong.empty()) return fail_self(t, wrong), count_complete(t);
  Stream &stream = peer.streams[key_of(x.tb, x.channel)];
  line_up(t, stream, new Message{x, &peer, peer.orders++, stream.turns++, 0, 0, false, nullptr});
}

void sent(void *request, ucp::Status status, void *user_data);

void done(Slice *slice, ucp::Status status) {
  Transport &t = *slice->t;
  Peer &peer = *slice->peer;
  Message *message = slice->message;
  if (slice->slot >= 0) t.out_pool.give(slice->slot);
  peer.bytes_in_flight -= (long long)slice->bytes;
  --peer.in_flight;
  --t.slices;
  peer.moved = Clock::now();
  delete slice;
  if (status != ucp::OK) fail_peer(t, peer, "a transfer to it failed: " + ucx().meaning(status));
  if (!message) peer.hello_sent = true;
  if (!message) return;
  --message->in_flight;
  if (message->begun && message->cut == message->transfer.bytes && message->in_flight == 0)
    complete(t, message);
}

void sent(void *request, ucp::Status status, void *user_data) {
  ucx().ucp_request_free(request);
  done(static_cast<Slice *>(user_data), status);
}

void hand_to_ucx(Slice *slice) {
  Peer &peer = *slice->peer;
  const ucp::Endpoint endpoint = slice->quick && peer.quick ? peer.quick : peer.endpoint;
  if (!endpoint) return done(slice, ucp::CANCELED);
  ucp::RequestParams params{};
  params.mask = ucp::OP_CALLBACK | ucp::OP_USER_DATA | ucp::OP_DATATYPE | ucp::OP_MEMORY_TYPE;
  params.callback.send = sent;
  params.user_data = slice;
  params.datatype = ucp::BYTES;
  params.memory_type = slice->memory;
  if (slice->flags) params.mask |= ucp::OP_FLAGS, params.flags = slice->flags;
  if (slice->registered && slice->bytes) {
    params.mask |= ucp::OP_MEMORY;
    params.memory = slice->registered;
  }
  peer.moved = Clock::now();
  const ucp::StatusPointer sending =
      ucx().ucp_am_send_nbx(endpoint, MESSAGE_ID, &slice->header, sizeof slice->header,
                            slice->data, slice->bytes, &params);
  if (!ucp::is_request(sending)) done(slice, ucp::status_of(sending));
}

Header header_of(const Transport &t, const Peer &peer, Kind kind) {
  Header header{};
  header.key = peer.blob.key;
  header.rank = t.options.rank;
  header.kind = kind;
  return header;
}

// Returns whether bytes of a message go without UCX's agreement with the peer: from host to host.
bool is_eager(const Transport &t, const Message &message) {
  const hccc_transfer &x = message.transfer;
  if (!t.eager || message.of || !x.bytes) return t.eager;
  return t.windows.at(x.source_window).memory == HCCC_MEMORY_HOST &&
         message.peer->blob.windows.at(x.target_window).memory == HCCC_MEMORY_HOST;
}

long long next_bytes(const Transport &t, const Message &message) {
  const long long most = is_eager(t, message) ? std::min(EAGER, t.slice_bytes) : t.slice_bytes;
  return std::min(most, message.transfer.bytes - message.cut);
}

// Cuts the next slice of a message; null: the pool has no slot.
Slice *cut(Transport &t, Message &message) {
  Peer &peer = *message.peer;
  const hccc_transfer &x = message.transfer;
  const auto bytes = size_t(next_bytes(t, message));
  auto *slice = new Slice{&t, &message, &peer, header_of(t, peer, message.of ? PIECE : TRANSFER), nullptr, bytes,
                          ucp::HOST, -1, nullptr, nullptr, 0, x.bytes <= SMALL};
  Header &h = slice->header;
  h.order = message.order, h.turn = message.turn, h.tb = x.tb, h.channel = x.channel;
  h.window = x.target_window, h.value = x.value, h.counter = x.counter;
  h.target = uint64_t(x.target + message.cut), h.bytes = uint64_t(x.bytes);
  if (is_eager(t, message)) slice->flags = ucp::SEND_EAGER;
  if (message.of) {
    slice->data = message.of->from + message.cut;
  } else if (bytes) {
    const Window &source = t.windows.at(x.source_window);
    const RemoteWindow &target = peer.blob.windows.at(x.target_window);
    slice->data = source.base + x.source + message.cut;
    slice->memory = source.memory;
    slice->registered = source.registered;
    if (target.memory != HCCC_MEMORY_HOST) slice->flags = ucp::SEND_RENDEZVOUS;
    if (source.staged && (slice->slot = t.out_pool.take()) < 0) return delete slice, nullptr;
  }
  message.cut += (long long)bytes;
  message.begun = true;
  ++message.in_flight;
  return slice;
}

void begin(Transport &t, Slice *slice) {
  Peer &peer = *slice->peer;
  peer.bytes_in_flight += (long long)slice->bytes;
  ++peer.in_flight;
  ++t.slices;
  if (slice->message) ++t.counters.sent_slices;
  t.counters.sent_bytes += slice->bytes;
  if (slice->slot < 0) return hand_to_ucx(slice);
  char *to = t.out_pool.at(slice->slot);
  const int failed =
      t.copier.begin(t.copier.context, to, slice->data, slice->bytes, 0, &slice->ticket);
  slice->data = to, slice->memory = ucp::HOST, slice->registered = nullptr;
  t.counters.staged_out_bytes += slice->bytes;
  if (!failed) return t.copying_out.push_back(slice);
  fail_self(t, "memory of the device could not be copied");
  done(slice, ucp::CANCELED);
}

// Begins a slice of the first stream of a line. False: it could not.
bool advance(Transport &t, Peer &peer, std::deque<Stream *> &line, bool large) {
  if (line.empty() || peer.in_flight >= MAX_SLICES) return false;
  Stream &stream = *line.front();
  Message &message = *stream.messages.front();
  const long long most = is_eager(t, message) ? std::min(EAGER_FLIGHT, t.flight_bytes) : t.flight_bytes;
  const bool full = large && peer.bytes_in_flight > 0 && peer.bytes_in_flight + next_bytes(t, message) > most;
  Slice *slice = full ? nullptr : cut(t, message);
  if (!slice) return ++t.counters.stalls, false;
  line.pop_front();
  if (message.cut == message.transfer.bytes) stream.messages.pop_front();
  if (!stream.messages.empty()) wait_in_line(peer, stream);
  begin(t, slice);  // may delete the message
  return true;
}

}  // namespace

int take(Transport &t) {
  int n = 0;
  if (!t.proxy_ring) return 0;
  const hccc_proxy_ring &ring = *t.proxy_ring;
  for (; t.messages < MAX_MESSAGES; ++n) {
    hccc_transfer *entry = ring.entries + (t.taken & (ring.length - 1));
    if (__atomic_load_n(&entry->turn, __ATOMIC_ACQUIRE) != t.taken + 1) return n;
    const hccc_transfer x = *entry;
    __atomic_store_n(ring.taken, ++t.taken, __ATOMIC_RELEASE);
    accept(t, x);
  }
  return n;
}

int send(Transport &t) {
  int n = 0;
  for (size_t i = 0; i < t.busy.size();) {
    Peer &peer = *t.busy[i];
    for (int large = 0; large < 2; ++large)
      while (advance(t, peer, peer.waiting[large], large)) ++n;
    if (!peer.waiting[0].empty() || !peer.waiting[1].empty()) {
      ++i;
      continue;
    }
    peer.busy = false;
    t.busy[i] = t.busy.back();
    t.busy.pop_back();
  }
  return n;
}

// Sends the bytes of a message that its receiver has asked for.
void send_pieces(Transport &t, hccc_transport_message *of) {
  hccc_transfer x{};
  x.bytes = (long long)of->header.bytes, x.counter = -1;
  line_up(t, of->peer->streams[PIECES], new Message{x, of->peer, of->header.order, 0, 0, 0, false, of});
}

// Sends a message of the transport's own.
bool post(Transport &t, Peer &peer, const Header &header, bool quick) {
  if (peer.state != PeerState::CONNECTED) return false;
  begin(t, new Slice{&t, nullptr, &peer, header, nullptr, 0, ucp::HOST, -1, nullptr, nullptr, 0, quick});
  return peer.state == PeerState::CONNECTED;
}

bool post(Transport &t, Peer &peer, Kind kind, bool quick) { return post(t, peer, header_of(t, peer, kind), quick); }

bool tell(Transport &t, Peer &peer, int number) {
  const Window &window = t.windows.at(number);
  Header header = header_of(t, peer, WINDOW);
  header.window = number, header.bytes = window.bytes;
  header.value = uint32_t(window.memory) << 1 | uint32_t(window.staged);
  return post(t, peer, header);
}

int send_known(Transport &t) {
  int n = 0;
  if (!t.known_due) return n;
  t.known_due = false;
  for (const auto &peer : t.peers)
    for (const int number : std::exchange(peer->noted, {})) {
      Header header = header_of(t, *peer, KNOWN);
      header.window = number;
      n += post(t, *peer, header);
    }
  return n;
}

int finish_copies_out(Transport &t) {
  int n = 0;
  for (; !t.copying_out.empty(); ++n) {
    Slice *slice = t.copying_out.front();
    const int copied = t.copier.done(t.copier.context, slice->ticket);
    if (copied == 0) return n;
    t.copying_out.pop_front();
    if (copied > 0) {
      hand_to_ucx(slice);
    } else {
      fail_self(t, "memory of the device could not be copied");
      done(slice, ucp::CANCELED);
    }
  }
  return n;
}

// Drops the messages of a peer. A message is complete when none of its slices is in flight.
void drop_messages(Transport &t, Peer &peer) {
  for (auto &line : peer.waiting) line.clear();
  for (auto &[key, stream] : peer.streams) {
    for (Message *message : stream.messages) {
      message->transfer.bytes = message->cut;
      message->begun = true;
      if (message->in_flight == 0) complete(t, message);
    }
    stream.messages.clear();
  }
  drop_told(peer);
}

}  // namespace hccc::transport
