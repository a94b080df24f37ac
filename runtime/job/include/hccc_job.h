/* hccc_job.h: a job at one rank: calls of a vendor's library, and copies over the border. Plain C.
 *
 * A rank has lanes. In lane 0 the calls of its vendor's library follow each other, with local copies;
 * each other lane carries what goes to one rank of another vendor cluster, or comes from it, and
 * reduces what has come. A lane does its tasks in order; a task also waits for tasks of other lanes.
 * A schedule has all tasks of a call; `runtime/job/schedule.py` makes it of a Job.
 *
 * Memory. A rank's buffers are in memory of its communicator's kind: the host's, or a device's. Borders
 * carry memory of the host, through which a device's goes in pieces; reductions at a border are the host's.
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
  HCCC_JOB_COPY = 9
} hccc_job_kind;

/* ARRIVED: memory of the host for what comes over a border to be reduced; all else is the rank's own kind. */
enum { HCCC_JOB_INPUT = 0, HCCC_JOB_OUTPUT = 1, HCCC_JOB_SCRATCH = 2, HCCC_JOB_ARRIVED = 3, HCCC_JOB_NOWHERE = 4 };

/* A place is a buffer and an element of it. count: elements, of a block in REDUCE_SCATTER and ALL_GATHER.
 * peer: a rank of the vendor's communicator, of a hop the communicator's. within: whether
 * a hop stays within the vendor cluster. group: sends and receives of
 * the library that follow each other with one number go on together. */
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

typedef struct hccc_job hccc_job;

/* What a rank gives to make a job. table: of its library, null: that of `vendor`; members: the ranks of its vendor cluster, in the order of the
 * library's; digest: of the Job, the same at all ranks; calls: bits of HCCC_VENDOR_ALL_REDUCE and so on,
 * of those that the job makes; steps: the text of each, for errors. beside: a job over the same vendor clusters, whose
 * communicators it shares, so that no two calls of the two are made at once; null: it gets its own. */
#define HCCC_JOB_DIGEST_BYTES 16
typedef struct hccc_job_given {
  const hccc_vendor *table;
  const char *vendor, *library; /* as of hccc_vendor_load */
  const char *failed;           /* why this rank cannot; "": it can */
  const int32_t *members;
  int32_t n_members;
  uint32_t calls;
  const unsigned char *digest;
  const char *const *steps;
  int64_t n_steps;
  const hccc_job *beside;
} hccc_job_given;

/* Makes a job of all ranks of a communicator, which goes on beside it: the job has communicators of
 * its own. Every rank gets the error where one fails: loads another Job, or cannot load its library.
 * hcccGetLastError(NULL) has the text. */
hcccResult_t hccc_job_make(hccc_job **made, hcccComm_t comm, const hccc_job_given *given);

/* Makes a call; returns when this rank's part is done. stream: of the device of the rank's memory, whose
 * work is done first; null: its default stream; of the host's memory null. All ranks make it, by schedules of one Job for
 * one count. Where a task fails, is not done after `timeout` seconds (0: no limit), or a rank is gone,
 * every rank gets the error, with the step that this rank was in, and the job is lost. */
hcccResult_t hccc_job_run(hccc_job *job, const hccc_job_schedule *schedule, const void *send, void *receive,
                          hcccDataType_t type, hcccRedOp_t op, double timeout, void *stream);

/* Returns the text of a job's last error; never null. */
const char *hccc_job_error(const hccc_job *job);
/* Gathers bytes_each bytes of each rank, rank r's at data + r * bytes_each, where its own are. All ranks
 * make it, between calls. */
hcccResult_t hccc_job_gather(hccc_job *job, void *data, size_t bytes_each);
/* Returns the bytes that this rank has sent over borders. */
unsigned long long hccc_job_sent(const hccc_job *job);
/* Ends a job that no thread uses. */
void hccc_job_end(hccc_job *job);

#ifdef __cplusplus
}
#endif
#endif
