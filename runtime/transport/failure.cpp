// failure.cpp: peers that are gone, descriptors that are wrong, and who is told.
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

void say(Transport &t, const std::string &line) {
  if (t.options.log) t.options.log(t.options.context, line.c_str());
}

// A peer is of no more use. Its endpoint is closed by the thread: this may be a callback of it.
void lose(Transport &t, Peer &peer, const std::string &why) {
  if (peer.life == Life::FAILED) return;
  const bool quiet = peer.life == Life::LEFT && peer.in_flight == 0;
  peer.life = Life::FAILED;
  t.losing = true;
  drop_messages(t, peer);
  if (!quiet) report(t, peer, why);
}

void report(Transport &t, Peer &peer, const std::string &why) {
  if (peer.reported || t.leaving) return;
  peer.reported = true;
  t.notices.push_back({peer.rank, "rank " + std::to_string(peer.rank) + ": " + why});
}

void refuse(Transport &t, const std::string &why) {
  Peer &own = *t.peers[size_t(t.options.rank)];
  if (own.reported) return;
  own.reported = true;
  t.notices.push_back({t.options.rank, why});
}

// Without the lock: the caller's function may call the transport.
void deliver_notices(Transport &t) {
  std::vector<Notice> notices;
  {
    const std::lock_guard<std::mutex> hold(t.lock);
    notices.swap(t.notices);
  }
  for (const Notice &notice : notices) {
    say(t, "transport: " + notice.text);
    if (t.options.failed) t.options.failed(t.options.context, notice.rank, notice.text.c_str());
  }
}

void close_lost(Transport &t) {
  if (!t.losing) return;
  t.losing = false;
  for (const auto &peer : t.peers)
    if (peer->life == Life::FAILED && peer->endpoint) {
      drop_receipts(t, peer.get());
      close_endpoint(t, *peer);
    }
}

void check_deadlines(Transport &t, Clock::time_point now) {
  if (t.options.timeout_s <= 0 || t.slices == 0) return;
  for (const auto &peer : t.peers) {
    if (peer->life != Life::CONNECTED || peer->in_flight == 0) continue;
    if (std::chrono::duration<double>(now - peer->moved).count() > t.options.timeout_s)
      lose(t, *peer, "it has taken nothing for " + in_seconds(t.options.timeout_s));
  }
}

}  // namespace hccc::transport
