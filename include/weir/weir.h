/* Weir: compiles tensor programs whose axes are marked with where (a device mesh) and when (streams)
 * they run, and runs them. This header is the whole public C API.
 *
 * Conventions
 *   - Errors. A function that can fail returns a weir_status. Its results are its last parameters
 *     and are written only on success; a char ** that may be NULL on success may also be set to
 *     NULL by a failure. After a failure weir_error() has the message; for a wrong program that
 *     is the full list of diagnostics, each with file:line:col, the source line and a caret.
 *     After WEIR_OUT_OF_MEMORY in a call that changes a module, the module can only be destroyed.
 *     No other failure changes the objects that were passed, unless a comment says so.
 *   - NULL. A pointer may be NULL where a comment says so, as a list whose length is 0, and as a
 *     `context`. Anywhere else NULL is WEIR_BAD_USAGE, and so is a number i of something that is out
 *     of range; a function that returns no status then answers 0, false, "" or NULL.
 *   - Ownership. A function that makes an object returns it as its last result, and the caller
 *     destroys it by weir_*_destroy(), which accepts NULL. A char ** result belongs to the caller,
 *     who frees it with weir_string_free(). A const char * result belongs to the library; unless a
 *     comment says otherwise it is valid as long as the object that was asked for it, and for ever
 *     if no object was. Strings and arrays that callers pass are copied if they are needed after the
 *     call, unless a comment says otherwise.
 *   - Structs. Those with a struct_size are versioned: set it to sizeof the struct before the call,
 *     also where the library fills the struct. Fields added later read as zero for callers compiled
 *     earlier, and are not written to their structs.
 *   - Threads. An object is used by one thread at a time; different objects by any threads. Compiled
 *     programs, and runs that were begun, are the exception: several threads may use one at once, but
 *     not while it is destroyed. A program's runs take turns. After fork() the child cannot use
 *     programs, runs and worlds of the parent; destroying them there does nothing.
 *   - Callbacks. Functions that callers pass must not throw or longjmp. In C++17 and later their
 *     types say so: the compiler refuses one that is not noexcept.
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
  WEIR_CHECK_FAILED,  /* a comparison or a proof failed */
  WEIR_BAD_USAGE,     /* a wrong option or argument */
  WEIR_BAD_PROGRAM,   /* the program is wrong; weir_error() says where */
  WEIR_BAD_INPUT,     /* an input or output file cannot be used */
  WEIR_OUT_OF_MEMORY, /* an allocation failed */
  WEIR_UNAVAILABLE,   /* a device, library or feature is missing on this machine */
  WEIR_SYSTEM,        /* the operating system refused a request */
  WEIR_CANCELLED,     /* the run was cancelled */
} weir_status;

const char *weir_version(void);
/* The message of the last failed call on this thread; "" if there is none. Valid until the next call on this
 * thread that can fail; destroying objects keeps it. */
const char *weir_error(void);
/* The exit code of the command line for a status: 0, 1, 2 or 3. */
int weir_exit_code(weir_status s);
/* What a status means: "an allocation failed". */
const char *weir_status_text(weir_status s);
/* Accepts NULL. */
void weir_string_free(char *text);

/* ---- errors as data ----
 * The diagnostics of the last call on this thread that could fail: weir_error(), taken apart. If a rank of a
 * program failed, its diagnostic has that rank, and the place in the program if it is known. */
typedef enum weir_severity { WEIR_SEVERITY_ERROR, WEIR_SEVERITY_NOTE } weir_severity;

typedef struct weir_diagnostic {
  size_t struct_size;
  weir_severity severity; /* a note belongs to the error before it */
  const char *file;       /* "": there is no place. Strings are valid as long as weir_error() */
  int64_t line, column;   /* from 1; 0: not known */
  const char *text;
  const char *suggestion; /* what to write instead; "": there is no suggestion */
  int64_t rank;           /* the rank that failed; -1: none */
} weir_diagnostic;

size_t weir_diagnostic_count(void);
/* The i-th diagnostic; false if there are no more than i. Neither function changes weir_error(). */
bool weir_diagnostic_at(size_t i, weir_diagnostic *result);

/* ---- texts and progress while the library works ----
 * Sets, for the whole process, where the library writes texts that the option `dump` and others ask for, and
 * where it reports the progress of long work: `done` of `total` of `what`, "binding ranks" or "compiling
 * kernels". The library calls both functions on any of its threads, but never two at once; they must not
 * call the library. If `text` is NULL, texts go to standard error; if `progress` is NULL, progress is not
 * reported. */
typedef void weir_log_fn(void *context, const char *text) WEIR_NOEXCEPT;
typedef void weir_progress_fn(void *context, const char *what, int64_t done,
                              int64_t total) WEIR_NOEXCEPT;
void weir_log_to(weir_log_fn *text, weir_progress_fn *progress, void *context);

/* ---- memory ----
 * Where an object's memory comes from. Functions that take an allocator accept NULL, which means malloc and
 * free; an allocator needs both functions. Blocks must be aligned to 16 bytes; `alloc` returns NULL if
 * there is no memory, `free` accepts NULL. The struct is copied; its context must outlive the objects made
 * with it. A program also calls the two functions on threads of its own, but never two at once. */
typedef void *weir_alloc_fn(void *context, size_t size_bytes) WEIR_NOEXCEPT;
typedef void weir_free_fn(void *context, void *block) WEIR_NOEXCEPT;
typedef struct weir_allocator {
  weir_alloc_fn *alloc;
  weir_free_fn *free;
  void *context;
} weir_allocator;

/* ---- tensors in memory ----
 * The layout of DLPack's DLTensor (version 1), under names of our own, so that this header can be used
 * together with any version of dlpack.h: cast a DLTensor * to a weir_dl_tensor *. */
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

const char *weir_dtype_text(weir_dtype t);  /* "bf16"; "" if it is no dtype */
size_t weir_dtype_size_bytes(weir_dtype t); /* of an element; 0 if it is no dtype */
weir_dl_dtype weir_dtype_to_dl(weir_dtype t);
/* WEIR_BAD_USAGE if Weir has no such dtype. */
weir_status weir_dtype_from_dl(weir_dl_dtype t, weir_dtype *result);

/* ---- options ----
 * Every option of the library and the command line, from one table: name ("streams"), environment
 * variable (WEIR_STREAMS), kind, default, help. */
typedef struct weir_options weir_options;

typedef struct weir_option_info {
  const char *name;        /* "streams"; the flag is --streams */
  const char *environment; /* "WEIR_STREAMS" */
  const char *placeholder; /* "N"; "" for a flag that takes no value */
  const char *initial;     /* the default as text; "": there is none */
  const char *help;
  const char *commands; /* which commands take it: "run lower verify" */
  char letter;          /* the short form: 'D' for -D; 0: none */
  bool repeats;         /* may be given several times: values collect */
} weir_option_info;

size_t weir_option_count(void);
/* The i-th option, i < weir_option_count(). */
weir_status weir_option_describe(size_t i, weir_option_info *info);

/* Every option has its default, or the value of WEIR_<OPTION> if that is in the environment. A bad value there
 * fails the call. */
weir_status weir_options_create(weir_options **result);
void weir_options_destroy(weir_options *o);
/* Checks the value against the option's kind. A flag takes "true" or "false". An option that repeats gets one
 * more value. */
weir_status weir_options_set(weir_options *o, const char *name, const char *value);
/* The value as text, valid until the options change. An option that repeats has several: *value is the k-th
 * of them, and NULL past the last. For other options k is 0. */
weir_status weir_options_get(const weir_options *o, const char *name, size_t k, const char **value);
/* Only for options whose values are integers. */
weir_status weir_options_get_int(const weir_options *o, const char *name, int64_t *value);
/* Only for flags. */
weir_status weir_options_get_bool(const weir_options *o, const char *name, bool *value);

/* An allocator of GPU memory, such as a framework's cache: programs compiled with these options take the
 * memory of their plans from it, so that the caller and Weir share what there is. A block must be aligned to
 * 256 bytes and may be used by any stream of the GPU until it is freed; `alloc` returns NULL if there is no
 * memory. Both functions are called by the thread that runs or destroys a program. The struct is copied; its
 * context must outlive the programs. Memory that other processes open always comes from the driver. */
typedef void *weir_device_alloc_fn(void *context, int32_t gpu, size_t size_bytes) WEIR_NOEXCEPT;
typedef void weir_device_free_fn(void *context, int32_t gpu, void *block) WEIR_NOEXCEPT;
typedef struct weir_device_allocator {
  size_t struct_size;
  weir_device_alloc_fn *alloc;
  weir_device_free_fn *free;
  void *context;
} weir_device_allocator;
/* `a` NULL: the driver's memory. */
weir_status weir_options_set_device_allocator(weir_options *o, const weir_device_allocator *a);

/* ---- worlds: processes that run programs together, each of them one device ----
 * Most callers need none of this: a program that needs several devices finds its ranks by itself. Under
 * mpirun (OpenMPI, or PMIx and PMI, as of Slurm and MPICH) they communicate by MPI; under torchrun (RANK,
 * WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) over TCP; in all other cases they are threads of this
 * process. A caller that has its own ranks makes a world of them, from one of these:
 *
 *   mpi_comm   an MPI_Comm, which is copied. MPI then carries control messages, and on CPUs the data.
 *              MPI must have been initialised with MPI_THREAD_MULTIPLE, and must not be finalised
 *              before the world is destroyed.
 *   nccl_comm  an ncclComm_t of the libnccl.so.2 that this process has loaded. It says which ranks
 *              there are and on which GPUs, and is used for the exchange of addresses in
 *              weir_world_create(). It is not used afterwards, and stays the caller's.
 *   exchange   a function by which every rank passes some bytes and gets those of all ranks, with
 *              `rank` and `size`. Called only by weir_world_create(), a few times, on its thread.
 *   nothing    the ranks that mpirun or torchrun started, as above.
 *
 * With nccl_comm and exchange, control messages go over TCP, and on CPUs the data too. On GPUs data
 * goes by NCCL or directly between GPUs in all cases (option comm).
 *
 * All ranks make a world together, and compile the programs that use it in the same order. A world
 * fails as a whole: when a rank dies, or an operation of one fails, all ranks' runs end with a message
 * that names the rank. Programs of a failed world can only be destroyed; the process goes on, and a
 * new world can be made in it, of the ranks that are left. */
typedef struct weir_world weir_world;
/* Writes the `mine` of every rank to `all`, in the order of ranks: size * size_bytes in all. A status other
 * than WEIR_OK becomes that of weir_world_create(). */
typedef weir_status weir_exchange_fn(void *context, const void *mine, void *all,
                                     size_t size_bytes) WEIR_NOEXCEPT;

typedef struct weir_world_args {
  size_t struct_size;
  const void *mpi_comm; /* the address of an MPI_Comm */
  void *nccl_comm;      /* an ncclComm_t */
  weir_exchange_fn *exchange;
  void *context;      /* for `exchange` */
  int64_t rank, size; /* with `exchange`; size 0 in all other cases */
} weir_world_args;
/* Of mpi_comm, nccl_comm and exchange at most one is given. `args` NULL: none of them. Waits for all ranks, 60 s
 * at most (WEIR_MPI_START_SECONDS). */
weir_status weir_world_create(const weir_world_args *args, weir_world **result);
/* Programs that use the world keep it alive. If it was made of an MPI communicator, all ranks must call this. */
void weir_world_destroy(weir_world *w);

typedef struct weir_world_info {
  size_t struct_size;
  int64_t rank, size;
  int64_t local;       /* the number of this rank among those on its machine */
  const char *carrier; /* "mpi", "tcp": how ranks talk */
} weir_world_info;
weir_status weir_world_describe(const weir_world *w, weir_world_info *result);

/* Programs compiled with these options run on this world. `w` NULL: ranks as the environment says. */
weir_status weir_options_set_world(weir_options *o, const weir_world *w);

/* ---- modules: one or more fusions, parsed or built ---- */
typedef struct weir_module weir_module;
typedef struct weir_fusion weir_fusion; /* owned by its module, and valid as long as that */

/* An empty module, for fusions that are built. */
weir_status weir_module_create(const weir_allocator *memory, weir_module **result);
/* Parses a text, applies its schedules and verifies it. `name` is the name of the file in messages. */
weir_status weir_module_parse(const char *name, const char *text, size_t length,
                              const weir_allocator *memory, weir_module **result);
/* The same for a file. */
weir_status weir_module_load(const char *path, const weir_allocator *memory, weir_module **result);
/* Lays out the text of a program as `weir fmt` does: its tokens, comments and lines stay. */
weir_status weir_format(const char *name, const char *text, size_t length, char **result);
/* The same for a file. If `write` is set, the file is replaced if its text changes, and `result` may be
 * NULL. */
weir_status weir_format_file(const char *path, bool write, char **result);
void weir_module_destroy(weir_module *m);
/* The text form; it parses back to the same module. */
weir_status weir_module_print(const weir_module *m, char **text);
/* How many fusions and host programs it has. */
size_t weir_module_count(const weir_module *m);
/* The i-th of them, i < weir_module_count(). */
weir_status weir_module_at(weir_module *m, size_t i, weir_fusion **result);
/* The one called `name`; NULL: the name of the first one. If a fusion and a host program have that name, it is
 * the host program; if none has, WEIR_BAD_USAGE. */
weir_status weir_module_find(weir_module *m, const char *name, weir_fusion **result);

/* Checks every invariant; WEIR_BAD_PROGRAM, with all diagnostics, if one is broken. */
weir_status weir_module_verify(weir_module *m);

/* ---- passes ---- */
typedef struct weir_pass_args {
  size_t struct_size;
  const char *passes;      /* "dce,cse"; "" is the identity, "default" the whole pipeline */
  const char *print_after; /* "all", "changed" or the name of a pass; NULL: print nothing */
  bool time;               /* add a table of times to the log */
  const char *reproducer;  /* path of the file written when a pass fails; NULL: none */
  const char *disable;     /* passes of the list to leave out: "cse,free"; NULL: none */
  const char *enable;      /* optional passes to run at their place in "default"; NULL: none */
  const char *pipeline;    /* as the option of that name; NULL: auto */
} weir_pass_args;
/* Runs passes over every fusion, and passes for host programs over every host program, and verifies after
 * each. If a fusion is lowered, its host program comes after it in the module. `log` may be NULL; *log
 * receives what print_after and time printed, also if a pass fails: set it to NULL before the call. After
 * a failure the module may hold what earlier passes made of it. */
weir_status weir_module_run_passes(weir_module *m, const weir_pass_args *args, char **log);

/* The lines of `weir list`. kind: "ops", "passes", "devices", "comms", "machines", "options". */
weir_status weir_list(const char *kind, char **text);

/* Calls `tell` for each finding that `weir doctor` prints: subject "cpu", name "instructions", value "avx512".
 * Devices and communication backends report the libraries that they found, and their speed; this takes some
 * ms. */
typedef struct weir_finding {
  const char *subject, *name, *value; /* valid during the call */
} weir_finding;
typedef void weir_finding_fn(void *context, const weir_finding *finding) WEIR_NOEXCEPT;
weir_status weir_examine(weir_finding_fn *tell, void *context);

/* The machine, for the options device and comm, that `--pipeline auto` chooses for: the text of a machine
 * file, with comments that say where its figures come from. They are measured once and kept in the
 * user's cache folder; with `measure` they are measured again. `o` NULL: the defaults. Under a launcher
 * all processes must call it, and get the same text. */
weir_status weir_machine(const weir_options *o, bool measure, char **text);

/* ---- building a fusion ----
 * In the order of the text: meshes and inputs, operations, returns, then the schedule. What the language
 * refuses is refused here, with the same messages. */
typedef struct weir_tensor {
  uint32_t id; /* 0: none */
} weir_tensor;
typedef struct weir_mesh {
  uint32_t id;
} weir_mesh;

/* One argument of an operation, made by a weir_arg_* function below. What it points to must live until
 * weir_fusion_op() has returned. */
typedef enum weir_arg_kind {
  WEIR_ARG_TENSOR,
  WEIR_ARG_INT,
  WEIR_ARG_FLOAT,
  WEIR_ARG_BOOL,
  WEIR_ARG_DTYPE,
  WEIR_ARG_TEXT, /* an extent expression ("a * b"), a list of them ("[a * b, 4]"), or a choice */
  WEIR_ARG_INTS, /* a list of integers, bools (0 or 1) or constant extents */
} weir_arg_kind;

typedef struct weir_arg {
  const char *name; /* of the parameter; NULL: by position */
  weir_arg_kind kind;
  weir_tensor tensor;  /* TENSOR */
  int64_t i;           /* INT, BOOL and DTYPE: the value; INTS: how many */
  double f;            /* FLOAT */
  const char *text;    /* TEXT */
  const int64_t *ints; /* INTS */
} weir_arg;

weir_arg weir_arg_tensor(const char *name, weir_tensor t);
weir_arg weir_arg_int(const char *name, int64_t value);
weir_arg weir_arg_float(const char *name, double value);
weir_arg weir_arg_bool(const char *name, bool value);
weir_arg weir_arg_dtype(const char *name, weir_dtype value);
weir_arg weir_arg_text(const char *name, const char *value);
weir_arg weir_arg_ints(const char *name, const int64_t *values, size_t n);

/* An empty fusion at the end of the module. */
weir_status weir_fusion_create(weir_module *m, const char *name, weir_fusion **result);
/* Declares a mesh with `rank` axes of the sizes in `shape`. `devices`: the device at each position, row-major;
 * NULL: 0, 1, 2, … */
weir_status weir_fusion_mesh(weir_fusion *f, const char *name, const int64_t *shape, size_t rank,
                             const int64_t *devices, weir_mesh *result);
/* Declares an input. Extents are written as in the language: "32", "t", "?". */
weir_status weir_fusion_input(weir_fusion *f, const char *name, weir_dtype dtype,
                              const char *const *extents, size_t rank, weir_tensor *result);
/* Calls operation `op` ("matmul") and names the result. */
weir_status weir_fusion_op(weir_fusion *f, const char *name, const char *op, const weir_arg *args,
                           size_t n_args, weir_tensor *result);
/* The same for an operation with several results ("topk": values and indices): names the first `n_names` of
 * them, at least one, and writes as many handles to `results`. The others are not computed. */
weir_status weir_fusion_op_results(weir_fusion *f, const char *const *names, size_t n_names,
                                   const char *op, const weir_arg *args, size_t n_args,
                                   weir_tensor *results);
/* Makes a tensor the next output. */
weir_status weir_fusion_return(weir_fusion *f, weir_tensor t);
/* The tensor, or mesh, called `name`; WEIR_BAD_USAGE if there is none. */
weir_status weir_fusion_tensor(weir_fusion *f, const char *name, weir_tensor *result);
weir_status weir_fusion_find_mesh(weir_fusion *f, const char *name, weir_mesh *result);

/* ---- scheduling ----
 * One function per schedule statement (docs/schedule.md). `axis` is a position in the tensor's loop domain
 * as the statements before have made it; negative: counted from the end. A factor is text: "3", "d",
 * "g.x", "n / 2". */
/* Puts the tensor on the devices of a mesh. */
weir_status weir_schedule_on(weir_fusion *f, weir_tensor t, weir_mesh mesh);
/* An axis of n positions becomes two: [ceildiv(n, factor), factor]. */
weir_status weir_schedule_split(weir_fusion *f, weir_tensor t, int64_t axis, const char *factor);
/* An axis of n positions becomes two: [factor, ceildiv(n, factor)]. */
weir_status weir_schedule_outer_split(weir_fusion *f, weir_tensor t, int64_t axis,
                                      const char *factor);
/* Cuts an axis into n chunks of these lengths; it becomes two: [n, the longest length]. */
weir_status weir_schedule_chunk_split(weir_fusion *f, weir_tensor t, int64_t axis,
                                      const int64_t *lengths, size_t n);
/* The axis and the next one become one. */
weir_status weir_schedule_merge(weir_fusion *f, weir_tensor t, int64_t axis);
/* Axis from[i] goes to position to[i]; the others keep their order. */
weir_status weir_schedule_reorder(weir_fusion *f, weir_tensor t, const int64_t *from,
                                  const int64_t *to, size_t n);
/* The device with coordinate c along `mesh_axis` ("mesh.x") sees position p of n at (p + c) mod n. */
weir_status weir_schedule_swizzle(weir_fusion *f, weir_tensor t, int64_t axis,
                                  const char *mesh_axis);
/* Turns the reduction `t` into two: a new tensor called `name` reduces these axes and keeps the other reductions
 * as dimensions, and `t` reduces those. */
weir_status weir_schedule_rfactor(weir_fusion *f, weir_tensor t, const int64_t *axes, size_t n,
                                  const char *name, weir_tensor *result);
/* `t[axis] = mark`: "stream", "stream.ring", "serial", "mesh.x", … */
weir_status weir_schedule_mark(weir_fusion *f, weir_tensor t, int64_t axis, const char *mark);
/* memory: "global" or "symmetric". */
weir_status weir_schedule_memory(weir_fusion *f, weir_tensor t, const char *memory);
/* The order of the tensor's dimensions in memory, the outermost first: as listed, or that of the loop domain. */
weir_status weir_schedule_allocate(weir_fusion *f, weir_tensor t, const int64_t *order, size_t n);
weir_status weir_schedule_allocate_as_loop(weir_fusion *f, weir_tensor t);
/* dense[i]: is the i-th axis in memory, reductions not counted, dense with the next one inside it? */
weir_status weir_schedule_contiguity(weir_fusion *f, weir_tensor t, const bool *dense, size_t n);

/* ---- asking a fusion ---- */
typedef struct weir_tensor_info {
  const char *name; /* valid while the fusion lives */
  weir_dtype dtype;
  size_t rank; /* dimensions, without reductions */
} weir_tensor_info;

const char *weir_fusion_name(const weir_fusion *f);
/* Is it a host program, written by hand or lowered? Those are used like fusions. */
bool weir_fusion_is_host(const weir_fusion *f);
size_t weir_fusion_input_count(const weir_fusion *f);
size_t weir_fusion_output_count(const weir_fusion *f);
weir_status weir_fusion_input_at(const weir_fusion *f, size_t i, weir_tensor *result);
weir_status weir_fusion_output_at(const weir_fusion *f, size_t i, weir_tensor *result);
weir_status weir_tensor_describe(const weir_fusion *f, weir_tensor t, weir_tensor_info *info);
/* The type as a program states it: "f32[n / 2, 4]". Extents that follow from the program alone are integers. */
weir_status weir_tensor_type(const weir_fusion *f, weir_tensor t, char **text);
/* 1 + the largest device id in any mesh; 1 without a mesh, and for NULL. */
int64_t weir_fusion_devices(const weir_fusion *f);

/* ---- shapes ----
 * Values of a fusion's symbolic extents. They use the fusion: destroy them before its module, and declare all
 * inputs before creating them. Functions of a program take shapes of the fusion that it was compiled from. */
typedef struct weir_shapes weir_shapes;

weir_status weir_shapes_create(weir_fusion *f, weir_shapes **result);
void weir_shapes_destroy(weir_shapes *s);
/* Gives extents their values as on the command line: "t=6", or "inp=6x32" for all extents of an input, or
 * several with commas between them: "t=6,n=4". If it fails, no value has changed. */
weir_status weir_shapes_define(weir_shapes *s, const char *definition);
/* Gives all extents of an input their values. `from` says in messages where they come from ("x.npy"); NULL: the
 * caller. */
weir_status weir_shapes_input(weir_shapes *s, weir_tensor input, const int64_t *extents,
                              size_t rank, const char *from);
/* How many symbolic extents of inputs have no value yet. */
size_t weir_shapes_unbound(const weir_shapes *s);
/* Checks that every extent has a value and that all conditions of the program hold. The shapes are then
 * *completed*, which most functions below require. */
weir_status weir_shapes_complete(weir_shapes *s);
/* The extents of a tensor; `extents` has room for WEIR_MAX_RANK. Needs completed shapes. */
weir_status weir_shapes_of(const weir_shapes *s, weir_tensor t, int64_t *extents, size_t *rank);

/* ---- compiling and running ---- */
typedef struct weir_program weir_program;

/* The host program of a fusion, as text. `style` is "weir", for text that begins with the fusion and parses
 * back, or "nvfuser". With the option `explain` the text has reasons as comments. `o` NULL: the defaults,
 * here and in all functions below. */
weir_status weir_lower(const weir_fusion *f, const weir_options *o, const char *style, char **text);
/* The same for completed shapes: `--pipeline auto` chooses among several host programs, and the text is the one
 * that a run with these shapes and options (device, comm, machine and others) takes. If `s` is NULL or not
 * completed, or the style is "nvfuser", it is that of weir_lower(). */
weir_status weir_lower_for(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                           const char *style, char **text);

/* A picture of the lowered program, as SVG: meshes, the pieces of tensors that devices hold, and the host
 * program with a lane for each stream and one for communications. If `s` is NULL or not completed, the
 * tensors are left out. */
weir_status weir_draw(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                      char **text);
/* Writes a text to a file. If that fails, the file stays as it was. */
weir_status weir_text_write(const char *text, const char *path);

/* Explains names of tensors of the fusion, of tensors of its host program, and of communications (as
 * weir_lower() writes them): where the data is and why, down to lines of the program, and what the
 * communications cost. `s` gives extents for the numbers; it may be NULL or not completed. If it is
 * completed, the host program is the one that a run takes. An unknown name is WEIR_BAD_USAGE. */
weir_status weir_why(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                     const char *const *names, size_t n_names, char **text);

/* Compiles a fusion, or takes a host program as it is. The program copies what it needs: the module and the
 * options may be destroyed. It reads the options of `weir run`, except those about files, values and
 * reports. */
weir_status weir_compile(const weir_fusion *f, const weir_options *o, const weir_allocator *memory,
                         weir_program **result);
/* Waits for runs that were begun. */
void weir_program_destroy(weir_program *p);

/* Records what ran when. weir_run() fills the profile that it is given; one profile can be given to many runs.
 * Read and write it before the program is destroyed, or run with other extents. */
typedef struct weir_profile weir_profile;

typedef struct weir_stats {
  size_t struct_size;
  int64_t launches, waits;
  int64_t wall_ns;      /* of the whole run */
  int64_t host_ns;      /* spent issuing instructions */
  int64_t task_ns;      /* the sum over all tasks */
  int64_t compute_ns;   /* the time in which at least one task ran */
  int64_t overlap_ns;   /* two or more tasks ran at once */
  int64_t pool_bytes;   /* of the plan's own memory */
  int64_t peak_bytes;   /* the most that its buffers in use at once took */
  double flops, bytes;  /* computed and moved by tasks */
  int64_t posts, joins; /* of communications: begun; waited for by a stream */
  int64_t comm_ns;      /* at least one communication was under way */
  int64_t both_ns; /* the part of it in which the device ran a task too, on the device with most */
  double sent_bytes; /* to other devices */
} weir_stats;

/* The same for one device of this process. */
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
/* How many devices of this process the run was on. */
size_t weir_profile_ranks(const weir_profile *p);
/* The statistics of the i-th of them. */
weir_status weir_profile_rank_stats(const weir_profile *p, size_t i, weir_rank_stats *stats);

/* The critical path of a run on the device sim, whose clock is virtual: the tasks that determine its `wall_ns`.
 * The first started when the host issued it, each other one when the one before it ended. The path has no
 * steps on other devices, and if the time is that of issuing on the host. */
typedef struct weir_path_step {
  size_t struct_size;
  int64_t instr;            /* number in the plan */
  int64_t stream;           /* worker stream, or -1: the one the program was called on */
  int64_t start_ns, end_ns; /* from the run's start */
  char text[120];           /* "y$1 <- exp(x$1)", cut off if it is longer */
} weir_path_step;
size_t weir_profile_path_count(const weir_profile *p);
weir_status weir_profile_path_step(const weir_profile *p, size_t i, weir_path_step *step);

/* Writes a trace in the format that the ending of the path names: .json for Perfetto and Chrome, .html for a
 * self-contained page, .svg for a picture. */
weir_status weir_profile_write(const weir_profile *p, const char *title, const char *path);
/* The same for one device of this process: the i-th of weir_profile_ranks(). */
weir_status weir_profile_write_rank(const weir_profile *p, size_t i, const char *title,
                                    const char *path);
/* Collects the profiles of one run on rank 0: all processes of the program call it, each with its own. The
 * profile of rank 0 then has the devices of all processes; its statistics stay those of rank 0. Times of
 * processes on one machine fit exactly; for others the clocks of their machines are compared. */
weir_status weir_profile_gather(const weir_program *p, weir_profile *profile);
/* Writes one self-contained page of n traces, at least one: those of the processes of a run, say. `traces` are
 * the paths of .json files that weir_profile_write() made. */
weir_status weir_trace_page(const char *const *traces, size_t n, const char *title,
                            const char *path);

/* The least time, in seconds, in which the devices of a machine could do the work of a program, and the time
 * that the simulator predicts for the program as it would run. */
typedef struct weir_bound {
  size_t struct_size;
  double bound_s; /* the largest of the next five, each of the device for which it is largest */
  double compute_s, memory_s, receive_s, send_s, chain_s;
  double predicted_s;
  int64_t device; /* the one that ends last; the next three add up to its time */
  double computing_s, exposed_s, idle_s;
  /* The variant that the prediction is for: "marked", or the optional pass that makes it ("unstream"). */
  const char *program;
} weir_bound;
/* Called for each communication that weir_bound.device waits for with nothing to compute; `place` is "file:12". */
typedef void (*weir_bound_tell)(void *context, const char *place, const char *text,
                                double exposed_s) WEIR_NOEXCEPT;
/* The bound for completed shapes, on the machine that the option `machine` names, or else on that of
 * weir_machine(). Under a launcher all processes must call it. `tell` may be NULL. */
weir_status weir_program_bound(weir_program *p, const weir_shapes *s, weir_bound *result,
                               weir_bound_tell tell, void *context);

/* Binds the program to completed shapes and proves, for all devices: no race; no use of memory before it is
 * allocated or written, or after it is freed; every stream is joined; communications match, and none
 * waits for ever. If the proof fails: WEIR_CHECK_FAILED with all findings. `report` may be NULL; *report is
 * a summary that lists waits which could be left out, and NULL for the reference evaluator, which has no
 * plan to prove. */
weir_status weir_program_check(const weir_program *p, const weir_shapes *s, char **report);
/* Prepares runs with completed shapes: binds the program, compiles and loads its kernels, allocates its
 * memory. A run then only issues work; on a GPU, the first run with arrays that have to be copied also
 * allocates memory for the copies. If the program has several processes, all of them must call this. The
 * reference evaluator needs no preparation. */
weir_status weir_program_prepare(const weir_program *p, const weir_shapes *s);
/* Waits for runs on the caller's streams that may still fail (indexes, positions or lengths out of range), and
 * returns their error, or that of finished launches of a captured graph. If this is not called, the next
 * run of the program returns that error. */
weir_status weir_program_settle(const weir_program *p);
/* The rank of this process if MPI or torchrun started it, else -1. If they did, and the option comm is not
 * "inproc", each process runs one device. weir_run() then takes whole inputs in every process. On rank 0 it
 * writes whole outputs; on other ranks only the part of an output that the device holds: all of it if the
 * output is replicated, nothing if the device has none of it. */
int64_t weir_launch_rank(void);
/* The device that runs the program: "cpu", "sim", …; "ref" is the reference evaluator, also the answer for NULL. */
const char *weir_program_device(const weir_program *p);
/* Notes about the program as it last ran or was checked, one per line: marked streams that are not used, with
 * the times predicted with and without them; marks that made no loop; movements of many bytes that
 * another mark would avoid. *note is NULL if there are none. */
weir_status weir_program_note(const weir_program *p, char **note);

/* What a program on a device has done so far. A program is bound anew for new extents, not for new values, seeds
 * or addresses. */
typedef struct weir_counts {
  size_t struct_size;
  int64_t runs;
  int64_t bindings;          /* plans that were made, each for some extents */
  int64_t loads;             /* plans that were put on the device: memory, kernels */
  int64_t in_place;          /* donated inputs that were overwritten where they are */
  int64_t copied;            /* donated inputs whose new value was computed elsewhere and copied */
  int64_t proofs;            /* of plans before their first run (option prove) */
  int64_t plans, plan_bytes; /* kept now; buffers that plans share are not counted */
  int64_t evicted;           /* plans that were dropped to make room for others */
  int64_t allocations;       /* from the program's allocator */
} weir_counts;
weir_status weir_program_counts(const weir_program *p, weir_counts *result);

/* For an extent with a capacity (`extent s <= 8192`): the smallest bucket of at least `length`. Buckets are
 * 64, 128, 256, … and the capacity; a length over the capacity is refused. If inputs have the bucket as
 * their extent, and the length is an input without dimensions, the program is bound once per bucket
 * (docs/api.md). */
weir_status weir_program_bucket(const weir_program *p, const char *extent, int64_t length,
                                int64_t *bucket);

/* The memory that a program with completed shapes needs for its buffers, on the device that needs most: one
 * pool, in which buffers that are not in use at the same time share bytes. `text` may be NULL; *text lists
 * the values in use at the peak, with their lines and bytes. Nothing is run. WEIR_BAD_USAGE for the
 * reference evaluator. */
typedef struct weir_memory {
  size_t struct_size;
  int64_t device;
  int64_t pool_bytes;
  int64_t live_bytes; /* the most in use at once, in the order of the plan */
} weir_memory;
weir_status weir_program_memory(const weir_program *p, const weir_shapes *s, weir_memory *result,
                                char **text);

/* If input number `input` is donated to output number `output`, would a run with these completed shapes compute
 * the output in the input's memory? *why is NULL if it would, and says what prevents it if not.
 * WEIR_BAD_USAGE for the reference evaluator. */
weir_status weir_program_donation(const weir_program *p, const weir_shapes *s, size_t input,
                                  size_t output, char **why);

/* ---- parts of tensors, per device ----
 * Instead of whole tensors, a program on several devices can take and return the parts that the devices of
 * this process hold. */
typedef struct weir_devices {
  size_t struct_size;
  int64_t first, count; /* the devices of this process: first, first + 1, … */
  int64_t world;        /* how many all processes have */
} weir_devices;
weir_status weir_program_devices(const weir_program *p, weir_devices *result);

typedef enum weir_side { WEIR_INPUT, WEIR_OUTPUT } weir_side;

/* The part of an input or output that a device holds. It is a box in the whole tensor: `extents` positions from
 * `begin` on. If `scattered`, its positions are not one range of each dimension (every n-th of them, say);
 * they are in order, the first at `begin`. */
typedef struct weir_shard {
  size_t struct_size;
  bool present; /* false: the device is not in the tensor's mesh; the fields below mean nothing */
  size_t rank;
  int64_t begin[WEIR_MAX_RANK], extents[WEIR_MAX_RANK], whole[WEIR_MAX_RANK];
  int64_t owner; /* one of the devices that hold this same part, the same for all of them */
  bool scattered;
} weir_shard;
/* The part of the i-th input or output on a device. The shapes need not be completed if they have values for all
 * extents that those of the tensor depend on. WEIR_BAD_USAGE for the reference evaluator. */
weir_status weir_program_shard(const weir_program *p, const weir_shapes *s, weir_side side,
                               size_t i, int64_t device, weir_shard *result);
/* Compares the copies of parts that several devices hold. If they differ: WEIR_CHECK_FAILED for an output,
 * WEIR_BAD_INPUT for an input. With `assemble_whole` it also writes the whole tensor to `whole` on rank 0;
 * in all other cases `whole` may be NULL. `shards` has one tensor per device of this process, NULL for a
 * device that holds none. All processes must make the same call. */
weir_status weir_program_join(const weir_program *p, const weir_shapes *s, weir_side side, size_t i,
                              const weir_dl_tensor *const *shards, bool assemble_whole,
                              const weir_dl_tensor *whole);
/* Called by all processes of a program, each with its status so far, and a message if that is a failure (or
 * NULL). Returns WEIR_OK to all if all were OK; if not, the status and message of the first rank that was
 * not. */
weir_status weir_program_agree(const weir_program *p, weir_status mine, const char *message);
/* Tells other ranks that this process is busy between two calls, so that they do not give up waiting for it.
 * During a call of the library this is not needed. Call it with false as often as with true. */
void weir_program_busy(const weir_program *p, bool busy);

/* ---- running ----
 * The memory of inputs and outputs belongs to the caller. Shapes come from the inputs. `outputs` are
 * dense or strided tensors of the right shape and dtype that overlap no input and no other output.
 * They hold the result on success; after a failure their content is undefined. Tensors may be in
 * memory of the host or of GPUs; what a program cannot use in place is copied (docs/api.md). Devices
 * that compute nothing (sim, null) look at shapes only: their tensors may have no data.
 *
 * With `streams` the run comes after all work that is on these streams of the caller's, and before
 * all that is put on them afterwards; weir_run() returns when the run is issued, and waits only
 * where the host has to see the end (docs/api.md). If one of the streams is being captured, the
 * program becomes part of that CUDA graph. Without streams, outputs are complete when it returns.
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
  /* One per output: the number of the input whose memory it is given, or -1; NULL: none. Such an output is
   * the same tensor as that input, or the same shards, and no other tensor of the run may be there. */
  const int64_t *donated;
  /* For weir_check(): how many rows of each output are compared, chosen at random by `seed`; 0: all. A row
   * is a position of all dimensions but the last. */
  int64_t check_rows;
} weir_run_args;

weir_status weir_run(const weir_program *p, const weir_run_args *args);

/* ---- runs that go on while the caller does something else ----
 * A program has a queue, whose runs a thread of the program executes one after the other, in the
 * order of the calls. A run uses the plan's memory only after the one before it has ended, so
 * results never mix. weir_run() comes after all runs that were begun before it. Different programs
 * run at the same time.
 *
 * weir_run_async() returns at once. The lists and tensor structs of `args` are copied; data,
 * `shapes` and `profile` must live until the run has ended. With `streams` the run comes after all
 * that these hold at the time of the call; they do not wait for it, and must not be captured.
 *
 * `done` (may be NULL) is called on the program's thread when the run has ended, before threads
 * that wait for it go on; `message` is "" if there is none. It must not wait for later runs of the
 * program. `result` may be NULL if no thread waits for the run. */
typedef struct weir_pending weir_pending;
typedef void weir_done_fn(void *context, weir_status status, const char *message) WEIR_NOEXCEPT;

weir_status weir_run_async(const weir_program *p, const weir_run_args *args, weir_done_fn *done,
                           void *context, weir_pending **result);
/* Waits until the run has ended, and returns its status; weir_error() then has its message. Can be
 * called more than once. */
weir_status weir_pending_wait(const weir_pending *r);
/* True if the run has ended, and for NULL. Waits for the end, at most `timeout_ns`; 0: does not wait;
 * negative: without limit. In a callback of the same program it does not wait: later runs begin when the
 * callback has returned. */
bool weir_pending_poll(const weir_pending *r, int64_t timeout_ns);
/* Asks the run to end: if it has not begun, it never does; if it has, it starts no more steps. It
 * then ends with WEIR_CANCELLED, and the content of outputs is undefined; the program is not
 * affected. What cannot be stopped runs to its end: the reference evaluator, and runs in which
 * other processes take part. Does not wait. Accepts NULL. */
void weir_pending_cancel(weir_pending *r);
/* A run that has not ended goes on; weir_program_destroy() waits for all of them. */
void weir_pending_destroy(weir_pending *r);

/* The result of a check: the worst element, and what was compared. The worst element is that whose difference
 * is largest relative to its tolerance. */
typedef struct weir_verdict {
  double max_abs, max_rel;      /* the largest difference, and it over the largest |reference| */
  int64_t index[WEIR_MAX_RANK]; /* of the worst element */
  double value, reference, tolerance;
  int64_t n_elements, n_wrong; /* compared, and beyond their tolerance */
  bool ok;                     /* none is wrong */
} weir_verdict;
/* Evaluates the definition on the inputs of `args`, whole tensors, and compares the result with what the outputs
 * of `args` hold. `verdicts` has room for one per output. The status is WEIR_OK also if an output is wrong.
 * An element may differ by what rounding explains: the definition is evaluated several times with random
 * errors where devices round, and six times the standard deviation of its value is the tolerance
 * (docs/semantics.md). With rtol > 0 the tolerance is rtol times the largest |reference| of the output
 * instead, and the definition is evaluated once. */
weir_status weir_check(const weir_program *p, const weir_run_args *args, double rtol,
                       weir_verdict *verdicts);

/* ---- arrays: memory owned by the library, for callers without arrays of their own ---- */
typedef struct weir_array weir_array;

/* A dense array of zeros. */
weir_status weir_array_create(weir_dtype dtype, const int64_t *extents, size_t rank,
                              const weir_allocator *memory, weir_array **result);
void weir_array_destroy(weir_array *a);
/* A view of the array, valid as long as the array. */
const weir_dl_tensor *weir_array_tensor(const weir_array *a);
weir_dtype weir_array_dtype(const weir_array *a);
/* Fills the array. `kind` is "normal", "int" (-3..3), "iota" or "ones". The values depend on kind,
 * seed, name (NULL: ""), shape and dtype only. */
weir_status weir_array_fill(weir_array *a, const char *kind, uint64_t seed, const char *name);
/* Fills the array with integers in [0, bound), for an input that holds indexes. */
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
/* The same in two steps, for several processes that must all succeed (weir_program_agree): the files
 * are complete under temporary names, and weir_saving_commit() renames them. Destroying a
 * weir_saving that was not committed removes its files. */
typedef struct weir_saving weir_saving;
weir_status weir_arrays_stage_npy(const weir_array *const *arrays, const char *const *paths,
                                  size_t n, weir_saving **result);
weir_status weir_saving_commit(weir_saving *s);
void weir_saving_destroy(weir_saving *s);
/* Removes the temporary files of everything that this process is saving. For the handler of a signal
 * that ends the process; the library installs no handlers. */
void weir_saving_abandon_all(void);
/* A copy with another dtype, from the same allocator (of an f32 file for a bf16 input, say). */
weir_status weir_array_convert(const weir_array *a, weir_dtype dtype, weir_array **result);

typedef struct weir_comparison {
  double max_abs, max_rel; /* the largest difference, and it over the largest |reference| */
  double tolerance;
  bool ok;
} weir_comparison;
/* Compares two arrays of one dtype and shape. `least` is the least precise dtype that the value
 * depends on (weir_fusion_least_dtype); it decides the tolerance. Integers and bools must be equal.
 * NaN equals NaN, infinities equal themselves. */
weir_status weir_array_compare(const weir_array *value, const weir_array *reference,
                               weir_dtype least, weir_comparison *result);
/* The least precise float dtype among those of `t` and of the tensors it is computed from; the dtype of `t`
 * itself if that is exact. */
weir_status weir_fusion_least_dtype(const weir_fusion *f, weir_tensor t, weir_dtype *result);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
