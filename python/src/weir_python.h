/* The extension module weir._weir: the C API as Python objects, thin and only for the package.
 *
 * It uses Python's limited API, so that one build serves 3.9 and all later versions, and of the library only
 * weir.h. The package (python/weir) has the parts that users see. */
#ifndef WEIR_PYTHON_H
#define WEIR_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <weir/weir.h>

/* weir.Error, set by the package: called with status and message. */
extern PyObject *weir_py_error;
/* Raises it for a failed call; returns NULL. */
PyObject *weir_py_raise(weir_status st);

/* A str for a char ** result, which is freed. */
PyObject *weir_py_text(weir_status st, char *text);

/* Options from a dict of str to str; NULL and an exception on failure. */
weir_options *weir_py_options(PyObject *dict);

/* ---- objects ---- */
typedef struct weir_py_module {
  PyObject_HEAD weir_module *module;
} weir_py_module;

typedef struct weir_py_program {
  PyObject_HEAD weir_program *program;
  weir_profile *profile;      /* of the last run with a profile */
  PyObject *alloc, *free;     /* for device memory; NULL: the driver's */
  PyObject *inputs, *outputs; /* lists of tuples that begin with a name */
} weir_py_program;

typedef struct weir_py_world {
  PyObject_HEAD weir_world *world;
} weir_py_world;

extern PyObject *weir_py_program_type;
int weir_py_add_module(PyObject *m);  /* the type Module (module.c) */
int weir_py_add_program(PyObject *m); /* the type Program (program.c) */
int weir_py_add_pending(PyObject *m); /* the type Pending (pending.c) */
int weir_py_add_world(PyObject *m);   /* the type World (world.c) */
/* None: no world. Not 0: an exception. */
int weir_py_world_of(PyObject *o, weir_world **result);
/* log_to(text or None, progress or None) */
PyObject *weir_py_log_to(PyObject *m, PyObject *args);
/* start(inputs, outputs, seed, stream, streams, callback or None, rest): a Pending. */
PyObject *weir_py_start(PyObject *program, PyObject *args);

/* Extents for a fusion, from a tuple with each input's shape and a dict of names to values (each may be NULL or None),
 * which must agree. NULL and an exception on failure; with `complete` also if an extent has no value. */
weir_shapes *weir_py_shapes(weir_fusion *f, PyObject *shapes, PyObject *extents, int complete);
/* The same in a capsule, from shapes of those inputs that are not None and from a dict; and back again. */
PyObject *weir_py_bind(weir_fusion *f, PyObject *shapes, PyObject *extents, int complete);
weir_shapes *weir_py_bound(PyObject *capsule);

/* ---- tensors by DLPack (tensor.c) ---- */
/* What __dlpack__ gave, held while the tensor is used. */
typedef struct weir_py_tensor {
  PyObject *capsule;
  const weir_dl_tensor *tensor;
  weir_dl_tensor as_other; /* for (dtype, array), if a package does not export the dtype */
} weir_py_tensor;
/* `stream` is passed to __dlpack__ for tensors of GPUs: -1, or what the Python package computed. */
int weir_py_tensor_take(PyObject *object, PyObject *stream, int writes, weir_py_tensor *t);
void weir_py_tensor_drop(weir_py_tensor *t);
/* A view by the package's table of functions, without making an object: valid while `object` lives and is not changed.
 * 0: its type has no table, or the table refuses; no exception is set. The second function gets the current stream of
 * the object's package. */
int weir_py_tensor_view(PyObject *object, weir_dl_tensor *result);
int weir_py_tensor_stream(PyObject *object, weir_dl_device device, void **result);

/* direct(inputs, outputs, seed, stream or None): a run with whole tensors that all have such a table (direct.c). Returns
 * the output, or a tuple of several; None if a tensor has no table, and then nothing was done. */
PyObject *weir_py_direct(PyObject *program, PyObject *const *args, Py_ssize_t n);

/* Tensors of one side of a run, held while it uses them (side.c). An entry of the tuple is a tensor, or a list of the
 * parts that the devices of this process hold: a tensor or None for each. */
enum { WEIR_PY_SMALL = 16 };
typedef struct weir_py_side {
  Py_ssize_t n, n_items;
  weir_py_tensor small[WEIR_PY_SMALL], *items;
  const weir_dl_tensor *small_list[WEIR_PY_SMALL], **list;
  const weir_dl_tensor **parts, *const **shards; /* by entry; NULL: all are whole */
} weir_py_side;
/* `inputs` or `outputs` is the list of the program, for messages; the other one is NULL. */
int weir_py_side_take(PyObject *tuple, PyObject *stream, PyObject *inputs, PyObject *outputs,
                      weir_py_side *s);
void weir_py_side_drop(weir_py_side *s);
/* For the format O&: converts an integer of any kind to the seed, a uint64_t. 0: an exception is set. */
int weir_py_seed(PyObject *o, void *result);
/* Pairs of GPU and handle; the number of them, or -1 and an exception. */
Py_ssize_t weir_py_streams(PyObject *tuple, weir_stream *list);
/* Fills in both sides and `rest`: None, or (a capsule of shapes or None, a number per output of the input whose memory
 * it is given or -1). `donated` has room for `WEIR_PY_OUTPUTS`. Not 0: an exception. */
enum { WEIR_PY_OUTPUTS = 256 };
int weir_py_run_args(const weir_py_side *in, const weir_py_side *out, PyObject *rest,
                     int64_t *donated, weir_run_args *a);

#endif
