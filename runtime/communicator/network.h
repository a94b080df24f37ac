// network.h: a rank's way to ranks on other hosts: the proxy ring of its kernels, and the transport
// that serves it.
#pragma once

#include <hccc/network.h>

#include <memory>
#include <vector>

#include "../bootstrap/include/hccc_bootstrap.h"
#include "../transport/include/hccc_transport.h"
#include "copier.h"
#include "device_memory.h"
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

  // Returns the ring as kernels address it.
  const hccc_proxy_ring *proxy_ring() const { return ring_of_kernels_; }
  hccc_transport *transport() const { return transport_; }
  // Returns whether all that kernels have submitted is on its way, and counts, modulo 2^32, what was
  // sent and received.
  bool idle(uint32_t *sent, uint32_t *received) const;
  // Registers memory of the device late, and returns when all ranks of other hosts know it. Throws Error.
  void add_window(int window, void *base, size_t bytes, const DeviceMemory::Continue &go_on);
  // Wakes the transport's thread, as a call begins.
  void wake() { hccc_transport_wake(transport_); }

 private:
  static void failed(void *self, int rank, const char *message);
  static void log(void *self, const char *line);
  static void aborting(void *self);
  void connect(hccc_bootstrap *bootstrap, const Host &host, const TimeLeft &left);
  void make_ring();
  void free_ring() noexcept;

  hccc_bootstrap *const bootstrap_;
  const int rank_;
  Failure &failure_;
  // The ring, its counters and entries, in memory that the device has mapped if there is one; and the
  // same with the kernels' addresses.
  struct Ring;
  const Device device_;  // of no platform: kernels of the CPU
  const int memory_;     // of the windows: HCCC_MEMORY_HOST...
  Ring *ring_ = nullptr;
  const hccc_proxy_ring *ring_of_kernels_ = nullptr;
  unsigned *submitted_ = nullptr;  // of the device, whose kernels count there
  std::unique_ptr<Copier> copier_;
  hccc_transport *transport_ = nullptr;
};

}  // namespace hccc
