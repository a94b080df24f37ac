// network.cpp: a rank's transport, opened and connected.
#include "network.h"

#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <new>

#include "error.h"
#include "handles.h"
#include "log.h"
#include "monitor.h"

namespace hccc {
namespace {

constexpr useconds_t LAST_WORDS_US = 100000;  // in which rank 0's hub passes on what a rank says
constexpr unsigned RING = 1024;  // transfers that kernels may be ahead of the transport
constexpr useconds_t TOLD_US = 50;  // between looks at who knows a window

[[noreturn]] void fail_as(const hccc_transport_error &error) {
  throw Error(hcccSystemError, std::string("the transport between hosts: ") + error.message);
}

int memory_of(const Host &host) {
  if (!host.on_gpu()) return HCCC_MEMORY_HOST;
  return host.device_memory()->device().platform == hcccrtPlatformHIP ? HCCC_MEMORY_HIP : HCCC_MEMORY_CUDA;
}

// Lists the ports of RDMA devices that have a link, as UCX names them: mlx5_0:1.
std::vector<std::string> rdma_ports() {
  std::vector<std::string> found;
  glob_t ports = {};
  if (glob("/sys/class/infiniband/*/ports/*", 0, nullptr, &ports) == 0)
    for (size_t k = 0; k < ports.gl_pathc; ++k) {
      const std::string path = ports.gl_pathv[k];
      std::string state;
      std::getline(std::ifstream(path + "/state"), state);  // `4: ACTIVE`
      const size_t port = path.rfind('/'), end = path.rfind('/', port - 1), begin = path.rfind('/', end - 1) + 1;
      if (state.find("ACTIVE") != std::string::npos)
        found.push_back(path.substr(begin, end - begin) + ":" + path.substr(port + 1));
    }
  globfree(&ports);
  return found;
}

// Lists the devices that UCX may use, where nothing names them: the interface by which the ranks
// have met, and RDMA devices, of which it opens no ports. "": UCX's choice.
std::string devices_of_job(hccc_bootstrap *bootstrap) {
  for (const char *name : {"HCCC_NETWORK", "UCX_NET_DEVICES"}) {
    const char *value = getenv(name);
    if (value && *value) return "";
  }
  std::string all = hccc_bootstrap_interface(bootstrap);
  if (!all.empty())
    for (const std::string &port : rdma_ports()) all += "," + port;
  return all;
}

}  // namespace

struct Network::Ring {
  alignas(128) unsigned submitted;  // by kernels of the CPU
  alignas(128) unsigned taken;
  alignas(128) unsigned completed;
  alignas(128) hccc_proxy_ring of_host, of_kernels;
  alignas(128) hccc_transfer entries[RING];

  // Describes the ring, for whom it is at `seen`.
  hccc_proxy_ring description(Ring *seen) const {
    return {sizeof(hccc_proxy_ring), sizeof(hccc_transfer), RING, 0, seen->entries,
            &seen->submitted, &seen->taken, &seen->completed};
  }
};

void Network::make_ring() {
  void *made = nullptr, *seen = nullptr;
  if (memory_ == HCCC_MEMORY_HOST) {
    made = seen = ::operator new(sizeof(Ring), std::align_val_t(alignof(Ring)));
  } else {
    const OnDevice on(device_);
    const unsigned flags = hcccrtHostAllocMapped | hcccrtHostAllocPortable;
    check_device(hcccrtHostAlloc(&made, sizeof(Ring), flags), "memory of host and device");
    ring_ = static_cast<Ring *>(made);
    check_device(hcccrtHostGetDevicePointer(&seen, made, 0), "memory of host and device");
    submitted_ = static_cast<unsigned *>(allocate_coherent(sizeof *submitted_));
    copier_->zero(submitted_);
  }
  ring_ = new (made) Ring{};
  ring_->of_host = ring_->description(ring_);
  ring_->of_kernels = ring_->description(static_cast<Ring *>(seen));
  if (submitted_) ring_->of_kernels.submitted = submitted_;
  ring_of_kernels_ = &static_cast<Ring *>(seen)->of_kernels;
}

void Network::free_ring() noexcept {
  if (memory_ == HCCC_MEMORY_HOST) return ::operator delete(ring_, std::align_val_t(alignof(Ring)));
  try {
    const OnDevice on(device_);
    if (submitted_) hcccrtFree(submitted_);
    if (ring_) hcccrtFreeHost(ring_);
  } catch (const Error &error) {
    HCCC_LOG(WARN, NET, rank_, "%s", error.what());
  }
}

Network::Network(hccc_bootstrap *bootstrap, Host &host, Failure &failure, int rank, double timeout_s,
                 const TimeLeft &left)
    : bootstrap_(bootstrap), rank_(rank), failure_(failure),
      device_(host.on_gpu() ? host.device_memory()->device() : Device()), memory_(memory_of(host)) {
  hccc_transport_options options{};
  options.size = sizeof options;
  options.rank = rank, options.n_ranks = host.n_ranks();
  options.timeout_s = timeout_s;
  options.failed = failed, options.log = log, options.aborting = aborting, options.context = this;
  const std::string devices = devices_of_job(bootstrap);
  if (!devices.empty()) {
    options.network = devices.c_str();
    HCCC_LOG(INFO, NET, rank, "UCX may use %s, where the ranks have met; HCCC_NETWORK names others, or `all`",
             devices.c_str());
  }
  HCCC_LOG(INFO, NET, rank, "UCX listens for whoever connects: only hosts of the job should reach its ports");
  hccc_transport_error error{};
  try {
    if (memory_ != HCCC_MEMORY_HOST) {
      copier_ = std::make_unique<Copier>(device_);
      options.copier = copier_->functions();
    }
    make_ring();
    if (hccc_transport_open(&transport_, &options, &error)) fail_as(error);
    for (const auto &[number, base, bytes] : host.own_windows())
      if (hccc_transport_window(transport_, number, base, bytes, memory_, &error)) fail_as(error);
    connect(bootstrap, host, left);
    if (hccc_transport_start(transport_, &ring_->of_host, &error)) fail_as(error);
    hccc_bootstrap_error lost{};
    if (hccc_bootstrap_barrier(bootstrap, left.seconds(), &lost)) hccc::fail_as(lost);
    if (hccc_transport_ready(transport_, left.seconds(), &error)) fail_as(error);
    // A rank that leaves at once must not fail another that is not ready yet.
    if (hccc_bootstrap_barrier(bootstrap, left.seconds(), &lost)) hccc::fail_as(lost);
  } catch (...) {
    hccc_transport_close(transport_);
    free_ring();
    throw;
  }
  if (DeviceMemory *memory = host.device_memory())
    memory->tell_hosts_by([this](int window, void *base, size_t bytes, const DeviceMemory::Continue &go_on) {
      add_window(window, base, bytes, go_on);
    });
}

void Network::add_window(int window, void *base, size_t bytes, const DeviceMemory::Continue &go_on) {
  hccc_transport_error error{};
  if (hccc_transport_window(transport_, window, base, static_cast<long long>(bytes), memory_, &error) ||
      hccc_transport_tell(transport_, window, &error))
    fail_as(error);
  while (!hccc_transport_told(transport_, window)) {
    if (!go_on()) return;
    usleep(TOLD_US);
  }
}

void Network::connect(hccc_bootstrap *bootstrap, const Host &host, const TimeLeft &left) {
  void *own = nullptr, *all = nullptr;
  size_t bytes = 0;
  std::vector<size_t> sizes(static_cast<size_t>(host.n_ranks()));
  hccc_transport_error error{};
  hccc_bootstrap_error lost{};
  if (hccc_transport_blob(transport_, &own, &bytes, &error)) fail_as(error);
  if (hccc_bootstrap_allgatherv(bootstrap, own, bytes, &all, sizes.data(), left.seconds(), &lost))
    hccc::fail_as(lost);
  const std::unique_ptr<void, void (*)(void *)> kept(all, free);
  const char *blob = static_cast<const char *>(all);
  for (int r = 0; r < host.n_ranks(); blob += sizes[static_cast<size_t>(r++)]) {
    const size_t size = sizes[static_cast<size_t>(r)];
    if (!host.near(r) && hccc_transport_connect(transport_, r, blob, size, &error)) fail_as(error);
  }
}

Network::~Network() {
  hccc_transport_close(transport_);
  free_ring();
}

bool Network::idle(uint32_t *sent, uint32_t *received) const {
  *sent = __atomic_load_n(&ring_->completed, __ATOMIC_ACQUIRE);
  hccc_transport_counters_t counters{};
  counters.size = sizeof counters;
  if (hccc_transport_counters(transport_, &counters)) return false;
  *received = static_cast<uint32_t>(counters.received_transfers);
  const unsigned submitted = submitted_ ? copier_->word(submitted_) : __atomic_load_n(&ring_->submitted, __ATOMIC_ACQUIRE);
  return *sent == submitted;
}

void Network::failed(void *self, int rank, const char *message) {
  auto *of = static_cast<Network *>(self);
  const std::string text = text_of("rank %d, over the network: %s", rank, message);
  if (rank == of->rank_)
    of->failure_.set(hcccInternalError, text);
  else
    of->failure_.suspect(hcccRemoteError, text);
}

// Leaves a word of the reason: UCX writes its own to stderr alone.
void Network::aborting(void *self) {
  const auto *of = static_cast<Network *>(self);
  const std::string text = text_of("rank %d: UCX has ended its process, %d, by abort(), as UCX 1.13 does where a "
                                   "stranger sends it nonsense: its stderr has UCX's reason", of->rank_, getpid());
  const std::string line = text + "\n";
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  static_cast<void>(written);
  notify_ranks(of->bootstrap_, hcccRemoteError, text);
  usleep(LAST_WORDS_US);
}

void Network::log(void *self, const char *line) {
  HCCC_LOG(INFO, NET, static_cast<Network *>(self)->rank_, "%s", line);
}

}  // namespace hccc
