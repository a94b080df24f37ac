// streams.cpp: streams, events, and functions of the host.
#include <sched.h>
#include <time.h>

#include "api.h"

namespace hcccrt::cpu {
namespace {

long long now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

hcccrtError_t create(hcccrtStream_t *stream, unsigned flags, std::vector<int> cpus) {
  Call call;
  if (call.error) return call.error;
  if (!stream || flags & ~unsigned{hcccrtStreamNonBlocking}) return hcccrtErrorInvalidValue;
  Device &device = *call.device;
  reap(device);
  auto made = std::make_shared<Stream>(device.index, flags, &device.lost, device.stack_bytes,
                                       std::move(cpus));
  *stream = reinterpret_cast<hcccrtStream_t>(made.get());
  call.s.streams[made.get()] = made;
  device.streams.push_back(std::move(made));
  return hcccrtSuccess;
}

std::shared_ptr<Event> event_of(State &s, hcccrtEvent_t handle) {
  const auto it = s.events.find(handle);
  return it == s.events.end() ? nullptr : it->second;
}

bool done(const Event &event) { return !event.record || event.record->ticket.done(); }

// Joins a stream to a capture, as it waits for one of its events.
hcccrtError_t join(State &s, Stream &stream, const Event &event) {
  const auto &capture = event.capture;
  if (capture->over) return hcccrtErrorCapturedEvent;
  if (capture->invalid) return hcccrtErrorStreamCaptureInvalidated;
  if (&stream == s.devices[static_cast<size_t>(stream.device)]->default_stream.get()) {
    capture->invalid = true;
    return hcccrtErrorStreamCaptureImplicit;
  }
  if (stream.capture && stream.capture != capture) {
    capture->invalid = stream.capture->invalid = true;
    return hcccrtErrorStreamCaptureMerge;
  }
  stream.capture = capture;
  capture->streams.insert(&stream);
  for (Node *node : event.nodes)
    if (std::find(stream.frontier.begin(), stream.frontier.end(), node) == stream.frontier.end())
      stream.frontier.push_back(node);
  return hcccrtSuccess;
}

}  // namespace

std::vector<int> processors() {
  cpu_set_t set;
  std::vector<int> found;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) found.push_back(cpu);
  return found;
}

hcccrtError_t StreamCreate(hcccrtStream_t *stream) {
  return create(stream, hcccrtStreamDefault, {});
}

hcccrtError_t StreamCreateWithFlags(hcccrtStream_t *stream, unsigned flags) {
  return create(stream, flags, {});
}

hcccrtError_t ExtStreamCreateWithCUMask(hcccrtStream_t *stream, unsigned words,
                                        const unsigned *mask) {
  if (!words || !mask) return hcccrtErrorInvalidValue;
  const std::vector<int> every = processors();
  std::vector<int> chosen;
  for (size_t i = 0; i < every.size() && i / 32 < words; ++i)
    if (mask[i / 32] >> i % 32 & 1) chosen.push_back(every[i]);
  return chosen.empty() ? hcccrtErrorInvalidValue : create(stream, hcccrtStreamDefault, chosen);
}

hcccrtError_t StreamDestroy(hcccrtStream_t handle) {
  std::shared_ptr<Stream> idle;  // its thread is joined after the lock is given back
  Call call;
  if (call.error) return call.error;
  const auto stream = handle ? call.stream(handle) : nullptr;
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  leave(call.s, *stream);
  call.s.streams.erase(stream.get());
  Device &device = *call.s.devices[static_cast<size_t>(stream->device)];
  auto &all = device.streams;
  all.erase(std::find(all.begin(), all.end(), stream));
  stream->worker.finish();
  if (stream->worker.idle())
    idle = stream;
  else
    device.retired.push_back(stream);
  reap(device);
  call.lock.unlock();
  return hcccrtSuccess;
}

hcccrtError_t StreamQuery(hcccrtStream_t handle) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (const auto error = not_captured(*stream)) return error;
  if (!stream->worker.idle()) return hcccrtErrorNotReady;
  if (handle) return hcccrtSuccess;
  if (const auto error = implicit_wait(call.s, *stream)) return error;
  return order_of(call.s, *stream).empty() ? hcccrtSuccess : hcccrtErrorNotReady;
}

hcccrtError_t StreamSynchronize(hcccrtStream_t handle) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (const auto error = not_captured(*stream)) return error;
  if (const auto error = implicit_wait(call.s, *stream)) return error;
  std::vector<Ticket> tickets = {stream->worker.tail()};
  if (!handle)
    for (Ticket &ticket : order_of(call.s, *stream)) tickets.push_back(std::move(ticket));
  return call.wait(tickets, *call.s.devices[static_cast<size_t>(stream->device)]);
}

hcccrtError_t StreamWaitEvent(hcccrtStream_t handle, hcccrtEvent_t of, unsigned flags) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  const auto event = event_of(call.s, of);
  if (!stream || !event) return hcccrtErrorInvalidResourceHandle;
  if (flags) return hcccrtErrorInvalidValue;
  if (event->capture) return join(call.s, *stream, *event);
  if (stream->capture) {
    stream->capture->invalid = true;
    return hcccrtErrorStreamCaptureIsolation;
  }
  if (done(*event)) return hcccrtSuccess;
  return submit(call.s, *stream, {}, {event->record->ticket});
}

hcccrtError_t LaunchHostFunc(hcccrtStream_t handle, hcccrtHostFn_t fn, void *user_data) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (!fn) return hcccrtErrorInvalidValue;
  return submit(call.s, *stream, [=] { return fn(user_data), hcccrtSuccess; });
}

hcccrtError_t EventCreateWithFlags(hcccrtEvent_t *event, unsigned flags) {
  constexpr unsigned kKnown = hcccrtEventBlockingSync | hcccrtEventDisableTiming |
                              hcccrtEventInterprocess | hcccrtEventReleaseToSystem;
  Call call;
  if (call.error) return call.error;
  if (!event || flags & ~kKnown) return hcccrtErrorInvalidValue;
  if (flags & hcccrtEventInterprocess && !(flags & hcccrtEventDisableTiming))
    return hcccrtErrorInvalidValue;
  auto made = std::make_shared<Event>();
  made->device = call.device->index;
  made->flags = flags;
  *event = reinterpret_cast<hcccrtEvent_t>(made.get());
  call.s.events[made.get()] = std::move(made);
  return hcccrtSuccess;
}

hcccrtError_t EventCreate(hcccrtEvent_t *event) {
  return EventCreateWithFlags(event, hcccrtEventDefault);
}

hcccrtError_t EventDestroy(hcccrtEvent_t event) {
  Call call;
  if (call.error) return call.error;
  return call.s.events.erase(event) ? hcccrtSuccess : hcccrtErrorInvalidResourceHandle;
}

hcccrtError_t EventRecord(hcccrtEvent_t of, hcccrtStream_t handle) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  const auto event = event_of(call.s, of);
  if (!stream || !event || stream->device != event->device) return hcccrtErrorInvalidResourceHandle;
  if (stream->capture) {
    if (stream->capture->invalid) return hcccrtErrorStreamCaptureInvalidated;
    event->capture = stream->capture;
    event->nodes = stream->frontier;
    return hcccrtSuccess;
  }
  if (const auto error = implicit_wait(call.s, *stream)) return error;
  auto record = std::make_shared<Record>();
  if (stream->worker.idle() && order_of(call.s, *stream).empty()) {
    record->nanoseconds = now();
  } else {
    const auto job = [record] { return record->nanoseconds = now(), hcccrtSuccess; };
    if (const auto error = submit(call.s, *stream, job, {}, &record->ticket)) return error;
  }
  event->capture = nullptr;
  event->nodes.clear();
  event->record = std::move(record);
  return hcccrtSuccess;
}

hcccrtError_t EventQuery(hcccrtEvent_t of) {
  Call call;
  if (call.error) return call.error;
  const auto event = event_of(call.s, of);
  if (!event) return hcccrtErrorInvalidResourceHandle;
  if (event->capture) return event->capture->invalid = true, hcccrtErrorCapturedEvent;
  return done(*event) ? hcccrtSuccess : hcccrtErrorNotReady;
}

hcccrtError_t EventSynchronize(hcccrtEvent_t of) {
  Call call;
  if (call.error) return call.error;
  const auto event = event_of(call.s, of);
  if (!event) return hcccrtErrorInvalidResourceHandle;
  if (event->capture) return event->capture->invalid = true, hcccrtErrorCapturedEvent;
  if (!event->record) return hcccrtSuccess;
  return call.wait({event->record->ticket}, *call.s.devices[static_cast<size_t>(event->device)]);
}

hcccrtError_t EventElapsedTime(float *milliseconds, hcccrtEvent_t start, hcccrtEvent_t stop) {
  Call call;
  if (call.error) return call.error;
  const auto from = event_of(call.s, start), to = event_of(call.s, stop);
  if (!milliseconds) return hcccrtErrorInvalidValue;
  if (!from || !to) return hcccrtErrorInvalidResourceHandle;
  if (from->capture || to->capture) return hcccrtErrorCapturedEvent;
  if (!from->record || !to->record || (from->flags | to->flags) & hcccrtEventDisableTiming)
    return hcccrtErrorInvalidResourceHandle;
  if (!done(*from) || !done(*to)) return hcccrtErrorNotReady;
  *milliseconds = static_cast<float>(to->record->nanoseconds - from->record->nanoseconds) * 1e-6f;
  return hcccrtSuccess;
}

}  // namespace hcccrt::cpu
