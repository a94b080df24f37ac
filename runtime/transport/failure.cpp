// failure.cpp: failures of peers and of descriptors, and their reports.
#include <cstdio>

#include "state.h"

namespace hccc::transport {
namespace {

std::string in_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace

void log_line(Transport &t, const std::string &line) {
  if (t.options.log) t.options.log(t.options.context, line.c_str());
}

// Marks a peer as failed. The thread closes its endpoint: this may run in one of its callbacks.
void fail_peer(Transport &t, Peer &peer, const std::string &why) {
  if (peer.state == PeerState::FAILED) return;
  const bool quiet = peer.state == PeerState::LEFT && peer.in_flight == 0;
  peer.state = PeerState::FAILED;
  t.failed_peers = true;
  drop_messages(t, peer);
  if (!quiet) report(t, peer, why);
}

void report(Transport &t, Peer &peer, const std::string &why) {
  if (peer.reported || t.leaving) return;
  peer.reported = true;
  t.notices.push_back({peer.rank, "rank " + std::to_string(peer.rank) + ": " + why});
}

void fail_self(Transport &t, const std::string &why) {
  Peer &own = *t.peers[size_t(t.options.rank)];
  if (own.reported) return;
  own.reported = true;
  t.notices.push_back({t.options.rank, why});
}

// Reports failures, without the lock: the caller's function may call the transport.
void deliver_notices(Transport &t) {
  std::vector<Notice> notices;
  {
    const std::lock_guard<std::mutex> hold(t.lock);
    notices.swap(t.notices);
  }
  for (const Notice &notice : notices) {
    log_line(t, "transport: " + notice.text);
    if (t.options.failed) t.options.failed(t.options.context, notice.rank, notice.text.c_str());
  }
}

void close_failed(Transport &t) {
  if (!t.failed_peers) return;
  t.failed_peers = false;
  for (const auto &peer : t.peers)
    if (peer->state == PeerState::FAILED && peer->endpoint) {
      drop_receipts(t, peer.get());
      close_endpoint(t, *peer);
    }
}

void check_deadlines(Transport &t, Clock::time_point now) {
  if (t.options.timeout_s <= 0 || t.slices == 0) return;
  for (const auto &peer : t.peers) {
    if (peer->state != PeerState::CONNECTED || peer->in_flight == 0) continue;
    if (std::chrono::duration<double>(now - peer->moved).count() > t.options.timeout_s)
      fail_peer(t, *peer, "it has taken nothing for " + in_seconds(t.options.timeout_s));
  }
}

}  // namespace hccc::transport
