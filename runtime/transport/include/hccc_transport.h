/* hccc_transport.h: the proxy between ranks of several hosts, over UCX. Plain C.
 *
 * It keeps the promises of hccc/network.h: it takes transfers from a rank's proxy ring, puts the
 * bytes into the peer's window and then raises the peer's counter. UCX (libucp.so.0) is loaded at
 * its first use; nothing is linked against it. docs/network-transport.md describes it.
 *
 *     hccc_transport_open, hccc_transport_window for every window, hccc_transport_blob;
 *     blobs are exchanged by the caller; hccc_transport_connect for every peer;
 *     hccc_transport_start, hccc_transport_ready; launches;
 *     hccc_transport_stop, hccc_transport_close
 *
 * One transport serves one rank. Calls for one transport may come from any thread, but none beside
 * or after hccc_transport_close. Functions return 0 (HCCC_TRANSPORT_OK) or an error's code.
 */
#ifndef HCCC_TRANSPORT_H
#define HCCC_TRANSPORT_H

#include <stddef.h>

#include "hccc/network.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HCCC_TRANSPORT_API __attribute__((visibility("default")))

typedef struct hccc_transport hccc_transport;

enum {
  HCCC_TRANSPORT_OK = 0,
  HCCC_TRANSPORT_NO_UCX = 1,    /* UCX is missing or too old */
  HCCC_TRANSPORT_INVALID = 2,   /* an argument has a value that it cannot have */
  HCCC_TRANSPORT_BAD_BLOB = 3,  /* a blob is damaged, or no blob */
  HCCC_TRANSPORT_MEMORY = 4,    /* there is no memory, or it cannot be registered */
  HCCC_TRANSPORT_STATE = 5,     /* started already, or connected to another process */
  HCCC_TRANSPORT_FAILED = 6     /* UCX refused something: see the message */
};

/* Where the memory of a window is. */
enum { HCCC_MEMORY_HOST = 0, HCCC_MEMORY_CUDA = 1, HCCC_MEMORY_HIP = 2 };

typedef struct hccc_transport_error {
  int code;
  int rank; /* the rank that caused it; -1: none */
  char message[256];
} hccc_transport_error;

/* How memory of a device is copied where UCX cannot reach it. Copies of one direction end in the
 * order in which they were begun, and a copy of 4 aligned bytes is one store. Called by the
 * progress thread alone. */
typedef struct hccc_transport_copier {
  void *context;
  /* Begins to copy; 0: begun. `from` or `to` is memory of the device, the other pinned or plain
   * memory of the host. `ticket` is for `done`. */
  int (*begin)(void *context, void *to, const void *from, size_t bytes, int to_device,
               void **ticket);
  /* 1: all of it was copied, and the ticket is gone; 0: not yet; negative: it failed. */
  int (*done)(void *context, void *ticket);
  /* Optional: pins host memory for such copies, and unpins it. 0: done. */
  int (*pin)(void *context, void *memory, size_t bytes);
  void (*unpin)(void *context, void *memory);
  /* Optional: makes NICs' writes to memory of the device visible to its kernels
   * (cuFlushGPUDirectRDMAWrites). Called before a counter is raised for such bytes. */
  void (*flush)(void *context);
} hccc_transport_copier;

typedef struct hccc_transport_options {
  unsigned size; /* sizeof(hccc_transport_options) */
  int rank, n_ranks;
  long long slice_bytes; /* bytes sent at once; 0: $HCCC_SLICE_BYTES, else 1 MiB */
  long long pool_bytes;  /* host memory for staging; 0: $HCCC_POOL_BYTES, else 16 slices */
  double timeout_s;      /* a peer that receives nothing for so long has failed; 0: never */
  const char *network;   /* devices, as UCX_NET_DEVICES; null: $HCCC_NETWORK, else UCX's choice */
  /* Reports a peer that has failed or left, or (rank = the own) a wrong descriptor. Called by the
   * progress thread, at most once for each rank; it must not end the transport. */
  void (*failed)(void *context, int rank, const char *message);
  void (*log)(void *context, const char *line); /* null: no log */
  void *context;
  const hccc_transport_copier *copier; /* null: memory that UCX cannot reach is refused */
  int force_staging; /* 1: device memory is staged even where UCX could reach it */
  int reserved;
  /* Optional: reports that UCX is ending the process by abort(), as UCX 1.13 does where a stranger
   * sends it nonsense. Called by the progress thread within a handler of SIGABRT, which is
   * installed where the program has none; it must not call the transport. */
  void (*aborting)(void *context);
} hccc_transport_options;

typedef struct hccc_transport_counters_t {
  unsigned size; /* sizeof(hccc_transport_counters_t), by the caller */
  unsigned reserved;
  unsigned long long sent_transfers, sent_slices, sent_bytes;
  unsigned long long received_transfers, received_slices, received_bytes;
  unsigned long long staged_out_bytes, staged_in_bytes;
  unsigned long long stalls; /* how often a slice had to wait for those in flight, or for a pool */
  unsigned long long sleeps; /* of the progress thread */
} hccc_transport_counters_t;

/* Returns 1 where UCX can be used, with its path and version in `message`; 0: `message` says why
 * not. */
HCCC_TRANSPORT_API int hccc_transport_available(char *message, size_t bytes);

HCCC_TRANSPORT_API int hccc_transport_open(hccc_transport **t, const hccc_transport_options *options,
                                           hccc_transport_error *e);

/* Registers a window, whose number is network.h's. Once for each number; later ones than the blob are known
 * to a peer that has connected again with a new blob, or was told by hccc_transport_tell. It must outlive
 * the transport. */
HCCC_TRANSPORT_API int hccc_transport_window(hccc_transport *t, int window, void *base,
                                             long long bytes, int memory, hccc_transport_error *e);

/* Returns the bytes that peers need to connect. They last until the next such call, or the end. */
HCCC_TRANSPORT_API int hccc_transport_blob(hccc_transport *t, void **data, size_t *bytes,
                                           hccc_transport_error *e);

/* Connects to a peer by its blob; a second blob of the same process updates its windows. Blobs are
 * checked, not trusted. */
HCCC_TRANSPORT_API int hccc_transport_connect(hccc_transport *t, int peer, const void *blob,
                                              size_t bytes, hccc_transport_error *e);

/* Starts the progress thread, which serves `ring` until hccc_transport_stop. Null: it only
 * receives. */
HCCC_TRANSPORT_API int hccc_transport_start(hccc_transport *t, const hccc_proxy_ring *ring,
                                            hccc_transport_error *e);

/* Waits until hellos were exchanged with every connected peer: all have started, and connections
 * work. An error names the first peer that has not within `timeout_s` (0: for ever). UCX makes its
 * connections in that time; kernels should be launched after it. */
HCCC_TRANSPORT_API int hccc_transport_ready(hccc_transport *t, double timeout_s,
                                            hccc_transport_error *e);

/* Tells connected peers of a window that was registered after the blob was made. */
HCCC_TRANSPORT_API int hccc_transport_tell(hccc_transport *t, int window, hccc_transport_error *e);

/* Returns 1 when all connected peers know a window that they were told of, else 0. */
HCCC_TRANSPORT_API int hccc_transport_told(hccc_transport *t, int window);

/* Wakes the progress thread, optionally, as transfers were submitted or soon will be. */
HCCC_TRANSPORT_API void hccc_transport_wake(hccc_transport *t);

/* Ends the thread for good and reports that to the peers. Transfers that were taken are completed,
 * for two seconds at most. Not from `failed` or `log`. */
HCCC_TRANSPORT_API int hccc_transport_stop(hccc_transport *t);

/* Stops the transport and frees all threads, descriptors and registrations. Null is allowed. */
HCCC_TRANSPORT_API void hccc_transport_close(hccc_transport *t);

/* Messages between ranks, of any length, with a tag and a type that mean nothing here. Those of a
 * sender come in the order in which they were sent. Calls are made by one thread at a time. */
typedef struct hccc_transport_message hccc_transport_message;
typedef struct hccc_transport_envelope {
  int rank, tag, type, reserved;
  unsigned long long bytes;
} hccc_transport_envelope;

/* Begins to send a message to a connected peer; `data` stays as it is until its state is not 0. */
HCCC_TRANSPORT_API hccc_transport_message *hccc_transport_send(hccc_transport *t, int peer, int tag, int type,
                                                               const void *data, size_t bytes);
/* Works a little, and returns the next message that has come; null: none. */
HCCC_TRANSPORT_API hccc_transport_message *hccc_transport_next(hccc_transport *t,
                                                               hccc_transport_envelope *envelope);
/* Begins to receive the bytes of a message that has come. Once. */
HCCC_TRANSPORT_API void hccc_transport_fetch(hccc_transport_message *message, void *to);
/* Returns 0 while a message is under way, 1 when it is sent or received, -1 where it failed. */
HCCC_TRANSPORT_API int hccc_transport_state(const hccc_transport_message *message);
HCCC_TRANSPORT_API void hccc_transport_free(hccc_transport_message *message);
/* Ends all messages that are under way, with the connections to all peers, so that nothing touches
 * callers' memory any more; waits two seconds at most. */
HCCC_TRANSPORT_API void hccc_transport_cancel(hccc_transport *t);
/* Returns 1 where a peer has left in order: no message of it will come. */
HCCC_TRANSPORT_API int hccc_transport_has_left(hccc_transport *t, int peer);

HCCC_TRANSPORT_API int hccc_transport_counters(hccc_transport *t,
                                               hccc_transport_counters_t *counters);

#ifdef __cplusplus
}
#endif

#endif
