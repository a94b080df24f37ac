// network.h: a rank's way to ranks on other hosts: the proxy ring of its kernels, and the transport
// that serves it.
#pragma once

#include <hccc/network.h>

#include <memory>
#include <vector>

#include "../bootstrap/include/hccc_bootstrap.h"
#include "../transport/include/hccc_transport.h"
#include "failure.h"
#include "host.h"

namespace hccc {

class Network {
 public:
  // Connects to the transports of ranks on other hosts in the time that is left. timeout_s: in which
  // a peer must take something of what is sent. Collective. Throws Error.
  Network(hccc_bootstrap *bootstrap, Host &host, Failure &failure, int rank, double timeout_s,
          const TimeLeft &left);
  Network(const Network &) = delete;
  Network &operator=(const Network &) = delete;
  ~Network();

  const hccc_proxy_ring *proxy_ring() const { return &ring_; }
  hccc_transport *transport() const { return transport_; }
  // Returns whether all that kernels have submitted is on its way, and counts, modulo 2^32, what was
  // sent and received.
  bool idle(uint32_t *sent, uint32_t *received) const;
  // Wakes the transport's thread, as a call begins.
  void wake() { hccc_transport_wake(transport_); }

 private:
  static void failed(void *self, int rank, const char *message);
  static void log(void *self, const char *line);
  static void aborting(void *self);
  void connect(hccc_bootstrap *bootstrap, const Host &host, const TimeLeft &left);

  hccc_bootstrap *const bootstrap_;
  const int rank_;
  Failure &failure_;
  std::vector<hccc_transfer> entries_;
  alignas(128) unsigned submitted_ = 0;
  alignas(128) unsigned taken_ = 0;
  alignas(128) unsigned completed_ = 0;
  hccc_proxy_ring ring_{};
  hccc_transport *transport_ = nullptr;
};

}  // namespace hccc
