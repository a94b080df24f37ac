// network.h: what a rank has to reach those of other hosts: a door for its kernels, and the transport
// that carries what they hand over.
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
  // Meets the transports of ranks on other hosts. All ranks at once. Throws Error.
  Network(hccc_bootstrap *bootstrap, Host &host, Failure &failure, int rank, double timeout_s);
  Network(const Network &) = delete;
  Network &operator=(const Network &) = delete;
  ~Network();

  const hccc_door *door() const { return &door_; }
  // A call begins: the transport's thread should not sleep.
  void wake() { hccc_transport_wake(transport_); }

 private:
  static void failed(void *self, int rank, const char *message);
  static void log(void *self, const char *line);
  void connect(hccc_bootstrap *bootstrap, const Host &host, double timeout_s);

  const int rank_;
  Failure &failure_;
  std::vector<hccc_transfer> ring_;
  alignas(128) unsigned handed_ = 0;
  alignas(128) unsigned taken_ = 0;
  alignas(128) unsigned completed_ = 0;
  hccc_door door_{};
  hccc_transport *transport_ = nullptr;
};

}  // namespace hccc
