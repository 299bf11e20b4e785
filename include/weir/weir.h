/* Weir: compiles tensor programs whose axes are marked with where (a device mesh) and when (streams)
 * they run, and runs them. This header is the whole public C API.
 *
 * Conventions
 *   - Every function that can fail returns a weir_status and writes its results, which come last,
 *     only on success. weir_error() then has the message; for a wrong program that is the full list
 *     of diagnostics, each with file:line:col, the source line and a caret.
 *   - Objects are created by weir_*_create, _parse, _load or _compile and destroyed by
 *     weir_*_destroy, which accepts NULL. A char ** result is freed with weir_string_free().
 *   - Structs that callers fill begin with struct_size, set to sizeof the struct: fields added later
 *     read as zero for callers compiled earlier.
 *   - One object is used by one thread at a time; different objects by different threads freely.
 *     A compiled program may be run from several threads at once.
 *   - Functions that callers give must not throw. In C++17 and later their types say so: the
 *     compiler refuses one that is not noexcept.
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* The library hides all other names. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define WEIR_VERSION "0.1.0"
#define WEIR_MAX_RANK 16
#if defined __cplusplus && __cplusplus >= 201703L
#define WEIR_NOEXCEPT noexcept
#else
#define WEIR_NOEXCEPT
#endif

typedef enum weir_status {
  WEIR_OK,
  WEIR_CHECK_FAILED,  /* a check or a verification failed */
  WEIR_BAD_USAGE,     /* a wrong option or argument */
  WEIR_BAD_PROGRAM,   /* the program is wrong; weir_error() says where */
  WEIR_BAD_INPUT,     /* an input or output file cannot be used */
  WEIR_OUT_OF_MEMORY, /* an allocation failed */
  WEIR_UNAVAILABLE,   /* a device, library or feature is missing on this machine */
  WEIR_SYSTEM,        /* the operating system refused a request */
  WEIR_CANCELLED,     /* the run was cancelled */
} weir_status;

const char *weir_version(void);
/* The message of the last failed call on this thread; "" if none. Valid until the next call. */
const char *weir_error(void);
/* The command line's exit code for a status: 0, 1, 2 or 3. */
int weir_exit_code(weir_status s);
const char *weir_status_text(weir_status s);
void weir_string_free(char *text);

/* ---- errors as data ----
 * The diagnostics of the last failed call on this thread, as weir_error() writes them. What failed
 * on a rank of a program carries that rank, and the place in the program where the message has
 * one. */
typedef enum weir_severity { WEIR_SEVERITY_ERROR, WEIR_SEVERITY_NOTE } weir_severity;

typedef struct weir_diagnostic {
  size_t struct_size;
  weir_severity severity; /* a note belongs to the error before it */
  const char *file;       /* "": it has no place. Strings are valid until the next call */
  int64_t line, column;   /* from 1; 0: not known */
  const char *text;
  const char *suggestion; /* what to write instead; "": nothing is suggested */
  int64_t rank;           /* of the program that failed; -1: none */
} weir_diagnostic;

size_t weir_diagnostic_count(void);
/* False: there is no such diagnostic. Like asking for the count, it keeps the error. */
bool weir_diagnostic_at(size_t i, weir_diagnostic *result);

/* ---- texts and progress while the library works ----
 * Texts that the option `dump` and others ask for, and the progress of long work: "binding ranks",
 * "compiling kernels", `done` of `total`. For the whole process; called from any thread, never two
 * at once, and they must not call the library. NULL: texts go to standard error, and progress is
 * not reported. */
typedef void weir_log_fn(void *context, const char *text) WEIR_NOEXCEPT;
typedef void weir_progress_fn(void *context, const char *what, int64_t done,
                              int64_t total) WEIR_NOEXCEPT;
void weir_log_to(weir_log_fn *text, weir_progress_fn *progress, void *context);

/* Where all memory comes from. NULL where one is accepted: malloc and free. Blocks must be aligned to
 * 16 bytes. The struct is copied; its context must outlive the objects made with it. A program calls
 * it from threads of its own as well, but never from two at once. */
typedef void *weir_alloc_fn(void *context, size_t size_bytes) WEIR_NOEXCEPT;
typedef void weir_free_fn(void *context, void *block) WEIR_NOEXCEPT;
typedef struct weir_allocator {
  weir_alloc_fn *alloc;
  weir_free_fn *free;
  void *context;
} weir_allocator;

/* ---- tensors in memory ----
 * The layout of DLPack's DLTensor (version 1), under our own names so that this header can be used
 * beside any version of dlpack.h: cast a DLTensor * to a weir_dl_tensor *. */
typedef struct weir_dl_device {
  int32_t device_type; /* 1 CPU, 2 CUDA, 3 CUDA pinned, 13 CUDA managed */
  int32_t device_id;
} weir_dl_device;

typedef struct weir_dl_dtype {
  uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} weir_dl_dtype;

typedef struct weir_dl_tensor {
  void *data;
  weir_dl_device device;
  int32_t ndim;
  weir_dl_dtype dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: dense, row-major */
  uint64_t byte_offset;
} weir_dl_tensor;

typedef enum weir_dtype {
  WEIR_F64 = 1,
  WEIR_F32,
  WEIR_F16,
  WEIR_BF16,
  WEIR_I64,
  WEIR_I32,
  WEIR_I8,
  WEIR_U8,
  WEIR_BOOL,
} weir_dtype;

const char *weir_dtype_text(weir_dtype t);
size_t weir_dtype_size_bytes(weir_dtype t);
weir_dl_dtype weir_dtype_to_dl(weir_dtype t);
weir_status weir_dtype_from_dl(weir_dl_dtype t, weir_dtype *result);

/* ---- options ----
 * Every option of the library and the command line, from one table: name ("streams"), environment
 * variable (WEIR_STREAMS), kind, default, help. */
typedef struct weir_options weir_options;

typedef struct weir_option_info {
  const char *name;        /* "streams"; the flag is --streams */
  const char *environment; /* "WEIR_STREAMS" */
  const char *placeholder; /* "N"; "" for a flag that takes no value */
  const char *initial;     /* the default as text, "" if none */
  const char *help;
  const char *commands; /* which commands take it: "run lower verify" */
  char letter;          /* the short form: 'D' for -D; 0: none */
  bool repeats;         /* may be given several times: values collect */
} weir_option_info;

size_t weir_option_count(void);
weir_status weir_option_describe(size_t i, weir_option_info *info);

/* Defaults, then the environment's WEIR_<OPTION> values (a bad one is an error). */
weir_status weir_options_create(weir_options **result);
void weir_options_destroy(weir_options *o);
/* Checks the value against the option's kind. A flag takes "true" or "false". */
weir_status weir_options_set(weir_options *o, const char *name, const char *value);
/* The value as text; for an option that repeats, the k-th, and *value is NULL past the last. */
weir_status weir_options_get(const weir_options *o, const char *name, size_t k, const char **value);
weir_status weir_options_get_int(const weir_options *o, const char *name, int64_t *value);
weir_status weir_options_get_bool(const weir_options *o, const char *name, bool *value);

/* Where programs compiled with these options take memory of GPUs for their plans: a caching
 * allocator of the caller's, so that both share what there is. A block must be aligned to 256 bytes
 * and may be used by any stream of the GPU until it is freed; alloc gives NULL where there is none.
 * Both are called by the thread that runs or destroys a program. The struct is copied; its context
 * must outlive the programs. Memory that other processes open is not taken from there. */
typedef void *weir_device_alloc_fn(void *context, int32_t gpu, size_t size_bytes) WEIR_NOEXCEPT;
typedef void weir_device_free_fn(void *context, int32_t gpu, void *block) WEIR_NOEXCEPT;
typedef struct weir_device_allocator {
  size_t struct_size;
  weir_device_alloc_fn *alloc;
  weir_device_free_fn *free;
  void *context;
} weir_device_allocator;
/* NULL: the driver's. */
weir_status weir_options_set_device_allocator(weir_options *o, const weir_device_allocator *a);

/* ---- worlds: processes that run programs together, each of them one device ----
 * Without one, a program that needs several devices finds its ranks by itself: under mpirun (OpenMPI,
 * or PMIx and PMI, as of Slurm and MPICH) by MPI; under torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR, MASTER_PORT) over TCP; otherwise all of them are threads of this process. A caller that
 * has its own ranks makes a world of them, from one of these:
 *
 *   mpi_comm   an MPI_Comm, which is copied. MPI then carries control messages, and on CPUs the data.
 *              MPI must have been initialised with MPI_THREAD_MULTIPLE, and must not be finalised
 *              before the world is destroyed.
 *   nccl_comm  an ncclComm_t of the libnccl.so.2 that this process has loaded. It tells which ranks
 *              there are and on which GPUs, and carries the exchange of this call. It is not used
 *              afterwards, and remains the caller's.
 *   exchange   a function by which all ranks give some bytes and get those of all, with `rank` and
 *              `size`. Called by weir_world_create() alone, a few times, on the calling thread.
 *   nothing    what the environment says.
 *
 * With the last three, control messages go over TCP, and on CPUs the data too. On GPUs data goes by
 * NCCL or between GPUs in any case (option comm).
 *
 * All ranks make a world together, and compile the programs that use it in the same order. A world
 * fails as a whole: when a rank dies, or an operation of one fails, all ranks' runs end with a message
 * that names the rank. Programs of a failed world can only be destroyed; the process goes on, and a
 * new world can be made in it, of the ranks that are left. */
typedef struct weir_world weir_world;
/* `all` has room for size * size_bytes, and receives what every rank gave as `mine`, in order.
 * Anything but WEIR_OK is the status of weir_world_create(). */
typedef weir_status weir_exchange_fn(void *context, const void *mine, void *all,
                                     size_t size_bytes) WEIR_NOEXCEPT;

typedef struct weir_world_args {
  size_t struct_size;
  const void *mpi_comm; /* the address of an MPI_Comm */
  void *nccl_comm;      /* an ncclComm_t */
  weir_exchange_fn *exchange;
  void *context;
  int64_t rank, size; /* of the exchange; size 0 where another one knows them */
} weir_world_args;
/* args NULL: from the environment. Waits for all ranks, 60 s at most (WEIR_MPI_START_SECONDS). */
weir_status weir_world_create(const weir_world_args *args, weir_world **result);
/* Accepts NULL. Programs that use the world keep it. For a world of an MPI communicator all ranks
 * must call this. */
void weir_world_destroy(weir_world *w);

typedef struct weir_world_info {
  size_t struct_size;
  int64_t rank, size;
  int64_t local;       /* which of its machine's ranks this is */
  const char *carrier; /* "mpi", "tcp": how ranks talk */
} weir_world_info;
weir_status weir_world_describe(const weir_world *w, weir_world_info *result);

/* Programs compiled with these options run on this world. NULL: the environment's. */
weir_status weir_options_set_world(weir_options *o, const weir_world *w);

/* ---- modules: one or more fusions, parsed or built ---- */
typedef struct weir_module weir_module;
typedef struct weir_fusion weir_fusion; /* owned by its module */

weir_status weir_module_create(const weir_allocator *memory, weir_module **result);
/* Parses, applies the schedules and verifies. `name` is the file's name in messages. */
weir_status weir_module_parse(const char *name, const char *text, size_t length,
                              const weir_allocator *memory, weir_module **result);
weir_status weir_module_load(const char *path, const weir_allocator *memory, weir_module **result);
/* The text of a program, laid out as by `weir fmt`: tokens, comments and lines stay. Freed by
 * weir_string_free(). */
weir_status weir_format(const char *name, const char *text, size_t length, char **result);
/* The same for a file; with `write` it is replaced if it changes, and *result may be NULL. */
weir_status weir_format_file(const char *path, bool write, char **result);
void weir_module_destroy(weir_module *m);
/* The text form; it parses back to the same module. */
weir_status weir_module_print(const weir_module *m, char **text);
size_t weir_module_count(const weir_module *m);
/* By position, or by name; name NULL: the first one. */
weir_status weir_module_at(weir_module *m, size_t i, weir_fusion **result);
weir_status weir_module_find(weir_module *m, const char *name, weir_fusion **result);

/* Checks every invariant; WEIR_BAD_PROGRAM with all diagnostics when something is wrong. */
weir_status weir_module_verify(weir_module *m);

/* ---- passes ---- */
typedef struct weir_pass_args {
  size_t struct_size;
  const char *passes;      /* "dce,cse"; "" is the identity, "default" the whole pipeline */
  const char *print_after; /* "all", "changed", a pass's name, or NULL */
  bool time;               /* add a table of times to the log */
  const char *reproducer;  /* path of the file written when a pass fails; NULL: none */
  const char *disable;     /* of those passes, leave these out: "cse,free"; NULL: none */
  const char *enable;      /* optional passes to run at their place in "default"; NULL: none */
  const char *pipeline;    /* as the option of that name; NULL: auto */
} weir_pass_args;
/* Runs passes over every fusion, and those for host programs over every host program; what a fusion is
 * lowered to is listed after it. Verifies after each. *log (may be NULL) receives what print_after
 * and time produced, also when a pass failed; set it to NULL before. */
weir_status weir_module_run_passes(weir_module *m, const weir_pass_args *args, char **log);

/* The lines of `weir list`. kind: "ops", "passes", "devices", "comms",
 * "machines", "options". */
weir_status weir_list(const char *kind, char **text);

/* What this machine has, one finding at a time: of "cpu" the "instructions" are "avx512". Devices and ways to
 * communicate say which libraries they found and how fast they are; that takes some ms. */
typedef struct weir_finding {
  const char *subject, *name, *value; /* valid during the call */
} weir_finding;
typedef void weir_finding_fn(void *context, const weir_finding *finding) WEIR_NOEXCEPT;
weir_status weir_examine(weir_finding_fn *tell, void *context);

/* How fast a device (options device, comm) is, as the choices of `--pipeline auto` know it: the
 * text of a machine file, with comments that say where its figures come from. They are measured
 * once and kept in the user's cache folder; `measure` renews them. Under an MPI launcher all
 * processes call it, and get the same. */
weir_status weir_machine(const weir_options *o, bool measure, char **text);

/* ---- building a fusion ---- */
typedef struct weir_tensor {
  uint32_t id; /* 0: none */
} weir_tensor;
typedef struct weir_mesh {
  uint32_t id;
} weir_mesh;

/* One argument of an operation. Make them with the weir_arg_* functions below. */
typedef enum weir_arg_kind {
  WEIR_ARG_TENSOR,
  WEIR_ARG_INT,
  WEIR_ARG_FLOAT,
  WEIR_ARG_BOOL,
  WEIR_ARG_DTYPE,
  WEIR_ARG_TEXT, /* an extent expression ("a * b"), a list of them ("[a * b, 4]"), or a choice */
  WEIR_ARG_INTS,
} weir_arg_kind;

typedef struct weir_arg {
  const char *name; /* the parameter; NULL: by position */
  weir_arg_kind kind;
  weir_tensor tensor;
  int64_t i; /* INT, BOOL, DTYPE; for INTS the number of them */
  double f;
  const char *text;
  const int64_t *ints; /* INTS; also serves lists of bools (0 or 1) and of constant extents */
} weir_arg;

weir_arg weir_arg_tensor(const char *name, weir_tensor t);
weir_arg weir_arg_int(const char *name, int64_t value);
weir_arg weir_arg_float(const char *name, double value);
weir_arg weir_arg_bool(const char *name, bool value);
weir_arg weir_arg_dtype(const char *name, weir_dtype value);
weir_arg weir_arg_text(const char *name, const char *value);
weir_arg weir_arg_ints(const char *name, const int64_t *values, size_t n);

weir_status weir_fusion_create(weir_module *m, const char *name, weir_fusion **result);
/* devices NULL: 0, 1, 2, … */
weir_status weir_fusion_mesh(weir_fusion *f, const char *name, const int64_t *shape, size_t rank,
                             const int64_t *devices, weir_mesh *result);
/* Extents as in the language: "32", "t", "?". */
weir_status weir_fusion_input(weir_fusion *f, const char *name, weir_dtype dtype,
                              const char *const *extents, size_t rank, weir_tensor *result);
/* Calls operation `op` ("matmul") and names the result. */
weir_status weir_fusion_op(weir_fusion *f, const char *name, const char *op, const weir_arg *args,
                           size_t n_args, weir_tensor *result);
/* The same of an operation with several results ("topk": values and indices): names the first
 * `n_names` of them. Those that are not named are not computed. */
weir_status weir_fusion_op_results(weir_fusion *f, const char *const *names, size_t n_names,
                                   const char *op, const weir_arg *args, size_t n_args,
                                   weir_tensor *results);
weir_status weir_fusion_return(weir_fusion *f, weir_tensor t);
/* The tensor or mesh with that name. */
weir_status weir_fusion_tensor(weir_fusion *f, const char *name, weir_tensor *result);
weir_status weir_fusion_find_mesh(weir_fusion *f, const char *name, weir_mesh *result);

/* ---- scheduling ----
 * As the language's schedule statements; axes are positions in the tensor's loop domain at that
 * point. A factor is given as text: "3", "d", "g.x", "n / 2". */
weir_status weir_schedule_on(weir_fusion *f, weir_tensor t, weir_mesh mesh);
weir_status weir_schedule_split(weir_fusion *f, weir_tensor t, int64_t axis, const char *factor);
weir_status weir_schedule_outer_split(weir_fusion *f, weir_tensor t, int64_t axis,
                                      const char *factor);
weir_status weir_schedule_chunk_split(weir_fusion *f, weir_tensor t, int64_t axis,
                                      const int64_t *lengths, size_t n);
weir_status weir_schedule_merge(weir_fusion *f, weir_tensor t, int64_t axis);
weir_status weir_schedule_reorder(weir_fusion *f, weir_tensor t, const int64_t *from,
                                  const int64_t *to, size_t n);
weir_status weir_schedule_swizzle(weir_fusion *f, weir_tensor t, int64_t axis,
                                  const char *mesh_axis);
weir_status weir_schedule_rfactor(weir_fusion *f, weir_tensor t, const int64_t *axes, size_t n,
                                  const char *name, weir_tensor *result);
/* mark: "stream", "stream.ring", "serial", "mesh.x", … */
weir_status weir_schedule_mark(weir_fusion *f, weir_tensor t, int64_t axis, const char *mark);
weir_status weir_schedule_memory(weir_fusion *f, weir_tensor t, const char *memory);
weir_status weir_schedule_allocate(weir_fusion *f, weir_tensor t, const int64_t *order, size_t n);
weir_status weir_schedule_allocate_as_loop(weir_fusion *f, weir_tensor t);
weir_status weir_schedule_contiguity(weir_fusion *f, weir_tensor t, const bool *dense, size_t n);

/* ---- asking a fusion ---- */
typedef struct weir_tensor_info {
  const char *name; /* valid while the fusion lives */
  weir_dtype dtype;
  size_t rank; /* dimensions in memory */
} weir_tensor_info;

const char *weir_fusion_name(const weir_fusion *f);
/* A host program, written by hand or lowered, is handled like a fusion. */
bool weir_fusion_is_host(const weir_fusion *f);
size_t weir_fusion_input_count(const weir_fusion *f);
size_t weir_fusion_output_count(const weir_fusion *f);
weir_status weir_fusion_input_at(const weir_fusion *f, size_t i, weir_tensor *result);
weir_status weir_fusion_output_at(const weir_fusion *f, size_t i, weir_tensor *result);
weir_status weir_tensor_describe(const weir_fusion *f, weir_tensor t, weir_tensor_info *info);
/* 1 + the largest device id in any mesh; 1 without a mesh. */
int64_t weir_fusion_devices(const weir_fusion *f);

/* ---- shapes ---- */
typedef struct weir_shapes weir_shapes; /* values of a fusion's symbolic extents */

weir_status weir_shapes_create(weir_fusion *f, weir_shapes **result);
void weir_shapes_destroy(weir_shapes *s);
/* "t=6" or "inp=6x32", as on the command line, or several with commas between them: "t=6,n=4". One that is
 * refused binds nothing. */
weir_status weir_shapes_define(weir_shapes *s, const char *definition);
/* All extents of an input; `from` names their origin in messages. */
weir_status weir_shapes_input(weir_shapes *s, weir_tensor input, const int64_t *extents,
                              size_t rank, const char *from);
/* How many extents of inputs have no value yet. */
size_t weir_shapes_unbound(const weir_shapes *s);
/* Checks that every extent has a value and that all conditions of the program hold. */
weir_status weir_shapes_complete(weir_shapes *s);
/* The extents of a tensor; `extents` has room for WEIR_MAX_RANK. Needs a completed object. */
weir_status weir_shapes_of(const weir_shapes *s, weir_tensor t, int64_t *extents, size_t *rank);

/* ---- compiling and running ---- */
typedef struct weir_program weir_program;

/* The host program a fusion is lowered to, as text. style: "weir", which parses back and follows
 * its fusion, or "nvfuser". With the option `explain`, reasons are in it as comments. */
weir_status weir_lower(const weir_fusion *f, const weir_options *o, const char *style, char **text);
/* The same for shapes that are complete: of the programs that `--pipeline auto` chooses from, the
 * one that a run takes with these options (device, comm, machine among them). NULL, or not
 * complete: as weir_lower. */
weir_status weir_lower_for(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                           const char *style, char **text);

/* A picture of the lowered program, as SVG: meshes, the pieces of tensors that devices hold, and
 * the host program with a lane for each stream and for communications. `s`, which may be NULL, has
 * the extents: without all of them tensors are left out. */
weir_status weir_draw(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                      char **text);
/* Writes a text to a file: all of it, or the file stays as it was. */
weir_status weir_text_write(const char *text, const char *path);

/* Where things come from: for each name, of a tensor of the fusion, of one of its host program or
 * of a communication (as weir_lower writes them), where it lies and why, down to the lines of the
 * program, and what its communications cost. `s`, which may be NULL and need not be complete, gives
 * extents for numbers; if it is complete, the program is the one that a run takes. A name that is
 * not known is WEIR_BAD_USAGE. */
weir_status weir_why(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                     const char *const *names, size_t n_names, char **text);

/* Compiles a fusion, or takes a host program as it is. The program keeps what it needs; the module may
 * be destroyed. It reads the options that `run` has on the command line, except those about files, values and
 * reports. NULL: the defaults. */
weir_status weir_compile(const weir_fusion *f, const weir_options *o, const weir_allocator *memory,
                         weir_program **result);
void weir_program_destroy(weir_program *p);

/* What ran when in a run: filled when it is passed to weir_run(). Read and write it while the
 * program lives. */
typedef struct weir_profile weir_profile;

typedef struct weir_stats {
  size_t struct_size;
  int64_t launches, waits;
  int64_t wall_ns;    /* of the whole run */
  int64_t host_ns;    /* spent issuing instructions */
  int64_t task_ns;    /* of all tasks, one after the other */
  int64_t compute_ns; /* at least one task ran */
  int64_t overlap_ns; /* two or more tasks ran at once */
  int64_t pool_bytes; /* of the plan's own memory */
  int64_t peak_bytes; /* of its buffers alive at once */
  double flops, bytes;
  int64_t posts, joins;
  int64_t comm_ns;   /* at least one communication was under way */
  int64_t both_ns;   /* and a task of the same device ran: overlap, of the device with most of it */
  double sent_bytes; /* to other devices */
} weir_stats;

/* The part of one device of this process. */
typedef struct weir_rank_stats {
  size_t struct_size;
  int64_t device;
  int64_t compute_ns, comm_ns, both_ns; /* tasks ran; communications were under way; both at once */
  int64_t posts;
  double sent_bytes, received_bytes; /* to and from other devices */
} weir_rank_stats;

weir_status weir_profile_create(weir_profile **result);
void weir_profile_destroy(weir_profile *p);
/* False when the run was not on a device (the reference evaluator keeps no profile). */
bool weir_profile_filled(const weir_profile *p);
weir_status weir_profile_stats(const weir_profile *p, weir_stats *stats);
/* Devices of this process that the run was on, and what each of them did. */
size_t weir_profile_ranks(const weir_profile *p);
weir_status weir_profile_rank_stats(const weir_profile *p, size_t i, weir_rank_stats *stats);

/* Of a run on a virtual clock (device sim), whose `wall_ns` is the simulated time: the tasks that make
 * up its length. Each started when the one before it ended, the first when the host issued it.
 * There are none where the host's issuing takes longer than all tasks, and on other devices. */
typedef struct weir_path_step {
  size_t struct_size;
  int64_t instr;            /* number in the plan */
  int64_t stream;           /* worker stream, or -1: the one the program was called on */
  int64_t start_ns, end_ns; /* from the run's start */
  char text[120];           /* "y$1 <- exp(x$1)", cut off where it is longer */
} weir_path_step;
size_t weir_profile_path_count(const weir_profile *p);
weir_status weir_profile_path_step(const weir_profile *p, size_t i, weir_path_step *step);

/* A trace by the ending of the path: .json for Perfetto and Chrome, .html one self-contained page,
 * .svg a picture. */
weir_status weir_profile_write(const weir_profile *p, const char *title, const char *path);
/* The same of one device of this process: the i-th of weir_profile_ranks(). */
weir_status weir_profile_write_rank(const weir_profile *p, size_t i, const char *title,
                                    const char *path);
/* All processes of a program call it, each with the profile of the same run: that of rank 0 then
 * has the devices of all of them. Its statistics stay those of rank 0. Clocks of different machines
 * are compared; times of one machine are exact. */
weir_status weir_profile_gather(const weir_program *p, weir_profile *profile);
/* One self-contained page of traces that were written as JSON, for instance one per process of a run. */
weir_status weir_trace_page(const char *const *traces, size_t n, const char *title,
                            const char *path);

/* The least time in which the devices of a machine (option machine) could do what a program asks for, and
 * what the simulator predicts for the program as it would run. Seconds. */
typedef struct weir_bound {
  size_t struct_size;
  double bound_s; /* the largest of these, each of the device for which it is largest: */
  double compute_s, memory_s, receive_s, send_s, chain_s;
  double predicted_s;
  int64_t device; /* that ends last; what its time is: */
  double computing_s, exposed_s, idle_s;
  const char *
      program; /* what is predicted: "marked", or the optional pass that makes the variant ("unstream") */
} weir_bound;
/* Of each communication that the device waits for with nothing to compute: where it comes from. */
typedef void (*weir_bound_tell)(void *context, const char *place, const char *text,
                                double exposed_s) WEIR_NOEXCEPT;
/* On the machine that the option machine names, or that the device is (weir_machine()). Under an
 * MPI launcher all processes call it. `tell` may be NULL. */
weir_status weir_program_bound(weir_program *p, const weir_shapes *s, weir_bound *result,
                               weir_bound_tell tell, void *context);

/* Binds the program to the shapes and proves that its plan has no race, no use of memory before it is
 * allocated or written or after it is freed, and that every stream is joined. WEIR_CHECK_FAILED with
 * all findings otherwise. *report (may be NULL) lists waits that could be left out. */
weir_status weir_program_check(const weir_program *p, const weir_shapes *s, char **report);
/* Does all that a run with these shapes needs and that depends on nothing else: binds the program,
 * compiles and loads its kernels, allocates its memory. Such a run then only issues, but on a GPU
 * the first one with arrays that are not there allocates memory for those. If the program has
 * several processes, all of them call this. For the reference evaluator it does nothing. */
weir_status weir_program_prepare(const weir_program *p, const weir_shapes *s);
/* Waits for runs on the caller's streams that may find something wrong (indexes, positions or
 * lengths out of range), and fails with what they, or launches of a captured graph that are over,
 * have found. Without it the next run of the program does. */
weir_status weir_program_settle(const weir_program *p);
/* The rank of this process if a launcher started it, of MPI or torchrun, else -1. Unless --comm is
 * inproc each process then runs one device: weir_run() takes whole inputs on all of them, and whole
 * outputs come together on rank 0. On other ranks that device's part of an output is written: all
 * of it where the output is replicated, nothing where the device has none of it. */
int64_t weir_launch_rank(void);
/* "cpu", "sim", …, or "ref" when the reference evaluator executes it. */
const char *weir_program_device(const weir_program *p);
/* Notes about the program as it ran last, or was checked: that streams which it marks are not used,
 * with the times predicted with and without them; marks that made no loop; movements of many bytes
 * that another mark would avoid. Several lines are separated by newlines. NULL: there are none. The
 * string is freed with weir_string_free(). */
weir_status weir_program_note(const weir_program *p, char **note);

/* What a program on a device has done so far. New extents are bound; other values, seeds and addresses
 * are not. */
typedef struct weir_counts {
  size_t struct_size;
  int64_t runs;
  int64_t bindings; /* of the program to extents */
  int64_t loads;    /* of what was bound, on the device: memory, kernels */
  int64_t in_place; /* donated inputs that were overwritten where they are */
  int64_t copied;   /* donated inputs whose new value was computed elsewhere and copied */
  int64_t proofs;   /* of what was bound, before its first run (option prove) */
  int64_t plans,
      plan_bytes;  /* that are kept now; the bytes of buffers count where plans do not share them */
  int64_t evicted; /* plans that were dropped to make room for others */
  int64_t allocations; /* from the program's allocator */
} weir_counts;
weir_status weir_program_counts(const weir_program *p, weir_counts *result);

/* For an extent with a capacity (`extent s <= 8192`): the smallest bucket that holds `length`
 * positions. Buckets are 64, 128, 256, … and the capacity. A length that is over the capacity is
 * refused. Inputs whose extent is a bucket, with the length as an input without dimensions, bind
 * the program once per bucket (docs/api.md). */
weir_status weir_program_bucket(const weir_program *p, const char *extent, int64_t length,
                                int64_t *bucket);

/* The buffers of a program bound to completed shapes, on the device that needs most for them: one
 * pool, in which buffers share bytes that are not in use at the same time. `text` (may be NULL) is
 * freed with weir_string_free(): which values are in use where most are, with their lines and
 * bytes. Nothing is run. */
typedef struct weir_memory {
  size_t struct_size;
  int64_t device;
  int64_t pool_bytes;
  int64_t live_bytes; /* the most in use at once, in the order of the plan */
} weir_memory;
weir_status weir_program_memory(const weir_program *p, const weir_shapes *s, weir_memory *result,
                                char **text);

/* Whether a run with these completed shapes computes output `output` in the memory of input
 * `input`, should that be donated. *why is then NULL; otherwise it says what is in the way, and is
 * freed with weir_string_free(). */
weir_status weir_program_donation(const weir_program *p, const weir_shapes *s, size_t input,
                                  size_t output, char **why);

/* ---- parts of tensors, per device ----
 * A program on several devices can be given, and return, the parts that the devices of this process hold
 * in place of whole tensors. */
typedef struct weir_devices {
  size_t struct_size;
  int64_t first, count; /* of this process: first, first + 1, … */
  int64_t world;        /* of all processes */
} weir_devices;
weir_status weir_program_devices(const weir_program *p, weir_devices *result);

typedef enum weir_side { WEIR_INPUT, WEIR_OUTPUT } weir_side;

/* What a device holds of an input or output: a box in the whole tensor, or, `scattered`, positions in
 * order that are no single range of each dimension (every n-th of them, say); `begin` is then the first. */
typedef struct weir_shard {
  size_t struct_size;
  bool present; /* false: the device is not in the tensor's mesh, and nothing below counts */
  size_t rank;
  int64_t begin[WEIR_MAX_RANK], extents[WEIR_MAX_RANK], whole[WEIR_MAX_RANK];
  int64_t owner; /* of the devices that hold the same part, the one that represents them */
  bool scattered;
} weir_shard;
/* Of the i-th input or output, for completed shapes, or for shapes in which all extents of inputs
 * that its own depend on are known. Not for the reference evaluator. */
weir_status weir_program_shard(const weir_program *p, const weir_shapes *s, weir_side side,
                               size_t i, int64_t device, weir_shard *result);
/* Compares what devices hold of the same part of a tensor, an error if they differ, and, if asked for,
 * puts the whole together: in `whole`, on rank 0 (others pass NULL). `shards`: one per device of this
 * process, NULL where it holds none. All processes call it alike. */
weir_status weir_program_join(const weir_program *p, const weir_shapes *s, weir_side side, size_t i,
                              const weir_dl_tensor *const *shards, bool assemble_whole,
                              const weir_dl_tensor *whole);
/* All processes of a program call it; each gives its status so far, and if it failed why. WEIR_OK if all
 * are; otherwise the status of the first that is not, with its message, on all of them. */
weir_status weir_program_agree(const weir_program *p, weir_status mine, const char *message);
/* Between two calls this process does something, and other ranks that wait for it should not give up.
 * While a call computes they do not in any case. */
void weir_program_busy(const weir_program *p, bool busy);

/* Caller-owned memory in, caller-owned memory out. Shapes come from the inputs. `outputs` are dense
 * or strided tensors of the right shape and dtype that overlap no input and no other output. They
 * hold the result on success; after a failure their content is undefined. Tensors may be in memory
 * of the host or of GPUs; what a program cannot use in place is copied (docs/api.md). Devices that
 * compute nothing (sim, null) look at shapes only: their tensors may have no data.
 *
 * With `streams` the run comes after all work that is on these streams of the caller's, and before
 * all that is put on them afterwards; weir_run() returns when it is issued, and waits only where
 * the host has to see the end (docs/api.md). If one of the streams is being captured, the program
 * becomes part of that CUDA graph. Without streams, outputs are complete when it returns.
 *
 * A tensor with an entry in `input_shards` or `output_shards` is given as parts: inputs[i] or
 * outputs[i] is then ignored. An entry has one tensor for each device of this process
 * (weir_program_devices), in order, NULL for a device that holds none; shapes are those of
 * weir_program_shard(). What devices hold of the same part is not compared: weir_program_join()
 * does that. Shapes then come from `shapes`. */
typedef struct weir_stream {
  weir_dl_device device; /* type 2 (CUDA), and which GPU */
  void *handle;          /* cudaStream_t or CUstream; NULL: the default stream */
} weir_stream;

typedef struct weir_run_args {
  size_t struct_size;
  const weir_dl_tensor *const *inputs; /* one per fusion input */
  size_t n_inputs;
  const weir_dl_tensor *const *outputs; /* one per fusion output */
  size_t n_outputs;
  uint64_t seed;         /* of uniform() */
  bool as_definition;    /* evaluate the definition itself, accumulating in f64: the oracle */
  weir_profile *profile; /* NULL: keep none */
  const weir_dl_tensor *const *const *input_shards;  /* one per input; NULL: all are whole */
  const weir_dl_tensor *const *const *output_shards; /* one per output; likewise */
  const weir_shapes *shapes;  /* completed; needed where an input is given as shards */
  const weir_stream *streams; /* of the caller, at most one per GPU */
  size_t n_streams;
  /* One per output: the number of the input whose memory it is given, or -1; NULL: none. The output is then
   * the same tensor as that input, or the same shards, and nothing else of the run may be there. */
  const int64_t *donated;
  /* Of weir_check(): so many rows of each output, positions of all dimensions but the last, are
   * looked at, chosen at random by `seed`; 0: all. */
  int64_t check_rows;
} weir_run_args;

weir_status weir_run(const weir_program *p, const weir_run_args *args);

/* ---- runs that go on while the caller does something else ----
 * A program has a queue. Its runs are executed one after the other, in the order of the calls, by a
 * thread of the program's: each uses the plan's memory when the one before it has ended, so results
 * never mix. weir_run() comes after all runs that were begun before it. Different programs run at
 * the same time.
 *
 * weir_run_async() returns at once. The lists and tensor structs of `args` are copied; data,
 * `shapes` and `profile` must live until the run has ended. With `streams` the run comes after all
 * that these hold at the time of the call; they do not wait for it, and must not be captured.
 *
 * `done` (may be NULL) is called on the program's thread when the run has ended, before threads
 * that wait for it go on. It must not wait for other runs of the program. `result` may be NULL if
 * no thread waits. */
typedef struct weir_pending weir_pending;
typedef void weir_done_fn(void *context, weir_status status, const char *message) WEIR_NOEXCEPT;

weir_status weir_run_async(const weir_program *p, const weir_run_args *args, weir_done_fn *done,
                           void *context, weir_pending **result);
/* Until it has ended; gives its status, and its error becomes that of the calling thread. As often
 * as wanted. */
weir_status weir_pending_wait(const weir_pending *r);
/* Has it ended? Waits for that up to `timeout_ns`; negative: for ever. */
bool weir_pending_poll(const weir_pending *r, int64_t timeout_ns);
/* Asks it to end: one that has not begun does not, one that is under way starts no more steps. It
 * then ends with WEIR_CANCELLED, and the content of outputs is undefined; the program is not
 * affected. What cannot be stopped runs to its end: the reference evaluator, and runs in which
 * other processes take part. Does not wait. */
void weir_pending_cancel(weir_pending *r);
/* A run that has not ended goes on all the same. weir_program_destroy() waits for all runs. */
void weir_pending_destroy(weir_pending *r);

/* The result of a check: the worst element, and what was compared. Differences count relative to the
 * tolerance of each element. */
typedef struct weir_verdict {
  double max_abs, max_rel;      /* the largest difference, and it over the largest |reference| */
  int64_t index[WEIR_MAX_RANK]; /* of the worst element */
  double value, reference, tolerance;
  int64_t n_elements, n_wrong; /* compared, and beyond their tolerance */
  bool ok;                     /* none is */
} weir_verdict;
/* Evaluates the definition on the inputs of `args`, whole tensors, and compares what its outputs hold; one
 * verdict for each of them. An element may differ by what rounding explains: the definition is evaluated
 * several times with random errors where devices round, and six times the standard deviation of its value is
 * the tolerance (docs/semantics.md). With rtol > 0 it is rtol times the largest |reference| of the output
 * instead, and the definition is evaluated once. */
weir_status weir_check(const weir_program *p, const weir_run_args *args, double rtol,
                       weir_verdict *verdicts);

/* ---- arrays: memory owned by the library, for callers without arrays of their own ---- */
typedef struct weir_array weir_array;

weir_status weir_array_create(weir_dtype dtype, const int64_t *extents, size_t rank,
                              const weir_allocator *memory, weir_array **result);
void weir_array_destroy(weir_array *a);
/* The tensor; valid while the array lives. */
const weir_dl_tensor *weir_array_tensor(const weir_array *a);
weir_dtype weir_array_dtype(const weir_array *a);
/* kind: "normal", "int" (-3..3), "iota", "ones". The values depend on kind, seed, name, shape and
 * dtype only. */
weir_status weir_array_fill(weir_array *a, const char *kind, uint64_t seed, const char *name);
/* The values an index input may take: fills with integers in [0, bound). */
weir_status weir_array_fill_index(weir_array *a, int64_t bound, uint64_t seed, const char *name);
/* For an input used as the index of gather, scatter, index_select or one_hot: the size of the axis
 * it indexes; 0 for other inputs. */
weir_status weir_shapes_index_bound(const weir_shapes *s, weir_tensor input, int64_t *bound);

/* NumPy's .npy, versions 1 to 3, C and Fortran order, either byte order. Saving writes beside the
 * target and renames, so a failure leaves no file; bf16 is written as f32. */
weir_status weir_array_load_npy(const char *path, const weir_allocator *memory,
                                weir_array **result);
weir_status weir_array_save_npy(const weir_array *a, const char *path);
/* The same for several: all of them are complete before the first gets its name. */
weir_status weir_arrays_save_npy(const weir_array *const *arrays, const char *const *paths,
                                 size_t n);
/* In two steps: complete under temporary names, then renamed; what is destroyed before that leaves
 * no file. For several processes that must all succeed (weir_program_agree). */
typedef struct weir_saving weir_saving;
weir_status weir_arrays_stage_npy(const weir_array *const *arrays, const char *const *paths,
                                  size_t n, weir_saving **result);
weir_status weir_saving_commit(weir_saving *s);
void weir_saving_destroy(weir_saving *s);
/* Removes the temporary files of all that is being saved. For a handler of a signal that ends the
 * process: the library installs none. */
void weir_saving_abandon_all(void);
/* Converts between dtypes that hold the same values (an f32 file for a bf16 input). */
weir_status weir_array_convert(const weir_array *a, weir_dtype dtype, weir_array **result);

typedef struct weir_comparison {
  double max_abs, max_rel; /* the largest difference, and it over the largest |reference| */
  double tolerance;
  bool ok;
} weir_comparison;
/* `least` is the least precise dtype the value depends on (weir_fusion_least_dtype). Exact dtypes
 * must be equal. NaN equals NaN, infinities equal themselves. */
weir_status weir_array_compare(const weir_array *value, const weir_array *reference,
                               weir_dtype least, weir_comparison *result);
weir_status weir_fusion_least_dtype(const weir_fusion *f, weir_tensor t, weir_dtype *result);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
