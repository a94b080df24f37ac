/* hccc_job.h: a job at one rank: calls of a vendor's library, and copies over the border. Plain C.
 *
 * hcccCommLoad of hccc_runtime.h loads a job for most; these functions say more of how.
 *
 * A rank has lanes. In lane 0 the calls of its vendor's library follow each other, with local copies;
 * each other lane carries what goes to one rank of another vendor cluster, or comes from it, and
 * reduces what has come. A lane does its tasks in order; a task also waits for tasks of other lanes.
 * A schedule has all tasks of a call.
 *
 * Memory. A rank's buffers are in memory of its communicator's kind: the host's, or a device's. Borders
 * carry memory of the host, through which a device's goes in pieces. What comes there to be reduced hccc reduces, by a kernel
 * where memory is a device's; where it has none, the vendor's library, as a Reduce of two ranks of the vendor cluster; where that
 * cannot, the host.
 */
#ifndef HCCC_JOB_H
#define HCCC_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "hccc_runtime.h"
#include "hccc_vendor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  HCCC_JOB_REDUCE = 0, /* of the vendor's library, to peer; where this is another rank, nothing is written */
  HCCC_JOB_BROADCAST = 1,
  HCCC_JOB_REDUCE_SCATTER = 2,
  HCCC_JOB_ALL_GATHER = 3,
  HCCC_JOB_SEND = 4,
  HCCC_JOB_RECEIVE = 5,
  HCCC_JOB_HOP_SEND = 6, /* over the border, or a message within the vendor cluster */
  HCCC_JOB_HOP_RECEIVE = 7,
  HCCC_JOB_ADD = 8, /* reduces two places to a third */
  HCCC_JOB_COPY = 9,
  HCCC_JOB_REDUCE_PAIR = 10 /* of the vendor's library, of peer and the rank `within`, to peer */
} hccc_job_kind;

/* ARRIVED: what comes over a border to be reduced, in memory of the host where the host reduces; all else is the rank's
 * own kind. */
enum { HCCC_JOB_INPUT = 0, HCCC_JOB_OUTPUT = 1, HCCC_JOB_SCRATCH = 2, HCCC_JOB_ARRIVED = 3, HCCC_JOB_NOWHERE = 4 };

/* A place is a buffer and an element of it. count: elements, of a block in REDUCE_SCATTER and ALL_GATHER.
 * peer: a rank of the vendor's communicator, of a hop the communicator's. within: whether
 * a hop stays within the vendor cluster; of a REDUCE_PAIR the other rank of the vendor's communicator, to which what came
 * over the border is. group: sends and receives of the library that follow each other with one number go on together. */
typedef struct hccc_job_task {
  int32_t kind, step, peer, group;
  int32_t from, with, to, within;
  int64_t from_at, with_at, to_at, count;
  int64_t first_wait, n_waits;
} hccc_job_task;

/* A wait for a lane's first `tasks` tasks. */
typedef struct hccc_job_wait {
  int32_t lane, tasks;
} hccc_job_wait;

/* tasks: lane l has those from lane_begin[l] to lane_begin[l + 1]. scratch, arrived: elements; output:
 * elements of the receive buffer, which an average divides by `ranks`. */
typedef struct hccc_job_schedule {
  const hccc_job_task *tasks;
  const int64_t *lane_begin;
  const hccc_job_wait *waits;
  int64_t n_lanes, scratch, arrived, output, ranks;
} hccc_job_schedule;

/* What a schedule is of: a job's table (`hccc compile JOB -o FILE`), a rank, and a call. count: elements of a
 * block, of the longest; blocks: of an uneven job, as of hccc_call; null: all have `count` elements; ordered: whether all tasks are in one lane, one after another; messages: whether what ranks of
 * a vendor cluster send to each other goes as over a border, as their library has no sends; by_library: of each vendor
 * cluster, whether its library reduces what comes over a border; null: none. */
typedef struct hccc_job_shape {
  const char *table;
  size_t bytes;
  int64_t count;
  int32_t rank, batches, in_place, ordered, messages;
  const unsigned char *by_library;
  const long long *blocks;
} hccc_job_shape;

/* Makes the schedule of a call, as calls do, and frees one. hcccGetLastError(NULL) has the text of an error. */
hcccResult_t hccc_job_schedule_make(hccc_job_schedule **made, const hccc_job_shape *of);
void hccc_job_schedule_free(hccc_job_schedule *schedule);

typedef struct hccc_job hccc_job;

/* What a rank gives to make a job. table: the job's (`hccc compile JOB -o FILE`), `bytes` long. vendor,
 * library: as of hccc_vendor_load, of this rank's library; null: HCCC_VENDOR, else "own"; functions: of that
 * library, instead of both. failed: why this rank cannot; "" or null: it can. beside: a job over the same vendor
 * clusters, whose communicators it shares, so that no two calls of the two are made at once; null: it gets its
 * own. ordered: whether all tasks are in one lane. by_library: whether the library of this rank's vendor cluster, if that
 * has several ranks, reduces at its border also where hccc can. clock: seconds, by which calls are timed; null: the machine's. */
typedef struct hccc_job_given {
  const char *table;
  size_t bytes;
  const char *vendor, *library;
  const hccc_vendor *functions;
  const char *failed;
  const hccc_job *beside;
  int ordered, by_library;
  double (*clock)(void);
} hccc_job_given;

/* Makes a job of all ranks of a communicator, which goes on beside it: the job has communicators of
 * its own. Every rank gets the error where one fails: loads another table, or cannot load its library.
 * hcccGetLastError(NULL) has the text. No group is open. */
hcccResult_t hccc_job_make(hccc_job **made, hcccComm_t comm, const hccc_job_given *given);

/* Has calls of a communicator that the job does be made by it, before others; the communicator ends it. */
hcccResult_t hccc_job_use(hcccComm_t comm, hccc_job *job);

/* Makes a call of the job's collective; returns when this rank's part is done. count: elements of a block. stream:
 * whose work is done first; null: the default stream of the device of the rank's memory. All ranks make it.
 * Where a task fails, is not done after `timeout` seconds (0: no limit), or a rank is gone,
 * every rank gets the error, with the step that this rank was in, and the job is lost. */
hcccResult_t hccc_job_run(hccc_job *job, const void *send, void *receive, size_t count, hcccDataType_t type,
                          hcccRedOp_t op, double timeout, void *stream);

/* Return into how many micro-batches a call of blocks of so many elements of `size` bytes is cut, 0: that is not found
 * yet; and how many calls are needed until it is. */
int hccc_job_batches(const hccc_job *job, size_t count, size_t size);
int hccc_job_trials_left(const hccc_job *job, size_t count, size_t size);

/* Returns the text of a job's last error; never null. */
const char *hccc_job_error(const hccc_job *job);
/* Returns the bytes that this rank has sent over borders. */
unsigned long long hccc_job_sent(const hccc_job *job);
/* Ends a job that no thread uses, and that is no communicator's. */
void hccc_job_end(hccc_job *job);

#ifdef __cplusplus
}
#endif
#endif
