// ucp.h: the part of UCP's C interface that the transport calls, as UCX 1.x keeps it.
//
// UCX's own headers need not be installed. Its structures begin with a mask of the fields that are
// set, and grow at the end only, so these serve every 1.x from 1.12 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace hccc::transport::ucp {

using Status = signed char;  // ucs_status_t is an enumeration of one byte
using StatusPointer = void *;
using Context = struct ucp_context *;
using Worker = struct ucp_worker *;
using Endpoint = struct ucp_ep *;
using Memory = struct ucp_mem *;
using Config = struct ucp_config *;

enum : Status {
  OK = 0, IN_PROGRESS = 1, NO_MEMORY = -4, UNREACHABLE = -6, BUSY = -15, CANCELED = -16, LAST = -100
};
enum : int { HOST = 0, CUDA = 1, ROCM = 3 };  // ucs_memory_type_t
enum : int { SERIALIZED = 1 };                // ucs_thread_mode_t
enum : unsigned { API_MAJOR = 1, API_MINOR = 12 };

struct Params {
  uint64_t mask;  // 1: features, 64: n_endpoints
  uint64_t features;
  size_t request_size;
  void (*request_init)(void *);
  void (*request_cleanup)(void *);
  uint64_t tag_sender_mask;
  int shared_workers;
  size_t n_endpoints;
  size_t n_per_node;
  const char *name;
};
enum : uint64_t { PARAM_FEATURES = 1, PARAM_ENDPOINTS = 64 };
enum : uint64_t { FEATURE_WAKEUP = 16, FEATURE_AM = 64 };

struct ContextAttributes {
  uint64_t mask;
  size_t request_size;
  int thread_mode;
  uint64_t memory_types;
  char name[32];
};
enum : uint64_t { CONTEXT_MEMORY_TYPES = 4 };

struct WorkerParams {
  uint64_t mask;
  int thread_mode;
  unsigned long cpu_mask[1024 / (8 * sizeof(unsigned long))];
  unsigned events;
  void *user_data;
  int event_fd;
  uint64_t flags;
  const char *name;
  size_t am_alignment;
  uint64_t client_id;
};
enum : uint64_t { WORKER_THREAD_MODE = 1 };

struct WorkerAttributes {
  uint64_t mask;
  int thread_mode;
  uint32_t address_flags;
  void *address;
  size_t address_length;
  size_t max_am_header;
  char name[32];
  size_t max_debug_string;
};
enum : uint64_t { WORKER_ADDRESS = 2, WORKER_MAX_AM_HEADER = 8 };

struct SocketAddress {
  const void *address;
  unsigned length;
};

struct EndpointParams {
  uint64_t mask;
  const void *address;
  int error_mode;
  struct {
    void (*callback)(void *, Endpoint, Status);
    void *argument;
  } error_handler;
  void *user_data;
  unsigned flags;
  SocketAddress peer;
  void *connection_request;
  const char *name;
  SocketAddress local;
};
enum : uint64_t { ENDPOINT_ADDRESS = 1, ENDPOINT_ERROR_MODE = 2, ENDPOINT_ERROR_HANDLER = 4 };
enum : int { ERROR_MODE_PEER = 1 };
enum : uint32_t { CLOSE_FORCE = 1 };

struct MapParams {
  uint64_t mask;
  void *address;
  size_t length;
  unsigned flags;
  unsigned protection;
  int memory_type;
  const void *exported;
};
enum : uint64_t { MAP_ADDRESS = 1, MAP_LENGTH = 2, MAP_MEMORY_TYPE = 16 };

using SendCallback = void (*)(void *request, Status, void *user_data);
using ReceiveCallback = void (*)(void *request, Status, size_t bytes, void *user_data);

struct RequestParams {
  uint32_t mask;
  uint32_t flags;
  void *request;
  union {
    SendCallback send;
    ReceiveCallback receive;
  } callback;
  uint64_t datatype;
  void *user_data;
  void *reply_buffer;
  int memory_type;
  void *received;
  Memory memory;
  uint64_t more[3];  // of newer versions
};
enum : uint32_t {
  OP_CALLBACK = 2, OP_USER_DATA = 4, OP_DATATYPE = 8, OP_FLAGS = 16, OP_MEMORY_TYPE = 64,
  OP_MEMORY = 256
};
enum : uint32_t { SEND_EAGER = 2, SEND_RENDEZVOUS = 4 };
enum : uint64_t { BYTES = 1 << 3 };  // ucp_dt_make_contig(1)

struct ReceiveInfo {
  uint64_t attributes;
  Endpoint reply;
};
enum : uint64_t { RECEIVED_RENDEZVOUS = 1 << 17 };
using MessageCallback = Status (*)(void *, const void *, size_t, void *, size_t,
                                   const ReceiveInfo *);

struct HandlerParams {
  uint64_t mask;
  unsigned id;
  uint32_t flags;
  MessageCallback callback;
  void *argument;
};
enum : uint64_t { HANDLER_ID = 1, HANDLER_CALLBACK = 4, HANDLER_ARGUMENT = 8 };

inline bool is_error(StatusPointer p) { return uintptr_t(p) >= uintptr_t(intptr_t(LAST)); }
inline bool is_request(StatusPointer p) { return p && !is_error(p); }
inline Status status_of(StatusPointer p) { return Status(intptr_t(p)); }

// name, result, parameters
#define HCCC_UCP_FUNCTIONS(X)                                                                      \
  X(ucp_get_version, void, (unsigned *, unsigned *, unsigned *))                                   \
  X(ucp_init_version, Status, (unsigned, unsigned, const Params *, const Config, Context *))       \
  X(ucp_cleanup, void, (Context))                                                                  \
  X(ucp_context_query, Status, (Context, ContextAttributes *))                                     \
  X(ucp_config_read, Status, (const char *, const char *, Config *))                               \
  X(ucp_config_modify, Status, (Config, const char *, const char *))                               \
  X(ucp_config_release, void, (Config))                                                            \
  X(ucp_worker_create, Status, (Context, const WorkerParams *, Worker *))                          \
  X(ucp_worker_destroy, void, (Worker))                                                            \
  X(ucp_worker_query, Status, (Worker, WorkerAttributes *))                                        \
  X(ucp_worker_release_address, void, (Worker, void *))                                            \
  X(ucp_worker_progress, unsigned, (Worker))                                                       \
  X(ucp_worker_get_efd, Status, (Worker, int *))                                                   \
  X(ucp_worker_arm, Status, (Worker))                                                              \
  X(ucp_worker_set_am_recv_handler, Status, (Worker, const HandlerParams *))                       \
  X(ucp_ep_create, Status, (Worker, const EndpointParams *, Endpoint *))                           \
  X(ucp_ep_close_nbx, StatusPointer, (Endpoint, const RequestParams *))                            \
  X(ucp_ep_flush_nbx, StatusPointer, (Endpoint, const RequestParams *))                            \
  X(ucp_mem_map, Status, (Context, const MapParams *, Memory *))                                   \
  X(ucp_mem_unmap, Status, (Context, Memory))                                                      \
  X(ucp_am_send_nbx, StatusPointer,                                                                \
    (Endpoint, unsigned, const void *, size_t, const void *, size_t, const RequestParams *))       \
  X(ucp_am_recv_data_nbx, StatusPointer, (Worker, void *, void *, size_t, const RequestParams *))  \
  X(ucp_am_data_release, void, (Worker, void *))                                                   \
  X(ucp_request_check_status, Status, (void *))                                                    \
  X(ucp_request_free, void, (void *))                                                              \
  X(ucs_status_string, const char *, (Status))

}  // namespace hccc::transport::ucp
