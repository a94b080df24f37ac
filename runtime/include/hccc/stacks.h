// stacks.h: the fibers' stacks, each with a guard page below it. A launch takes an arena of stacks
// and returns it; the mapping and its touched pages are cached for the next launch, because making
// them costs more than a small collective.
#pragma once

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fiber.h"
#include "layout.h"

constexpr long hccc_stack_bytes = 128 << 10;
constexpr int hccc_most_cached_stacks = 1024;  // larger arenas are unmapped after the launch

struct hccc_arena {
  char* memory;  // fibers first, then stacks
  long bytes;
  int n;
  hccc_arena* next;
};

struct hccc_arena_list {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  hccc_arena* first = nullptr;
  ~hccc_arena_list() {
    for (hccc_arena* a = first; a;) {
      hccc_arena* next = a->next;
      munmap(a->memory, static_cast<unsigned long>(a->bytes));
      free(a);
      a = next;
    }
  }
};

static hccc_arena_list hccc_free_arenas;

// Not in a function, whose guard would need a C++ library.
static const long hccc_page_bytes = sysconf(_SC_PAGESIZE);

static inline long hccc_page() { return hccc_page_bytes; }

static inline long hccc_fiber_room(int n) {
  return hccc_round_up(n * long(sizeof(hccc_fiber)), hccc_page());
}

static inline hccc_fiber* hccc_fibers_of(const hccc_arena* a) {
  return reinterpret_cast<hccc_fiber*>(a->memory);
}

// Returns stack i; its lowest page is the guard.
static inline char* hccc_stack_of(const hccc_arena* a, int i) {
  return a->memory + hccc_fiber_room(a->n) + i * (hccc_stack_bytes + hccc_page());
}

static inline hccc_arena* hccc_map_arena(int n) {
  const long bytes = hccc_fiber_room(n) + n * (hccc_stack_bytes + hccc_page());
  void* memory = mmap(nullptr, static_cast<unsigned long>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  hccc_arena* a = static_cast<hccc_arena*>(malloc(sizeof(hccc_arena)));
  if (!a) {
    munmap(memory, static_cast<unsigned long>(bytes));
    return nullptr;
  }
  *a = {static_cast<char*>(memory), bytes, n, nullptr};
  for (int i = 0; i < n; ++i)
    mprotect(hccc_stack_of(a, i), static_cast<unsigned long>(hccc_page()), PROT_NONE);
  return a;
}

static inline hccc_arena* hccc_take_arena(int n) {
  pthread_mutex_lock(&hccc_free_arenas.lock);
  hccc_arena** at = &hccc_free_arenas.first;
  while (*at && (*at)->n < n) at = &(*at)->next;
  hccc_arena* found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&hccc_free_arenas.lock);
  return found ? found : hccc_map_arena(n);
}

static inline void hccc_return_arena(hccc_arena* a) {
  if (a->n > hccc_most_cached_stacks) {
    munmap(a->memory, static_cast<unsigned long>(a->bytes));
    free(a);
    return;
  }
  pthread_mutex_lock(&hccc_free_arenas.lock);
  a->next = hccc_free_arenas.first;
  hccc_free_arenas.first = a;
  pthread_mutex_unlock(&hccc_free_arenas.lock);
}

// Prepares fibers 0 … n - 1 of the arena to run blocks 0 … n - 1 of a launch. Stacks begin at
// different offsets in their pages, so that fibers do not share the same sets of the cache.
static inline void hccc_prepare_fibers(hccc_arena* a, int n, void (*run)(void*, int),
                                       void* launch) {
  hccc_fiber* fibers = hccc_fibers_of(a);
  for (int i = 0; i < n; ++i) {
    char* bottom = hccc_stack_of(a, i) + hccc_page();
    hccc_fiber& f = fibers[i];
    f = hccc_fiber{};
    f.run = run;
    f.launch = launch;
    f.index = i;
    hccc_bind_stack(&f.context, bottom, hccc_stack_bytes);
    hccc_prepare(&f.context, bottom + hccc_stack_bytes - i % 8 * 512, hccc_fiber_main, &f);
  }
}
