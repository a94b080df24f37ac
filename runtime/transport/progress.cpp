// progress.cpp: the progress thread. It spins briefly, then sleeps until UCX or a caller wakes it,
// or a pause ends; rings cannot wake it, so pauses are short while there is work.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "state.h"

namespace hccc::transport {
namespace {

using Micro = std::chrono::microseconds;

constexpr Micro SPIN{30}, SPIN_IN_FLIGHT{300};
constexpr Micro RING_IN_USE{1'000'000};
constexpr Micro DRAIN{2'000'000};

// Returns how long to sleep after an idle time.
Micro pause_after(const Transport &t, Clock::duration idle) {
  const bool copies = !t.copying_out.empty() || !t.copying_in.empty() || !t.cells.empty();
  if (copies) return Micro(20);
  if (!t.proxy_ring) return Micro(100'000);
  if (idle < Micro(20'000)) return Micro(50);
  return idle < Micro(1'000'000) ? Micro(200) : Micro(1000);
}

void sleep(Transport &t, Micro pause) {
  pollfd waiting[2] = {{t.efd, POLLIN, 0}, {t.wake_fd, POLLIN, 0}};
  const timespec limit = {time_t(pause.count() / 1'000'000), long(pause.count() % 1'000'000) * 1000};
  ppoll(waiting, 2, &limit, nullptr);
}

bool was_woken(Transport &t) {
  uint64_t count;
  return read(t.wake_fd, &count, sizeof count) == sizeof count;
}

// Yields to callers that wait for the lock.
void yield_to_callers(const Transport &t) {
  for (int k = 0; k < 64 && t.callers.load(std::memory_order_relaxed) > 0; ++k) sched_yield();
}

void send_hellos(Transport &t) {
  if (!t.hello_due) return;
  t.hello_due = false;
  for (const auto &peer : t.peers)
    if (peer->state == PeerState::CONNECTED && !peer->hello_posted) {
      peer->hello_posted = true;  // UCX reports its end from now on
      post(t, *peer, HELLO, false);
      if (peer->quick) post(t, *peer, HELLO, true);
    }
}

void serve(Transport &t) {
  auto last = Clock::now();
  Clock::time_point took{};  // from the ring: long ago where no kernels use it
  while (t.running.load(std::memory_order_acquire)) {
    bool armed = false;
    auto now = Clock::now();
    Micro pause{0};
    {
      const std::lock_guard<std::mutex> hold(t.lock);
      send_hellos(t);
      const uint32_t before = t.taken;
      if (work(t, true) > 0) last = now;
      if (t.taken != before) took = now;
      check_deadlines(t, now);
      close_failed(t);
      if (now - last > (t.slices || t.receipts ? SPIN_IN_FLIGHT : SPIN)) {
        armed = ucx().ucp_worker_arm(t.worker) == ucp::OK;
        pause = pause_after(t, now - (now - took < RING_IN_USE ? last : took));
        t.counters.sleeps += armed;
      }
    }
    deliver_notices(t);
    yield_to_callers(t);
    if (armed) sleep(t, pause);
    else if (now != last) sched_yield();
    if (armed && was_woken(t)) last = Clock::now();
  }
}

bool flushing(std::vector<ucp::StatusPointer> &requests) {
  while (!requests.empty()) {
    if (ucx().ucp_request_check_status(requests.back()) == ucp::IN_PROGRESS) return true;
    ucx().ucp_request_free(requests.back());
    requests.pop_back();
  }
  return false;
}

// Completes the transfers that were taken and sends LEAVING, so that peers do not take the end of
// the connection for a failure.
void drain(Transport &t) {
  const std::lock_guard<std::mutex> hold(t.lock);
  const auto until = Clock::now() + DRAIN;
  const auto step = [&t] {
    work(t, false);
    check_deadlines(t, Clock::now());
    close_failed(t);
    sched_yield();
  };
  while (t.messages > 0 && Clock::now() < until) step();
  t.leaving = true;
  for (const auto &peer : t.peers) post(t, *peer, LEAVING, false);
  std::vector<ucp::StatusPointer> requests;
  for (const auto &peer : t.peers) {
    ucp::RequestParams params{};
    for (const ucp::Endpoint endpoint : {peer->endpoint, peer->quick}) {
      if (peer->state != PeerState::CONNECTED || !endpoint) continue;
      const ucp::StatusPointer flush = ucx().ucp_ep_flush_nbx(endpoint, &params);
      if (ucp::is_request(flush)) requests.push_back(flush);
    }
  }
  while (flushing(requests) && Clock::now() < until) step();
  for (const ucp::StatusPointer request : requests) ucx().ucp_request_free(request);
}

thread_local Transport *served = nullptr;  // by this thread

// abort() has raised the signal in the thread that calls it, and ends the process after this.
void on_abort(int) {
  Transport *const t = std::exchange(served, nullptr);
  if (t && t->options.aborting) t->options.aborting(t->options.context);
}

}  // namespace

// Works for one round; returns the number of events.
int work(Transport &t, bool taking) {
  int n = taking ? take(t) : 0;
  n += send(t);
  n += send_known(t);
  n += finish_copies_out(t);
  for (int k = 0; k < 64; ++k) {
    const unsigned events = ucx().ucp_worker_progress(t.worker);
    if (!events) break;
    n += int(events);
  }
  n += send(t);  // what peers have asked for meanwhile: nobody may work again soon
  return n + finish_copies_in(t);
}

void watch_for_abort() {
  static const bool once = [] {
    struct sigaction present, own = {};
    own.sa_handler = on_abort;
    own.sa_flags = SA_RESETHAND;
    const bool free = !sigaction(SIGABRT, nullptr, &present) && !(present.sa_flags & SA_SIGINFO) &&
                      present.sa_handler == SIG_DFL;
    return free && !sigaction(SIGABRT, &own, nullptr);
  }();
  static_cast<void>(once);
}

void run(Transport &t) {
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
  served = &t;
  serve(t);
  drain(t);
  served = nullptr;
  deliver_notices(t);
}

}  // namespace hccc::transport
