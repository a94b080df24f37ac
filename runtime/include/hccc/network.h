/* network.h: the door between thread blocks and the network. Plain C.
 *
 * Ranks whose memory the caller cannot address (`hccc_rank.flags` is null) are reached by a proxy.
 * A thread block hands it a transfer, a descriptor in the ring of its rank, and goes on; the proxy
 * puts the bytes into the peer's memory and then raises the peer's counter. Nothing is ever got.
 *
 * What a proxy promises:
 *   1. It takes the ring's entries in order and says so in `taken`. An entry is there when its
 *      `turn` is one more than the number of entries before it, around 2^32.
 *   2. Transfers of one thread block (`tb` and `channel`) to one peer happen in the order in which
 *      they were handed over: the bytes of all earlier ones are in the peer's memory, visible to its
 *      kernel, before a counter is raised. Those of several blocks may overtake each other, so that
 *      they share the way: a proxy may give each block a connection of its own. A transfer without
 *      a block (`tb` is -1) happens after all that its rank handed over before it for that peer.
 *   3. Every transfer happens at last, whatever becomes of the others: a descriptor is complete,
 *      the place it goes to is free, and it waits for nothing.
 *   4. `completed` counts transfers whose bytes it will not look at again.
 * A counter is stored as it is (no addition): 4 bytes, aligned, at once.
 *
 * A kernel promises not to write what it handed over before it is known to be read: a slot of a
 * queue when its credit has come back, anything else when `completed` has reached it or when
 * something has arrived that its arrival caused.
 *
 * proxy.h has the proxy for ranks of one process; a NIC's does the same with registered memory.
 */
#ifndef HCCC_NETWORK_H
#define HCCC_NETWORK_H

/* The windows of a rank: its flags, its scratch, then those of its `windows`. */
enum { HCCC_WINDOW_FLAGS = 0, HCCC_WINDOW_SCRATCH = 1, HCCC_WINDOW_USER = 2 };

/* What is to be put where, and which counter is then raised. 64 bytes. */
typedef struct hccc_transfer {
  unsigned turn;     /* stored last: 1 + how many were handed over before */
  int peer;          /* rank */
  int source_window; /* of the own rank */
  int target_window; /* of the peer */
  long long source;  /* bytes past the beginning of the window */
  long long target;
  long long bytes;   /* 0: only the counter */
  long long counter; /* bytes past the beginning of the peer's flags; -1: none */
  unsigned value;    /* what it is set to: how many messages there are, or how far credits go */
  int tb;            /* the thread block that handed it over; -1: the rank */
  int channel;       /* of that thread block */
  unsigned reserved[1];
} hccc_transfer;

/* The ring of a rank, and its counters. Memory of counters is zeroed once, when it is allocated. */
typedef struct hccc_door {
  unsigned size;          /* sizeof(hccc_door) */
  unsigned transfer_size; /* sizeof(hccc_transfer) */
  unsigned length;        /* entries of the ring, a power of two */
  unsigned reserved;
  hccc_transfer *ring;    /* written by kernels, read by the proxy; zeroed once */
  unsigned *handed;       /* how many were handed over; kernels count here */
  unsigned *taken;        /* how many the proxy has read; their entries are free again */
  unsigned *completed;    /* how many it is through with */
} hccc_door;

#endif
