/* Pending: a run that goes on while Python does something else. */
#include "weir_python.h"

typedef struct pending {
  PyObject_HEAD weir_pending *run;
  PyObject *program, *rest; /* held for the run */
  weir_py_side in, out;
} pending;

static PyObject *pending_type;
static pending *self_of(PyObject *o) { return (pending *)o; }

/* The program of the callback that the thread is in: later runs of it begin when the callback has returned. */
static _Thread_local const PyObject *telling;

/* Of a run that has ended. */
static void drop(pending *p) {
  PyTypeObject *type = Py_TYPE((PyObject *)p);
  weir_pending_destroy(p->run);
  weir_py_side_drop(&p->in);
  weir_py_side_drop(&p->out);
  Py_XDECREF(p->program);
  Py_XDECREF(p->rest);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(p);
  Py_DECREF(type);
}

static void drop_later(void *context) {
  pending *p = context;
  (void)weir_pending_poll(p->run, -1);
  PyGILState_STATE gil = PyGILState_Ensure();
  drop(p);
  PyGILState_Release(gil);
}

/* The arrays are in use until the run has ended. A callback cannot wait for a later run: another thread does. If there is
 * none, the arrays are kept for ever. */
static void dealloc(PyObject *o) {
  pending *p = self_of(o);
  bool ended;
  Py_BEGIN_ALLOW_THREADS;
  ended = weir_pending_poll(p->run, -1);
  Py_END_ALLOW_THREADS;
  if (ended) drop(p);
  else (void)PyThread_start_new_thread(drop_later, p);
}

/* Called on the program's thread, with (callable, program). An exception of the callable can only be reported. */
static void call_back(void *context, weir_status st, const char *message) {
  (void)st, (void)message;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *callable = PyTuple_GetItem(context, 0);
  telling = PyTuple_GetItem(context, 1);
  PyObject *result = PyObject_CallNoArgs(callable);
  if (!result) PyErr_WriteUnraisable(callable);
  Py_XDECREF(result);
  Py_DECREF((PyObject *)context);
  telling = NULL;
  PyGILState_Release(gil);
}

static weir_status start(pending *p, weir_run_args *a, PyObject *callable) {
  weir_status st;
  const weir_program *program = ((weir_py_program *)p->program)->program;
  PyObject *context = NULL;
  if (callable != Py_None && !(context = PyTuple_Pack(2, callable, p->program)))
    return WEIR_OUT_OF_MEMORY;
  Py_BEGIN_ALLOW_THREADS;
  st = weir_run_async(program, a, context ? call_back : NULL, context, &p->run);
  Py_END_ALLOW_THREADS;
  if (st != WEIR_OK) Py_XDECREF(context);
  return st;
}

PyObject *weir_py_start(PyObject *program, PyObject *args) {
  PyObject *inputs, *outputs, *stream, *streams, *callable, *rest;
  int64_t donated[WEIR_PY_OUTPUTS];
  uint64_t seed;
  weir_stream given[WEIR_PY_SMALL];
  if (!PyArg_ParseTuple(args, "O!O!O&OO!OO", &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
                        weir_py_seed, &seed, &stream, &PyTuple_Type, &streams, &callable, &rest))
    return NULL;
  Py_ssize_t n_streams = weir_py_streams(streams, given);
  if (n_streams < 0) return NULL;
  PyTypeObject *type = (PyTypeObject *)pending_type;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  pending *p = (pending *)allocate(type, 0);
  if (!p) return NULL;
  Py_INCREF(program);
  p->program = program;
  Py_INCREF(rest);
  p->rest = rest;
  const weir_py_program *of = (const weir_py_program *)program;
  weir_run_args a = {.struct_size = sizeof a, .seed = seed, .streams = given};
  a.n_streams = (size_t)n_streams;
  int ok = weir_py_side_take(inputs, stream, of->inputs, NULL, &p->in) == 0 &&
           weir_py_side_take(outputs, stream, NULL, of->outputs, &p->out) == 0 &&
           weir_py_run_args(&p->in, &p->out, rest, donated, &a) == 0;
  weir_status st = ok ? start(p, &a, callable) : WEIR_BAD_USAGE;
  if (ok && st != WEIR_OK) (void)weir_py_raise(st);
  if (st == WEIR_OK) return (PyObject *)p;
  Py_DECREF(p);
  return NULL;
}

/* poll(seconds): waits up to so long, negative: without limit; has the run ended? Checks for Ctrl-C meanwhile. Raises in a
 * callback for which the run is a later one. */
static PyObject *poll(PyObject *o, PyObject *args) {
  double seconds;
  bool ended;
  const double step = 0.05;
  if (!PyArg_ParseTuple(args, "d", &seconds)) return NULL;
  const pending *p = self_of(o);
  if (telling == p->program && seconds != 0 && !weir_pending_poll(p->run, 0))
    return weir_py_raise(weir_pending_wait(p->run));
  for (double left = seconds;; left -= step) {
    double now = seconds < 0 || left > step ? step : left > 0 ? left : 0;
    Py_BEGIN_ALLOW_THREADS;
    ended = weir_pending_poll(p->run, (int64_t)(now * 1e9));
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals() != 0) return NULL;
    if (ended || (seconds >= 0 && left <= step)) return PyBool_FromLong(ended);
  }
}

/* Raises the error of a run that has ended. */
static PyObject *result(PyObject *o, PyObject *unused) {
  (void)unused;
  weir_status st = weir_pending_wait(self_of(o)->run);
  if (st != WEIR_OK) return weir_py_raise(st);
  Py_RETURN_NONE;
}

static PyObject *cancel(PyObject *o, PyObject *unused) {
  (void)unused;
  weir_pending_cancel(self_of(o)->run);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"poll", poll, METH_VARARGS, NULL},
                                {"result", result, METH_NOARGS, NULL},
                                {"cancel", cancel, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)"A run under way."},
                              {0, NULL}};
static PyType_Spec spec = {"weir._weir.Pending", sizeof(pending), 0, Py_TPFLAGS_DEFAULT, slots};

int weir_py_add_pending(PyObject *m) {
  pending_type = PyType_FromSpec(&spec);
  if (!pending_type) return -1;
  Py_INCREF(pending_type);
  return PyModule_AddObject(m, "Pending", pending_type);
}
