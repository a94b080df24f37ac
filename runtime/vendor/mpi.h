// mpi.h: the parts of MPI 5.0's ABI that are called, by its standard's numbers: no library's header is
// needed, and every library with this ABI serves.
#pragma once

#include <stdint.h>

namespace hccc::vendor::mpi {

using Handle = void *;
using Count = int64_t;

struct Status {
  int source, tag, error, internal[5];
};

inline Handle handle(uintptr_t number) { return reinterpret_cast<Handle>(number); }

inline const Handle COMM_NULL = handle(0x100), COMM_WORLD = handle(0x101), ERRORS_RETURN = handle(0x143),
                    REQUEST_NULL = handle(0x180);
inline void *const IN_PLACE = handle(1);
constexpr int SUCCESS = 0, UNDEFINED = -32766, THREAD_MULTIPLE = 4096, MOST_ERROR_TEXT = 512,
              MOST_VERSION_TEXT = 8192;

enum Type : uintptr_t {
  NONE = 0, FLOAT = 0x210, C_FLOAT_COMPLEX = 0x212, DOUBLE = 0x214, C_DOUBLE_COMPLEX = 0x216, C_BOOL = 0x238,
  INT8 = 0x240, UINT8 = 0x241, BYTE = 0x247, INT16 = 0x248, UINT16 = 0x249, INT32 = 0x250, UINT32 = 0x251,
  INT64 = 0x258, UINT64 = 0x259
};
enum Op : uintptr_t {
  NO_OP = 0, SUM = 0x21, MIN = 0x22, MAX = 0x23, PROD = 0x24, BAND = 0x28, BOR = 0x29, BXOR = 0x2a, LAND = 0x30,
  LOR = 0x31
};

// name, parameters
#define HCCC_MPI_FUNCTIONS(F)                                                                                       \
  F(Abi_get_version, (int *, int *))                                                                                \
  F(Get_library_version, (char *, int *))                                                                           \
  F(Initialized, (int *))                                                                                           \
  F(Init_thread, (int *, char ***, int, int *))                                                                     \
  F(Error_string, (int, char *, int *))                                                                             \
  F(Comm_set_errhandler, (Handle, Handle))                                                                          \
  F(Comm_size, (Handle, int *))                                                                                     \
  F(Comm_rank, (Handle, int *))                                                                                     \
  F(Comm_group, (Handle, Handle *))                                                                                 \
  F(Group_incl, (Handle, int, const int *, Handle *))                                                               \
  F(Group_free, (Handle *))                                                                                         \
  F(Comm_create_group, (Handle, Handle, int, Handle *))                                                             \
  F(Comm_split, (Handle, int, int, Handle *))                                                                       \
  F(Comm_free, (Handle *))                                                                                          \
  F(Test, (Handle *, int *, Status *))                                                                              \
  F(Testall, (int, Handle *, int *, Status *))                                                                      \
  F(Get_count_c, (const Status *, Handle, Count *))                                                                 \
  F(Isend_c, (const void *, Count, Handle, int, int, Handle, Handle *))                                             \
  F(Irecv_c, (void *, Count, Handle, int, int, Handle, Handle *))                                                   \
  F(Iallreduce_c, (const void *, void *, Count, Handle, Handle, Handle, Handle *))                                  \
  F(Ireduce_c, (const void *, void *, Count, Handle, Handle, int, Handle, Handle *))                                \
  F(Ireduce_scatter_block_c, (const void *, void *, Count, Handle, Handle, Handle, Handle *))                       \
  F(Ibcast_c, (void *, Count, Handle, int, Handle, Handle *))                                                       \
  F(Iallgather_c, (const void *, Count, Handle, void *, Count, Handle, Handle, Handle *))                           \
  F(Ialltoall_c, (const void *, Count, Handle, void *, Count, Handle, Handle, Handle *))                            \
  F(Igather_c, (const void *, Count, Handle, void *, Count, Handle, int, Handle, Handle *))                         \
  F(Iscatter_c, (const void *, Count, Handle, void *, Count, Handle, int, Handle, Handle *))

struct Functions {
#define HCCC_MPI_MEMBER(name, parameters) int(*name) parameters = nullptr;
  HCCC_MPI_FUNCTIONS(HCCC_MPI_MEMBER)
#undef HCCC_MPI_MEMBER
};

}  // namespace hccc::vendor::mpi
