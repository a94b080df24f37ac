// graphs.cpp: capture of streams, and graphs.
#include "api.h"

namespace hcccrt::cpu {

Node *Graph::add(Job job, std::vector<Node *> after) {
  nodes.push_back(std::make_unique<Node>(Node{std::move(job), std::move(after)}));
  return nodes.back().get();
}

bool Graph::has(const Node *node) const {
  return std::any_of(nodes.begin(), nodes.end(), [=](const auto &n) { return n.get() == node; });
}

hcccrtError_t implicit_wait(State &s, const Stream &stream) {
  Device &device = *s.devices[static_cast<size_t>(stream.device)];
  if (&stream != device.default_stream.get()) return hcccrtSuccess;
  auto error = hcccrtSuccess;
  for (const auto &other : device.streams)
    if (other->capture && other->blocking()) {
      other->capture->invalid = true;
      error = hcccrtErrorStreamCaptureImplicit;
    }
  return error;
}

hcccrtError_t unsafe(State &s) {
  auto error = hcccrtSuccess;
  if (capture_mode == hcccrtStreamCaptureModeRelaxed) return error;
  for (const auto &capture : s.captures) {
    const bool own = pthread_equal(capture->thread, pthread_self());
    const bool refuses = own ? capture->mode != hcccrtStreamCaptureModeRelaxed
                             : capture_mode == hcccrtStreamCaptureModeGlobal &&
                                   capture->mode == hcccrtStreamCaptureModeGlobal;
    if (!refuses) continue;
    capture->invalid = true;
    error = hcccrtErrorStreamCaptureUnsupported;
  }
  return error;
}

hcccrtError_t not_captured(Stream &stream) {
  if (!stream.capture) return hcccrtSuccess;
  stream.capture->invalid = true;
  return hcccrtErrorStreamCaptureUnsupported;
}

namespace {

void end(State &s, Capture &capture) {
  for (Stream *stream : capture.streams) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  capture.streams.clear();
  capture.over = true;
  auto &all = s.captures;
  all.erase(std::find_if(all.begin(), all.end(), [&](auto &c) { return c.get() == &capture; }));
}

// Returns whether all captured work of other streams was joined into the origin's.
bool joined(const Capture &capture) {
  std::set<const Node *> before;
  std::vector<const Node *> open(capture.origin->frontier.begin(), capture.origin->frontier.end());
  while (!open.empty()) {
    const Node *node = open.back();
    open.pop_back();
    if (before.insert(node).second) open.insert(open.end(), node->after.begin(), node->after.end());
  }
  for (const Stream *stream : capture.streams)
    for (const Node *node : stream->frontier)
      if (!before.count(node)) return false;
  return true;
}

std::shared_ptr<Graph> graph_of(State &s, hcccrtGraph_t handle) {
  const auto it = s.graphs.find(handle);
  return it == s.graphs.end() ? nullptr : it->second;
}

}  // namespace

// Ends the capture of a stream that is destroyed.
void leave(State &s, Stream &stream) {
  if (!stream.capture) return;
  const auto capture = stream.capture;
  capture->invalid = true;
  if (capture->origin == &stream) {
    s.graphs.erase(capture->graph.get());
    end(s, *capture);
  } else {
    capture->streams.erase(&stream);
    stream.capture = nullptr;
  }
}

hcccrtError_t StreamBeginCapture(hcccrtStream_t handle, hcccrtStreamCaptureMode_t mode) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (mode < 0 || mode > hcccrtStreamCaptureModeRelaxed) return hcccrtErrorInvalidValue;
  if (!handle) return hcccrtErrorStreamCaptureUnsupported;
  if (stream->capture) return hcccrtErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = call.s.next_capture++;
  capture->graph = std::make_shared<Graph>();
  capture->graph->device = stream->device;
  capture->graph->captured = true;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->origin = stream.get();
  capture->streams = {stream.get()};
  call.s.graphs[capture->graph.get()] = capture->graph;
  call.s.captures.push_back(capture);
  stream->capture = std::move(capture);
  return hcccrtSuccess;
}

hcccrtError_t StreamEndCapture(hcccrtStream_t handle, hcccrtGraph_t *graph) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (!graph) return hcccrtErrorInvalidValue;
  *graph = nullptr;
  const auto capture = stream->capture;
  if (!capture) return hcccrtErrorIllegalState;
  if (capture->origin != stream.get()) return hcccrtErrorStreamCaptureUnmatched;
  if (capture->mode != hcccrtStreamCaptureModeRelaxed &&
      !pthread_equal(capture->thread, pthread_self()))
    return hcccrtErrorStreamCaptureWrongThread;
  const auto error = capture->invalid    ? hcccrtErrorStreamCaptureInvalidated
                     : !joined(*capture) ? hcccrtErrorStreamCaptureUnjoined
                                         : hcccrtSuccess;
  end(call.s, *capture);
  capture->graph->captured = false;
  if (error)
    call.s.graphs.erase(capture->graph.get());
  else
    *graph = reinterpret_cast<hcccrtGraph_t>(capture->graph.get());
  return error;
}

hcccrtError_t StreamGetCaptureInfo_v2(hcccrtStream_t handle, hcccrtStreamCaptureStatus_t *status,
                                      unsigned long long *id, hcccrtGraph_t *graph,
                                      const hcccrtGraphNode_t **dependencies, size_t *n) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  if (!status) return hcccrtErrorInvalidValue;
  if (const auto error = implicit_wait(call.s, *stream)) return error;
  const auto &capture = stream->capture;
  *status = !capture            ? hcccrtStreamCaptureStatusNone
            : capture->invalid ? hcccrtStreamCaptureStatusInvalidated
                                : hcccrtStreamCaptureStatusActive;
  if (*status != hcccrtStreamCaptureStatusActive) return hcccrtSuccess;
  stream->returned.clear();
  for (Node *node : stream->frontier)
    stream->returned.push_back(reinterpret_cast<hcccrtGraphNode_t>(node));
  if (id) *id = capture->id;
  if (graph) *graph = reinterpret_cast<hcccrtGraph_t>(capture->graph.get());
  if (dependencies) *dependencies = stream->returned.data();
  if (n) *n = stream->returned.size();
  return hcccrtSuccess;
}

hcccrtError_t ThreadExchangeStreamCaptureMode(hcccrtStreamCaptureMode_t *mode) {
  Call call;
  if (call.error) return call.error;
  if (!mode || *mode < 0 || *mode > hcccrtStreamCaptureModeRelaxed) return hcccrtErrorInvalidValue;
  std::swap(*mode, capture_mode);
  return hcccrtSuccess;
}

hcccrtError_t GraphAddHostNode(hcccrtGraphNode_t *node, hcccrtGraph_t handle,
                               const hcccrtGraphNode_t *dependencies, size_t n,
                               const hcccrtHostNodeParams *params) {
  Call call;
  if (call.error) return call.error;
  const auto graph = graph_of(call.s, handle);
  if (!node || !graph || !params || !params->fn || (n && !dependencies))
    return hcccrtErrorInvalidValue;
  std::vector<Node *> after;
  for (size_t i = 0; i < n; ++i) {
    auto *other = reinterpret_cast<Node *>(dependencies[i]);
    if (!graph->has(other)) return hcccrtErrorInvalidValue;
    after.push_back(other);
  }
  const auto p = *params;
  Node *made = graph->add([p] { return p.fn(p.userData), hcccrtSuccess; }, std::move(after));
  *node = reinterpret_cast<hcccrtGraphNode_t>(made);
  return hcccrtSuccess;
}

hcccrtError_t GraphInstantiate(hcccrtGraphExec_t *exec, hcccrtGraph_t handle,
                               unsigned long long flags) {
  Call call;
  if (call.error) return call.error;
  const auto graph = graph_of(call.s, handle);
  if (!exec || !graph || graph->captured || flags) return hcccrtErrorInvalidValue;
  auto jobs = std::make_shared<std::vector<Job>>();
  for (const auto &node : graph->nodes) jobs->push_back(node->job);
  auto made = std::make_shared<Exec>();
  made->device = graph->device;
  made->jobs = std::move(jobs);
  *exec = reinterpret_cast<hcccrtGraphExec_t>(made.get());
  call.s.execs[made.get()] = std::move(made);
  return hcccrtSuccess;
}

hcccrtError_t GraphLaunch(hcccrtGraphExec_t handle, hcccrtStream_t in) {
  Call call;
  if (call.error) return call.error;
  const auto stream = call.stream(in);
  const auto it = call.s.execs.find(handle);
  if (it == call.s.execs.end()) return hcccrtErrorInvalidValue;
  if (!stream) return hcccrtErrorInvalidResourceHandle;
  const auto exec = it->second;
  const auto job = [jobs = exec->jobs] {
    for (const Job &each : *jobs)
      if (const auto error = each()) return error;
    return hcccrtSuccess;
  };
  if (stream->capture) return submit(call.s, *stream, job);
  return submit(call.s, *stream, job, {exec->last}, &exec->last);
}

hcccrtError_t GraphExecDestroy(hcccrtGraphExec_t exec) {
  Call call;
  if (call.error) return call.error;
  return call.s.execs.erase(exec) ? hcccrtSuccess : hcccrtErrorInvalidValue;
}

hcccrtError_t GraphDestroy(hcccrtGraph_t handle) {
  Call call;
  if (call.error) return call.error;
  const auto graph = graph_of(call.s, handle);
  if (!graph || graph->captured) return hcccrtErrorInvalidValue;
  call.s.graphs.erase(handle);
  return hcccrtSuccess;
}

}  // namespace hcccrt::cpu
