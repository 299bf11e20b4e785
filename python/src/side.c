/* The tensors of a run, on its two sides. */
#include "weir_python.h"

/* ---- tensors ---- */
void weir_py_side_drop(weir_py_side *s) {
  for (Py_ssize_t i = 0; s->items && i < s->n_items; i++) weir_py_tensor_drop(&s->items[i]);
  if (s->items != s->small) PyMem_Free(s->items);
  if (s->list != s->small_list) PyMem_Free((void *)s->list);
  PyMem_Free((void *)s->parts);
  PyMem_Free((void *)s->shards);
}

/* Room for all tensors; false and an exception: there is none. */
static int reserve(PyObject *tuple, weir_py_side *s) {
  Py_ssize_t n = PyTuple_Size(tuple), items = 0, lists = 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *o = PyTuple_GetItem(tuple, i);
    lists += PyList_Check(o);
    items += PyList_Check(o) ? PyList_Size(o) : 1;
  }
  s->items = items <= WEIR_PY_SMALL ? s->small : PyMem_Calloc((size_t)items, sizeof *s->items);
  s->list = n <= WEIR_PY_SMALL ? s->small_list : PyMem_Calloc((size_t)n, sizeof *s->list);
  if (lists > 0) {
    s->parts = PyMem_Calloc((size_t)items + 1, sizeof *s->parts);
    s->shards = PyMem_Calloc((size_t)n, sizeof *s->shards);
  }
  if (s->items && s->list && (lists == 0 || (s->parts && s->shards))) return 1;
  PyErr_NoMemory();
  return 0;
}

static int take(PyObject *o, PyObject *stream, int writes, weir_py_side *s,
                const weir_dl_tensor **to) {
  weir_py_tensor *t = &s->items[s->n_items];
  if (weir_py_tensor_take(o, stream, writes, t) != 0) return -1;
  s->n_items++;
  *to = t->tensor;
  return 0;
}

/* The list holds the objects while the capsules are used. */
static int take_side(PyObject *tuple, PyObject *stream, int writes, weir_py_side *s) {
  Py_ssize_t n = PyTuple_Size(tuple), part = 0;
  if (n < 0 || !reserve(tuple, s)) return -1;
  for (s->n = 0; s->n < n; s->n++) {
    PyObject *o = PyTuple_GetItem(tuple, s->n);
    if (!PyList_Check(o)) {
      if (take(o, stream, writes, s, &s->list[s->n]) != 0) return -1;
      continue;
    }
    s->list[s->n] = NULL;
    s->shards[s->n] = &s->parts[part];
    for (Py_ssize_t k = 0; k < PyList_Size(o); k++, part++) {
      PyObject *x = PyList_GetItem(o, k);
      if (x != Py_None && take(x, stream, writes, s, &s->parts[part]) != 0) return -1;
    }
  }
  return 0;
}

/* Adds the name of the tensor to the exception of its package. Exceptions of other types are left as they are. */
static void name_tensor(const char *what, PyObject *names, Py_ssize_t i) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  int plain = type == PyExc_BufferError || type == PyExc_TypeError || type == PyExc_ValueError;
  if (!plain || !names || i >= PyList_Size(names)) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  PyErr_Format(type, "%s %S: %S", what, PyTuple_GetItem(PyList_GetItem(names, i), 0), value);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

int weir_py_side_take(PyObject *tuple, PyObject *stream, PyObject *inputs, PyObject *outputs,
                      weir_py_side *s) {
  if (take_side(tuple, stream, outputs != NULL, s) == 0) return 0;
  name_tensor(outputs ? "output" : "input", outputs ? outputs : inputs, s->n);
  return -1;
}

/* ---- what else a run is given ---- */
int weir_py_seed(PyObject *o, void *result) {
  PyObject *number = PyNumber_Index(o);
  if (!number) {
    PyErr_Format(PyExc_TypeError, "the seed is an integer, not %R", o);
    return 0;
  }
  uint64_t seed = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred())
    PyErr_Format(PyExc_ValueError, "the seed is from 0 to 2**64 - 1, not %R", number);
  else *(uint64_t *)result = seed;
  Py_DECREF(number);
  return PyErr_Occurred() == NULL;
}

Py_ssize_t weir_py_streams(PyObject *tuple, weir_stream *list) {
  Py_ssize_t n = PyTuple_Size(tuple);
  if (n > WEIR_PY_SMALL) {
    PyErr_Format(PyExc_ValueError, "too many streams");
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    int gpu;
    unsigned long long handle;
    if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "iK", &gpu, &handle)) return -1;
    list[i] = (weir_stream){{2, gpu}, (void *)(uintptr_t)handle};
  }
  return n;
}

static int read_donated(PyObject *tuple, int64_t *list, weir_run_args *a) {
  Py_ssize_t n = PyTuple_Size(tuple);
  if (n < 0 || n > WEIR_PY_OUTPUTS || (size_t)n != a->n_outputs) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "outputs of inputs: one per output");
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++) list[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
  a->donated = list;
  return PyErr_Occurred() ? -1 : 0;
}

int weir_py_run_args(const weir_py_side *in, const weir_py_side *out, PyObject *rest,
                     int64_t *donated, weir_run_args *a) {
  a->inputs = in->list;
  a->n_inputs = (size_t)in->n;
  a->outputs = out->list;
  a->n_outputs = (size_t)out->n;
  a->input_shards = in->shards;
  a->output_shards = out->shards;
  if (rest == Py_None) return 0;
  PyObject *shapes, *inputs;
  if (!PyArg_ParseTuple(rest, "OO", &shapes, &inputs)) return -1;
  if (shapes != Py_None && !(a->shapes = weir_py_bound(shapes))) return -1;
  return inputs == Py_None ? 0 : read_donated(inputs, donated, a);
}
