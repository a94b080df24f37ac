/* layout.h: the sizes and places of a launch. Plain C, for host and device.
 *
 * A block of `count` elements is cut into `sub` chunks, a chunk into `channels` parts of `part`
 * elements, a part into micro-batches of `micro` elements. A part and a micro-batch are whole
 * numbers of 16 bytes, so only the last part of a block is short, and may be empty.
 *
 *     scratch:  [scratch slots: chunk each][stage slots: chunk each]
 *               [queues x channels x slots: micro each]   of queues that end here
 *               [sends x channels x slots: micro each]    of network queues that begin here
 *     flags, one counter every 128 bytes:
 *               [channels x flags][ready: ranks][done: ranks][extension: ranks][go]
 *               [finished: blocks x channels][state: blocks x channels]
 *               [peers: ranks x hccc_peer, packed]
 *               [2 parities x channels x packets x lines: 64 bytes each; on GPUs 128]
 * After a ready counter, in its line, is the notice of the rank that raises it.
 */
#ifndef HCCC_LAYOUT_H
#define HCCC_LAYOUT_H

#include "hccc.h"
#ifdef HCCC_TRACE
#include "trace.h"
#endif

#if defined(__HIP__)
#define HCCC_BOTH static inline __attribute__((host, device))
#elif defined(__CUDACC__)
#define HCCC_BOTH static inline __host__ __device__
#else
#define HCCC_BOTH static inline
#endif

enum {
  HCCC_ALIGNMENT = 16,                 /* bytes of the widest load */
  HCCC_FLAG_STRIDE = 128,              /* bytes between flags: no two share a cache line */
  HCCC_LINE = 64,                      /* bytes of a packet on the host */
  HCCC_LINE_DATA = 56,                 /* of them data */
  HCCC_LINE_ROOM = 128,                /* bytes for as much data in packets of a GPU */
  HCCC_SMALLEST_DEFAULT = 4 << 10,     /* bytes of a micro-batch that the call leaves open */
  HCCC_LARGEST_DEFAULT = 4 << 20,
  HCCC_LARGEST_MICRO_BATCH = 1 << 30,  /* bytes: offsets inside one fit 32 bits */
  HCCC_MOST_BATCHES = 0x7fffffff,      /* micro-batches of a part: counters compare around 2^32 */
  HCCC_MOST_QUEUED_BATCHES = 1 << 24,  /* the same where queues count several messages for each */
  HCCC_MOST_BLOCKS = 1 << 30,          /* thread blocks of one launch, all its ranks together */
  HCCC_MOST_USER_BLOCKS = 1 << 20      /* blocks of `count` elements in a user buffer */
};

/* The most bytes that anything of a launch may come to, so that sums of two fit a long long. */
#define HCCC_MOST_BYTES (1LL << 62)

/* The shape of a generated collective: its HCCC_* constants of the same names. */
typedef struct hccc_shape {
  int ranks, sub, channels, blocks, flags, scratch, stage, queues, sends, slots;
  int grain; /* bytes; sets the micro-batch of calls that name none */
  int packets, lines; /* packet slots of a rank and channel, and the packets of each (packets.h) */
} hccc_shape;

/* The notice of a rank that starts, to each neighbour: where its buffers are. */
typedef struct hccc_notice {
  int input_window, output_window; /* -1: in none */
  long long input, output;         /* bytes past the windows' beginnings */
  unsigned long long signature;    /* of its call */
  unsigned long long scalar;       /* of premul_sum, as in hccc_local */
} hccc_notice;

enum { HCCC_NOTICE_AT = 16 }; /* bytes past the ready counter */

/* A rank's buffers of this launch, as this rank reaches them: null over the network. */
typedef struct hccc_peer {
  void *input, *output;
  unsigned long long scalar; /* that its input is multiplied by in premul_sum */
} hccc_peer;

/* One launch's sizes, in elements of `size` bytes. */
typedef struct hccc_sizes {
  long long part;
  long long micro;
  long long batches; /* micro-batches in a part */
} hccc_sizes;

HCCC_BOTH long long hccc_round_up(long long n, long long to) { return (n + to - 1) / to * to; }

/* Return a + b and a * b of numbers from 0 to HCCC_MOST_BYTES + 1, which also stands for more. */
HCCC_BOTH long long hccc_plus(long long a, long long b) {
  return a > HCCC_MOST_BYTES - b ? HCCC_MOST_BYTES + 1 : a + b;
}

HCCC_BOTH long long hccc_times(long long a, long long b) {
  if ((a | b) >> 31 == 0) return a * b; /* a division takes longer than all else of a small call */
  return b && a > HCCC_MOST_BYTES / b ? HCCC_MOST_BYTES + 1 : a * b;
}

/* Returns bytes, or -1 for too many. */
HCCC_BOTH long long hccc_bytes_or_error(long long bytes) {
  return bytes > HCCC_MOST_BYTES ? -1 : bytes;
}

/* Returns the micro-batch of a call that names none: the power of two next to the square root of
 * the part's bytes times the grain (compiler/ir/micro_batch.py says why). */
HCCC_BOTH long long hccc_default_micro_batch(long long part_bytes, int grain) {
  const double wanted = (double)part_bytes * grain;
  long long micro = HCCC_SMALLEST_DEFAULT;
  while (micro < HCCC_LARGEST_DEFAULT && 2.0 * (double)micro * (double)micro < wanted) micro *= 2;
  return micro;
}

/* Cuts a call into parts and micro-batches. `count` is not negative, `size` a power of two to 16. A
 * part beyond HCCC_MOST_BYTES elements is HCCC_MOST_BYTES + 1. */
HCCC_BOTH hccc_sizes hccc_sizes_of(hccc_shape shape, long long count, int size,
                                   long long micro_batch_bytes) {
  const long long step = HCCC_ALIGNMENT / size;
  const long long pieces = (long long)shape.sub * shape.channels;
  hccc_sizes sizes;
  sizes.part = count / pieces + (count % pieces > 0);
  sizes.part = sizes.part > HCCC_MOST_BYTES ? HCCC_MOST_BYTES + 1 : hccc_round_up(sizes.part, step);
  if (micro_batch_bytes <= 0)
    micro_batch_bytes = hccc_default_micro_batch(hccc_times(sizes.part, size), shape.grain);
  if (micro_batch_bytes > HCCC_LARGEST_MICRO_BATCH) micro_batch_bytes = HCCC_LARGEST_MICRO_BATCH;
  sizes.micro = hccc_round_up(micro_batch_bytes, HCCC_ALIGNMENT) / size;
  if (sizes.micro > sizes.part || shape.packets) sizes.micro = sizes.part;
  sizes.batches = sizes.micro ? (sizes.part + sizes.micro - 1) / sizes.micro : 0;
  if (shape.packets) sizes.batches = 1; /* also without data: ranks hear of each other */
  return sizes;
}

/* Returns the bytes of a rank's scratch memory; -1: hccc_check_call refuses the call. */
HCCC_BOTH long long hccc_scratch_bytes(hccc_shape shape, long long count, int size,
                                       long long micro_batch_bytes) {
  hccc_sizes s;
  long long chunks, messages;
  if (count < 0 || size < 1 || size > HCCC_ALIGNMENT) return -1;
  s = hccc_sizes_of(shape, count, size, micro_batch_bytes);
  chunks = hccc_times((long long)shape.scratch + shape.stage, shape.channels);
  messages = hccc_times(((long long)shape.queues + shape.sends) * shape.channels, shape.slots);
  chunks = hccc_times(chunks, s.part);
  messages = hccc_times(messages, s.micro);
  return hccc_bytes_or_error(hccc_times(hccc_plus(chunks, messages), size));
}

/* Returns the bytes of a user buffer of `blocks` blocks (input or output of one rank); -1: negative
 * or too many. */
HCCC_BOTH long long hccc_buffer_bytes(long long blocks, long long count, int size) {
  if (blocks < 0 || count < 0 || size < 1) return -1;
  return hccc_bytes_or_error(hccc_times(hccc_times(blocks, count), size));
}

/* Return where the groups of counters begin, in counters. */
HCCC_BOTH long long hccc_ready_at(hccc_shape s) { return (long long)s.channels * s.flags; }
HCCC_BOTH long long hccc_done_at(hccc_shape s) { return hccc_ready_at(s) + s.ranks; }
HCCC_BOTH long long hccc_extension_at(hccc_shape s) { return hccc_done_at(s) + s.ranks; }
HCCC_BOTH long long hccc_go_at(hccc_shape s) { return hccc_extension_at(s) + s.ranks; }
HCCC_BOTH long long hccc_finished_at(hccc_shape s) { return hccc_go_at(s) + 1; }
HCCC_BOTH long long hccc_state_at(hccc_shape s) {
  return hccc_finished_at(s) + (long long)s.blocks * s.channels;
}
HCCC_BOTH long long hccc_peers_at(hccc_shape s) {
  return hccc_state_at(s) + (long long)s.blocks * s.channels;
}

/* Returns where packet slots begin, in bytes, or more than HCCC_MOST_BYTES. */
HCCC_BOTH long long hccc_packets_at(hccc_shape s) {
  const long long blocks = hccc_times(2LL * s.blocks, s.channels);
  const long long counters = hccc_plus(hccc_ready_at(s) + 3LL * s.ranks + 1, blocks);
  const long long peers = (long long)s.ranks * 24;
  return hccc_plus(hccc_times(counters, HCCC_FLAG_STRIDE), hccc_round_up(peers, HCCC_FLAG_STRIDE));
}

/* Returns the bytes of a rank's flags, for messages of any size, and of its packet slots of both
 * parities, on any device; -1: too many. */
HCCC_BOTH long long hccc_flag_bytes(hccc_shape s) {
  const long long slots = hccc_times(2LL * s.channels, s.packets);
  const long long packets = hccc_times(hccc_times(slots, s.lines), HCCC_LINE_ROOM);
  return hccc_bytes_or_error(hccc_plus(hccc_packets_at(s), packets));
}

/* Returns the packets of 64 bytes that hold so many bytes of data. */
HCCC_BOTH long long hccc_lines_of(long long bytes) {
  return (bytes + HCCC_LINE_DATA - 1) / HCCC_LINE_DATA;
}

/* Returns whether every number of a launch fits its type, and every place can be computed: the last
 * chunk's place also where that chunk is empty. */
HCCC_BOTH int hccc_fits(hccc_shape shape, long long count, int size, long long micro_batch_bytes) {
  const hccc_sizes s = hccc_sizes_of(shape, count, size, micro_batch_bytes);
  const int most = shape.queues ? HCCC_MOST_QUEUED_BATCHES : HCCC_MOST_BATCHES;
  const long long chunks = hccc_times((long long)shape.sub * shape.channels, s.part);
  const long long furthest = hccc_plus(hccc_times(HCCC_MOST_USER_BLOCKS, count), chunks);
  if (shape.packets && hccc_lines_of(hccc_times(s.part, size)) > shape.lines) return 0;
  return s.batches <= most && hccc_times(furthest, size) <= HCCC_MOST_BYTES &&
         hccc_scratch_bytes(shape, count, size, micro_batch_bytes) >= 0;
}

/* The kernel's argument, passed by value: everything about a launch that all blocks share. */
typedef struct hccc_params {
  const hccc_rank *ranks;     /* all of the collective's ranks */
  const hccc_local *local;    /* the ranks launched here; null: `one` is the only one */
  hccc_local one;
  hccc_fault *fault;
  const long long *blocks;    /* of hccc_call */
  long long flags_at;         /* bytes past the beginning of every rank's flags */
  long long count;            /* elements */
  long long part;             /* elements */
  unsigned long long timeout; /* ticks of the device's clock; HCCC_FOR_EVER */
  unsigned long long join_timeout;
  unsigned long long deadline;
  unsigned long long period; /* ticks between looks at extensions and the deadline */
  unsigned micro;             /* elements */
  unsigned batches;           /* micro-batches in this launch */
  unsigned window;            /* micro-batches in a window, at least 1 */
  int first_rank;
  int in_place;
  unsigned long long signature;
#ifdef HCCC_TRACE
  hccc_trace trace; /* of 0 slots where nothing is recorded */
#endif
} hccc_params;

#define HCCC_FOR_EVER (1ULL << 62)

/* Converts the limit of a wait to ticks; twice that still fits. 0 seconds: for ever. */
HCCC_BOTH unsigned long long hccc_ticks(double seconds, double ticks_per_second) {
  const double ticks = seconds * ticks_per_second;
  if (!(seconds > 0) || ticks >= (double)HCCC_FOR_EVER) return HCCC_FOR_EVER;
  return ticks < 1 ? 1 : (unsigned long long)ticks;
}

/* Returns the ticks after which a wait looks again: extensions cross all ranks in a quarter of a
 * wait's deadline, and the launch's is missed by little. */
HCCC_BOTH unsigned long long hccc_period_of(int ranks, unsigned long long timeout,
                                            unsigned long long deadline) {
  const unsigned long long forwarded = timeout / (4ULL * (unsigned)ranks);
  const unsigned long long late = deadline / 64;
  if (timeout == HCCC_FOR_EVER && deadline == HCCC_FOR_EVER) return HCCC_FOR_EVER;
  return (forwarded < late ? forwarded : late) + 1;
}

/* Returns the parameters of a call that hccc_check_call accepts. */
HCCC_BOTH hccc_params hccc_params_of(hccc_shape shape, int size, const hccc_comm *comm,
                                     const hccc_call *call, double ticks_per_second) {
  const hccc_sizes s = hccc_sizes_of(shape, call->count, size, call->micro_batch_bytes);
  const hccc_local none = {0, 0, 0, 0, 0};
  hccc_params p;
  p.ranks = comm->ranks;
  p.local = call->n_local == 1 ? 0 : call->local;
  p.one = call->n_local == 1 ? *call->local : none;
  p.fault = comm->fault;
  p.blocks = call->blocks;
  p.flags_at = comm->flags_at;
  p.count = call->count;
  p.part = s.part;
  p.timeout = hccc_ticks(call->timeout_s, ticks_per_second);
  p.join_timeout = hccc_ticks(call->join_timeout_s, ticks_per_second);
  p.deadline = hccc_ticks(call->deadline_s, ticks_per_second);
  if (p.timeout > p.deadline) p.timeout = p.deadline;
  if (p.join_timeout > p.deadline) p.join_timeout = p.deadline;
  /* Of packets a wait lasts as long as a rank may take to start: here all start with this launch. */
  if (shape.packets && call->n_local == shape.ranks) p.join_timeout = p.timeout;
  p.period = hccc_period_of(shape.ranks, p.timeout, p.deadline);
  p.micro = (unsigned)s.micro;
  p.batches = (unsigned)s.batches;
  p.window = call->window > 0 ? (unsigned)call->window : s.batches ? (unsigned)s.batches : 1u;
  p.first_rank = call->first_rank;
  p.in_place = call->in_place != 0;
  p.signature = call->signature;
#ifdef HCCC_TRACE
  p.trace.slots = 0;
#endif
  return p;
}

/* Checks the first `lengths` words of a table of blocks, their lengths. */
HCCC_BOTH int hccc_check_lengths(const long long *blocks, int lengths, long long count) {
  int i;
  for (i = 0; blocks && i < lengths; ++i)
    if (blocks[i] < 0 || blocks[i] > count) return HCCC_BAD_ARGUMENT;
  return HCCC_OK;
}

/* Checks that the structures are of this version. Returns an hccc_status, as the checks below. */
HCCC_BOTH int hccc_check_abi(const hccc_comm *comm, const hccc_call *call) {
  if (comm->size != sizeof *comm || comm->abi != HCCC_ABI) return HCCC_BAD_ABI;
  if (comm->rank_size != sizeof(hccc_rank) || call->size != sizeof *call) return HCCC_BAD_ABI;
  return call->local_size == sizeof(hccc_local) ? HCCC_OK : HCCC_BAD_ABI;
}

/* Checks that a proxy ring can be used. */
HCCC_BOTH int hccc_check_proxy_ring(const hccc_proxy_ring *ring) {
  if (ring->size != sizeof *ring || ring->transfer_size != sizeof(hccc_transfer))
    return HCCC_BAD_ABI;
  if (!ring->entries || !ring->submitted || !ring->taken || !ring->completed)
    return HCCC_BAD_ARGUMENT;
  return ring->length && !(ring->length & (ring->length - 1)) ? HCCC_OK : HCCC_BAD_ARGUMENT;
}

/* Checks that a call can be launched, with elements of `size` bytes. */
HCCC_BOTH int hccc_check_call(hccc_shape shape, int size, const hccc_comm *comm,
                              const hccc_call *call) {
  long long blocks;
  int bad;
  if (!comm || !call) return HCCC_BAD_ARGUMENT;
  bad = hccc_check_abi(comm, call);
  if (bad) return bad;
  if (!comm->ranks || !comm->fault || comm->n_ranks != shape.ranks) return HCCC_BAD_ARGUMENT;
  if (comm->flags_at < 0 || comm->flags_at % HCCC_FLAG_STRIDE) return HCCC_BAD_ARGUMENT;
  if (!call->local || call->count < 0 || call->window < 0) return HCCC_BAD_ARGUMENT;
  if (call->micro_batch_bytes < 0 || !(call->timeout_s >= 0)) return HCCC_BAD_ARGUMENT;
  if (!(call->join_timeout_s >= 0) || !(call->deadline_s >= 0)) return HCCC_BAD_ARGUMENT;
  if (call->first_rank < 0 || call->n_local < 1) return HCCC_BAD_ARGUMENT;
  if (call->n_local > shape.ranks - call->first_rank) return HCCC_BAD_ARGUMENT;
  blocks = hccc_times((long long)shape.blocks * shape.channels, call->n_local);
  if (blocks > HCCC_MOST_BLOCKS) return HCCC_TOO_LARGE;
  return hccc_fits(shape, call->count, size, call->micro_batch_bytes) ? HCCC_OK : HCCC_TOO_LARGE;
}

#endif
