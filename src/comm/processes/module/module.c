/* The module: the transport in terms of MPI. Compiled once for every MPI that the build finds; where
 * there is none, tools that look at all sources find it empty. */
#if __has_include(<mpi.h>)
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/processes/transport.h"

extern const mpi_transport weir_mpi_transport;

static _Thread_local char message[MPI_MAX_ERROR_STRING + 64];

/* Requests that have not ended, and the tokens of those that have, for poll(). */
typedef struct active_requests {
  MPI_Request *requests;
  void **tokens, **ended;
  bool *receives;
  int *indexes;
  MPI_Status *statuses;
  int count, room;
} active_requests;

typedef struct link {
  MPI_Comm lanes[MPI_LANE_COUNT];
  bool is_ours;     /* else the program that embeds Weir has initialised MPI, and ends it */
  bool is_launched; /* all of MPI_COMM_WORLD, not a communicator of the program's */
  active_requests active;
} link;

static bool failed(const char *what, int code) {
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length;
  (void)MPI_Error_string(code, text, &length);
  (void)snprintf(message, sizeof message, "%s: %s", what, text);
  return false;
}

static bool refused(const char *what) {
  (void)snprintf(message, sizeof message, "%s", what);
  return false;
}

static const char *error_text(void) { return message; }

/* ---- starting ---- */
/* Sets defaults in the environment; values that are there stay. OpenMPI: without PUT, TCP sends both ways
 * at once and makes progress while the program computes; with more ranks than cores, an idle rank yields
 * its core. */
static void set_defaults(bool crowded) {
#ifdef OPEN_MPI
  (void)setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
  (void)setenv("OMPI_MCA_btl_tcp_progress_thread", "1", 0);
  if (crowded) (void)setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
#else
  (void)crowded;
#endif
}

static bool initialise(link *l) {
  int before = 0, provided = MPI_THREAD_SINGLE;
  (void)MPI_Initialized(&before);
  l->is_ours = !before;
  int code = before ? MPI_Query_thread(&provided)
                    : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  if (code != MPI_SUCCESS) return failed("MPI_Init_thread", code);
  if (before && provided < MPI_THREAD_MULTIPLE)
    return refused("MPI was initialised by the program without MPI_THREAD_MULTIPLE");
  if (provided < MPI_THREAD_SERIALIZED) return refused("this MPI cannot be used from threads");
  return true;
}

/* The rank among those that share memory. */
static uint32_t local_rank(MPI_Comm all, int rank) {
  MPI_Comm here;
  int local = rank;
  if (MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here) != MPI_SUCCESS)
    return (uint32_t)rank;
  (void)MPI_Comm_rank(here, &local);
  (void)MPI_Comm_free(&here);
  return (uint32_t)local;
}

static bool join(link *l, MPI_Comm all, mpi_place *place) {
  for (int i = 0; i < MPI_LANE_COUNT; i++) {
    int code = MPI_Comm_dup(all, &l->lanes[i]);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(l->lanes[i], MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) return failed("MPI_Comm_dup", code);
  }
  int rank, size, *max_tag, found = 0;
  (void)MPI_Comm_rank(all, &rank);
  (void)MPI_Comm_size(all, &size);
  (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &max_tag, &found);
  *place = (mpi_place){.rank = (uint32_t)rank, .size = (uint32_t)size};
  place->local = local_rank(l->lanes[0], rank);
  place->max_tag = found ? *max_tag : 32767;
  return true;
}

static bool start(const void *given, bool crowded, mpi_place *place, void **result) {
  const MPI_Comm *all = given;
  int before = 0, inter = 0;
  (void)MPI_Initialized(&before);
  if (all && !before) return refused("the program has a communicator, but has not called MPI_Init");
  if (all && *all == MPI_COMM_NULL) return refused("the communicator is MPI_COMM_NULL");
  if (all && (MPI_Comm_test_inter(*all, &inter) != MPI_SUCCESS || inter))
    return refused("the communicator connects two groups; one of a single group is needed");
  link *l = calloc(1, sizeof *l);
  if (!l) return refused("out of memory");
  l->is_launched = !all;
  set_defaults(crowded);
  if (initialise(l) && join(l, all ? *all : MPI_COMM_WORLD, place)) {
    *result = l;
    return true;
  }
  free(l);
  return false;
}

/* ---- shared memory ---- */
/* OpenMPI keeps the file of a rank's shared memory until the end, and nothing removes it if mpirun
 * is killed. Its name is not needed once all ranks have mapped it; but it must be there again for
 * MPI_Finalize, which complains otherwise. */
static char segment[512];

#ifdef OPEN_MPI
static void find_segment(void) {
  const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  char line[512], end[32], *name;
  FILE *maps = fopen("/proc/self/maps", "r");
  (void)snprintf(end, sizeof end, ".%s\n", local ? local : "");
  while (maps && local && fgets(line, sizeof line, maps)) {
    size_t length = strlen(line), tail = strlen(end);
    name = strstr(line, "/dev/shm/vader_segment.");
    if (!name || length < tail || strcmp(line + length - tail, end) != 0) continue;
    line[length - 1] = 0;
    (void)snprintf(segment, sizeof segment, "%s", name);
  }
  if (maps) (void)fclose(maps);
}
#else
static void find_segment(void) {}
#endif

static void remove_segment(void *self) {
  if (!((link *)self)->is_launched) return;
  find_segment();
  if (segment[0] && remove(segment) != 0) segment[0] = 0;
}

static void restore_segment(void) {
  FILE *file = segment[0] ? fopen(segment, "w") : NULL;
  if (file) (void)fclose(file);
}

/* ---- requests ---- */
static bool grow(link *l) {
  int room = l->active.room ? 2 * l->active.room : 256;
  MPI_Request *requests = realloc(l->active.requests, (size_t)room * sizeof *requests);
  if (requests) l->active.requests = requests;
  void **tokens = realloc(l->active.tokens, (size_t)room * sizeof *tokens);
  if (tokens) l->active.tokens = tokens;
  void **ended = realloc(l->active.ended, (size_t)room * sizeof *ended);
  if (ended) l->active.ended = ended;
  int *indexes = realloc(l->active.indexes, (size_t)room * sizeof *indexes);
  if (indexes) l->active.indexes = indexes;
  bool *receives = realloc(l->active.receives, (size_t)room * sizeof *receives);
  if (receives) l->active.receives = receives;
  MPI_Status *statuses = realloc(l->active.statuses, (size_t)room * sizeof *statuses);
  if (statuses) l->active.statuses = statuses;
  if (!requests || !tokens || !ended || !indexes || !receives || !statuses)
    return refused("out of memory");
  l->active.room = room;
  return true;
}

static bool add(link *l, const char *what, int code, bool receives, void *token) {
  if (code != MPI_SUCCESS) return failed(what, code);
  l->active.receives[l->active.count] = receives;
  l->active.tokens[l->active.count++] = token;
  return true;
}

static bool begin_send(void *self, mpi_lane lane, uint32_t to, int32_t tag, const void *data,
                       size_t size_bytes, void *token) {
  link *l = self;
  if (l->active.count == l->active.room && !grow(l)) return false;
  int code = MPI_Isend(data, (int)size_bytes, MPI_BYTE, (int)to, tag, l->lanes[lane],
                       &l->active.requests[l->active.count]);
  return add(l, "MPI_Isend", code, false, token);
}

static bool begin_receive(void *self, mpi_lane lane, int32_t from, int32_t tag, void *data,
                          size_t size_bytes, void *token) {
  link *l = self;
  if (l->active.count == l->active.room && !grow(l)) return false;
  int source = from == MPI_FROM_ANYBODY ? MPI_ANY_SOURCE : from;
  int code = MPI_Irecv(data, (int)size_bytes, MPI_BYTE, source, tag, l->lanes[lane],
                       &l->active.requests[l->active.count]);
  return add(l, "MPI_Irecv", code, true, token);
}

/* Removes the requests that have ended: MPI has set them to MPI_REQUEST_NULL. */
static void close_gaps(link *l) {
  int kept = 0;
  for (int i = 0; i < l->active.count; i++) {
    if (l->active.requests[i] == MPI_REQUEST_NULL) continue;
    l->active.requests[kept] = l->active.requests[i];
    l->active.receives[kept] = l->active.receives[i];
    l->active.tokens[kept++] = l->active.tokens[i];
  }
  l->active.count = kept;
}

/* The error of the first request that has one. */
static int error_in(const link *l, int ended, int code) {
  for (int i = 0; i < ended && code == MPI_ERR_IN_STATUS; i++)
    if (l->active.statuses[i].MPI_ERROR != MPI_SUCCESS) code = l->active.statuses[i].MPI_ERROR;
  return code;
}

static bool poll_requests(void *self, void *const **tokens, uint32_t *count) {
  link *l = self;
  int ended = 0;
  int code = MPI_Testsome(l->active.count, l->active.requests, &ended, l->active.indexes,
                          l->active.statuses);
  if (code != MPI_SUCCESS) return failed("MPI_Testsome", error_in(l, ended, code));
  if (ended == MPI_UNDEFINED) ended = 0;
  for (int i = 0; i < ended; i++) l->active.ended[i] = l->active.tokens[l->active.indexes[i]];
  if (ended > 0) close_gaps(l);
  *tokens = l->active.ended;
  *count = (uint32_t)ended;
  return true;
}

/* ---- ending ---- */
/* Receives a message that nothing waits for, and drops it. There are such messages only after failures. */
static void take_message(link *l, mpi_lane lane) {
  MPI_Message found;
  MPI_Status about;
  int there = 0, size_bytes = 0;
  if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, l->lanes[lane], &there, &found, &about) || !there)
    return;
  (void)MPI_Get_count(&about, MPI_BYTE, &size_bytes);
  void *data = malloc(size_bytes > 0 ? (size_t)size_bytes : 1);
  if (data) (void)MPI_Mrecv(data, size_bytes, MPI_BYTE, &found, MPI_STATUS_IGNORE);
  free(data);
}

/* Cancels receives, and gives sends a little time to end. After a failure, messages may still arrive
 * that nothing receives. Leaves nothing that MPI could complain about, unless another rank is late. */
static void clear(link *l, bool has_failed) {
  double start_s = MPI_Wtime(), least_s = has_failed ? 0.1 : 0;
  void *const *tokens;
  uint32_t count;
  for (int i = 0; i < l->active.count; i++)
    if (l->active.receives[i]) (void)MPI_Cancel(&l->active.requests[i]);
  do {
    for (int lane = 0; lane < MPI_LANE_COUNT; lane++) take_message(l, (mpi_lane)lane);
    if (!poll_requests(l, &tokens, &count)) return;
  } while (MPI_Wtime() - start_s < (l->active.count > 0 ? 0.5 : least_s));
}

static void free_link(link *l) {
  for (int i = 0; i < MPI_LANE_COUNT; i++) (void)MPI_Comm_free(&l->lanes[i]);
  free(l->active.requests);
  free(l->active.tokens);
  free(l->active.ended);
  free(l->active.receives);
  free(l->active.indexes);
  free(l->active.statuses);
  free(l);
}

/* At exit the program may have finalized MPI already. */
static void end(void *self, bool has_failed, bool is_exit) {
  link *l = self;
  int is_over = 0;
  (void)MPI_Finalized(&is_over);
  if (is_over) return;
  clear(l, has_failed);
  if (l->is_launched) restore_segment();
  bool finalizes = l->is_ours && is_exit;
  if (!is_exit) free_link(l);
  if (finalizes) (void)MPI_Finalize();
}

const mpi_transport weir_mpi_transport = {
    .size_bytes = sizeof(mpi_transport),
    .start = start,
    .send = begin_send,
    .receive = begin_receive,
    .poll = poll_requests,
    .met = remove_segment,
    .end = end,
    .ends_together = true,
    .error = error_text,
};
#endif
