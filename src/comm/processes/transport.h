/* What the engine needs from the carrier of messages between processes, MPI or TCP. It is also the border
 * between the library, which knows no MPI, and the modules weir-mpi-<flavour>.so, which implement this
 * interface, each compiled with the mpi.h of one MPI.
 *
 * A *link* is a transport that has started; a process may have several. All calls for one link are made by
 * one thread at a time. Requests are known by the caller's token, and no call waits for another rank but
 * start() and end(). */
#ifndef WEIR_COMM_PROCESSES_TRANSPORT_H
#define WEIR_COMM_PROCESSES_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pollfd;

enum { MPI_FROM_ANYBODY = -1 };

/* Messages of different lanes never meet. */
typedef enum mpi_lane { MPI_LANE_CONTROL, MPI_LANE_DATA, MPI_LANE_COUNT } mpi_lane;

typedef struct mpi_place {
  uint32_t rank, size;
  uint32_t local; /* among the ranks of this machine */
  int32_t max_tag;
} mpi_place;

typedef struct mpi_transport {
  size_t size_bytes; /* of this structure; counts as its version */
  /* MPI: `given` is an MPI_Comm * whose ranks take part, or NULL for MPI_COMM_WORLD; sets MPI's defaults and
   * initialises MPI. TCP: `given` is a tcp_link, which becomes the transport's. Waits until all ranks have
   * come. */
  bool (*start)(const void *given, bool crowded, mpi_place *place, void **link);
  /* Begin a message of at most 2 GiB; the data must stay until poll() returns the token. */
  bool (*send)(void *link, mpi_lane lane, uint32_t to, int32_t tag, const void *data,
               size_t size_bytes, void *token);
  bool (*receive)(void *link, mpi_lane lane, int32_t from, int32_t tag, void *data,
                  size_t size_bytes, void *token);
  /* The tokens of requests that ended, valid until the next call; false: MPI reports an error. */
  bool (*poll)(void *link, void *const **tokens, uint32_t *count);
  /* Optional: what to sleep on until poll() may have something to do; at most two per rank. */
  uint32_t (*watch)(void *link, struct pollfd *sockets);
  /* Optional: whether the connection to this rank has ended. Requests of that rank do not end any more; sends
   * to it do. */
  bool (*is_lost)(void *link, uint32_t rank);
  /* All ranks have heard from each other. What they needed to find each other is removed, so that nothing
   * is left over if one is killed. */
  void (*met)(void *link);
  /* The link is gone afterwards. With ends_together all ranks have said goodbye before, and end() waits for
   * them. has_failed: messages may be under way that are never received. is_exit: the process ends. */
  void (*end)(void *link, bool has_failed, bool is_exit);
  bool ends_together;
  /* The message of the calling thread's last call that returned false. */
  const char *(*error)(void);
} mpi_transport;

/* The one symbol of a module, of type `const mpi_transport`. */
#define MPI_TRANSPORT_SYMBOL "weir_mpi_transport"

#endif
