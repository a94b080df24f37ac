// receive.cpp: receives from UCX into windows, then raises the counters. Slices arrive in any
// order; a counter is raised when its message and those before it, as network.h says, are there.
#include <cstring>

#include "state.h"

namespace hccc::transport {
namespace {

constexpr uint32_t MAX_AHEAD = 1 << 20;  // messages of a peer in flight
constexpr size_t MAX_ARRIVAL_QUEUES = 1 << 20;

void raise(Transport &t, const Arrival &arrival) {
  ++t.counters.received_transfers;
  if (arrival.counter < 0) return;
  const Window &flags = t.windows.at(HCCC_WINDOW_FLAGS);
  void *at = flags.base + arrival.counter;
  if (flags.memory == HCCC_MEMORY_HOST)
    __atomic_store_n(static_cast<uint32_t *>(at), arrival.value, __ATOMIC_RELEASE);
  else if (!t.cells.store(t.copier, at, arrival.value))
    fail_self(t, "a counter in memory of the device could not be raised");
}

void raise_first(Transport &t, Peer &peer, ArrivalQueue &queue) {
  const Arrival &arrival = queue.arrivals.front();
  raise(t, arrival);
  peer.raised[arrival.order - peer.first] = 1;
  queue.arrivals.pop_front();
  ++queue.first;
  for (; !peer.raised.empty() && peer.raised.front(); ++peer.first) peer.raised.pop_front();
}

bool is_complete(const ArrivalQueue &queue) {
  if (queue.arrivals.empty()) return false;
  const Arrival &first = queue.arrivals.front();
  return first.known && first.missing == 0;
}

void raise_complete(Transport &t, Peer &peer, uint64_t key) {
  const uint64_t rank_key = key_of(-1, 0);
  if (key != rank_key)
    for (ArrivalQueue &own = peer.arrival_queues[key]; is_complete(own);) raise_first(t, peer, own);
  const auto found = peer.arrival_queues.find(rank_key);
  if (found == peer.arrival_queues.end()) return;
  ArrivalQueue &all = found->second;
  while (is_complete(all) && all.arrivals.front().order == peer.first) raise_first(t, peer, all);
}

// Returns the arrival of a header's message; null: the header is wrong.
Arrival *arrival_of(Peer &peer, const Header &h) {
  if (peer.arrival_queues.size() >= MAX_ARRIVAL_QUEUES) return nullptr;
  ArrivalQueue &queue = peer.arrival_queues[key_of(h.tb, h.channel)];
  const uint32_t at = h.turn - queue.first, among_all = h.order - peer.first;
  if (at >= MAX_AHEAD || among_all >= MAX_AHEAD) return nullptr;
  if (queue.arrivals.size() <= at) queue.arrivals.resize(at + 1);
  if (peer.raised.size() <= among_all) peer.raised.resize(among_all + 1);
  Arrival &arrival = queue.arrivals[at];
  if (!arrival.known) arrival = {true, h.order, h.value, h.bytes, h.counter};
  return arrival.order == h.order ? &arrival : nullptr;
}

// Returns whether a slice lies in the own windows.
bool is_inside(const Transport &t, const Header &h, size_t bytes) {
  if (h.counter >= 0) {
    const auto flags = t.windows.find(HCCC_WINDOW_FLAGS);
    if (flags == t.windows.end() || h.counter % 4 || flags->second.bytes < 4 ||
        uint64_t(h.counter) > flags->second.bytes - 4)
      return false;
  }
  if (bytes == 0) return h.bytes == 0;
  const auto window = t.windows.find(h.window);
  return window != t.windows.end() && bytes <= h.bytes && bytes <= window->second.bytes &&
         h.target <= window->second.bytes - bytes;
}

// Waits for a NIC's writes to a device, which may be in flight when UCX reports them done.
void make_visible(const Transport &t, const Window &window) {
  const bool direct = window.memory != HCCC_MEMORY_HOST && !window.staged;
  if (direct && t.copier.flush) t.copier.flush(t.copier.context);
}

void arrived(Transport &t, Peer &peer, const Header &h, size_t bytes) {
  Arrival *arrival = arrival_of(peer, h);
  if (!arrival || arrival->missing < bytes)
    return fail_peer(t, peer, "it sent what belongs to no message");
  arrival->missing -= bytes;
  ++t.counters.received_slices;
  t.counters.received_bytes += bytes;
  if (arrival->missing) return;
  if (bytes) make_visible(t, t.windows.at(h.window));
  raise_complete(t, peer, key_of(h.tb, h.channel));
}

void finish(Receipt *receipt, bool good) {
  Transport &t = *receipt->t;
  Peer &peer = *receipt->peer;
  if (receipt->slot >= 0) t.in_pool.give(receipt->slot);
  // Of a peer that has left in order, and is closed since, all that it sent counts.
  const bool counts = peer.state != PeerState::FAILED || !peer.reported;
  if (good && counts) arrived(t, peer, receipt->header, receipt->bytes);
  --t.receipts;
  delete receipt;
}

// Handles bytes that have arrived in the window or in the slot.
void landed(Receipt *receipt) {
  Transport &t = *receipt->t;
  if (receipt->slot < 0) return finish(receipt, true);
  t.counters.staged_in_bytes += receipt->bytes;
  if (t.copier.begin(t.copier.context, receipt->target, t.in_pool.at(receipt->slot), receipt->bytes,
                     1, &receipt->ticket) == 0)
    return t.copying_in.push_back(receipt);
  fail_self(t, "memory of the device could not be copied");
  finish(receipt, false);
}

void received(void *request, ucp::Status status, size_t, void *user_data) {
  ucx().ucp_request_free(request);
  auto *receipt = static_cast<Receipt *>(user_data);
  if (status == ucp::OK) return landed(receipt);
  fail_peer(*receipt->t, *receipt->peer, "a transfer from it failed: " + ucx().meaning(status));
  finish(receipt, false);
}

// Has UCX fetch the bytes.
void fetch(Receipt *receipt) {
  Transport &t = *receipt->t;
  const Window &window = t.windows.at(receipt->header.window);
  const bool slot = receipt->slot >= 0;
  ucp::RequestParams params{};
  params.mask = ucp::OP_CALLBACK | ucp::OP_USER_DATA | ucp::OP_DATATYPE | ucp::OP_MEMORY_TYPE;
  params.callback.receive = received;
  params.user_data = receipt;
  params.datatype = ucp::BYTES;
  params.memory_type = slot ? int(ucp::HOST) : window.memory;
  const ucp::StatusPointer receiving = ucx().ucp_am_recv_data_nbx(
      t.worker, receipt->descriptor, slot ? t.in_pool.at(receipt->slot) : receipt->target,
      receipt->bytes, &params);
  if (ucp::is_request(receiving)) return;
  if (!ucp::is_error(receiving)) return landed(receipt);
  fail_peer(t, *receipt->peer,
       "a transfer from it failed: " + ucx().meaning(ucp::status_of(receiving)));
  finish(receipt, false);
}

// Receives the bytes of a slice: eager bytes are here, others are fetched.
ucp::Status receive(Transport &t, Peer &peer, const Header &h, void *data, size_t bytes,
                    bool rendezvous) {
  const Window &window = t.windows.at(h.window);
  char *target = window.base + h.target;
  if (!rendezvous && window.memory == HCCC_MEMORY_HOST) {
    std::memcpy(target, data, bytes);
    return arrived(t, peer, h, bytes), ucp::OK;
  }
  if (!rendezvous) return fail_peer(t, peer, "it sent to a device what it must not"), ucp::OK;
  ++t.receipts;
  auto *receipt = new Receipt{&t, &peer, h, bytes, target, data, -1, nullptr};
  if (window.staged && (receipt->slot = t.in_pool.take()) < 0) {
    ++t.counters.stalls;
    t.without_slot.push_back(receipt);
  } else {
    fetch(receipt);
  }
  return ucp::IN_PROGRESS;
}

// Notes a window that a peer has registered late. False: it makes no sense.
bool note_window(Transport &t, Peer &peer, const Header &h) {
  const RemoteWindow window{h.bytes, int(h.value >> 1), bool(h.value & 1)};
  if (h.window < 0 || h.window >= MAX_WINDOWS || h.value >> 1 > HCCC_MEMORY_HIP) return false;
  const RemoteWindow &noted = peer.blob.windows.emplace(h.window, window).first->second;
  if (noted.bytes != window.bytes || noted.memory != window.memory || noted.staged != window.staged) return false;
  peer.noted.push_back(h.window);
  return t.known_due = true;
}

ucp::Status receive_message(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
                  const ucp::ReceiveInfo *info) {
  Transport &t = *static_cast<Transport *>(argument);
  Header h;
  if (header_bytes != sizeof h) return ucp::OK;
  std::memcpy(&h, header, sizeof h);
  if (h.key != t.key || h.rank < 0 || h.rank >= t.options.n_ranks) return ucp::OK;  // of no peer
  Peer &peer = *t.peers[size_t(h.rank)];
  if (peer.state == PeerState::FAILED) return ucp::OK;
  peer.hello_received = true;
  const bool rendezvous = info->attributes & ucp::RECEIVED_RENDEZVOUS;  // `data` is no bytes then
  if (h.kind == LEAVING) peer.state = PeerState::LEFT;
  if (h.kind == MESSAGE)
    return take_message(t, peer, h, data, bytes, rendezvous);
  if (h.kind == PIECE && rendezvous) return fail_peer(t, peer, "it sent a part that is to be fetched"), ucp::OK;
  if (h.kind == PIECE) return take_piece(t, peer, h, data, bytes), ucp::OK;
  if (h.kind == ASK || h.kind == UNWANTED) take_answer(t, peer, h);
  if (h.kind == KNOWN) peer.knows.insert(h.window);
  if (h.kind == WINDOW && !note_window(t, peer, h)) fail_peer(t, peer, "it told of a window that it cannot have");
  if (h.kind != TRANSFER) return ucp::OK;
  if (!is_inside(t, h, bytes) || !arrival_of(peer, h))
    return fail_peer(t, peer, "it sent what lies in no window of this rank"), ucp::OK;
  if (bytes == 0) return arrived(t, peer, h, 0), ucp::OK;
  return receive(t, peer, h, data, bytes, rendezvous);
}

}  // namespace

bool listen(Transport &t, std::string &why) {
  ucp::HandlerParams params{};
  params.mask = ucp::HANDLER_ID | ucp::HANDLER_CALLBACK | ucp::HANDLER_ARGUMENT;
  params.id = MESSAGE_ID;
  params.callback = receive_message;
  params.argument = &t;
  const ucp::Status status = ucx().ucp_worker_set_am_recv_handler(t.worker, &params);
  if (status != ucp::OK) why = "UCX has no active messages: " + ucx().meaning(status);
  return status == ucp::OK;
}

int finish_copies_in(Transport &t) {
  int n = 0;
  const int raised = t.cells.finish(t.copier);
  if (raised < 0) fail_self(t, "a counter in memory of the device could not be raised");
  if (raised > 0) n += raised;
  for (; !t.copying_in.empty(); ++n) {
    Receipt *receipt = t.copying_in.front();
    const int copied = t.copier.done(t.copier.context, receipt->ticket);
    if (copied == 0) break;
    t.copying_in.pop_front();
    if (copied < 0) fail_self(t, "memory of the device could not be copied");
    finish(receipt, copied > 0);
  }
  for (; !t.without_slot.empty(); ++n) {
    Receipt *receipt = t.without_slot.front();
    if ((receipt->slot = t.in_pool.take()) < 0) break;
    t.without_slot.pop_front();
    fetch(receipt);
  }
  return n;
}

// Drops the receipts of one peer, or (null) of all.
void drop_receipts(Transport &t, const Peer *peer) {
  std::deque<Receipt *> kept;
  for (Receipt *receipt : t.without_slot) {
    if (peer && receipt->peer != peer) {
      kept.push_back(receipt);
      continue;
    }
    ucx().ucp_am_data_release(t.worker, receipt->descriptor);
    --t.receipts;
    delete receipt;
  }
  t.without_slot.swap(kept);
}

}  // namespace hccc::transport
