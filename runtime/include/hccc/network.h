/* network.h: the interface between thread blocks and the proxy of a network. Plain C.
 *
 * A proxy reaches the ranks whose memory the caller cannot address (`hccc_rank.flags` is null). A
 * thread block submits a transfer, a descriptor in the ring of its rank, and goes on; the proxy
 * puts the bytes into the peer's memory and then raises the peer's counter. It never gets.
 *
 * What a proxy promises:
 *   1. It takes the ring's entries in order and counts them in `taken`. An entry is valid when its
 *      `turn` is one more than the number of entries before it, around 2^32.
 *   2. Transfers of one thread block (`tb` and `channel`) to one peer happen in the order in which
 *      they were submitted: before a counter is raised, the bytes of all earlier transfers are in
 *      the peer's memory, visible to its kernel. Transfers of different blocks may overtake each
 *      other: a proxy may give each block a connection of its own. A transfer without a block (`tb`
 *      is -1) happens after all that its rank submitted before it for that peer.
 *   3. Every transfer happens in the end, independently of others: a descriptor is complete,
 *      its target is free, and it waits for nothing.
 *   4. `completed` counts transfers whose source it will not read again.
 * A counter is stored as it is (no addition): 4 bytes, aligned, at once.
 *
 * A kernel promises not to write the source of a transfer before it is known to be read: a slot of
 * a queue when its credit has come back, anything else when `completed` has reached it or when
 * something has arrived that the transfer's arrival caused.
 *
 * proxy.h has the proxy for ranks of one process; a NIC's does the same with registered memory.
 */
#ifndef HCCC_NETWORK_H
#define HCCC_NETWORK_H

/* The windows of a rank: its flags, its scratch, then those of its `windows`. */
enum { HCCC_WINDOW_FLAGS = 0, HCCC_WINDOW_SCRATCH = 1, HCCC_WINDOW_USER = 2 };

/* A put, and the counter that is then raised. 64 bytes. */
typedef struct hccc_transfer {
  unsigned turn;     /* stored last: 1 + how many were submitted before */
  int peer;          /* rank */
  int source_window; /* of the own rank */
  int target_window; /* of the peer */
  long long source;  /* bytes past the beginning of the window */
  long long target;
  long long bytes;   /* 0: only the counter */
  long long counter; /* bytes past the beginning of the peer's flags; -1: none */
  unsigned value;    /* what it is set to: how many messages there are, or how far credits go */
  int tb;            /* the thread block that submitted it; -1: the rank */
  int channel;       /* of that thread block */
  unsigned reserved[1];
} hccc_transfer;

/* The transfers that a rank submits to its proxy, and their counters, zeroed once when allocated.
 * */
typedef struct hccc_proxy_ring {
  unsigned size;          /* sizeof(hccc_proxy_ring) */
  unsigned transfer_size; /* sizeof(hccc_transfer) */
  unsigned length;        /* entries of the ring, a power of two */
  unsigned reserved;
  hccc_transfer *entries; /* written by kernels, read by the proxy; zeroed once */
  unsigned *submitted;    /* how many transfers were submitted; counted by kernels */
  unsigned *taken;        /* how many the proxy has taken; their entries are free again */
  unsigned *completed;    /* how many it has completed */
} hccc_proxy_ring;

#endif
