// api.cpp: the C interface: arguments checked, failures as codes and messages.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "client.h"
#include "environment.h"
#include "root.h"
#include "share.h"

namespace hccc::bootstrap {
namespace {

int report(hccc_bootstrap_error *error, int code, int rank, const std::string &message) {
  if (error) {
    error->code = code;
    error->rank = rank;
    const size_t n = std::min(message.size(), sizeof error->message - 1);
    std::memcpy(error->message, message.data(), n);
    error->message[n] = '\0';
  }
  return code;
}

// Runs `work`, which returns a message of success; every failure becomes a code.
template <class Work>
int guarded(hccc_bootstrap_error *error, const Work &work) {
  try {
    return report(error, HCCC_BOOTSTRAP_OK, -1, work());
  } catch (const Failure &failure) {
    return report(error, failure.code, failure.rank, failure.message);
  } catch (const std::exception &other) {
    return report(error, kSystem, -1, other.what());
  }
}

void need(bool given, const char *what) {
  if (!given) fail(kBadArgument, -1, "%s is missing", what);
}

Client &usable(hccc_bootstrap *b) {
  need(b, "the bootstrap");
  if (b->client.in_child())
    fail(kBadArgument, b->client.rank, "this process was forked after the bootstrap "
         "was opened: it must open its own");
  return b->client;
}

bool has_rank(const hccc_bootstrap *b, int rank) {
  return b && 0 <= rank && rank < b->client.n_ranks;
}

// Makes a job whose root is at an address, unless the environment names another.
std::string make_job(const Address &address, hccc_unique_id *id) {
  need(id, "the id");
  Identity identity;
  random_bytes(identity.secret.data(), identity.secret.size());
  const Binding binding = choose_binding(address);
  Fd listener = listen_tcp(binding.bind, &identity.address);
  const uint16_t port = identity.address.port;
  identity.address = binding.reachable;
  identity.address.port = port;
  identity.listening = true;
  start_root(std::move(listener), identity, root_timeout(), nullptr);
  write_id(identity, id);
  return "the root is at " + identity.address.str();
}

}  // namespace
}  // namespace hccc::bootstrap

using namespace hccc::bootstrap;

int hccc_bootstrap_unique_id(hccc_unique_id *id, hccc_bootstrap_error *error) {
  return guarded(error, [&] { return make_job(own_address(), id); });
}

int hccc_bootstrap_unique_id_among(hccc_bootstrap *b, const int *ranks, int n_ranks, hccc_unique_id *id,
                                   hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    const Client &client = usable(b);
    const auto host = [&](int rank) { return client.host_of[static_cast<size_t>(rank)]; };
    if (n_ranks < 1 || !std::all_of(ranks, ranks + n_ranks, [&](int rank) { return has_rank(b, rank); }))
      fail(kBadArgument, -1, "a job among ranks that are not in the other");
    const bool apart = std::any_of(ranks, ranks + n_ranks, [&](int rank) { return host(rank) != host(ranks[0]); });
    return make_job(apart ? client.address : loopback(), id);
  });
}

int hccc_bootstrap_environment(int *rank, int *n_ranks, int *local_rank, char *address,
                               size_t address_bytes, hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    const Environment found = find_environment();
    if (rank) *rank = found.rank;
    if (n_ranks) *n_ranks = found.n_ranks;
    if (local_rank) *local_rank = found.local_rank;
    const std::string at = root_address(found);
    if (address && at.size() >= address_bytes)
      fail(kBadArgument, -1, "the address of the root is too long: %.80s", at.c_str());
    if (address) std::memcpy(address, at.c_str(), at.size() + 1);
    return describe(found, at);
  });
}

int hccc_bootstrap_id_from_environment(hccc_unique_id *id, int rank, hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    need(id, "the id");
    const Identity identity = identity_from_environment(rank);
    write_id(identity, id);
    return "the root is at " + identity.address.str();
  });
}

int hccc_bootstrap_open(hccc_bootstrap **made, const hccc_unique_id *id, int n_ranks, int rank,
                        double timeout_s, hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    need(made, "a place for the bootstrap");
    *made = nullptr;
    need(id, "the id");
    *made = new hccc_bootstrap{{*id, n_ranks, rank, Deadline::of(timeout_s)}};
    return std::string();
  });
}

int hccc_bootstrap_allgather(hccc_bootstrap *b, void *data, size_t bytes_each, double timeout_s,
                             hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    Client &client = usable(b);
    need(data || !bytes_each, "the data");
    auto *all = static_cast<char *>(data);
    const void *own = bytes_each ? all + static_cast<size_t>(client.rank) * bytes_each : nullptr;
    const auto got = client.gather(kAllgather, own, bytes_each, Deadline::of(timeout_s));
    for (int r = 0; r < client.n_ranks; ++r)
      if (got.sizes[r] != got.sizes[0])
        fail(kRefused, r, "rank %d gathers %zu bytes each, rank 0 %zu", r,
             got.sizes[r], got.sizes[0]);
    if (bytes_each) std::memcpy(all, got.data.data(), got.data.size());
    return std::string();
  });
}

int hccc_bootstrap_allgatherv(hccc_bootstrap *b, const void *own, size_t bytes, void **all,
                              size_t *sizes, double timeout_s, hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    Client &client = usable(b);
    need(all && sizes && (own || !bytes), "the data");
    *all = nullptr;
    const auto got = client.gather(kAllgatherv, own, bytes, Deadline::of(timeout_s));
    *all = std::malloc(std::max<size_t>(1, got.data.size()));
    if (!*all) throw std::bad_alloc();
    std::memcpy(*all, got.data.data(), got.data.size());
    std::copy(got.sizes.begin(), got.sizes.end(), sizes);
    return std::string();
  });
}

int hccc_bootstrap_barrier(hccc_bootstrap *b, double timeout_s, hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    usable(b).gather(kBarrier, nullptr, 0, Deadline::of(timeout_s));
    return std::string();
  });
}

int hccc_bootstrap_host(hccc_bootstrap *b, int rank) {
  return has_rank(b, rank) ? b->client.host_of[rank] : -1;
}

const char *hccc_bootstrap_interface(hccc_bootstrap *b) {
  return b ? b->client.interface.c_str() : "";
}

int hccc_bootstrap_pid(hccc_bootstrap *b, int rank) {
  return has_rank(b, rank) ? b->client.pid_of[rank] : -1;
}

int hccc_bootstrap_share(hccc_bootstrap *b, const int *own_fds, int n_own, int *fds,
                         double timeout_s, hccc_bootstrap_error *error) {
  return guarded(error, [&] {
    Client &client = usable(b);
    need((own_fds && fds) || !n_own, "the descriptors");
    share(&client, own_fds, n_own, fds, Deadline::of(timeout_s));
    return std::string();
  });
}

int hccc_bootstrap_poll_fd(hccc_bootstrap *b) {
  return b && !b->client.in_child() ? b->client.watch() : -1;
}

int hccc_bootstrap_next_departure(hccc_bootstrap *b, int *rank, int *orderly) {
  Client::Departure one;
  bool found = false;
  guarded(nullptr, [&] {
    found = usable(b).next_departure(&one);
    return std::string();
  });
  if (found && rank) *rank = one.rank;
  if (found && orderly) *orderly = one.orderly;
  return found;
}

void hccc_bootstrap_notify(hccc_bootstrap *b, const void *data, size_t bytes) {
  guarded(nullptr, [&] {
    need(data || !bytes, "the message");
    usable(b).notify(data, std::min<size_t>(bytes, HCCC_BOOTSTRAP_MAX_MESSAGE));
    return std::string();
  });
}

int hccc_bootstrap_next_message(hccc_bootstrap *b, int *rank, void *data, size_t *bytes) {
  Client::Message one;
  bool found = false;
  guarded(nullptr, [&] {
    found = usable(b).next_message(&one);
    return std::string();
  });
  if (!found) return 0;
  if (rank) *rank = one.rank;
  if (data && !one.data.empty()) std::memcpy(data, one.data.data(), one.data.size());
  if (bytes) *bytes = one.data.size();
  return 1;
}

void hccc_bootstrap_set_state(hccc_bootstrap *b, unsigned long long state) {
  guarded(nullptr, [&] {
    usable(b).set_state(state);
    return std::string();
  });
}

int hccc_bootstrap_signs(hccc_bootstrap *b, double *silent_s, unsigned long long *states) {
  std::vector<Sign> found;
  guarded(nullptr, [&] {
    found = usable(b).signs();
    return std::string();
  });
  for (size_t r = 0; r < found.size(); ++r) {
    silent_s[r] = found[r].silent_ms / 1e3;
    states[r] = found[r].state;
  }
  return !found.empty();
}

int hccc_bootstrap_attend(hccc_bootstrap *b, const hccc_bootstrap_guest *guest) {
  bool attended = false;
  guarded(nullptr, [&] {
    attended = usable(b).attend(guest);
    return std::string();
  });
  return attended;
}

void hccc_bootstrap_give_up(hccc_bootstrap *b, const char *why) {
  guarded(nullptr, [&] {
    usable(b).give_up(why);
    return std::string();
  });
}

void hccc_bootstrap_close(hccc_bootstrap *b) { delete b; }

void hccc_bootstrap_hmac(const void *key, size_t key_bytes, const void *data, size_t data_bytes,
                         unsigned char result[32]) {
  const Digest made = hmac(key, key_bytes, data, data_bytes);
  std::memcpy(result, made.data(), made.size());
}
