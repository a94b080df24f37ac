/* hccc_bootstrap.h: the rendezvous of the ranks of a job, and messages between them. Plain C.
 *
 * docs/rendezvous.md is its page: protocol, security, environments. Every call that waits has a
 * deadline, `timeout_s`: seconds, 0 for none, and below 0 for that of HCCC_TIMEOUT (60 s where it
 * is unset). Every call may be made by any thread; collective ones are made by all ranks, in the
 * same order. No call raises a signal. After a fork the child has no part in what its parent
 * opened.
 */
#ifndef HCCC_BOOTSTRAP_H
#define HCCC_BOOTSTRAP_H

#include <poll.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HCCC_BOOTSTRAP_API __attribute__((visibility("default")))
#define HCCC_BOOTSTRAP_MAX_RANKS 65536
#define HCCC_BOOTSTRAP_MAX_BYTES (16u << 20) /* what one rank may give to one collective call */
#define HCCC_BOOTSTRAP_MAX_MESSAGE 256
#define HCCC_BOOTSTRAP_MAX_SHARED 64 /* descriptors that one rank may share in one call */

enum {
  HCCC_BOOTSTRAP_OK = 0,
  HCCC_BOOTSTRAP_TIMEOUT = 1,      /* the deadline passed */
  HCCC_BOOTSTRAP_LOST = 2,         /* a peer has gone */
  HCCC_BOOTSTRAP_REFUSED = 3,      /* another secret or version, a rank that is taken, or calls that
                                      do not agree */
  HCCC_BOOTSTRAP_BAD_ARGUMENT = 4, /* an argument or a variable of the environment is wrong */
  HCCC_BOOTSTRAP_SYSTEM = 5        /* the operating system refused something */
};

/* The meeting place of a job: address, port, 32 bytes of secret, version. Give it to the ranks of
 * the job only: it is a secret. */
typedef struct hccc_unique_id {
  char internal[128];
} hccc_unique_id;

typedef struct hccc_bootstrap hccc_bootstrap;

typedef struct hccc_bootstrap_error {
  int code; /* as the call returned it */
  int rank; /* the rank that caused it, or the first of several; -1: none */
  char message[256];
} hccc_bootstrap_error; /* wherever a call takes one, null is allowed */

/* Makes a new job: starts its root in a thread of this process, which ends when all ranks have met,
 * when one of them ends before that, or when, after the first, none comes for HCCC_TIMEOUT (600 s).
 * It listens on a loopback address, or, where the launcher's variables say that there are several
 * hosts, at the one by which this host reaches that of HCCC_ROOT or MASTER_ADDR, else at the first
 * interface's; HCCC_BIND (an address) and HCCC_SOCKET_IFNAME (interfaces, as NCCL's variable names
 * them) go before. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_unique_id(hccc_unique_id *id, hccc_bootstrap_error *error);

/* Does the same for a job of some ranks of another, this one among them. Where they are on several
 * hosts it listens at the address by which this rank is reached there. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_unique_id_among(
    hccc_bootstrap *b, const int *ranks, int n_ranks, hccc_unique_id *id,
    hccc_bootstrap_error *error);

/* Reads the rank of this process from its launcher's variables: HCCC_RANK and HCCC_NRANKS,
 * torchrun, Open MPI, PMI, Slurm, whichever is first. local_rank: -1 where it is not set; address:
 * of the root, "host:port", or "" where all ranks are on this host. The error's message names the
 * variables that were read, or that are missing. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_environment(
    int *rank, int *n_ranks, int *local_rank, char *address, size_t address_bytes,
    hccc_bootstrap_error *error);

/* Returns the job that the environment names, the same at every rank without communication; rank 0
 * starts its root. Every rank of the job calls it equally often. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_id_from_environment(
    hccc_unique_id *id, int rank, hccc_bootstrap_error *error);

/* Meets the other ranks; collective. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_open(
    hccc_bootstrap **made, const hccc_unique_id *id, int n_ranks, int rank, double timeout_s,
    hccc_bootstrap_error *error);

/* Gathers `bytes_each` bytes of every rank, in order of ranks; the rank's own bytes are at rank *
 * bytes_each before the call. At the deadline the error names the ranks that have not called. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_allgather(
    hccc_bootstrap *b, void *data, size_t bytes_each, double timeout_s,
    hccc_bootstrap_error *error);

/* Gathers as many bytes as each rank has. all: from malloc, to be freed by
 * the caller, the ranks' bytes one after the other; sizes: n_ranks of them. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_allgatherv(
    hccc_bootstrap *b, const void *own, size_t bytes, void **all, size_t *sizes, double timeout_s,
    hccc_bootstrap_error *error);

/* Returns when all ranks have called it. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_barrier(
    hccc_bootstrap *b, double timeout_s, hccc_bootstrap_error *error);

/* Returns the number of the host that a rank is on: 0, 1, ... in order of their lowest ranks; -1:
 * no such rank. Ranks are on one host where they can share memory: same boot, same name, same
 * namespaces of processes, IPC, network and users. HCCC_HOST_ID, where set, decides instead. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_host(hccc_bootstrap *b, int rank);

/* Returns the name of the interface by which this rank reaches the others, and is reached; "": it
 * is not known. It lasts as long as the bootstrap. */
HCCC_BOOTSTRAP_API const char *hccc_bootstrap_interface(hccc_bootstrap *b);

/* Returns the process that a rank is in, by its number on the rank's host; -1: no such rank. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_pid(hccc_bootstrap *b, int rank);

/* Shares descriptors with the ranks of the same host; collective over all ranks, with the same
 * n_own. An own descriptor may be -1: there is none. fds[rank * n_own + i] becomes the i-th of a
 * rank of this host (of this rank: a duplicate), to be closed by the caller, else -1; all are
 * close-on-exec. Nothing is left open where it fails. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_share(
    hccc_bootstrap *b, const int *own_fds, int n_own, int *fds, double timeout_s,
    hccc_bootstrap_error *error);

/* Returns a descriptor to poll, which the caller must not close. It is readable while
 * hccc_bootstrap_next_departure or hccc_bootstrap_next_message has something to return, and
 * sometimes when they have not. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_poll_fd(hccc_bootstrap *b);

/* Returns 1 for a rank that has gone, once for each; orderly: it called hccc_bootstrap_close. 0:
 * none. After rank 0 has gone, the departures and messages of others are not known. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_next_departure(hccc_bootstrap *b, int *rank, int *orderly);

/* Sends a message of at most HCCC_BOOTSTRAP_MAX_MESSAGE bytes to all other ranks. It may not reach
 * ranks that leave. */
HCCC_BOOTSTRAP_API void hccc_bootstrap_notify(hccc_bootstrap *b, const void *data, size_t bytes);

/* Returns 1 for a message of another rank; data has room for HCCC_BOOTSTRAP_MAX_MESSAGE bytes. 0:
 * none. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_next_message(
    hccc_bootstrap *b, int *rank, void *data, size_t *bytes);

/* Sets this rank's state, a number that others get with its signs of life. */
HCCC_BOOTSTRAP_API void hccc_bootstrap_set_state(hccc_bootstrap *b, unsigned long long state);

/* Asks rank 0 which ranks answer, and returns at once what it said last: for each rank (n_ranks of
 * both) its state, and the seconds for which it has left a question unanswered; of rank 0 those
 * for which it has said nothing itself. A rank answers by the thread that polls
 * hccc_bootstrap_poll_fd: a process that is stopped does not. 0: nothing is known, as rank 0 has
 * gone. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_signs(
    hccc_bootstrap *b, double *silent_s, unsigned long long *states);

/* Work for the thread of rank 0's hub, so that its process needs no second one. */
typedef struct hccc_bootstrap_guest {
  void *context;
  /* Returns n descriptors to poll, which stay until the turn, or until the guest goes. */
  const struct pollfd *(*files)(void *context, size_t *n);
  /* Called when one of them is ready, or the time has come: polled has what poll() says of them.
   * Returns the milliseconds until the next turn. It must not wait for other ranks. */
  int (*turn)(void *context, const struct pollfd *polled);
} hccc_bootstrap_guest;

/* Has the hub's thread do a guest's turns, the first at once; a null guest: nobody's, and none runs
 * any more when this returns. One guest at a time, which goes before the bootstrap is closed. 0: this
 * rank has no such thread. */
HCCC_BOOTSTRAP_API int hccc_bootstrap_attend(hccc_bootstrap *b, const hccc_bootstrap_guest *guest);

/* States why this rank will leave, in words for the others' errors. */
HCCC_BOOTSTRAP_API void hccc_bootstrap_give_up(hccc_bootstrap *b, const char *why);

/* Leaves the job and frees everything; never fails, takes 2 s at most. null is allowed. */
HCCC_BOOTSTRAP_API void hccc_bootstrap_close(hccc_bootstrap *b);

/* Computes HMAC-SHA-256 as the handshake does, for tests with published vectors. */
HCCC_BOOTSTRAP_API void hccc_bootstrap_hmac(
    const void *key, size_t key_bytes, const void *data, size_t data_bytes,
    unsigned char result[32]);

#ifdef __cplusplus
}
#endif
#endif
