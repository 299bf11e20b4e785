/* The module: the transport in terms of MPI. Compiled once for every MPI that the build finds; where
 * there is none, tools that look at all sources find it empty. */
#if __has_include(<mpi.h>)
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/transport.h"

extern const mpi_transport weir_mpi_transport;

static MPI_Comm lanes[MPI_LANE_COUNT];
static bool is_ours; /* else the program that embeds Weir has initialised MPI, and ends it */
static char message[MPI_MAX_ERROR_STRING + 64];

/* Requests that have not ended, and the tokens of those that have, for poll(). */
static struct {
  MPI_Request *requests;
  void **tokens, **ended;
  bool *receives;
  int *indexes;
  MPI_Status *statuses;
  int count, room;
} active;

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
/* What is set outside stays. OpenMPI: TCP without PUT sends both ways at once, and moves on while the
 * program computes; with more ranks than cores a rank that finds nothing to do gives its core away. */
static void set_defaults(bool crowded) {
#ifdef OPEN_MPI
  (void)setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
  (void)setenv("OMPI_MCA_btl_tcp_progress_thread", "1", 0);
  if (crowded) (void)setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
#else
  (void)crowded;
#endif
}

static bool initialise(void) {
  int before = 0, provided = MPI_THREAD_SINGLE;
  (void)MPI_Initialized(&before);
  is_ours = !before;
  int code = before ? MPI_Query_thread(&provided)
                    : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  if (code != MPI_SUCCESS) return failed("MPI_Init_thread", code);
  if (before && provided < MPI_THREAD_MULTIPLE)
    return refused("MPI was initialised by the program without MPI_THREAD_MULTIPLE");
  if (provided < MPI_THREAD_SERIALIZED) return refused("this MPI cannot be used from threads");
  return true;
}

static bool start(bool crowded, mpi_place *place) {
  set_defaults(crowded);
  if (!initialise()) return false;
  for (int i = 0; i < MPI_LANE_COUNT; i++) {
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &lanes[i]);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(lanes[i], MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) return failed("MPI_Comm_dup", code);
  }
  int rank, size, *max_tag, found = 0;
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
  (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &max_tag, &found);
  *place = (mpi_place){(uint32_t)rank, (uint32_t)size, found ? *max_tag : 32767};
  return true;
}

/* ---- shared memory ---- */
/* OpenMPI keeps the file behind a rank's shared memory until the end, and nobody removes it if mpirun
 * is killed. Once all ranks have it mapped its name is not needed; but it must be there again for
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

static void remove_segment(void) {
  find_segment();
  if (segment[0] && remove(segment) != 0) segment[0] = 0;
}

static void restore_segment(void) {
  FILE *file = segment[0] ? fopen(segment, "w") : NULL;
  if (file) (void)fclose(file);
}

/* ---- requests ---- */
static bool grow(void) {
  int room = active.room ? 2 * active.room : 256;
  MPI_Request *requests = realloc(active.requests, (size_t)room * sizeof *requests);
  if (requests) active.requests = requests;
  void **tokens = realloc(active.tokens, (size_t)room * sizeof *tokens);
  if (tokens) active.tokens = tokens;
  void **ended = realloc(active.ended, (size_t)room * sizeof *ended);
  if (ended) active.ended = ended;
  int *indexes = realloc(active.indexes, (size_t)room * sizeof *indexes);
  if (indexes) active.indexes = indexes;
  bool *receives = realloc(active.receives, (size_t)room * sizeof *receives);
  if (receives) active.receives = receives;
  MPI_Status *statuses = realloc(active.statuses, (size_t)room * sizeof *statuses);
  if (statuses) active.statuses = statuses;
  if (!requests || !tokens || !ended || !indexes || !receives || !statuses)
    return refused("out of memory");
  active.room = room;
  return true;
}

static bool add(const char *what, int code, bool receives, void *token) {
  if (code != MPI_SUCCESS) return failed(what, code);
  active.receives[active.count] = receives;
  active.tokens[active.count++] = token;
  return true;
}

static bool begin_send(mpi_lane lane, uint32_t to, int32_t tag, const void *data, size_t size_bytes,
                       void *token) {
  if (active.count == active.room && !grow()) return false;
  int code = MPI_Isend(data, (int)size_bytes, MPI_BYTE, (int)to, tag, lanes[lane],
                       &active.requests[active.count]);
  return add("MPI_Isend", code, false, token);
}

static bool begin_receive(mpi_lane lane, int32_t from, int32_t tag, void *data, size_t size_bytes,
                          void *token) {
  if (active.count == active.room && !grow()) return false;
  int source = from == MPI_FROM_ANYBODY ? MPI_ANY_SOURCE : from;
  int code = MPI_Irecv(data, (int)size_bytes, MPI_BYTE, source, tag, lanes[lane],
                       &active.requests[active.count]);
  return add("MPI_Irecv", code, true, token);
}

/* The requests of those that ended are null by now. */
static void close_gaps(void) {
  int kept = 0;
  for (int i = 0; i < active.count; i++) {
    if (active.requests[i] == MPI_REQUEST_NULL) continue;
    active.requests[kept] = active.requests[i];
    active.receives[kept] = active.receives[i];
    active.tokens[kept++] = active.tokens[i];
  }
  active.count = kept;
}

/* The error of the first request that has one. */
static int error_in(int ended, int code) {
  for (int i = 0; i < ended && code == MPI_ERR_IN_STATUS; i++)
    if (active.statuses[i].MPI_ERROR != MPI_SUCCESS) code = active.statuses[i].MPI_ERROR;
  return code;
}

static bool poll_requests(void *const **tokens, uint32_t *count) {
  int ended = 0;
  int code = MPI_Testsome(active.count, active.requests, &ended, active.indexes, active.statuses);
  if (code != MPI_SUCCESS) return failed("MPI_Testsome", error_in(ended, code));
  if (ended == MPI_UNDEFINED) ended = 0;
  for (int i = 0; i < ended; i++) active.ended[i] = active.tokens[active.indexes[i]];
  if (ended > 0) close_gaps();
  *tokens = active.ended;
  *count = (uint32_t)ended;
  return true;
}

/* ---- ending ---- */
/* Messages that nobody waits for are there only after failures. */
static void take_message(mpi_lane lane) {
  MPI_Message found;
  MPI_Status about;
  int there = 0, size_bytes = 0;
  if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, lanes[lane], &there, &found, &about) || !there)
    return;
  (void)MPI_Get_count(&about, MPI_BYTE, &size_bytes);
  void *data = malloc(size_bytes > 0 ? (size_t)size_bytes : 1);
  if (data) (void)MPI_Mrecv(data, size_bytes, MPI_BYTE, &found, MPI_STATUS_IGNORE);
  free(data);
}

/* Receives are taken back; sends get a little time to end. After a failure messages may still come
 * that nobody will receive. Leaves nothing that MPI could complain of, unless another rank is late. */
static void clear(bool has_failed) {
  double start_s = MPI_Wtime(), least_s = has_failed ? 0.1 : 0;
  void *const *tokens;
  uint32_t count;
  for (int i = 0; i < active.count; i++)
    if (active.receives[i]) (void)MPI_Cancel(&active.requests[i]);
  do {
    for (int lane = 0; lane < MPI_LANE_COUNT; lane++) take_message((mpi_lane)lane);
    if (!poll_requests(&tokens, &count)) return;
  } while (MPI_Wtime() - start_s < (active.count > 0 ? 0.5 : least_s));
}

static void end(bool has_failed) {
  clear(has_failed);
  restore_segment();
  if (is_ours) (void)MPI_Finalize();
}

const mpi_transport weir_mpi_transport = {
    .size_bytes = sizeof(mpi_transport),
    .start = start,
    .send = begin_send,
    .receive = begin_receive,
    .poll = poll_requests,
    .met = remove_segment,
    .end = end,
    .error = error_text,
};
#endif
