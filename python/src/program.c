/* Program: a compiled program. */
#include <stddef.h>

#include "weir_python.h"

PyObject *weir_py_program_type;

static weir_py_program *self_of(PyObject *o) { return (weir_py_program *)o; }

static void dealloc(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  weir_profile_destroy(self_of(o)->profile);
  Py_BEGIN_ALLOW_THREADS;
  weir_program_destroy(self_of(o)->program);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(self_of(o)->alloc);
  Py_XDECREF(self_of(o)->free);
  Py_XDECREF(self_of(o)->inputs);
  Py_XDECREF(self_of(o)->outputs);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(o);
  Py_DECREF(type);
}

/* ---- running ---- */
/* run(inputs, outputs, seed, as_definition, profile, stream, streams, rest): `stream` goes to __dlpack__, `streams` are
 * pairs of GPU and handle, `rest` is that of weir_py_run_args(). */
static PyObject *run(PyObject *o, PyObject *args) {
  weir_py_program *self = self_of(o);
  PyObject *inputs, *outputs, *stream, *streams, *rest;
  uint64_t seed;
  int as_definition, profile;
  int64_t donated[WEIR_PY_OUTPUTS];
  weir_py_side in = {0}, out = {0};
  weir_stream given[WEIR_PY_SMALL];
  weir_status st = WEIR_OK;
  if (!PyArg_ParseTuple(args, "O!O!O&ppOO!O", &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
                        weir_py_seed, &seed, &as_definition, &profile, &stream, &PyTuple_Type,
                        &streams, &rest))
    return NULL;
  Py_ssize_t n_streams = weir_py_streams(streams, given);
  if (n_streams < 0) return NULL;
  if (profile && !self->profile && weir_profile_create(&self->profile) != WEIR_OK)
    return weir_py_raise(WEIR_OUT_OF_MEMORY);
  weir_run_args a = {.struct_size = sizeof a,
                     .seed = seed,
                     .as_definition = as_definition != 0,
                     .profile = profile ? self->profile : NULL,
                     .streams = given,
                     .n_streams = (size_t)n_streams};
  int ok = weir_py_side_take(inputs, stream, self->inputs, NULL, &in) == 0 &&
           weir_py_side_take(outputs, stream, NULL, self->outputs, &out) == 0 &&
           weir_py_run_args(&in, &out, rest, donated, &a) == 0;
  if (ok) {
    Py_BEGIN_ALLOW_THREADS;
    st = weir_run(self->program, &a);
    Py_END_ALLOW_THREADS;
  }
  weir_py_side_drop(&in);
  weir_py_side_drop(&out);
  if (!ok) return NULL;
  if (st != WEIR_OK) return weir_py_raise(st);
  if (PyErr_CheckSignals() != 0) return NULL; /* Ctrl-C while the GIL was not held */
  Py_RETURN_NONE;
}

/* ---- asking ---- */
static PyObject *device(PyObject *o, PyObject *unused) {
  (void)unused;
  return PyUnicode_FromString(weir_program_device(self_of(o)->program));
}

static PyObject *devices(PyObject *o, PyObject *unused) {
  (void)unused;
  weir_devices d = {.struct_size = sizeof d};
  weir_status st = weir_program_devices(self_of(o)->program, &d);
  if (st != WEIR_OK) return weir_py_raise(st);
  return Py_BuildValue("(LLL)", (long long)d.first, (long long)d.count, (long long)d.world);
}

static PyObject *extents_of(const int64_t *list, size_t n) {
  PyObject *t = PyTuple_New((Py_ssize_t)n);
  for (size_t k = 0; t && k < n; k++)
    (void)PyTuple_SetItem(t, (Py_ssize_t)k, PyLong_FromLongLong(list[k]));
  return t;
}

/* shard(shapes, is_output, number, device): (begin, extents, whole, owner, scattered), or None if it holds nothing. */
static PyObject *shard(PyObject *o, PyObject *args) {
  PyObject *capsule;
  int is_output;
  Py_ssize_t i;
  long long d;
  weir_shard r = {.struct_size = sizeof r};
  if (!PyArg_ParseTuple(args, "OpnL", &capsule, &is_output, &i, &d)) return NULL;
  weir_shapes *s = weir_py_bound(capsule);
  if (!s) return NULL;
  weir_status st = weir_program_shard(self_of(o)->program, s, is_output ? WEIR_OUTPUT : WEIR_INPUT,
                                      (size_t)i, d, &r);
  if (st != WEIR_OK) return weir_py_raise(st);
  if (!r.present) Py_RETURN_NONE;
  return Py_BuildValue("(NNNLN)", extents_of(r.begin, r.rank), extents_of(r.extents, r.rank),
                       extents_of(r.whole, r.rank), (long long)r.owner,
                       PyBool_FromLong(r.scattered));
}

/* bucket(extent, length) */
static PyObject *bucket(PyObject *o, PyObject *args) {
  const char *extent;
  long long length;
  int64_t found = 0;
  if (!PyArg_ParseTuple(args, "sL", &extent, &length)) return NULL;
  weir_status st = weir_program_bucket(self_of(o)->program, extent, length, &found);
  return st == WEIR_OK ? PyLong_FromLongLong(found) : weir_py_raise(st);
}

static PyObject *counts(PyObject *o, PyObject *unused) {
  (void)unused;
  weir_counts n = {.struct_size = sizeof n};
  weir_status st = weir_program_counts(self_of(o)->program, &n);
  if (st != WEIR_OK) return weir_py_raise(st);
  return Py_BuildValue("{sLsLsLsLsLsLsLsLsL}", "runs", (long long)n.runs, "bindings",
                       (long long)n.bindings, "loads", (long long)n.loads, "allocations",
                       (long long)n.allocations, "in_place", (long long)n.in_place, "copied",
                       (long long)n.copied, "plans", (long long)n.plans, "plan_bytes",
                       (long long)n.plan_bytes, "evicted", (long long)n.evicted);
}

static PyObject *note(PyObject *o, PyObject *unused) {
  (void)unused;
  char *text = NULL;
  weir_status st = weir_program_note(self_of(o)->program, &text);
  if (st == WEIR_OK && !text) Py_RETURN_NONE;
  return weir_py_text(st, text);
}

static PyObject *stats(PyObject *o, PyObject *unused) {
  (void)unused;
  weir_stats s = {.struct_size = sizeof s};
  if (!weir_profile_filled(self_of(o)->profile)) Py_RETURN_NONE;
  weir_status st = weir_profile_stats(self_of(o)->profile, &s);
  if (st != WEIR_OK) return weir_py_raise(st);
  return Py_BuildValue("{sLsLsLsLsLsLsLsLsLsdsdsLsLsLsLsd}", "launches", (long long)s.launches,
                       "waits", (long long)s.waits, "wall_ns", (long long)s.wall_ns, "host_ns",
                       (long long)s.host_ns, "task_ns", (long long)s.task_ns, "compute_ns",
                       (long long)s.compute_ns, "overlap_ns", (long long)s.overlap_ns, "pool_bytes",
                       (long long)s.pool_bytes, "peak_bytes", (long long)s.peak_bytes, "flops",
                       s.flops, "bytes", s.bytes, "posts", (long long)s.posts, "joins",
                       (long long)s.joins, "comm_ns", (long long)s.comm_ns, "both_ns",
                       (long long)s.both_ns, "sent_bytes", s.sent_bytes);
}

static PyObject *trace(PyObject *o, PyObject *args) {
  const char *title, *path;
  if (!PyArg_ParseTuple(args, "ss", &title, &path)) return NULL;
  if (!self_of(o)->profile) return PyErr_Format(PyExc_RuntimeError, "no run kept a profile");
  weir_status st = weir_profile_write(self_of(o)->profile, title, path);
  if (st != WEIR_OK) return weir_py_raise(st);
  Py_RETURN_NONE;
}

/* The arguments (module, name, shapes or None, extents) of questions about a program; NULL: an exception is set. */
static weir_shapes *complete_shapes(PyObject *args) {
  PyObject *module, *shapes, *extents;
  const char *name;
  weir_fusion *f = NULL;
  if (!PyArg_ParseTuple(args, "OsOO!", &module, &name, &shapes, &PyDict_Type, &extents))
    return NULL;
  weir_status st = weir_module_find(((weir_py_module *)module)->module, name, &f);
  if (st == WEIR_OK) return weir_py_shapes(f, shapes, extents, 1);
  (void)weir_py_raise(st);
  return NULL;
}

/* verify(module, name, shapes or None, extents) */
static PyObject *verify(PyObject *o, PyObject *args) {
  char *report = NULL;
  weir_status st;
  weir_shapes *s = complete_shapes(args);
  if (!s) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = weir_program_check(self_of(o)->program, s, &report);
  Py_END_ALLOW_THREADS;
  PyObject *result = weir_py_text(st, report);
  weir_shapes_destroy(s);
  return result;
}

/* Appends (place, text, seconds) to a list; an error stays set. */
static void tell_exposed(void *list, const char *place, const char *text, double exposed_s) {
  PyObject *one = Py_BuildValue("(ssd)", place, text, exposed_s);
  if (one) (void)PyList_Append(list, one);
  Py_XDECREF(one);
}

/* prepare(module, name, shapes or None, extents) */
static PyObject *prepare(PyObject *o, PyObject *args) {
  weir_status st;
  weir_shapes *s = complete_shapes(args);
  if (!s) return NULL;
  const weir_program *p = self_of(o)->program;
  Py_BEGIN_ALLOW_THREADS;
  st = weir_program_prepare(p, s);
  Py_END_ALLOW_THREADS;
  weir_shapes_destroy(s);
  if (st != WEIR_OK) return weir_py_raise(st);
  Py_RETURN_NONE;
}

/* settle() */
static PyObject *settle(PyObject *o, PyObject *unused) {
  weir_status st;
  const weir_program *p = self_of(o)->program;
  (void)unused;
  Py_BEGIN_ALLOW_THREADS;
  st = weir_program_settle(p);
  Py_END_ALLOW_THREADS;
  if (st != WEIR_OK) return weir_py_raise(st);
  Py_RETURN_NONE;
}

/* bound(module, name, shapes or None, extents), of a program that is compiled for the device sim */
static PyObject *bound(PyObject *o, PyObject *args) {
  weir_bound b = {.struct_size = sizeof b};
  weir_status st = WEIR_OK;
  weir_shapes *s = complete_shapes(args);
  PyObject *lines = s ? PyList_New(0) : NULL;
  if (lines) st = weir_program_bound(self_of(o)->program, s, &b, tell_exposed, lines);
  weir_shapes_destroy(s);
  if (!lines) return NULL;
  if (st != WEIR_OK || PyErr_Occurred()) {
    Py_DECREF(lines);
    return st != WEIR_OK ? weir_py_raise(st) : NULL;
  }
  return Py_BuildValue("{sdsdsdsdsdsdsdsssLsdsdsdsN}", "bound_s", b.bound_s, "compute_s",
                       b.compute_s, "memory_s", b.memory_s, "receive_s", b.receive_s, "send_s",
                       b.send_s, "chain_s", b.chain_s, "predicted_s", b.predicted_s, "program",
                       b.program, "device", (long long)b.device, "computing_s", b.computing_s,
                       "exposed_s", b.exposed_s, "idle_s", b.idle_s, "exposed", lines);
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, NULL},
    {"start", weir_py_start, METH_VARARGS, NULL},
    {"device", device, METH_NOARGS, NULL},
    {"devices", devices, METH_NOARGS, NULL},
    {"stats", stats, METH_NOARGS, NULL},
    {"trace", trace, METH_VARARGS, NULL},
    {"verify", verify, METH_VARARGS, NULL},
    {"prepare", prepare, METH_VARARGS, NULL},
    {"settle", settle, METH_NOARGS, NULL},
    {"bound", bound, METH_VARARGS, NULL},
    {"shard", shard, METH_VARARGS, NULL},
    {"bucket", bucket, METH_VARARGS, NULL},
    {"counts", counts, METH_NOARGS, NULL},
    {"note", note, METH_NOARGS, NULL},
    {"direct", (PyCFunction)(void (*)(void))weir_py_direct, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)"A compiled program."},
                              {0, NULL}};
static PyType_Spec spec = {"weir._weir.Program", sizeof(weir_py_program), 0, Py_TPFLAGS_DEFAULT,
                           slots};

int weir_py_add_program(PyObject *m) {
  weir_py_program_type = PyType_FromSpec(&spec);
  if (!weir_py_program_type) return -1;
  Py_INCREF(weir_py_program_type);
  return PyModule_AddObject(m, "Program", weir_py_program_type);
}
