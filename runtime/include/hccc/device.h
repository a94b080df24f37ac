// device.h: the device functions that a generated collective is written in. The collective defines
// the HCCC_* constants of its shape (RANKS, SUB, CHANNELS, BLOCKS, THREADS, FLAGS, SCRATCH, STAGE,
// QUEUES, SENDS, SLOTS), includes this, and defines
//
//     HCCC_FN void hccc_program(hccc_block& b);             of thread block b.tb of rank b.rank
//     HCCC_FN int hccc_neighbour_count(int rank);           the ranks whose memory this rank
//     HCCC_FN int hccc_neighbour(int rank, int i);          touches, or that touch its memory
//     HCCC_FN int hccc_memory_domain(int rank);             with HCCC_NETWORK: ranks of one number
//                                                           address each other's memory
//
// and writes HCCC_KERNEL last. A program is HCCC_WINDOWS(b) { hccc_prim<…>(…); … }.
#pragma once

#include "execute.h"
#include "launch.h"
