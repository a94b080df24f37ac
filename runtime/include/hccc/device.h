// device.h: what a generated collective is written in. It defines the HCCC_* constants of its
// shape (RANKS, SUB, CHANNELS, BLOCKS, THREADS, FLAGS, SCRATCH, STAGE, QUEUES, SENDS, SLOTS),
// includes this, and defines
//
//     HCCC_FN void hccc_program(hccc_block& b);             what thread block b.tb of b.rank does
//     HCCC_FN int hccc_neighbour_count(int rank);           the ranks whose memory this rank
//     HCCC_FN int hccc_neighbour(int rank, int i);          touches, or that touch its memory
//     HCCC_FN int hccc_memory_domain(int rank);             with HCCC_NETWORK: ranks of one number
//                                                           address each other's memory
//
// and writes HCCC_KERNEL last. A program is HCCC_WINDOWS(b) { hccc_prim<…>(…); … }.
#pragma once

#include "layout.h"
#include "port.h"
#include "types.h"

#ifndef HCCC_INLINE
#define HCCC_INLINE 0
#endif
#ifndef HCCC_TOUCHES_PEERS  // 0: no rank's user buffer is touched by another or by a proxy
#define HCCC_TOUCHES_PEERS 1
#endif
#ifndef HCCC_INPUT_BLOCKS  // blocks of `count` elements in a rank's buffers
#define HCCC_INPUT_BLOCKS(rank) 1
#define HCCC_OUTPUT_BLOCKS(rank) 1
#endif
#ifndef HCCC_NETWORK  // 1: ranks that cannot be addressed may be reached
#define HCCC_NETWORK 0
#endif

#include "block.h"
#include "door.h"
#include "patience.h"
#include "operand.h"
#include "span.h"
#include HCCC_BODY
#include "primitive.h"
#include "launch.h"
