// endpoint.cpp: the worker of a rank and its connections.
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "state.h"

namespace hccc::transport {
namespace {

void broken(void *argument, ucp::Endpoint, ucp::Status status) {
  Peer &peer = *static_cast<Peer *>(argument);
  fail_peer(*peer.t, peer, "the connection to it broke: " + ucx().meaning(status));
}

void closed(void *request, ucp::Status, void *user_data) {
  ucx().ucp_request_free(request);
  --*static_cast<int *>(user_data);
}

// Sets what UCX's variables of the environment leave open.
bool configure(const Transport &t, ucp::Config config, std::string &why) {
  if (t.network.empty()) return true;
  const ucp::Status status = ucx().ucp_config_modify(config, "NET_DEVICES", t.network.c_str());
  if (status != ucp::OK) why = "UCX cannot use `" + t.network + "`: " + ucx().meaning(status);
  return status == ucp::OK;
}

// Tells whether UCX has only TCP here, by the names of its devices; where a variable sets its threshold, UCX is followed.
bool is_tcp(const Transport &t) {
  const char *const said = std::getenv("UCX_NET_DEVICES");
  const std::string names = t.network.empty() ? said ? said : "" : t.network;
  if (std::getenv("UCX_RNDV_THRESH")) return false;
  if (names.empty() || names == "all") return access("/sys/class/infiniband", F_OK) != 0;
  std::istringstream all(names);
  for (std::string name; std::getline(all, name, ',');)
    if (name.find('/') != std::string::npos || access(("/sys/class/net/" + name).c_str(), F_OK)) return false;
  return true;
}

bool open_context(Transport &t, std::string &why) {
  ucp::Config config = nullptr;
  ucp::Status status = ucx().ucp_config_read(nullptr, nullptr, &config);
  if (status != ucp::OK) return why = "UCX's settings: " + ucx().meaning(status), false;
  ucp::Params params{};
  params.mask = ucp::PARAM_FEATURES | ucp::PARAM_ENDPOINTS;
  params.features = ucp::FEATURE_AM | ucp::FEATURE_WAKEUP;
  params.n_endpoints = size_t(t.options.n_ranks);
  const bool good = configure(t, config, why);
  t.eager = is_tcp(t);
  if (good) {
    status = ucx().ucp_init_version(ucp::API_MAJOR, ucp::API_MINOR, &params, config, &t.context);
    if (status != ucp::OK) {
      t.context = nullptr;
      why = "UCX finds no network that it can use" +
            (t.network.empty() ? "" : " among `" + t.network + "`") + ": " + ucx().meaning(status);
    }
  }
  ucx().ucp_config_release(config);
  if (!t.context) return false;
  ucp::ContextAttributes attributes{};
  attributes.mask = ucp::CONTEXT_MEMORY_TYPES;
  if (ucx().ucp_context_query(t.context, &attributes) == ucp::OK)
    t.memory_types = attributes.memory_types;
  return true;
}

bool know_address(Transport &t, std::string &why) {
  ucp::WorkerAttributes attributes{};
  attributes.mask = ucp::WORKER_ADDRESS | ucp::WORKER_MAX_AM_HEADER;
  const ucp::Status status = ucx().ucp_worker_query(t.worker, &attributes);
  if (status != ucp::OK) return why = "no address: " + ucx().meaning(status), false;
  const auto *bytes = static_cast<const unsigned char *>(attributes.address);
  t.address.assign(bytes, bytes + attributes.address_length);
  ucx().ucp_worker_release_address(t.worker, attributes.address);
  const bool fits = !t.address.empty() && t.address.size() <= MAX_ADDRESS;
  if (!fits || attributes.max_am_header < sizeof(Header))
    return why = "UCX's addresses or headers have no usable size", false;
  return true;
}

bool connect(Transport &t, Peer &peer, ucp::Endpoint &made, std::string &why) {
  ucp::EndpointParams params{};
  params.mask = ucp::ENDPOINT_ADDRESS | ucp::ENDPOINT_ERROR_MODE | ucp::ENDPOINT_ERROR_HANDLER;
  params.address = peer.blob.address.data();
  params.error_mode = ucp::ERROR_MODE_PEER;
  params.error_handler.callback = broken;
  params.error_handler.argument = &peer;
  const ucp::Status status = ucx().ucp_ep_create(t.worker, &params, &made);
  if (status == ucp::OK) return true;
  made = nullptr;
  const std::string over = t.network.empty() ? "" : " over `" + t.network + "`";
  why = "UCX cannot reach rank " + std::to_string(peer.rank) + over + ": " + ucx().meaning(status);
  return false;
}

void close(Transport &t, ucp::Endpoint &endpoint) {
  if (!endpoint) return;
  ucp::RequestParams params{};
  params.mask = ucp::OP_FLAGS | ucp::OP_CALLBACK | ucp::OP_USER_DATA;
  params.flags = ucp::CLOSE_FORCE;
  params.callback.send = closed;
  params.user_data = &t.closing;
  const ucp::StatusPointer closing = ucx().ucp_ep_close_nbx(std::exchange(endpoint, nullptr), &params);
  if (ucp::is_request(closing)) ++t.closing;
}

}  // namespace

bool open_endpoint(Transport &t, Peer &peer, std::string &why) {
  return connect(t, peer, peer.endpoint, why) && (!t.eager || connect(t, peer, peer.quick, why));
}

// Closes the connections to a peer at once: transfers in flight end with an error.
void close_endpoint(Transport &t, Peer &peer) {
  close(t, peer.endpoint);
  close(t, peer.quick);
}

bool open_worker(Transport &t, std::string &why) {
  if (!open_context(t, why)) return false;
  ucp::WorkerParams params{};
  params.mask = ucp::WORKER_THREAD_MODE;
  params.thread_mode = ucp::SERIALIZED;
  ucp::Status status = ucx().ucp_worker_create(t.context, &params, &t.worker);
  if (status != ucp::OK) {
    t.worker = nullptr;
    return why = "UCX makes no worker: " + ucx().meaning(status), false;
  }
  status = ucx().ucp_worker_get_efd(t.worker, &t.efd);
  if (status != ucp::OK) return why = "UCX cannot wake a thread: " + ucx().meaning(status), false;
  return listen(t, why) && know_address(t, why);
}

void close_worker(Transport &t) {
  const auto until = Clock::now() + std::chrono::seconds(2);
  for (const auto &peer : t.peers) drop_messages(t, *peer), close_endpoint(t, *peer);
  // A copier uses the pool's memory until its copies are done.
  const auto busy = [&t] {
    return t.closing > 0 || t.slices > 0 || t.receipts > 0 || t.requests > 0 || !t.cells.empty();
  };
  while (t.worker && busy() && Clock::now() < until) {
    finish_copies_out(t);
    finish_copies_in(t);
    ucx().ucp_worker_progress(t.worker);
  }
  drop_inbox(t);
  if (t.worker) ucx().ucp_worker_destroy(t.worker);
  if (t.context) {
    t.out_pool.free(t.context, t.copier);
    t.in_pool.free(t.context, t.copier);
    for (auto &[number, window] : t.windows)
      if (window.registered) ucx().ucp_mem_unmap(t.context, window.registered);
    ucx().ucp_cleanup(t.context);
  }
  t.worker = nullptr, t.context = nullptr, t.efd = -1;
}

}  // namespace hccc::transport
