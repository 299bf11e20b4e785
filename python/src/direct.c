/* Calls with tensors of one package that has DLPack's table of functions: views and streams are obtained in C, without
 * making objects. */
#include "weir_python.h"

/* Tensors of both sides, which the caller's tuples hold. */
typedef struct direct {
  weir_dl_tensor tensors[WEIR_PY_SMALL];
  const weir_dl_tensor *list[WEIR_PY_SMALL];
  weir_stream streams[WEIR_PY_SMALL];
  size_t n, n_streams;
} direct;

static int has_stream(const direct *d, int32_t gpu) {
  for (size_t i = 0; i < d->n_streams; i++)
    if (d->streams[i].device.device_id == gpu) return 1;
  return 0;
}

/* Takes a tensor; 0: it cannot, and no exception is set. `stream` NULL: the current one of the package. */
static int take(direct *d, PyObject *object, void *const *stream) {
  enum { DL_CUDA = 2 };
  weir_dl_tensor *t = &d->tensors[d->n];
  if (d->n == WEIR_PY_SMALL || !weir_py_tensor_view(object, t)) return 0;
  d->list[d->n++] = t;
  if (t->device.device_type != DL_CUDA || has_stream(d, t->device.device_id)) return 1;
  weir_stream *s = &d->streams[d->n_streams++];
  *s = (weir_stream){t->device, stream ? *stream : NULL};
  return stream || weir_py_tensor_stream(object, t->device, &s->handle);
}

static int take_all(direct *d, PyObject *tuple, void *const *stream) {
  Py_ssize_t n = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < n; i++)
    if (!take(d, PyTuple_GetItem(tuple, i), stream)) return 0;
  return 1;
}

static PyObject *result_of(PyObject *out) {
  PyObject *r = PyTuple_Check(out) && PyTuple_Size(out) == 1 ? PyTuple_GetItem(out, 0) : out;
  Py_INCREF(r);
  return r;
}

PyObject *weir_py_direct(PyObject *o, PyObject *const *args, Py_ssize_t n) {
  if (n != 4) return PyErr_Format(PyExc_TypeError, "direct() takes 4 arguments");
  PyObject *inputs = args[0], *outputs = args[1], *seed = args[2], *stream = args[3];
  direct d;
  void *handle = NULL;
  d.n = d.n_streams = 0;
  weir_run_args a = {.struct_size = sizeof a, .inputs = d.list, .streams = d.streams};
  if (!weir_py_seed(seed, &a.seed)) return NULL;
  if (stream != Py_None) handle = PyLong_AsVoidPtr(stream);
  if (PyErr_Occurred()) return NULL;
  void *const *given = stream == Py_None ? NULL : &handle;
  int ok = take_all(&d, inputs, given);
  a.n_inputs = d.n;
  ok = ok && (PyTuple_Check(outputs) ? take_all(&d, outputs, given) : take(&d, outputs, given));
  if (!ok) Py_RETURN_NONE;
  a.outputs = d.list + a.n_inputs;
  a.n_outputs = d.n - a.n_inputs;
  a.n_streams = d.n_streams;
  weir_status st;
  Py_BEGIN_ALLOW_THREADS;
  st = weir_run(((weir_py_program *)o)->program, &a);
  Py_END_ALLOW_THREADS;
  if (st != WEIR_OK) return weir_py_raise(st);
  return PyErr_CheckSignals() == 0 ? result_of(outputs) : NULL;
}
