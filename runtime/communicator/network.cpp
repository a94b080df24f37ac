// network.cpp: a rank's transport, opened and connected.
#include "network.h"

#include <stdlib.h>

#include "error.h"
#include "log.h"

namespace hccc {
namespace {

constexpr unsigned RING = 1024;  // transfers that kernels may be ahead of the transport

[[noreturn]] void fail_as(const hccc_transport_error &error) {
  throw Error(hcccSystemError, std::string("the transport between hosts: ") + error.message);
}

}  // namespace

Network::Network(hccc_bootstrap *bootstrap, Host &host, Failure &failure, int rank, double timeout_s)
    : rank_(rank), failure_(failure), entries_(RING) {
  ring_.size = sizeof ring_;
  ring_.transfer_size = sizeof(hccc_transfer);
  ring_.length = RING;
  ring_.entries = entries_.data();
  ring_.submitted = &submitted_, ring_.taken = &taken_, ring_.completed = &completed_;
  hccc_transport_options options{};
  options.size = sizeof options;
  options.rank = rank, options.n_ranks = host.n_ranks();
  options.timeout_s = timeout_s;
  options.failed = failed, options.log = log, options.context = this;
  hccc_transport_error error{};
  if (hccc_transport_open(&transport_, &options, &error)) fail_as(error);
  try {
    for (const auto &[number, base, bytes] : host.own_windows())
      if (hccc_transport_window(transport_, number, base, bytes, HCCC_MEMORY_HOST, &error))
        fail_as(error);
    connect(bootstrap, host, timeout_s);
    if (hccc_transport_start(transport_, &ring_, &error)) fail_as(error);
    hccc_bootstrap_error lost{};
    if (hccc_bootstrap_barrier(bootstrap, timeout_s, &lost)) hccc::fail_as(lost);
    if (hccc_transport_ready(transport_, timeout_s, &error)) fail_as(error);
  } catch (...) {
    hccc_transport_close(transport_);
    throw;
  }
}

void Network::connect(hccc_bootstrap *bootstrap, const Host &host, double timeout_s) {
  void *own = nullptr, *all = nullptr;
  size_t bytes = 0;
  std::vector<size_t> sizes(static_cast<size_t>(host.n_ranks()));
  hccc_transport_error error{};
  hccc_bootstrap_error lost{};
  if (hccc_transport_blob(transport_, &own, &bytes, &error)) fail_as(error);
  if (hccc_bootstrap_allgatherv(bootstrap, own, bytes, &all, sizes.data(), timeout_s, &lost))
    hccc::fail_as(lost);
  const std::unique_ptr<void, void (*)(void *)> kept(all, free);
  const char *blob = static_cast<const char *>(all);
  for (int r = 0; r < host.n_ranks(); blob += sizes[static_cast<size_t>(r++)]) {
    const size_t size = sizes[static_cast<size_t>(r)];
    if (!host.near(r) && hccc_transport_connect(transport_, r, blob, size, &error)) fail_as(error);
  }
}

Network::~Network() { hccc_transport_close(transport_); }

void Network::failed(void *self, int rank, const char *message) {
  auto *of = static_cast<Network *>(self);
  of->failure_.set(rank == of->rank_ ? hcccInternalError : hcccRemoteError,
                   text_of("rank %d, over the network: %s", rank, message));
}

void Network::log(void *self, const char *line) {
  HCCC_LOG(INFO, NET, static_cast<Network *>(self)->rank_, "%s", line);
}

}  // namespace hccc
