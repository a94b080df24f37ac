// message.cpp: messages of ranks, of any length: they go from the sender's memory when the receiver
// has found where they belong, or are copied where UCX sends them before. Over TCP UCX's own agreement on long ones
// would stand behind what goes the other way: two ranks that send to each other would take turns. So there a long
// message is told of, its receiver asks for it, and it comes in pieces, as transfers do.
#include <cstring>
#include <thread>

#include "state.h"

namespace hccc::transport {
namespace {

constexpr size_t SHORT = 16 << 10;  // bytes of a message that comes with its header

void message_sent(void *request, ucp::Status status, void *user_data) {
  ucx().ucp_request_free(request);
  settle(static_cast<hccc_transport_message *>(user_data), status);
}

void message_received(void *request, ucp::Status status, size_t, void *user_data) {
  ucx().ucp_request_free(request);
  settle(static_cast<hccc_transport_message *>(user_data), status);
}

ucp::RequestParams params_for(hccc_transport_message *message) {
  ucp::RequestParams params{};
  params.mask = ucp::OP_CALLBACK | ucp::OP_USER_DATA | ucp::OP_DATATYPE | ucp::OP_MEMORY_TYPE;
  params.user_data = message;
  params.datatype = ucp::BYTES;
  params.memory_type = ucp::HOST;
  return params;
}

// Waits, with the lock held, until UCX touches no memory of a caller; two seconds at most.
void wait_for_requests(Transport &t) {
  const auto until = Clock::now() + std::chrono::seconds(2);
  while (t.requests > 0 && Clock::now() < until) ucx().ucp_worker_progress(t.worker);
}

bool answer(const hccc_transport_message *message, Kind kind) {
  Header h{};
  h.key = message->peer->blob.key, h.rank = message->t->options.rank, h.kind = kind, h.order = message->header.order;
  return post(*message->t, *message->peer, h);
}

}  // namespace

// Ends a message: its state says how, and nothing touches the caller's memory any more.
void settle(hccc_transport_message *message, ucp::Status status) {
  Transport &t = *message->t;
  message->pending = false;
  --t.requests;
  message->state.store(status == ucp::OK ? 1 : -1, std::memory_order_release);
  if (message->dropped) delete message;
}

hccc_transport_message *send_message(Transport &t, int rank, int tag, int type, const void *data, size_t bytes) {
  Peer &peer = *t.peers[size_t(rank)];
  auto *made = new hccc_transport_message{&t, &peer, {}, {}, nullptr};
  Header &h = made->header;
  h.key = peer.blob.key, h.rank = t.options.rank, h.kind = MESSAGE;
  h.order = peer.messages_sent++, h.tb = tag, h.channel = type, h.bytes = bytes;
  made->pending = true;
  ++t.requests;
  if (peer.state != PeerState::CONNECTED || !peer.endpoint) return settle(made, ucp::CANCELED), made;
  if (t.eager && bytes > SHORT) {
    h.window = LATER, made->from = static_cast<const char *>(data);
    peer.told[h.order] = made;
    return post(t, peer, h), made;
  }
  ucp::RequestParams params = params_for(made);
  params.callback.send = message_sent;
  if (t.eager) params.mask |= ucp::OP_FLAGS, params.flags = ucp::SEND_EAGER;
  t.counters.sent_bytes += bytes;
  const ucp::StatusPointer sending =
      ucx().ucp_am_send_nbx(peer.quick ? peer.quick : peer.endpoint, MESSAGE_ID, &h, sizeof h, data, bytes, &params);
  if (!ucp::is_request(sending)) settle(made, ucp::status_of(sending));
  return made;
}

// Takes in a message; UCX may pass on those of one peer in another order than they were sent in.
ucp::Status take_message(Transport &t, Peer &peer, const Header &h, void *data, size_t bytes, bool rendezvous) {
  const uint32_t ahead = h.order - peer.messages_received;
  const bool later = h.window == LATER;
  if (bytes != (later ? 0 : h.bytes) || ahead >= MAX_MESSAGES_AHEAD || peer.early.count(h.order))
    return fail_peer(t, peer, "it sent a message that makes no sense"), ucp::OK;
  auto *made = new hccc_transport_message{&t, &peer, h, {}, nullptr};
  made->later = later;
  t.counters.received_bytes += bytes;
  if (rendezvous) made->descriptor = data;
  else if (bytes) made->data.assign(static_cast<char *>(data), static_cast<char *>(data) + bytes);
  peer.early[h.order] = made;
  for (auto first = peer.early.begin(); first != peer.early.end(); first = peer.early.begin()) {
    first = peer.early.find(peer.messages_received);
    if (first == peer.early.end()) break;
    t.inbox.push_back(first->second);
    peer.early.erase(first);
    ++peer.messages_received;
    t.arrived.fetch_add(1, std::memory_order_release);
  }
  return rendezvous ? ucp::IN_PROGRESS : ucp::OK;
}

// Takes in a part of a message that was asked for.
void take_piece(Transport &t, Peer &peer, const Header &h, const void *data, size_t bytes) {
  const auto found = peer.asked.find(h.order);
  hccc_transport_message *const of = found == peer.asked.end() ? nullptr : found->second;
  if (!of || bytes > of->missing || h.target > of->header.bytes - bytes)
    return fail_peer(t, peer, "it sent a part of no message");
  if (of->to) std::memcpy(of->to + h.target, data, bytes);
  t.counters.received_bytes += bytes;
  if (of->missing -= bytes) return;
  peer.asked.erase(found);
  settle(of, ucp::OK);
}

// Takes in what a peer says of a message that it was told of.
void take_answer(Transport &t, Peer &peer, const Header &h) {
  const auto found = peer.told.find(h.order);
  if (found == peer.told.end()) return fail_peer(t, peer, "it asked for a message that is none");
  hccc_transport_message *const of = found->second;
  peer.told.erase(found);
  if (h.kind == ASK && !of->dropped) return send_pieces(t, of);
  settle(of, h.kind == UNWANTED ? ucp::OK : ucp::CANCELED);
}

// Ends all messages whose bytes will not be sent, or will not come any more.
void drop_told(Peer &peer) {
  for (auto *all : {&peer.told, &peer.asked})
    for (const auto &[order, one] : std::exchange(*all, {})) settle(one, ucp::CANCELED);
}

void fetch_message(hccc_transport_message *message, void *to) {
  Transport &t = *message->t;
  message->pending = true;
  ++t.requests;
  if (std::exchange(message->later, false)) {
    Peer &peer = *message->peer;
    message->to = static_cast<char *>(to), message->missing = message->header.bytes;
    peer.asked[message->header.order] = message;
    if (!answer(message, ASK)) drop_told(peer);
    return;
  }
  if (!message->descriptor) {
    if (!message->data.empty()) std::memcpy(to, message->data.data(), message->data.size());
    return settle(message, ucp::OK);
  }
  ucp::RequestParams params = params_for(message);
  params.callback.receive = message_received;
  void *descriptor = std::exchange(message->descriptor, nullptr);
  const ucp::StatusPointer receiving =
      ucx().ucp_am_recv_data_nbx(t.worker, descriptor, to, size_t(message->header.bytes), &params);
  if (!ucp::is_request(receiving)) settle(message, ucp::status_of(receiving));
}

void free_message(hccc_transport_message *message) {
  Transport &t = *message->t;
  if (message->pending) return void(message->dropped = true), void(message->to = nullptr);
  if (message->later) answer(message, UNWANTED);
  if (message->descriptor) ucx().ucp_am_data_release(t.worker, message->descriptor);
  delete message;
}

// Ends all that is under way between callers' memory and peers: their connections are closed.
void cancel_messages(Transport &t) {
  if (t.requests == 0) return;
  for (const auto &peer : t.peers)
    if (peer->state == PeerState::CONNECTED || peer->state == PeerState::LEFT) {
      peer->reported = true;
      fail_peer(t, *peer, "");
    }
  close_failed(t);
  wait_for_requests(t);
}

void drop_inbox(Transport &t) {
  for (hccc_transport_message *one : t.inbox) free_message(one);
  t.inbox.clear();
  for (const auto &peer : t.peers) {
    for (const auto &[order, one] : peer->early) free_message(one);
    peer->early.clear();
  }
}

}  // namespace hccc::transport
