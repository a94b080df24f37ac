// device.h: the functions that a text is written in, recording instead of executing.
//
// It has the place of runtime/include/hccc/device.h. A kind of operand is one line of
// HCCC_OPERAND_KINDS; compiler/validate/tables.py has the same kinds in the same order.
#pragma once

#define __device__  // predefined by a target's compiler
#define __host__

#include "hccc/layout.h"
#include "hccc/recorder.h"

// What a text may not ask, since the answer differs between the compilers that it is for.
#pragma GCC poison __CUDA_ARCH__ __HIP_DEVICE_COMPILE__ __NVCC__ __CUDACC_RTC__ __AMDGCN__ __clang__

#ifndef HCCC_INLINE
#define HCCC_INLINE 0
#endif
#ifndef HCCC_OPERANDS
#define HCCC_OPERANDS 0
#endif
#ifndef HCCC_TOUCHES_PEERS
#define HCCC_TOUCHES_PEERS 1
#endif
#ifndef HCCC_ACCUMULATE
#define HCCC_ACCUMULATE 32
#endif
#ifndef HCCC_UNEVEN
#define HCCC_UNEVEN 0
#endif
#ifndef HCCC_NETWORK
#define HCCC_NETWORK 0
#endif
#ifndef HCCC_GREETS
#define HCCC_GREETS 0
#endif
#ifndef HCCC_MULTICAST
#define HCCC_MULTICAST 0
#endif
#ifndef HCCC_INPUT_BLOCKS
#define HCCC_INPUT_BLOCKS(rank) 1
#define HCCC_OUTPUT_BLOCKS(rank) 1
#endif

// The constants, with the values that the real device.h would have.
constexpr int hccc_constants[] = {
    HCCC_RANKS,         HCCC_SUB,     HCCC_CHANNELS, HCCC_BLOCKS, HCCC_FLAGS, HCCC_SCRATCH,
    HCCC_STAGE,         HCCC_QUEUES,  HCCC_SENDS,    HCCC_SLOTS,  HCCC_GRAIN, HCCC_PACKETS,
    HCCC_LINES,         HCCC_THREADS,
    HCCC_TOUCHES_PEERS, HCCC_NETWORK, HCCC_UNEVEN,   HCCC_ACCUMULATE, HCCC_GREETS,
    HCCC_MULTICAST,     HCCC_OPERANDS,      HCCC_INLINE};

#define HCCC_FN static inline __attribute__((unused))
#define HCCC_UNROLL(n)
#define HCCC_KERNEL \
  static void hccc_kernel_is_written() {}

constexpr int HCCC_COPY = 0, HCCC_REDUCE = 1, HCCC_FINAL = 2;
constexpr int HCCC_IF_IN_PLACE = 4, HCCC_IF_OUT_OF_PLACE = 8, HCCC_FAR = 16;
constexpr int HCCC_FROM_ALL = 32, HCCC_TO_ALL = 64;

// The part of a thread block that a text may use.
struct hccc_block {
  const int rank, tb, channel;
  hccc_block(const hccc_block&) = delete;

 private:
  hccc_block(int r, int t, int c) : rank(r), tb(t), channel(c) {}
  friend void hccc_record_run(int rank, int tb, int channel);
};

constexpr int hccc_operand_width = 8;

struct hccc_operand {
  int cell[hccc_operand_width];  // its kind, then its numbers
};

struct hccc_awaited {
  int flag;
};

struct hccc_target {
  int rank, flag;
};

template <class Item, int n>
struct hccc_list {
  Item item[n ? n : 1];
};

template <int n>
using hccc_flags = hccc_list<hccc_awaited, n>;
template <int n>
using hccc_targets = hccc_list<hccc_target, n>;

template <int n>
struct hccc_sources : hccc_list<hccc_operand, n> {};
template <int n>
struct hccc_destinations : hccc_list<hccc_operand, n> {};

// What a proxy puts to other ranks: from where, and where to.
template <int n>
struct hccc_puts : hccc_list<hccc_operand, n> {
  hccc_operand from;
};

template <class... I>
HCCC_FN hccc_flags<sizeof...(I)> hccc_waits(I... id) {
  return {{hccc_awaited{id}...}};
}

template <class... O>
HCCC_FN hccc_sources<sizeof...(O)> hccc_from(O... operand) {
  return {{{operand...}}};
}

template <class... O>
HCCC_FN hccc_destinations<sizeof...(O)> hccc_to(O... operand) {
  return {{{operand...}}};
}

template <class... O>
HCCC_FN hccc_puts<sizeof...(O)> hccc_put(hccc_operand from, O... operand) {
  return {{{operand...}}, from};
}

HCCC_FN hccc_target hccc_post(int rank, int flag) { return {rank, flag}; }

template <class... P>
HCCC_FN hccc_targets<sizeof...(P)> hccc_posts(P... target) {
  return {{target...}};
}

#define HCCC_OPERAND_KINDS(KIND)                                                                  \
  KIND(hccc_input, (const hccc_block&, int rank, int slot), rank, slot)                           \
  KIND(hccc_output, (const hccc_block&, int rank, int slot), rank, slot)                          \
  KIND(hccc_scratch, (const hccc_block&, int rank, int slot), rank, slot)                         \
  KIND(hccc_stage, (const hccc_block&, int rank, int slot), rank, slot)                           \
  KIND(hccc_recv,                                                                                 \
       (const hccc_block&, int queue, int turn, int length, int data, int src, int credit),       \
       queue, src, turn, length, data, credit)                                                    \
  KIND(hccc_send,                                                                                 \
       (const hccc_block&, int queue, int dst, int turn, int length, int data, int credit),       \
       queue, dst, turn, length, data, credit)                                                    \
  KIND(hccc_send_far,                                                                             \
       (const hccc_block&, int queue, int dst, int turn, int length, int data, int credit,        \
        int own),                                                                                 \
       queue, dst, turn, length, data, credit, own)                                               \
  KIND(hccc_packets_in, (const hccc_block&, int rank, int slot), rank, slot)                      \
  KIND(hccc_packets_out, (const hccc_block&, int rank, int slot), rank, slot)

#define HCCC_KIND(name, parameters, ...) HCCC_IS_##name,
enum hccc_operand_kind { HCCC_OPERAND_KINDS(HCCC_KIND) };
#undef HCCC_KIND
#define HCCC_KIND(name, parameters, ...) \
  HCCC_FN hccc_operand name parameters { return {{HCCC_IS_##name, __VA_ARGS__}}; }
HCCC_OPERAND_KINDS(HCCC_KIND)
#undef HCCC_KIND

constexpr int hccc_windows = 2;    // that every run has
constexpr int hccc_no_window = -1;  // the loop over windows has not begun
static int hccc_window_now;

// Ends a run through the windows; the next must repeat it.
static void hccc_end_window() {
  for (int name = 0; name < hccc_of_blocks; ++name) {
    if (hccc_repeats && hccc_next[name] != hccc_record->table[name].count) hccc_stop(HCCC_VARIES);
    hccc_next[name] = hccc_begin[name];
  }
  hccc_repeats = true;
}

#define HCCC_WINDOWS(b) \
  for (hccc_open_windows(b); hccc_window_now < hccc_windows; ++hccc_window_now, hccc_end_window())

HCCC_FN void hccc_open_windows(const hccc_block&) {
  if (hccc_window_now != hccc_no_window) hccc_stop(HCCC_LOOPS);
  hccc_window_now = 0;
}

HCCC_FN void hccc_put_operand(int name, const hccc_operand& operand) {
  const int* c = operand.cell;
  hccc_put_row(name, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]);
}

// Records a primitive, as lists of any length. X: puts.
template <int mode, int W, int K, int D, int X, int N>
HCCC_FN void hccc_prim(hccc_block& b, int prim, int sub, const hccc_flags<W>& waits,
                       const hccc_sources<K>& from, const hccc_destinations<D>& to,
                       const hccc_puts<X>& puts, const hccc_targets<N>& posts) {
  if (hccc_window_now < 0 || hccc_window_now >= hccc_windows) hccc_stop(HCCC_OUTSIDE);
  hccc_put_row(HCCC_PRIMITIVES, b.rank, b.tb, prim, mode, sub, W, K, D, X, N);
  for (int i = 0; i < W; ++i) hccc_put_row(HCCC_WAITS, waits.item[i].flag);
  for (int i = 0; i < K; ++i) hccc_put_operand(HCCC_SOURCES, from.item[i]);
  for (int i = 0; i < D; ++i) hccc_put_operand(HCCC_DESTINATIONS, to.item[i]);
  for (int i = 0; i < X; ++i) hccc_put_operand(HCCC_PUTS, puts.item[i]);
  for (int i = 0; i < X; ++i) hccc_put_operand(HCCC_PUT_SOURCES, puts.from);
  for (int i = 0; i < N; ++i) hccc_put_row(HCCC_POSTS, posts.item[i].rank, posts.item[i].flag);
}

template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_prim(hccc_block& b, int prim, int sub, const hccc_flags<W>& waits,
                       const hccc_sources<K>& from, const hccc_destinations<D>& to,
                       const hccc_targets<N>& posts) {
  hccc_prim<mode>(b, prim, sub, waits, from, to, hccc_puts<0>{}, posts);
}

// What the launch that an entry asks for is given.
struct hccc_launched {
  int times;
  const hccc_comm* comm;
  const hccc_call* given;
  hccc_call call;
  void* stream;
};

static hccc_launched hccc_last;
constexpr int hccc_launch_status = 1000;  // the recorded launch returns it

HCCC_FN int hccc_record_launch(const hccc_comm* comm, const hccc_call* call, void* stream) {
  const int times = hccc_last.times + 1;
  hccc_last = {times, comm, call, call ? *call : hccc_call{}, stream};
  return hccc_launch_status;
}
