// port.h: the platform. Everything else is the same text on all of them.
//
// Each of port_cuda.h, port_hip.h and port_cpu.h defines these names:
//
//   HCCC_FN, HCCC_NOINLINE        a device function: always inlined, never inlined
//   HCCC_METHOD                   a member function; HCCC_FN makes a static one
//   HCCC_KERNEL                   the kernel's entry; it calls hccc_run_block
//   HCCC_UNROLL(n)                before a loop
//   HCCC_IS_GLOBAL(at)            says that an address is one of a GPU's global memory
//   HCCC_BODY                     the header with hccc_reduce_copy for this platform
//   HCCC_PACKETS_BODY             the header with hccc_exchange
//   HCCC_SHARES_PARAMS            whether blocks keep the launch's parameters in shared memory (block.h)
//   HCCC_SWITCHED                 whether multicast addresses are used (switched.h)
//   hccc_ld_packet, hccc_st_packet  a packet of a GPU: 16 bytes, each half of them at once
//   hccc_fence                    of a GPU: orders packets with other memory
//   hccc_port_parallel            whether a block has more than one thread
//   hccc_thread, hccc_threads     this thread in its block, and how many there are
//   hccc_barrier                  all threads of a block meet, memory included
//   hccc_barrier_any(c)           the same, and whether c held for any of them
//   hccc_ld_relaxed, hccc_st_relaxed, hccc_st_release, hccc_claim
//                                 one 32-bit counter; claim turns 0 into 1, once
//   hccc_poll                     loads a counter that is waited for
//   hccc_acquire_polled           after the last poll: makes visible what its counter's releaser
//                                 had stored
//   hccc_count                    adds 1 to a counter and returns what it was
//   hccc_clock                    time
//   hccc_wait_once                one turn of a wait, and the state that it leaves (wait_state.h)
//   hccc_rearm                    restarts the deadline of a wait
//   hccc_bits_of, hccc_float_of   a float's bits and back
//   hccc_half_up, hccc_half_down  float16 (its bits) to float, and back to nearest even; a NaN
//                                 becomes 0x7fff
//
// Memory model: the threads of a block store data, meet at a barrier, and one of them stores a
// counter with release. A reader polls it, acquires what it announces, its block meets, and all its
// threads load the data.
#pragma once

#ifndef HCCC_SYSTEM_SCOPE
#define HCCC_SYSTEM_SCOPE 1  // 0: all ranks are on one device, cheaper fences suffice
#endif

#if defined(__HIP__) || defined(__HIPCC__)
#include "port_hip.h"

#include "port_gpu.h"
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "port_cuda.h"

#include "port_gpu.h"
#else
#include "port_cpu.h"
#endif
