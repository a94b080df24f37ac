// recorder.h: the memory for the record of a text, and the sandbox that the text runs in.
//
// A text is compiled for the host against the headers of this folder, whose functions record their
// arguments. The records lie in a file that compiler/validate/recording.py makes and maps:
// hccc_shared, then the rows of every table. It is all that the process can write to.
// HCCC_RUN_BYTES and the other limits are those of compiler/base/limits.py.
#pragma once

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/seccomp.h>
#include <sys/prctl.h>
#endif

// Names and order are those of compiler/validate/tables.py.
enum hccc_table_name {
  HCCC_PRIMITIVES,
  HCCC_WAITS,
  HCCC_SOURCES,
  HCCC_DESTINATIONS,
  HCCC_PUTS,
  HCCC_PUT_SOURCES,
  HCCC_POSTS,
  HCCC_NEIGHBOURS,
  HCCC_CONSTANTS,
  HCCC_BUFFERS,
  HCCC_DOMAINS,
  HCCC_SHAPE,
  HCCC_USER_BLOCKS,
  HCCC_CALLS,
  HCCC_NAMES,
  HCCC_LIBRARY,
  HCCC_REDUCTION_TEXTS,
  HCCC_TABLES
};
constexpr int hccc_of_blocks = HCCC_POSTS + 1;  // the first tables: what thread blocks do

enum hccc_outcome {
  HCCC_STARTED = 1,
  HCCC_DONE,
  HCCC_MORE,     // a table is full: the plan has no more rows
  HCCC_VARIES,   // another channel or window did something else than the first
  HCCC_OUTSIDE,  // a primitive outside the loop over windows
  HCCC_LOOPS,    // a second loop over windows
  HCCC_LEFT      // the loop over windows was left before its end
};

struct hccc_table {
  long long at, width, capacity, count;  // at: in ints from the beginning of the file
};

struct hccc_shared {
  long long outcome, rank, tb, channel, full;
  long long ranks, blocks, channels, channel_step, calls;
  long long seconds, sandboxed;
  hccc_table table[HCCC_TABLES];
};

static hccc_shared* hccc_record;

[[noreturn]] static inline void hccc_stop(long long outcome) {
  hccc_record->outcome = outcome;
  for (;;) syscall(SYS_exit, 0);  // exit_group is refused below
}

template <class Resource>
static void hccc_limit(Resource resource, unsigned long long most) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = most;
  setrlimit(resource, &limit);
}

// Maps the records, then gives up the right to open, write or start anything. Linux refuses every
// system call but read, write and exit from then on.
static void hccc_confine(int argc, char** argv, char**) {
  if (hccc_record || argc != 2) return;
  const int file = open(argv[1], O_RDWR);
  struct stat about{};
  if (file < 0 || fstat(file, &about)) _exit(3);
  void* mapped = mmap(nullptr, static_cast<unsigned long>(about.st_size), PROT_READ | PROT_WRITE,
                      MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) _exit(3);
  close(file);
  hccc_record = static_cast<hccc_shared*>(mapped);
  hccc_limit(RLIMIT_CORE, 0);
  hccc_limit(RLIMIT_CPU, static_cast<unsigned long long>(hccc_record->seconds));
  hccc_limit(RLIMIT_FSIZE, 0);
  hccc_limit(RLIMIT_NOFILE, 0);
  hccc_limit(RLIMIT_DATA, HCCC_RUN_BYTES);
#ifdef __linux__
  hccc_record->sandboxed = !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
                           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
#endif
  hccc_record->outcome = HCCC_STARTED;
}

// Before any constructor of the text: its entry is the first of its section.
#ifdef __linux__
__attribute__((section(".preinit_array"), used)) static void (*hccc_first)(int, char**,
                                                                            char**) = hccc_confine;
#endif

// Rows of one run of a thread block are appended; those of its other runs must repeat them.
static bool hccc_repeats;
static long long hccc_begin[hccc_of_blocks], hccc_next[hccc_of_blocks];

template <class... Values>
static void hccc_put_row(int name, Values... values) {
  hccc_table& table = hccc_record->table[name];
  const int row[] = {static_cast<int>(values)...};
  const bool repeats = hccc_repeats && name < hccc_of_blocks;
  const long long place = repeats ? hccc_next[name]++ : table.count;
  if (repeats && place >= table.count) hccc_stop(HCCC_VARIES);
  if (place >= table.capacity) {
    hccc_record->full = name;
    hccc_stop(HCCC_MORE);
  }
  int* cells = reinterpret_cast<int*>(hccc_record) + table.at + place * table.width;
  for (int i = 0; i < static_cast<int>(sizeof...(Values)); ++i) {
    if (repeats && cells[i] != row[i]) hccc_stop(HCCC_VARIES);
    cells[i] = row[i];
  }
  if (!repeats) ++table.count;
}
