// execute.h: executes a primitive: wait, reduceCopy, post, for every micro-batch of a window.
#pragma once

#include "primitive.h"
#if HCCC_PACKETS > 0
#include HCCC_PACKETS_BODY
#endif
#if HCCC_NETWORK
#include "submit.h"
#endif
#if HCCC_SWITCHED
#include "switched.h"
#endif

#if HCCC_PACKETS > 0

template <class From, class To, int mode, int W, int K, int D, int N>
HCCC_FN void hccc_execute(hccc_block& b, int sub, const hccc_primitive<mode, W, K, D, N>& p) {
  static_assert(K >= 1 && D >= 1, "a primitive has a source and a destination");
  const int valid = hccc_moves<mode>(b) ? hccc_valid_of(b, sub) : 0;
  HCCC_TRACED(hccc_span span = hccc_begin_span(b, p.prim, b.m0);)
  if constexpr (hccc_meets)
    b.stopped = hccc_barrier_any(b.stopped) || !hccc_await_conditions(b, p, b.m0);
  if (b.stopped) return;
  HCCC_TRACED(span.ready();)
  b.stopped = !hccc_exchange<From, To>(b, p, sub, valid);
  HCCC_TRACED(span.end(b);)
  if constexpr (N > 0) {
    b.stopped = hccc_barrier_any(b.stopped);
    if (!b.stopped) hccc_raise_signals<false>(b, p, b.m0);
  }
}

template <class From, class To, int mode, int W, int K, int D, int N>
HCCC_NOINLINE void hccc_execute_body(hccc_block& b, int sub,
                                     const hccc_primitive<mode, W, K, D, N>& p) {
  hccc_execute<From, To>(b, sub, p);
}

// Executes a primitive. sub: its chunk's index in its block.
template <int mode, int W, class From, class To, int N>
HCCC_FN void hccc_prim(hccc_block& b, int prim, int sub, const hccc_flags<W>& waits, const From& from,
                       const To& to, const hccc_targets<N>& posts) {
  if (!hccc_meets && hccc_is_idle<From, To>(b, sub, hccc_moves<mode>(b))) return;
  const hccc_primitive<mode, W, From::length, To::length, N> p{prim, waits, from, to, posts};
  if constexpr (HCCC_INLINE && hccc_port_parallel)
    hccc_execute<From, To>(b, sub, p);
  else
    hccc_execute_body<From, To>(b, sub, p);
}

#else

template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_execute(hccc_block& b, int sub, const hccc_primitive<mode, W, K, D, N>& p) {
  using primitive = hccc_primitive<mode, W, K, D, N>;
  static_assert(K >= 1 && D >= 1, "a primitive has a source and a destination");
  constexpr bool far = (mode & HCCC_FAR) != 0;
  const long long valid = hccc_moves<mode>(b) ? hccc_valid(b, sub) : 0;
  hccc_pointers<K, D> pointers;
  hccc_set_pointers(pointers, b, p, b.m0);
  HCCC_UNROLL(1)
  for (unsigned m = b.m0; m < b.m1 && !b.stopped; ++m) {
    if (HCCC_QUEUES > 0) hccc_set_pointers(pointers, b, p, m);
    HCCC_TRACED(hccc_span span = hccc_begin_span(b, p.prim, m);)
    b.stopped = !hccc_await_conditions(b, p, m);
    if (b.stopped) break;
    HCCC_TRACED(span.ready();)
    const unsigned n = hccc_batch_length(b, valid, m);
#if HCCC_SWITCHED
    hccc_move_switched<mode>(b, p, pointers, m, n);
#else
    hccc_reduce_copy<mode & ~HCCC_FAR>(pointers, n);
#endif
    HCCC_TRACED(span.end(b);)
    pointers.offset += b.p->micro;
    if constexpr (primitive::signals > 0 || !pointers.few) hccc_raise_signals<far>(b, p, m);
#if HCCC_NETWORK
    if constexpr (far) hccc_submit_all(b, p, m, n);
#endif
  }
}

// With a copy of the block, which registers hold.
template <int mode, int W, int K, int D, int N>
HCCC_NOINLINE void hccc_execute_body(hccc_block& b, int sub,
                                     const hccc_primitive<mode, W, K, D, N>& p) {
  hccc_block own = b;
  hccc_execute(own, sub, p);
  b.stopped = own.stopped;
}

// Executes a primitive over the micro-batches of the window. sub: its chunk's index in its block,
// or its chunk if blocks have lengths of their own.
template <int mode, int W, int K, int D, int N>
HCCC_FN void hccc_prim(hccc_block& b, int prim, int sub, const hccc_flags<W>& waits,
                       const hccc_operands<K>& from, const hccc_operands<D>& to,
                       const hccc_targets<N>& posts) {
  const hccc_primitive<mode, W, K, D, N> p{prim, waits, from, to, posts};
  if constexpr (HCCC_INLINE && hccc_port_parallel)
    hccc_execute(b, sub, p);
  else
    hccc_execute_body(b, sub, p);
}

#endif

#if HCCC_NETWORK

template <int mode, int W, int K, int D, int N, int X>
HCCC_NOINLINE void hccc_execute_putting(hccc_block& b, int sub,
                                        const hccc_primitive<mode, W, K, D, N>& p,
                                        const hccc_puts<X>& puts) {
  const long long valid = hccc_moves<mode>(b) ? hccc_valid(b, sub) : 0;
  hccc_pointers<K, D ? D : 1> pointers;
  HCCC_UNROLL(1)
  for (unsigned m = b.m0; m < b.m1 && !b.stopped; ++m) {
    if constexpr (D > 0) hccc_set_pointers(pointers, b, p, m);
    HCCC_TRACED(hccc_span span = hccc_begin_span(b, p.prim, m);)
    b.stopped = !hccc_await_conditions(b, p, m);
    if (b.stopped) break;
    HCCC_TRACED(span.ready();)
    const unsigned n = hccc_batch_length(b, valid, m);
    if constexpr (D > 0) hccc_reduce_copy<mode & ~HCCC_FAR>(pointers, n);
    hccc_put_directly(b, puts, m, n);
    HCCC_TRACED(span.end(b);)
    hccc_raise_signals<true>(b, p, m);
    hccc_submit_puts(b, puts, m, n);
    hccc_submit_all(b, p, m, n);
  }
}

// Executes a primitive that also puts its result, or its only source, to ranks of the network.
template <int mode, int W, int K, int D, int X, int N>
HCCC_FN void hccc_prim(hccc_block& b, int prim, int sub, const hccc_flags<W>& waits,
                       const hccc_operands<K>& from, const hccc_operands<D>& to,
                       const hccc_puts<X>& puts, const hccc_targets<N>& posts) {
  const hccc_primitive<mode, W, K, D, N> p{prim, waits, from, to, posts};
  hccc_execute_putting(b, sub, p, puts);
}

#endif
