/* proxy.h: the proxy between ranks of one machine: host threads that copy from memory to memory,
 * for the ranks of one process; others' memory is shared with it.
 *
 * It keeps the promises of network.h and takes as long as a network would: each NIC carries
 * `bytes_per_us` in each direction, one transfer after the other, and bytes arrive `latency_us`
 * after they were carried. Plain C, for the host; include it in one place and link pthreads.
 *
 *     hccc_wire wire = {12500, 5, n_nics, nic, 0};
 *     hccc_proxy *proxy = hccc_proxy_new(n_ranks, ranks, rings, &wire);
 *     hccc_proxy_start(proxy, 1);  ... launches of all ranks ...  hccc_proxy_stop(proxy);
 *     hccc_proxy_free(proxy);
 *
 * C99 and POSIX: -std=gnu99 or later, or _POSIX_C_SOURCE 200809L defined before all headers.
 * Complexity: O(log pending) a transfer. n_ranks * n_ranks times of 8 bytes are kept.
 */
#ifndef HCCC_PROXY_H
#define HCCC_PROXY_H

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hccc.h"

#ifndef CLOCK_MONOTONIC
#error "hccc/proxy.h needs POSIX: define _POSIX_C_SOURCE as 200809L, or compile with -std=gnu11"
#endif

/* The network between the ranks. */
typedef struct hccc_wire {
  double bytes_per_us; /* of a NIC in each direction; 0: no limit */
  double latency_us;
  int n_nics;
  const int *nic;      /* of each rank */
  int copy_on_arrival; /* copy when a transfer arrives, not when it is taken: to find races */
} hccc_wire;

typedef struct hccc_pending {
  double due; /* us */
  unsigned long long order;
  int rank;
  hccc_transfer transfer;
} hccc_pending;

struct hccc_proxy;

/* One thread, which serves every `n_threads`th rank. */
typedef struct hccc_proxy_thread {
  struct hccc_proxy *proxy;
  int index;
  pthread_t thread;
  hccc_pending *heap; /* by due, then order */
  int length, room;
  unsigned long long order;
} hccc_proxy_thread;

typedef struct hccc_proxy {
  int n_ranks;
  const hccc_rank *ranks;       /* all ranks, with this process's addresses */
  const hccc_proxy_ring *rings; /* of each rank; no entries where another process serves the rank */
  hccc_wire wire;
  double *out, *in;     /* us at which each NIC is free again */
  double *last;         /* us at which the last transfer of each pair arrives */
  unsigned *taken;      /* of each rank */
  pthread_mutex_t lock; /* of out, in */
  hccc_proxy_thread *threads;
  int n_threads;
  int running;
} hccc_proxy;

static inline double hccc_proxy_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline void hccc_proxy_free(hccc_proxy *p) {
  if (!p) return;
  pthread_mutex_destroy(&p->lock);
  free(p->out);
  free(p->in);
  free(p->last);
  free(p->taken);
  free(p);
}

/* Makes a proxy; null: no memory. `ranks`, `rings` and `wire->nic` must outlive it. */
static inline hccc_proxy *hccc_proxy_new(int n_ranks, const hccc_rank *ranks,
                                         const hccc_proxy_ring *rings, const hccc_wire *wire) {
  hccc_proxy *p = (hccc_proxy *)calloc(1, sizeof *p);
  if (!p) return 0;
  p->n_ranks = n_ranks;
  p->ranks = ranks;
  p->rings = rings;
  p->wire = *wire;
  p->out = (double *)calloc((size_t)wire->n_nics, sizeof *p->out);
  p->in = (double *)calloc((size_t)wire->n_nics, sizeof *p->in);
  p->last = (double *)calloc((size_t)n_ranks * (size_t)n_ranks, sizeof *p->last);
  p->taken = (unsigned *)calloc((size_t)n_ranks, sizeof *p->taken);
  pthread_mutex_init(&p->lock, 0);
  if (p->out && p->in && p->last && p->taken) return p;
  hccc_proxy_free(p);
  return 0;
}

/* Resets a stopped proxy after a fault, when rings and counters are zero again. */
static inline void hccc_proxy_reset(hccc_proxy *p) {
  memset(p->taken, 0, (size_t)p->n_ranks * sizeof *p->taken);
  memset(p->last, 0, (size_t)p->n_ranks * (size_t)p->n_ranks * sizeof *p->last);
  memset(p->out, 0, (size_t)p->wire.n_nics * sizeof *p->out);
  memset(p->in, 0, (size_t)p->wire.n_nics * sizeof *p->in);
}

/* Returns where a window of a rank begins. */
static inline char *hccc_proxy_base(const hccc_rank *rank, int window) {
  if (window == HCCC_WINDOW_FLAGS) return (char *)rank->flags;
  if (window == HCCC_WINDOW_SCRATCH) return (char *)rank->scratch;
  return (char *)rank->windows[window - HCCC_WINDOW_USER].base;
}

static inline void hccc_proxy_copy(hccc_proxy *p, int rank, const hccc_transfer *t) {
  const hccc_rank *own = &p->ranks[rank], *peer = &p->ranks[t->peer];
  const unsigned long long from = (unsigned long long)hccc_proxy_base(own, t->source_window);
  const unsigned long long to = (unsigned long long)hccc_proxy_base(peer, t->target_window);
  if (t->bytes > 0)
    memcpy((void *)(to + (unsigned long long)t->target),
           (const void *)(from + (unsigned long long)t->source), (size_t)t->bytes);
}

static inline void hccc_proxy_arrive(hccc_proxy *p, int rank, const hccc_transfer *t) {
  if (p->wire.copy_on_arrival) hccc_proxy_copy(p, rank, t);
  if (t->counter >= 0) {
    char *flags = (char *)p->ranks[t->peer].flags;
    __atomic_store_n((unsigned *)(flags + t->counter), t->value, __ATOMIC_RELEASE);
  }
  __atomic_fetch_add(p->rings[rank].completed, 1u, __ATOMIC_RELEASE);
}

/* Returns when a transfer that is taken now arrives. */
static inline double hccc_proxy_due(hccc_proxy *p, int rank, const hccc_transfer *t, double now) {
  double *last = &p->last[(size_t)rank * (size_t)p->n_ranks + (size_t)t->peer];
  double due = now;
  if (t->bytes > 0 && p->wire.bytes_per_us > 0) {
    double *out = &p->out[p->wire.nic[rank]], *in = &p->in[p->wire.nic[t->peer]];
    pthread_mutex_lock(&p->lock);
    due = due > *out ? due : *out;
    due = due > *in ? due : *in;
    due += (double)t->bytes / p->wire.bytes_per_us;
    *out = *in = due;
    pthread_mutex_unlock(&p->lock);
  }
  due += p->wire.latency_us;
  *last = due > *last ? due : *last;
  return *last;
}

static inline int hccc_pending_before(const hccc_pending *a, const hccc_pending *b) {
  return a->due < b->due || (a->due == b->due && a->order < b->order);
}

static inline void hccc_proxy_thread_swap(hccc_proxy_thread *own, int i, int j) {
  const hccc_pending x = own->heap[i];
  own->heap[i] = own->heap[j];
  own->heap[j] = x;
}

/* Makes room for one more transfer. False: no memory. */
static inline int hccc_proxy_thread_has_room(hccc_proxy_thread *own) {
  hccc_pending *heap;
  if (own->length < own->room) return 1;
  if (own->room > INT_MAX / 2) return 0;
  heap = (hccc_pending *)realloc(own->heap, 2 * (size_t)own->room * sizeof *heap);
  if (!heap) return 0;
  own->heap = heap;
  own->room *= 2;
  return 1;
}

static inline void hccc_proxy_thread_push(hccc_proxy_thread *own, const hccc_pending *x) {
  int i = own->length;
  own->heap[own->length++] = *x;
  for (; i > 0 && hccc_pending_before(&own->heap[i], &own->heap[(i - 1) / 2]); i = (i - 1) / 2)
    hccc_proxy_thread_swap(own, i, (i - 1) / 2);
}

static inline hccc_pending hccc_proxy_thread_pop(hccc_proxy_thread *own) {
  const hccc_pending first = own->heap[0];
  int i = 0;
  own->heap[0] = own->heap[--own->length];
  for (;;) {
    int least = i, k;
    for (k = 2 * i + 1; k <= 2 * i + 2 && k < own->length; ++k)
      if (hccc_pending_before(&own->heap[k], &own->heap[least])) least = k;
    if (least == i) return first;
    hccc_proxy_thread_swap(own, i, least);
    i = least;
  }
}

/* Takes the transfers that a rank has submitted, as far as there is memory for them; returns their
 * number. */
static inline int hccc_proxy_thread_take(hccc_proxy_thread *own, int rank) {
  hccc_proxy *p = own->proxy;
  const hccc_proxy_ring *ring = &p->rings[rank];
  int n = 0;
  if (!ring->entries) return 0;
  for (; hccc_proxy_thread_has_room(own); ++n) {
    hccc_transfer *entry = ring->entries + (p->taken[rank] & (ring->length - 1));
    hccc_pending x;
    if (__atomic_load_n(&entry->turn, __ATOMIC_ACQUIRE) != p->taken[rank] + 1) return n;
    x.transfer = *entry;
    x.rank = rank;
    x.order = own->order++;
    x.due = hccc_proxy_due(p, rank, &x.transfer, hccc_proxy_now());
    __atomic_store_n(ring->taken, ++p->taken[rank], __ATOMIC_RELEASE);
    if (!p->wire.copy_on_arrival) hccc_proxy_copy(p, rank, &x.transfer);
    hccc_proxy_thread_push(own, &x);
  }
  return n;
}

/* Delivers the transfers that are due; returns their number. */
static inline int hccc_proxy_thread_deliver(hccc_proxy_thread *own, double now) {
  int n = 0;
  for (; own->length && own->heap[0].due <= now; ++n) {
    const hccc_pending x = hccc_proxy_thread_pop(own);
    hccc_proxy_arrive(own->proxy, x.rank, &x.transfer);
  }
  return n;
}

/* Yields with nothing to do; sleeps after a while. */
static inline void hccc_proxy_thread_idle(const hccc_proxy_thread *own, double idle_since,
                                          double now) {
  const double next = own->length ? own->heap[0].due - now : 20;
  struct timespec pause = {0, 10000};
  if (now - idle_since < 50 || next < 20)
    sched_yield();
  else
    nanosleep(&pause, 0);
}

static void *hccc_proxy_thread_main(void *argument) {
  hccc_proxy_thread *own = (hccc_proxy_thread *)argument;
  hccc_proxy *p = own->proxy;
  double idle_since = hccc_proxy_now();
  while (__atomic_load_n(&p->running, __ATOMIC_ACQUIRE)) {
    double now;
    int done = 0, rank;
    for (rank = own->index; rank < p->n_ranks; rank += p->n_threads)
      done += hccc_proxy_thread_take(own, rank);
    now = hccc_proxy_now();
    done += hccc_proxy_thread_deliver(own, now);
    if (done)
      idle_since = now;
    else
      hccc_proxy_thread_idle(own, idle_since, now);
  }
  hccc_proxy_thread_deliver(own, HUGE_VAL);
  return 0;
}

/* Ends the first `started` threads. */
static inline void hccc_proxy_end(hccc_proxy *p, int started) {
  int i;
  __atomic_store_n(&p->running, 0, __ATOMIC_RELEASE);
  for (i = 0; i < started; ++i) pthread_join(p->threads[i].thread, 0);
  for (i = 0; i < p->n_threads; ++i) free(p->threads[i].heap);
  free(p->threads);
  p->threads = 0;
  p->n_threads = 0;
}

/* Starts `n_threads` threads. Returns 0 where it cannot. */
static inline int hccc_proxy_start(hccc_proxy *p, int n_threads) {
  int i, started;
  if (n_threads < 1) return 0;
  p->threads = (hccc_proxy_thread *)calloc((size_t)n_threads, sizeof *p->threads);
  if (!p->threads) return 0;
  p->n_threads = n_threads;
  p->running = 1;
  for (i = 0, started = 0; i < n_threads && started == i; ++i) {
    hccc_proxy_thread *own = &p->threads[i];
    own->proxy = p;
    own->index = i;
    own->room = 64;
    own->heap = (hccc_pending *)malloc((size_t)own->room * sizeof *own->heap);
    if (own->heap && !pthread_create(&own->thread, 0, hccc_proxy_thread_main, own)) ++started;
  }
  if (started < n_threads) hccc_proxy_end(p, started);
  return started == n_threads;
}

/* Ends the threads. Transfers that they have taken arrive at once; others stay in the rings. */
static inline void hccc_proxy_stop(hccc_proxy *p) { hccc_proxy_end(p, p->n_threads); }

#endif
