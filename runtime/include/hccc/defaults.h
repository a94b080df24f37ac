// defaults.h: the constants that a generated collective need not define.
#pragma once

#ifndef HCCC_INLINE  // 1: primitives are inlined into the program
#define HCCC_INLINE 0
#endif
#ifndef HCCC_TOUCHES_PEERS  // 0: no rank's user buffer is touched by another or by a proxy
#define HCCC_TOUCHES_PEERS 1
#endif
#ifndef HCCC_INPUT_BLOCKS  // blocks of `count` elements in a rank's buffers
#define HCCC_INPUT_BLOCKS(rank) 1
#define HCCC_OUTPUT_BLOCKS(rank) 1
#endif
#ifndef HCCC_UNEVEN  // blocks with lengths of their own; 0: all have `count` elements
#define HCCC_UNEVEN 0
#endif
#ifndef HCCC_PACKETS  // packet slots of a rank, and packets in each; 0: data is followed by counters
#define HCCC_PACKETS 0
#define HCCC_LINES 0
#endif
#ifndef HCCC_GREETS  // 1: ranks send each other an empty packet in every launch
#define HCCC_GREETS 0
#endif
#ifndef HCCC_MULTICAST  // 1, 2: a switch may do what is of all ranks; 2: it may add floats, too
#define HCCC_MULTICAST 0
#endif
#ifndef HCCC_NETWORK  // 1: ranks that cannot be addressed may be reached
#define HCCC_NETWORK 0
#endif
