// state.cpp: devices, the lock, and the order of streams.
#include "state.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "cpu.h"

namespace hcccrt::cpu {
namespace {

constexpr long kMostDevices = 64;
std::atomic<bool> forked{false};

// Makes the state. Never destroyed: streams' threads may run while the process ends.
State *make() {
  auto *s = new State;
  long count = 1;
  if (const char *given = std::getenv("HCCC_CPU_DEVICES"); given && *given) {
    char *end;
    errno = 0;
    count = std::strtol(given, &end, 10);
    if (*end || errno || count < 1 || count > kMostDevices) {
      s->text = std::string("HCCC_CPU_DEVICES is `") + given + "`: a number from 1 to 64";
      return s;
    }
  }
  for (int i = 0; i < count; ++i) {
    s->devices.push_back(std::make_unique<Device>());
    s->devices.back()->index = i;
  }
  utsname name;
  s->text = std::string(uname(&name) == 0 ? name.machine : "cpu") + ", " + std::to_string(count) +
            (count == 1 ? " device" : " devices");
  // Threads do not survive a fork: their work is lost in the child.
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  return s;
}

}  // namespace

thread_local int current_device = 0;
thread_local hcccrtStreamCaptureMode_t capture_mode = hcccrtStreamCaptureModeGlobal;

State &state() {
  static State *const s = make();
  return *s;
}

bool available(std::string *text) {
  *text = state().text;
  return !state().devices.empty();
}

Call::Call(bool even_lost) : s(state()) {
  if (forked) {
    error = hcccrtErrorInitializationError;  // the lock may be held by a thread of the parent
  } else if (in_worker) {
    error = hcccrtErrorNotPermitted;
  } else {
    lock = std::unique_lock<std::mutex>(s.mutex);
    device = s.devices[static_cast<size_t>(current_device)].get();
    if (!even_lost) error = static_cast<hcccrtError_t>(device->lost.load());
  }
}

std::shared_ptr<Stream> Call::stream(hcccrtStream_t handle) {
  if (!handle) {
    if (!device->default_stream)
      device->default_stream = std::make_shared<Stream>(device->index, hcccrtStreamDefault,
                                                        &device->lost, device->stack_bytes,
                                                        std::vector<int>{});
    return device->default_stream;
  }
  const auto it = s.streams.find(handle);
  return it == s.streams.end() ? nullptr : it->second;
}

hcccrtError_t Call::wait(const std::vector<Ticket> &tickets, const Device &of) {
  lock.unlock();
  for (const Ticket &ticket : tickets) ticket.wait();
  lock.lock();
  return static_cast<hcccrtError_t>(of.lost.load());
}

std::vector<Ticket> order_of(State &s, Stream &stream) {
  Device &device = *s.devices[static_cast<size_t>(stream.device)];
  std::vector<Ticket> found;
  const auto add = [&](const Stream &other) {
    Ticket tail = other.worker.tail();
    if (!tail.done()) found.push_back(std::move(tail));
  };
  if (!stream.blocking()) return found;
  if (&stream != device.default_stream.get()) {
    if (device.default_stream) add(*device.default_stream);
    return found;
  }
  for (const auto &other : device.streams)
    if (other->blocking()) add(*other);
  for (const auto &other : device.retired)
    if (other->blocking()) add(*other);
  return found;
}

std::vector<Ticket> all_of(Device &device) {
  std::vector<Ticket> found;
  if (device.default_stream) found.push_back(device.default_stream->worker.tail());
  for (const auto &stream : device.streams) found.push_back(stream->worker.tail());
  for (const auto &stream : device.retired) found.push_back(stream->worker.tail());
  return found;
}

void reap(Device &device) {
  auto &retired = device.retired;
  retired.erase(std::remove_if(retired.begin(), retired.end(),
                               [](const auto &stream) { return stream->worker.idle(); }),
                retired.end());
}

hcccrtError_t submit(State &s, Stream &stream, Job job, std::vector<Ticket> after, Ticket *ticket) {
  if (stream.capture) {
    if (stream.capture->invalid) return hcccrtErrorStreamCaptureInvalidated;
    Node *node = stream.capture->graph->add(std::move(job), stream.frontier);
    stream.frontier = {node};
    return hcccrtSuccess;
  }
  if (const auto error = implicit_wait(s, stream)) return error;
  for (Ticket &other : order_of(s, stream)) after.push_back(std::move(other));
  Ticket made = stream.worker.push(std::move(after), std::move(job));
  if (ticket) *ticket = std::move(made);
  return hcccrtSuccess;
}

}  // namespace hcccrt::cpu
