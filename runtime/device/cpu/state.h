// state.h: the state of the CPU platform: devices, and everything that was made on them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory.h"
#include "worker.h"

namespace hcccrt::cpu {

struct Node {
  Job job;
  std::vector<Node *> after;  // nodes made earlier
};

// A graph. Its nodes are in an order in which they can run.
struct Graph {
  int device;
  bool captured;  // a capture is still writing it
  std::vector<std::unique_ptr<Node>> nodes;

  Node *add(Job job, std::vector<Node *> after);
  bool has(const Node *node) const;
};

struct Exec {
  int device;
  std::shared_ptr<const std::vector<Job>> jobs;
  Ticket last;
};

struct Stream;

struct Capture {
  unsigned long long id;
  std::shared_ptr<Graph> graph;
  hcccrtStreamCaptureMode_t mode;
  pthread_t thread;
  Stream *origin;
  std::set<Stream *> streams;
  bool invalid = false, over = false;
};

struct Stream {
  Stream(int device, unsigned flags, std::atomic<int> *lost, size_t stack, std::vector<int> cpus)
      : device(device), flags(flags), worker(lost, stack, std::move(cpus)) {}

  const int device;
  const unsigned flags;
  std::shared_ptr<Capture> capture;
  std::vector<Node *> frontier;  // the next captured work waits for these
  std::vector<hcccrtGraphNode_t> returned;  // the frontier, as hcccrtStreamGetCaptureInfo_v2 returned it
  Worker worker;

  bool blocking() const { return !(flags & hcccrtStreamNonBlocking); }
};

// An event, and where in a stream it was recorded.
struct Record {
  Ticket ticket;
  std::atomic<long long> nanoseconds{0};
};

struct Event {
  int device;
  unsigned flags;
  std::shared_ptr<Record> record;
  std::shared_ptr<Capture> capture;  // not null: it was last recorded in one, after `nodes`
  std::vector<Node *> nodes;
};

struct Device {
  int index;
  std::atomic<int> lost{hcccrtSuccess};
  size_t stack_bytes = 0;
  std::set<int> peers;
  std::shared_ptr<Stream> default_stream;
  std::vector<std::shared_ptr<Stream>> streams;  // without the default stream
  std::vector<std::shared_ptr<Stream>> retired;  // destroyed, with work left
};

struct FunctionLimits {
  int dynamic_shared_bytes, carveout;
};

// Guarded by its mutex, which no thread holds while it waits for work.
struct State {
  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
  Memory memory;
  std::unordered_map<void *, std::shared_ptr<Stream>> streams;
  std::unordered_map<void *, std::shared_ptr<Event>> events;
  std::unordered_map<void *, std::shared_ptr<Graph>> graphs;
  std::unordered_map<void *, std::shared_ptr<Exec>> execs;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<const void *, FunctionLimits> limits;
  unsigned long long next_capture = 1;
  std::string text;  // why there are no devices
};

State &state();
extern thread_local int current_device;
extern thread_local hcccrtStreamCaptureMode_t capture_mode;

// The beginning of every call: takes the lock, and checks whether the call is allowed.
struct Call {
  explicit Call(bool even_lost = false);

  State &s;
  std::unique_lock<std::mutex> lock;
  Device *device = nullptr;
  hcccrtError_t error = hcccrtSuccess;

  std::shared_ptr<Stream> stream(hcccrtStream_t handle);  // null: there is none
  // Waits without the lock; the error of a device that was lost meanwhile.
  hcccrtError_t wait(const std::vector<Ticket> &tickets, const Device &of);
};

// Lists what work in a stream waits for besides the stream's earlier work: the default stream's
// order.
std::vector<Ticket> order_of(State &s, Stream &stream);
// Lists all work of a device.
std::vector<Ticket> all_of(Device &device);
// Joins the threads of destroyed streams that are done.
void reap(Device &device);

// Puts work into a stream, or into the graph that captures it.
hcccrtError_t submit(State &s, Stream &stream, Job job, std::vector<Ticket> after = {},
                     Ticket *ticket = nullptr);
// Returns whether the default stream would wait for a captured stream, whose capture then ends.
hcccrtError_t implicit_wait(State &s, const Stream &stream);
// Returns whether captures forbid this thread calls that cannot be captured.
hcccrtError_t unsafe(State &s);
// Returns the error of a query of a captured stream.
hcccrtError_t not_captured(Stream &stream);
void leave(State &s, Stream &stream);

}  // namespace hcccrt::cpu
