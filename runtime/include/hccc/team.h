// team.h: the threads of one launch; the caller is one of them. Memory is malloc's: programs in C
// link generated code without a C++ library.
#pragma once

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "hccc.h"
#include "scheduler.h"

#if !HCCC_THREADS_AS_BLOCKS
#include "stacks.h"
#endif

struct hccc_team {
  void (*run)(void* launch, int index);
  void* launch;
  int blocks;
  int size;      // threads, this one included
  int open;      // 1: run; 0: threads are still being started; -1: there are too few
  bool oversubscribed;  // more threads than cores
#if !HCCC_THREADS_AS_BLOCKS
  hccc_fiber* fibers;
#endif
};

struct hccc_member {
  hccc_team* team;
  int index;
  pthread_t thread;
};

// Runs the blocks of member i: [i * blocks / size, (i + 1) * blocks / size).
static inline void hccc_run_share(const hccc_team* t, int i) {
  const int first = static_cast<int>(static_cast<long long>(t->blocks) * i / t->size);
  const int last = static_cast<int>(static_cast<long long>(t->blocks) * (i + 1) / t->size);
#if HCCC_THREADS_AS_BLOCKS
  hccc_this_thread = hccc_backoff{t->oversubscribed, 0};
  for (int block = first; block < last; ++block) t->run(t->launch, block);
#else
  if (first < last) hccc_run_fibers(t->fibers + first, last - first, t->oversubscribed);
#endif
}

static void* hccc_member_main(void* argument) {
  const hccc_member* self = static_cast<const hccc_member*>(argument);
  int open;
  while (!(open = __atomic_load_n(&self->team->open, __ATOMIC_ACQUIRE))) sched_yield();
  if (open > 0) hccc_run_share(self->team, self->index);
  return nullptr;
}

// Starts members 1, 2, … and returns the number of threads, the caller included.
static inline int hccc_start_members(hccc_team* t, hccc_member* members, int wanted) {
  int size = 1;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  for (; size < wanted; ++size) {
    members[size] = {t, size, {}};
    if (pthread_create(&members[size].thread, &attributes, hccc_member_main, &members[size])) break;
  }
  pthread_attr_destroy(&attributes);
  return size;
}

// Runs the team. Threads that are blocks are all needed; of workers fewer will do.
static inline int hccc_run_members(hccc_team* t, int wanted) {
  t->size = 1;
  t->oversubscribed = t->oversubscribed || HCCC_NETWORK;
  if (wanted == 1) return hccc_run_share(t, 0), HCCC_OK;
  const unsigned long bytes = static_cast<unsigned long>(wanted) * sizeof(hccc_member);
  hccc_member* members = static_cast<hccc_member*>(malloc(bytes));
  if (!members) return HCCC_NO_MEMORY;
  t->size = hccc_start_members(t, members, wanted);
  t->oversubscribed = t->oversubscribed || (t->size > 1 && t->size > hccc_cores());
  const bool enough = !HCCC_THREADS_AS_BLOCKS || t->size == wanted;
  __atomic_store_n(&t->open, enough ? 1 : -1, __ATOMIC_RELEASE);
  if (enough) hccc_run_share(t, 0);
  for (int i = 1; i < t->size; ++i) pthread_join(members[i].thread, nullptr);
  free(members);
  return enough ? HCCC_OK : HCCC_NO_MEMORY;
}

// Runs blocks 0 … blocks - 1 concurrently. Returns an hccc_status.
static inline int hccc_run_team(void (*run)(void*, int), void* launch, int blocks, int threads,
                                bool oversubscribed) {
#if !HCCC_THREADS_AS_BLOCKS
  if (blocks == 1) return hccc_run_alone(run, launch, oversubscribed || HCCC_NETWORK), HCCC_OK;
#endif
  hccc_team team{};
  team.run = run;
  team.launch = launch;
  team.blocks = blocks;
  team.oversubscribed = oversubscribed;
#if HCCC_THREADS_AS_BLOCKS
  return hccc_run_members(&team, threads);
#else
  hccc_arena* arena = hccc_take_arena(blocks);
  if (!arena) return HCCC_NO_MEMORY;
  hccc_prepare_fibers(arena, blocks, run, launch);
  team.fibers = hccc_fibers_of(arena);
  const int status = hccc_run_members(&team, threads);
  hccc_return_arena(arena);
  return status;
#endif
}
