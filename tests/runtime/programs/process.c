/* One process of several that launch a collective together over shared memory: plain C, through the
 * generated header. tests/runtime/processes.py says what the arguments are.
 *
 * Compiled with KERNEL_HEADER, SHAPE and ENTRY: those of one generated library.
 */
#include KERNEL_HEADER

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hccc/proxy.h"

enum { MOST_RANKS = 64, WINDOWS = 2, PRIVATE = 2 };

static long long number(int argc, char **argv, const char *name, long long otherwise) {
  const size_t length = strlen(name);
  int i;
  for (i = 1; i < argc; ++i)
    if (!strncmp(argv[i], name, length) && argv[i][length] == '=')
      return strtoll(argv[i] + length + 1, 0, 10);
  return otherwise;
}

static long long flag_bytes, scratch_bytes, window_bytes;
static hccc_window windows[MOST_RANKS][WINDOWS + 1]; /* the last is none: it is not counted */
static hccc_rank all[MOST_RANKS];  /* as the proxy reaches them */
static hccc_rank seen[MOST_RANKS]; /* as kernels do */
static hccc_proxy_ring rings[MOST_RANKS];
static hccc_fault own_fault;

static void *mapped(int file, long long at, long long bytes) {
  void *found;
  if (!bytes) return 0;
  found = mmap(0, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
  if (found == MAP_FAILED) perror("mmap"), exit(9);
  return found;
}

/* The memory of a rank, every part by itself, with a hole of `hole` pages before each: so parts
 * are as far apart in no two processes. */
static void map_rank(int file, int rank, long long hole) {
  const long long base = 4096 + rank * (flag_bytes + scratch_bytes + WINDOWS * window_bytes);
  long long at = base + flag_bytes + scratch_bytes;
  int w;
  for (w = 0; w < WINDOWS; ++w, at += window_bytes) {
    mmap(0, (size_t)(4096 * (hole + w + 1)), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    windows[rank][w].base = mapped(file, at, window_bytes);
    windows[rank][w].bytes = window_bytes;
  }
  all[rank].flags = mapped(file, base, flag_bytes);
  all[rank].scratch = mapped(file, base + flag_bytes, scratch_bytes);
  windows[rank][WINDOWS] = (hccc_window)HCCC_ALL_MEMORY;
  all[rank].windows = windows[rank];
  all[rank].n_windows = WINDOWS;
}

static void make_ring(hccc_proxy_ring *ring, unsigned size, unsigned length) {
  ring->size = size;
  ring->transfer_size = sizeof(hccc_transfer);
  ring->length = length;
  ring->entries = (hccc_transfer *)calloc(length, sizeof(hccc_transfer));
  ring->submitted = (unsigned *)calloc(3, 128);
  ring->taken = ring->submitted + 32;
  ring->completed = ring->submitted + 64;
}

/* Ends the process as soon as the first rank launched here is in its launch of this number. */
static void *die_within(void *argument) {
  const unsigned *go = (const unsigned *)argument;
  while (!__atomic_load_n(go, __ATOMIC_ACQUIRE)) usleep(50);
  raise(SIGKILL);
  return 0;
}

static double seconds(void) { return hccc_proxy_now() * 1e-6; }

/* "count,input window,its offset,output window,its offset,in place,micro-batch,window,milliseconds
 * to wait before": one launch. */
static int launch(hccc_comm *comm, hccc_call *call, hccc_local *local, const char *said) {
  long long count, from_at, to_at, micro, in_bytes, out_bytes;
  int from, to, place, window, delay, l, status;
  void *given[MOST_RANKS][2], *copies[MOST_RANKS][2];
  double begin;
  if (sscanf(said, "%lld,%d,%lld,%d,%lld,%d,%lld,%d,%d", &count, &from, &from_at, &to, &to_at,
             &place, &micro, &window, &delay) != 9)
    exit(8);
  usleep((unsigned)delay * 1000u);
  call->count = count;
  call->micro_batch_bytes = micro;
  call->in_place = place;
  call->window = window;
  for (l = 0; l < call->n_local; ++l) {
    const int rank = call->first_rank + l;
    given[l][0] = (char *)windows[rank][from % PRIVATE].base + from_at;
    given[l][1] = (char *)windows[rank][to % PRIVATE].base + to_at;
    in_bytes = INPUT_BLOCKS(rank) * count * ELEMENT, out_bytes = OUTPUT_BLOCKS(rank) * count * ELEMENT;
    copies[l][0] = malloc((size_t)in_bytes + 1), copies[l][1] = malloc((size_t)out_bytes + 1);
    memcpy(copies[l][0], given[l][0], (size_t)in_bytes);
    local[l].input = from < PRIVATE ? given[l][0] : copies[l][0];
    local[l].output = to < PRIVATE ? given[l][1] : copies[l][1];
    local[l].proxy_ring = rings[rank].size ? &rings[rank] : 0;
  }
  begin = seconds();
  status = ENTRY(comm, call);
  printf("%d %u %d %d %d %d %u %d %u %u %d %.6f\n", status, comm->fault->claimed,
         comm->fault->rank, comm->fault->thread_block, comm->fault->channel, comm->fault->primitive,
         comm->fault->micro_batch, comm->fault->flag, comm->fault->want, comm->fault->have,
         comm->fault->kind, seconds() - begin);
  fflush(stdout);
  for (l = 0; l < call->n_local; ++l) {
    out_bytes = OUTPUT_BLOCKS(call->first_rank + l) * count * ELEMENT;
    if (to >= PRIVATE) memcpy(given[l][1], copies[l][1], (size_t)out_bytes);
    free(copies[l][0]), free(copies[l][1]);
  }
  return status;
}

int main(int argc, char **argv) {
  const hccc_shape shape = SHAPE;
  const int first = (int)number(argc, argv, "first", 0), n = (int)number(argc, argv, "n", 1);
  const int domain = (int)number(argc, argv, "domain", shape.ranks);
  const int with_rings = (int)number(argc, argv, "rings", 1);
  const int file = open(argv[1], O_RDWR);
  hccc_comm comm = HCCC_COMM_INIT;
  hccc_call call = HCCC_CALL_INIT;
  hccc_local local[MOST_RANKS];
  hccc_wire wire = {0, 0, MOST_RANKS, 0, 0};
  int nic[MOST_RANKS], i;
  hccc_proxy *proxy = 0;
  pthread_t killer;
  char *shared;
  flag_bytes = number(argc, argv, "flag_bytes", 0);
  scratch_bytes = number(argc, argv, "scratch_bytes", 0);
  window_bytes = number(argc, argv, "window_bytes", 0);
  if (file < 0 || shape.ranks > MOST_RANKS) return 9;
  shared = (char *)mapped(file, 0, 4096);
  for (i = 0; i < shape.ranks; ++i) /* another order in every process */
    map_rank(file, (i + first) % shape.ranks, 3 * first + 1);
  for (i = 0; i < shape.ranks; ++i) {
    seen[i] = all[i];
    if (i / domain != first / domain) seen[i].flags = seen[i].scratch = 0;
    if (i == first && !number(argc, argv, "own_flags", 1)) seen[i].flags = 0;
    nic[i] = i;
    if (domain < shape.ranks && with_rings && i >= first && i < first + n) 
      make_ring(&rings[i], (unsigned)number(argc, argv, "ring_bytes", sizeof(hccc_proxy_ring)),
                (unsigned)number(argc, argv, "ring", 32)); /* short: it is full now and then */
  }
  comm.n_ranks = shape.ranks;
  comm.ranks = seen;
  comm.fault = number(argc, argv, "own_fault", 0) ? &own_fault : (hccc_fault *)shared;
  call.timeout_s = (double)number(argc, argv, "timeout_ms", 20000) * 1e-3;
  call.join_timeout_s = (double)number(argc, argv, "join_timeout_ms", 0) * 1e-3;
  call.deadline_s = (double)number(argc, argv, "deadline_ms", 0) * 1e-3;
  call.first_rank = first;
  call.n_local = n;
  call.local = local;
  call.workers = (int)number(argc, argv, "workers", 0);
  wire.nic = nic;
  wire.copy_on_arrival = (int)number(argc, argv, "late", 0);
  wire.latency_us = wire.copy_on_arrival ? 20 : 0;
  if (domain < shape.ranks && with_rings) {
    proxy = hccc_proxy_new(shape.ranks, all, rings, &wire);
    if (!proxy || !hccc_proxy_start(proxy, 1)) return 7;
  }
  if (number(argc, argv, "dies", 0)) {
    char *flags = (char *)all[first].flags;
    pthread_create(&killer, 0, die_within, flags + hccc_go_at(shape) * HCCC_FLAG_STRIDE);
  }
  printf("%p %p\n", all[0].flags, windows[0][0].base);
  for (i = 2; i < argc; ++i)
    if (!strncmp(argv[i], "launch=", 7)) launch(&comm, &call, local, argv[i] + 7);
  if (proxy) hccc_proxy_stop(proxy), hccc_proxy_free(proxy);
  return 0;
}
