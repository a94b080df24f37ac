/* proxy.h: the proxy between ranks of one machine: host threads that copy from memory to memory,
 * for the ranks of one process; others' memory is shared with it.
 *
 * It does what a NIC's proxy does (network.h) and takes as long as a network would: each NIC
 * carries `bytes_per_us` in each direction, one transfer after the other, and what was carried
 * arrives `latency_us` later. Plain C, for the host; include it in one place and link pthreads.
 *
 *     hccc_wire wire = {12500, 5, n_nics, nic, 0};
 *     hccc_proxy *proxy = hccc_proxy_new(n_ranks, ranks, doors, &wire);
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

/* What joins the ranks. */
typedef struct hccc_wire {
  double bytes_per_us; /* of a NIC in each direction; 0: no limit */
  double latency_us;
  int n_nics;
  const int *nic;      /* of each rank */
  int late;            /* copy when a transfer arrives, not when it is taken: to find races */
} hccc_wire;

typedef struct hccc_pending {
  double due; /* us */
  unsigned long long order;
  int rank;
  hccc_transfer transfer;
} hccc_pending;

struct hccc_proxy;

/* One thread, which serves every `n_threads`th rank. */
typedef struct hccc_carrier {
  struct hccc_proxy *proxy;
  int index;
  pthread_t thread;
  hccc_pending *heap; /* by due, then order */
  int length, room;
  unsigned long long order;
} hccc_carrier;

typedef struct hccc_proxy {
  int n_ranks;
  const hccc_rank *ranks; /* all of them as this process sees them */
  const hccc_door *doors; /* one for each rank; without a ring where another process serves it */
  hccc_wire wire;
  double *out, *in;   /* us at which each NIC is free again */
  double *last;       /* us at which the last transfer of each pair arrives */
  unsigned *taken;    /* of each rank */
  pthread_mutex_t lock; /* of out, in */
  hccc_carrier *carriers;
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

/* Null without memory. `ranks` and `doors` must outlive it; `wire->nic` too. */
static inline hccc_proxy *hccc_proxy_new(int n_ranks, const hccc_rank *ranks,
                                         const hccc_door *doors, const hccc_wire *wire) {
  hccc_proxy *p = (hccc_proxy *)calloc(1, sizeof *p);
  if (!p) return 0;
  p->n_ranks = n_ranks;
  p->ranks = ranks;
  p->doors = doors;
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

/* Begins anew, while it is stopped: for after a fault, when rings and counters are zero again. */
static inline void hccc_proxy_reset(hccc_proxy *p) {
  memset(p->taken, 0, (size_t)p->n_ranks * sizeof *p->taken);
  memset(p->last, 0, (size_t)p->n_ranks * (size_t)p->n_ranks * sizeof *p->last);
  memset(p->out, 0, (size_t)p->wire.n_nics * sizeof *p->out);
  memset(p->in, 0, (size_t)p->wire.n_nics * sizeof *p->in);
}

/* Where a window of a rank begins. */
static inline char *hccc_proxy_base(const hccc_rank *rank, int window) {
  if (window == HCCC_WINDOW_FLAGS) return (char *)rank->flags;
  if (window == HCCC_WINDOW_SCRATCH) return (char *)rank->scratch;
  return (char *)rank->windows[window - HCCC_WINDOW_USER].base;
}

static inline void hccc_proxy_copy(hccc_proxy *p, int rank, const hccc_transfer *t) {
  const unsigned long long from = (unsigned long long)hccc_proxy_base(&p->ranks[rank], t->source_window);
  const unsigned long long to = (unsigned long long)hccc_proxy_base(&p->ranks[t->peer], t->target_window);
  if (t->bytes > 0)
    memcpy((void *)(to + (unsigned long long)t->target),
           (const void *)(from + (unsigned long long)t->source), (size_t)t->bytes);
}

static inline void hccc_proxy_arrive(hccc_proxy *p, int rank, const hccc_transfer *t) {
  if (p->wire.late) hccc_proxy_copy(p, rank, t);
  if (t->counter >= 0) {
    char *flags = (char *)p->ranks[t->peer].flags;
    __atomic_store_n((unsigned *)(flags + t->counter), t->value, __ATOMIC_RELEASE);
  }
  __atomic_fetch_add(p->doors[rank].completed, 1u, __ATOMIC_RELEASE);
}

/* When a transfer that is taken now will have arrived. */
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

static inline void hccc_carrier_swap(hccc_carrier *c, int i, int j) {
  const hccc_pending x = c->heap[i];
  c->heap[i] = c->heap[j];
  c->heap[j] = x;
}

/* Whether there is room for one more, or memory for it. */
static inline int hccc_carrier_has_room(hccc_carrier *c) {
  hccc_pending *heap;
  if (c->length < c->room) return 1;
  if (c->room > INT_MAX / 2) return 0;
  heap = (hccc_pending *)realloc(c->heap, 2 * (size_t)c->room * sizeof *heap);
  if (!heap) return 0;
  c->heap = heap;
  c->room *= 2;
  return 1;
}

static inline void hccc_carrier_push(hccc_carrier *c, const hccc_pending *x) {
  int i = c->length;
  c->heap[c->length++] = *x;
  for (; i > 0 && hccc_pending_before(&c->heap[i], &c->heap[(i - 1) / 2]); i = (i - 1) / 2)
    hccc_carrier_swap(c, i, (i - 1) / 2);
}

static inline hccc_pending hccc_carrier_pop(hccc_carrier *c) {
  const hccc_pending first = c->heap[0];
  int i = 0;
  c->heap[0] = c->heap[--c->length];
  for (;;) {
    int least = i, k;
    for (k = 2 * i + 1; k <= 2 * i + 2 && k < c->length; ++k)
      if (hccc_pending_before(&c->heap[k], &c->heap[least])) least = k;
    if (least == i) return first;
    hccc_carrier_swap(c, i, least);
    i = least;
  }
}

/* Takes what a rank has handed over; how much that was. What there is no memory for stays where it
 * is until others have arrived. */
static inline int hccc_carrier_take(hccc_carrier *c, int rank) {
  hccc_proxy *p = c->proxy;
  const hccc_door *door = &p->doors[rank];
  int n = 0;
  if (!door->ring) return 0;
  for (; hccc_carrier_has_room(c); ++n) {
    hccc_transfer *entry = door->ring + (p->taken[rank] & (door->length - 1));
    hccc_pending x;
    if (__atomic_load_n(&entry->turn, __ATOMIC_ACQUIRE) != p->taken[rank] + 1) return n;
    x.transfer = *entry;
    x.rank = rank;
    x.order = c->order++;
    x.due = hccc_proxy_due(p, rank, &x.transfer, hccc_proxy_now());
    __atomic_store_n(door->taken, ++p->taken[rank], __ATOMIC_RELEASE);
    if (!p->wire.late) hccc_proxy_copy(p, rank, &x.transfer);
    hccc_carrier_push(c, &x);
  }
  return n;
}

/* What is due by now arrives; how much that was. */
static inline int hccc_carrier_deliver(hccc_carrier *c, double now) {
  int n = 0;
  for (; c->length && c->heap[0].due <= now; ++n) {
    const hccc_pending x = hccc_carrier_pop(c);
    hccc_proxy_arrive(c->proxy, x.rank, &x.transfer);
  }
  return n;
}

/* With nothing to do: other threads first, then, where nothing has happened for a while, sleep. */
static inline void hccc_carrier_rest(const hccc_carrier *c, double idle_since, double now) {
  const double next = c->length ? c->heap[0].due - now : 20;
  struct timespec nap = {0, 10000};
  if (now - idle_since < 50 || next < 20)
    sched_yield();
  else
    nanosleep(&nap, 0);
}

static void *hccc_carrier_main(void *argument) {
  hccc_carrier *c = (hccc_carrier *)argument;
  hccc_proxy *p = c->proxy;
  double idle_since = hccc_proxy_now();
  while (__atomic_load_n(&p->running, __ATOMIC_ACQUIRE)) {
    double now;
    int done = 0, rank;
    for (rank = c->index; rank < p->n_ranks; rank += p->n_threads)
      done += hccc_carrier_take(c, rank);
    now = hccc_proxy_now();
    done += hccc_carrier_deliver(c, now);
    if (done)
      idle_since = now;
    else
      hccc_carrier_rest(c, idle_since, now);
  }
  hccc_carrier_deliver(c, HUGE_VAL);
  return 0;
}

/* Ends the first `started` threads. */
static inline void hccc_proxy_end(hccc_proxy *p, int started) {
  int i;
  __atomic_store_n(&p->running, 0, __ATOMIC_RELEASE);
  for (i = 0; i < started; ++i) pthread_join(p->carriers[i].thread, 0);
  for (i = 0; i < p->n_threads; ++i) free(p->carriers[i].heap);
  free(p->carriers);
  p->carriers = 0;
  p->n_threads = 0;
}

/* Starts `threads` threads; 0 where it could not. */
static inline int hccc_proxy_start(hccc_proxy *p, int threads) {
  int i, started;
  if (threads < 1) return 0;
  p->carriers = (hccc_carrier *)calloc((size_t)threads, sizeof *p->carriers);
  if (!p->carriers) return 0;
  p->n_threads = threads;
  p->running = 1;
  for (i = 0, started = 0; i < threads && started == i; ++i) {
    hccc_carrier *c = &p->carriers[i];
    c->proxy = p;
    c->index = i;
    c->room = 64;
    c->heap = (hccc_pending *)malloc((size_t)c->room * sizeof *c->heap);
    if (c->heap && !pthread_create(&c->thread, 0, hccc_carrier_main, c)) ++started;
  }
  if (started < threads) hccc_proxy_end(p, started);
  return started == threads;
}

/* Ends the threads. What they have taken arrives before, at once; what they have not stays in the
 * rings. */
static inline void hccc_proxy_stop(hccc_proxy *p) { hccc_proxy_end(p, p->n_threads); }

#endif
