/* World: processes that run programs together; and functions that receive texts and progress of the library. */
#include <string.h>

#include "weir_python.h"

static PyTypeObject *world_type;

static weir_py_world *self_of(PyObject *o) { return (weir_py_world *)o; }

static void dealloc(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  weir_world *w = self_of(o)->world;
  Py_BEGIN_ALLOW_THREADS;
  weir_world_destroy(w);
  Py_END_ALLOW_THREADS;
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(o);
  Py_DECREF(type);
}

/* ---- the exchange ---- */
typedef struct exchange_call {
  PyObject *callable;
  Py_ssize_t size;
  PyObject *type, *value, *trace; /* what it raised */
} exchange_call;

/* Calls the callable with bytes; it returns a sequence of bytes, one for each rank. */
static int exchange_bytes(const exchange_call *c, const void *mine, char *all, size_t size_bytes) {
  PyObject *list = PyObject_CallFunction(c->callable, "y#", mine, (Py_ssize_t)size_bytes);
  if (!list) return -1;
  Py_ssize_t n = PySequence_Size(list);
  if (n >= 0 && n != c->size)
    PyErr_Format(PyExc_ValueError, "the exchange gave %zd items for %zd ranks", n, c->size);
  for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
    char *data;
    Py_ssize_t length;
    PyObject *item = PySequence_GetItem(list, i);
    if (item && PyBytes_AsStringAndSize(item, &data, &length) == 0) {
      if (length == (Py_ssize_t)size_bytes) memcpy(all + (size_t)i * size_bytes, data, size_bytes);
      else
        PyErr_Format(PyExc_ValueError, "the exchange gave %zd bytes of rank %zd, not %zu", length,
                     i, size_bytes);
    }
    Py_XDECREF(item);
  }
  Py_DECREF(list);
  return PyErr_Occurred() ? -1 : 0;
}

static weir_status exchange(void *context, const void *mine, void *all, size_t size_bytes) {
  exchange_call *c = context;
  PyGILState_STATE gil = PyGILState_Ensure();
  int rc = exchange_bytes(c, mine, all, size_bytes);
  if (rc != 0) PyErr_Fetch(&c->type, &c->value, &c->trace);
  PyGILState_Release(gil);
  return rc == 0 ? WEIR_OK : WEIR_UNAVAILABLE;
}

/* World(exchange or None, rank, size, address of an MPI_Comm or 0, an ncclComm_t or 0) */
static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  exchange_call c = {0};
  long long rank, size;
  unsigned long long communicator, nccl;
  weir_world *w = NULL;
  weir_status st;
  (void)keywords;
  if (!PyArg_ParseTuple(args, "OLLKK", &c.callable, &rank, &size, &communicator, &nccl))
    return NULL;
  weir_world_args a = {.struct_size = sizeof a, .rank = rank, .size = size};
  c.size = (Py_ssize_t)size;
  a.mpi_comm = (const void *)(uintptr_t)communicator;
  a.nccl_comm = (void *)(uintptr_t)nccl;
  if (c.callable != Py_None) a.exchange = exchange, a.context = &c;
  Py_BEGIN_ALLOW_THREADS;
  st = weir_world_create(&a, &w);
  Py_END_ALLOW_THREADS;
  if (c.type) {
    PyErr_Restore(c.type, c.value, c.trace);
    weir_world_destroy(w);
    return NULL;
  }
  if (st != WEIR_OK) return weir_py_raise(st);
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  PyObject *o = allocate(type, 0);
  if (o) self_of(o)->world = w;
  else weir_world_destroy(w);
  return o;
}

/* (rank, size, local, carrier) */
static PyObject *describe(PyObject *o, PyObject *unused) {
  (void)unused;
  weir_world_info d = {.struct_size = sizeof d};
  weir_status st = weir_world_describe(self_of(o)->world, &d);
  if (st != WEIR_OK) return weir_py_raise(st);
  return Py_BuildValue("(LLLs)", (long long)d.rank, (long long)d.size, (long long)d.local,
                       d.carrier);
}

static PyMethodDef methods[] = {{"describe", describe, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc},
                              {Py_tp_new, (void *)create},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)"Processes that run programs together."},
                              {0, NULL}};
static PyType_Spec spec = {"weir._weir.World", sizeof(weir_py_world), 0, Py_TPFLAGS_DEFAULT, slots};

int weir_py_add_world(PyObject *m) {
  world_type = (PyTypeObject *)PyType_FromSpec(&spec);
  if (!world_type) return -1;
  Py_INCREF((PyObject *)world_type);
  return PyModule_AddObject(m, "World", (PyObject *)world_type);
}

int weir_py_world_of(PyObject *o, weir_world **result) {
  *result = NULL;
  if (o == Py_None) return 0;
  if (!PyObject_TypeCheck(o, world_type)) {
    PyErr_Format(PyExc_TypeError, "world must be a weir.World");
    return -1;
  }
  *result = self_of(o)->world;
  return 0;
}

/* ---- logs ---- */
static struct { PyObject *text, *progress; } listeners;

static void call_listener(PyObject *callable, PyObject *args) {
  PyObject *result = args ? PyObject_CallObject(callable, args) : NULL;
  if (!result) PyErr_WriteUnraisable(callable);
  Py_XDECREF(result);
  Py_XDECREF(args);
}

static void tell_text(void *context, const char *text) {
  (void)context;
  PyGILState_STATE gil = PyGILState_Ensure();
  if (listeners.text) call_listener(listeners.text, Py_BuildValue("(s)", text));
  PyGILState_Release(gil);
}

static void tell_progress(void *context, const char *what, int64_t done, int64_t total) {
  (void)context;
  PyGILState_STATE gil = PyGILState_Ensure();
  if (listeners.progress)
    call_listener(listeners.progress,
                  Py_BuildValue("(sLL)", what, (long long)done, (long long)total));
  PyGILState_Release(gil);
}

/* Another thread may be in a listener, which needs the GIL: so it is released while listeners are changed. */
PyObject *weir_py_log_to(PyObject *m, PyObject *args) {
  PyObject *text, *progress;
  (void)m;
  if (!PyArg_ParseTuple(args, "OO", &text, &progress)) return NULL;
  PyObject *before[] = {listeners.text, listeners.progress};
  listeners.text = text == Py_None ? NULL : text;
  listeners.progress = progress == Py_None ? NULL : progress;
  Py_XINCREF(listeners.text);
  Py_XINCREF(listeners.progress);
  weir_log_fn *to = listeners.text ? tell_text : NULL;
  weir_progress_fn *progress_to = listeners.progress ? tell_progress : NULL;
  Py_BEGIN_ALLOW_THREADS;
  weir_log_to(to, progress_to, NULL);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(before[0]);
  Py_XDECREF(before[1]);
  Py_RETURN_NONE;
}
