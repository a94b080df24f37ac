// api.cpp: the C interface.
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <system_error>

#include "state.h"

namespace hccc::transport {
namespace {

constexpr long long SLICE = 1 << 20, SLOTS = 16;

int fail(hccc_transport_error *e, int code, int rank, const std::string &message) {
  if (e) {
    e->code = code, e->rank = rank;
    std::snprintf(e->message, sizeof e->message, "%s", message.c_str());
  }
  return code;
}

int good(hccc_transport_error *e) { return fail(e, HCCC_TRANSPORT_OK, -1, ""); }

// Returns the given value, else the variable's, else a default.
bool bytes_of(long long given, const char *variable, long long otherwise, long long &out) {
  const char *text = std::getenv(variable);
  out = given;
  if (given == 0) {
    char *end = nullptr;
    out = text && *text ? std::strtoll(text, &end, 10) : otherwise;
    if (end && *end) return false;
  }
  return out >= 4096 && out <= (1ll << 40);
}

bool take_options(Transport &t, const hccc_transport_options &o, std::string &why) {
  if (o.size != sizeof o) return why = "options of another version of hccc", false;
  if (o.n_ranks < 1 || o.n_ranks > (1 << 20) || o.rank < 0 || o.rank >= o.n_ranks)
    return why = "there is no rank " + std::to_string(o.rank) + " of " + std::to_string(o.n_ranks),
           false;
  t.options = o;
  if (!bytes_of(o.slice_bytes, "HCCC_SLICE_BYTES", SLICE, t.slice_bytes))
    return why = "a slice (HCCC_SLICE_BYTES) has from 4096 to 2^40 bytes", false;
  if (!bytes_of(o.pool_bytes, "HCCC_POOL_BYTES", SLOTS * t.slice_bytes, t.pool_bytes) ||
      t.pool_bytes < 2 * t.slice_bytes)
    return why = "a pool (HCCC_POOL_BYTES) has at least two slices", false;
  const char *network = o.network ? o.network : std::getenv("HCCC_NETWORK");
  t.network = network ? network : "";
  t.flight_bytes = SLOTS * t.slice_bytes;
  if (o.copier) t.copier = *o.copier, t.has_copier = true;
  return true;
}

bool set_up(Transport &t, std::string &why) {
  if (getrandom(&t.key, sizeof t.key, 0) != sizeof t.key) return why = "no random numbers", false;
  t.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (t.wake_fd < 0) return why = std::string("no descriptor: ") + std::strerror(errno), false;
  for (int rank = 0; rank < t.options.n_ranks; ++rank) {
    t.peers.push_back(std::make_unique<Peer>());
    t.peers.back()->rank = rank, t.peers.back()->t = &t;
  }
  return open_worker(t, why);
}

void tear_down(Transport &t) {
  close_worker(t);
  if (t.wake_fd >= 0) close(t.wake_fd);
}

// Finds the first peer that is not ready; null: none.
const Peer *unready(const Transport &t) {
  for (const auto &peer : t.peers) {
    const bool known = peer->state != PeerState::UNKNOWN;
    if (known && (peer->state == PeerState::FAILED || !peer->hello_sent || !peer->hello_received)) return peer.get();
  }
  return nullptr;
}

bool is_reached(const Transport &t, int memory) {
  const int type = memory == HCCC_MEMORY_CUDA ? ucp::CUDA : ucp::ROCM;
  return !t.options.force_staging && (t.memory_types >> type & 1);
}

// Registers memory with UCX where it can be. False: UCX cannot reach it.
bool register_window(Transport &t, Window &window) {
  const int types[] = {ucp::HOST, ucp::CUDA, ucp::ROCM};
  const bool host = window.memory == HCCC_MEMORY_HOST;
  if (!host && !is_reached(t, window.memory)) return false;
  ucp::MapParams params{};
  params.mask = ucp::MAP_ADDRESS | ucp::MAP_LENGTH | ucp::MAP_MEMORY_TYPE;
  params.address = window.base, params.length = window.bytes;
  params.memory_type = types[window.memory];
  const ucp::Status status = ucx().ucp_mem_map(t.context, &params, &window.registered);
  if (status == ucp::OK) return true;
  window.registered = nullptr;
  log_line(t, "transport: a window cannot be registered: " + ucx().meaning(status));
  return host;  // UCX can send it unregistered
}

bool stage(Transport &t, int number, Window &window, std::string &why) {
  const std::string which =
      "window " + std::to_string(number) + " is memory of a device, which UCX ";
  if (!t.has_copier)
    return why = which + "does not reach here, and there is no copier to stage it with", false;
  const int slots = int(t.pool_bytes / t.slice_bytes / 2);
  for (Pool *pool : {&t.out_pool, &t.in_pool})
    if (!pool->made() && !pool->make(t.context, t.copier, size_t(t.slice_bytes), slots, why))
      return false;
  window.staged = true;
  log_line(t, "transport: " + which + (t.options.force_staging ? "is told not to touch" : "cannot reach") +
             ": staged through " + std::to_string(slots) + " slots of " +
             std::to_string(t.slice_bytes) + " bytes each way");
  return true;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int hccc_transport_available(char *message, size_t bytes) {
  const Ucx &found = ucx();
  if (message && bytes) std::snprintf(message, bytes, "%s", found.text.c_str());
  return found.usable;
}

int hccc_transport_open(hccc_transport **out, const hccc_transport_options *options,
                        hccc_transport_error *e) {
  std::string why;
  if (!out || !options) return fail(e, HCCC_TRANSPORT_INVALID, -1, "a null pointer");
  *out = nullptr;
  if (!ucx().usable) return fail(e, HCCC_TRANSPORT_NO_UCX, -1, ucx().text);
  auto t = std::make_unique<Transport>();
  if (!take_options(*t, *options, why)) return fail(e, HCCC_TRANSPORT_INVALID, -1, why);
  if (t->options.aborting) watch_for_abort();
  if (!set_up(*t, why)) return tear_down(*t), fail(e, HCCC_TRANSPORT_FAILED, -1, why);
  log_line(*t, "transport: rank " + std::to_string(options->rank) + ": " + ucx().text);
  *out = t.release();
  return good(e);
}

int hccc_transport_window(hccc_transport *t, int number, void *base, long long bytes, int memory,
                          hccc_transport_error *e) {
  if (!t || number < 0 || number >= MAX_WINDOWS || bytes < 0 || (!base && bytes) || memory < 0 ||
      memory > HCCC_MEMORY_HIP)
    return fail(e, HCCC_TRANSPORT_INVALID, -1, "a window of no such number, place or memory");
  if (memory != HCCC_MEMORY_HOST && number == HCCC_WINDOW_FLAGS && !t->has_copier)
    return fail(e, HCCC_TRANSPORT_INVALID, -1,
                "flags in memory of a device need a copier, which stores counters there");
  const Hold hold(*t);
  std::string why;
  if (t->windows.count(number))
    return fail(e, HCCC_TRANSPORT_STATE, -1,
                "window " + std::to_string(number) + " is registered already");
  Window window{static_cast<char *>(base), uint64_t(bytes), memory, false, nullptr};
  if (bytes && !register_window(*t, window) && !stage(*t, number, window, why))
    return fail(e, HCCC_TRANSPORT_MEMORY, -1, why);
  t->windows.emplace(number, window);
  return good(e);
}

int hccc_transport_blob(hccc_transport *t, void **data, size_t *bytes,
                        hccc_transport_error *e) {
  if (!t || !data || !bytes) return fail(e, HCCC_TRANSPORT_INVALID, -1, "a null pointer");
  const Hold hold(*t);
  Blob blob{t->options.rank, t->options.n_ranks, t->key, {}, t->address};
  for (const auto &[number, window] : t->windows)
    blob.windows[number] = {window.bytes, window.memory, window.staged};
  t->blob = pack(blob);
  *data = t->blob.data();
  *bytes = t->blob.size();
  return good(e);
}

int hccc_transport_connect(hccc_transport *t, int rank, const void *data, size_t bytes,
                           hccc_transport_error *e) {
  if (!t || rank < 0 || rank >= t->options.n_ranks || rank == t->options.rank)
    return fail(e, HCCC_TRANSPORT_INVALID, rank, "a rank cannot be connected to this one");
  const std::string what = "the blob of rank " + std::to_string(rank);
  Blob blob;
  std::string why;
  if (!unpack(data, bytes, blob, why))
    return fail(e, HCCC_TRANSPORT_BAD_BLOB, rank, what + " cannot be used: " + why);
  if (blob.rank != rank || blob.n_ranks != t->options.n_ranks)
    return fail(e, HCCC_TRANSPORT_BAD_BLOB, rank,
                what + " is that of rank " + std::to_string(blob.rank) + " of " +
                    std::to_string(blob.n_ranks));
  const Hold hold(*t);
  Peer &peer = *t->peers[size_t(rank)];
  const bool again = peer.state == PeerState::CONNECTED && peer.endpoint;
  if (again ? blob.key != peer.blob.key : peer.endpoint || peer.state != PeerState::UNKNOWN)
    return fail(e, HCCC_TRANSPORT_STATE, rank,
                what + " is another process's than that connected before");
  peer.blob = std::move(blob);
  if (again) return good(e);
  if (!open_endpoint(*t, peer, why)) return fail(e, HCCC_TRANSPORT_FAILED, rank, why);
  peer.state = PeerState::CONNECTED;
  t->hello_due = true;
  return good(e);
}

int hccc_transport_start(hccc_transport *t, const hccc_proxy_ring *ring, hccc_transport_error *e) {
  if (!t) return fail(e, HCCC_TRANSPORT_INVALID, -1, "a null pointer");
  if (ring && (ring->size != sizeof *ring || ring->transfer_size != sizeof(hccc_transfer) ||
               !ring->entries || !ring->taken || !ring->completed || ring->length == 0 ||
               (ring->length & (ring->length - 1))))
    return fail(e, HCCC_TRANSPORT_INVALID, -1, "a proxy ring of another version, or incomplete");
  const std::lock_guard<std::mutex> hold(t->thread_lock);
  if (t->thread.joinable()) return fail(e, HCCC_TRANSPORT_STATE, -1, "it is started already");
  if (t->leaving) return fail(e, HCCC_TRANSPORT_STATE, -1, "it was stopped, and peers were told");
  t->proxy_ring = ring;
  t->taken = ring ? __atomic_load_n(ring->taken, __ATOMIC_ACQUIRE) : 0;
  t->running = true;
  sigset_t all, before;  // signals are for the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string why;
  try {
    t->thread = std::thread(run, std::ref(*t));
  } catch (const std::system_error &error) {
    t->running = false;
    why = std::string("no thread: ") + error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return why.empty() ? good(e) : fail(e, HCCC_TRANSPORT_MEMORY, -1, why);
}

int hccc_transport_ready(hccc_transport *t, double timeout_s, hccc_transport_error *e) {
  if (!t) return fail(e, HCCC_TRANSPORT_INVALID, -1, "a null pointer");
  const auto begin = Clock::now();
  for (;;) {
    if (!t->running) return fail(e, HCCC_TRANSPORT_STATE, -1, "it is not started");
    {
      const Hold hold(*t);
      const Peer *peer = unready(*t);
      if (!peer) return good(e);
      const bool late = timeout_s > 0 &&
                        std::chrono::duration<double>(Clock::now() - begin).count() > timeout_s;
      const std::string who = "rank " + std::to_string(peer->rank);
      if (peer->state == PeerState::FAILED)
        return fail(e, HCCC_TRANSPORT_FAILED, peer->rank, who + " has died or left");
      if (late) return fail(e, HCCC_TRANSPORT_FAILED, peer->rank, who + " does not answer");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

int hccc_transport_tell(hccc_transport *t, int number, hccc_transport_error *e) {
  if (!t) return fail(e, HCCC_TRANSPORT_INVALID, -1, "a null pointer");
  const Hold hold(*t);
  if (!t->windows.count(number))
    return fail(e, HCCC_TRANSPORT_INVALID, -1, "there is no window " + std::to_string(number));
  for (const auto &peer : t->peers) tell(*t, *peer, number);
  hccc_transport_wake(t);
  return good(e);
}

int hccc_transport_told(hccc_transport *t, int number) {
  const Hold hold(*t);
  return std::all_of(t->peers.begin(), t->peers.end(), [number](const std::unique_ptr<Peer> &peer) {
    return peer->state != PeerState::CONNECTED || peer->knows.count(number);
  });
}

void hccc_transport_wake(hccc_transport *t) {
  const uint64_t one = 1;
  if (t && write(t->wake_fd, &one, sizeof one) < 0) return;  // full: it is awake
}

int hccc_transport_stop(hccc_transport *t) {
  if (!t) return HCCC_TRANSPORT_INVALID;
  if (t->thread.get_id() == std::this_thread::get_id()) return HCCC_TRANSPORT_STATE;
  const std::lock_guard<std::mutex> hold(t->thread_lock);
  t->running = false;
  if (!t->thread.joinable()) return HCCC_TRANSPORT_OK;
  hccc_transport_wake(t);
  t->thread.join();
  const Hold inside(*t);
  t->proxy_ring = nullptr;
  return HCCC_TRANSPORT_OK;
}

void hccc_transport_close(hccc_transport *t) {
  if (!t) return;
  hccc_transport_stop(t);
  t->leaving = true;
  tear_down(*t);
  delete t;
}

hccc_transport_message *hccc_transport_send(hccc_transport *t, int peer, int tag, int type, const void *data,
                                            size_t bytes) {
  const Hold hold(*t);
  return send_message(*t, peer, tag, type, data, bytes);
}

hccc_transport_message *hccc_transport_next(hccc_transport *t, hccc_transport_envelope *envelope) {
  if (t->arrived.load(std::memory_order_acquire) == 0) {
    if (!t->lock.try_lock()) return nullptr;  // the thread works
    work(*t, false);
    t->lock.unlock();
    if (t->arrived.load(std::memory_order_acquire) == 0) return nullptr;
  }
  const Hold hold(*t);
  if (t->inbox.empty()) return nullptr;
  hccc_transport_message *found = t->inbox.front();
  t->inbox.pop_front();
  t->arrived.fetch_sub(1, std::memory_order_relaxed);
  *envelope = {found->header.rank, found->header.tb, found->header.channel, 0, found->header.bytes};
  return found;
}

void hccc_transport_fetch(hccc_transport_message *message, void *to) {
  const Hold hold(*message->t);
  fetch_message(message, to);
}

int hccc_transport_state(const hccc_transport_message *message) {
  return message->state.load(std::memory_order_acquire);
}

void hccc_transport_free(hccc_transport_message *message) {
  const Hold hold(*message->t);
  free_message(message);
}

void hccc_transport_cancel(hccc_transport *t) {
  const Hold hold(*t);
  cancel_messages(*t);
}

int hccc_transport_has_left(hccc_transport *t, int peer) {
  const Hold hold(*t);
  return t->peers[size_t(peer)]->state == PeerState::LEFT;
}

int hccc_transport_counters(hccc_transport *t, hccc_transport_counters_t *counters) {
  if (!t || !counters || counters->size != sizeof *counters) return HCCC_TRANSPORT_INVALID;
  const Hold hold(*t);
  *counters = t->counters;
  counters->size = sizeof *counters;
  return HCCC_TRANSPORT_OK;
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace hccc::transport
