/* Module: parsed programs; and the extension module itself. */
#include "weir_python.h"

PyObject *weir_py_error;

/* ---- errors and texts ---- */
/* [(file, line, column, severity, text, suggestion, rank), ...] of the last failed call */
static PyObject *diagnostics(void) {
  PyObject *list = PyList_New(0);
  weir_diagnostic d = {.struct_size = sizeof d};
  for (size_t i = 0; list && weir_diagnostic_at(i, &d); i++) {
    PyObject *item = Py_BuildValue("(sLLsssL)", d.file, (long long)d.line, (long long)d.column,
                                   d.severity == WEIR_SEVERITY_NOTE ? "note" : "error", d.text,
                                   d.suggestion, (long long)d.rank);
    if (!item || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

PyObject *weir_py_raise(weir_status st) {
  PyObject *type = weir_py_error ? weir_py_error : PyExc_RuntimeError;
  PyObject *list = diagnostics();
  PyObject *error = list ? PyObject_CallFunction(type, "isN", (int)st, weir_error(), list) : NULL;
  if (!error) return NULL;
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
  return NULL;
}

PyObject *weir_py_text(weir_status st, char *text) {
  if (st != WEIR_OK) {
    weir_string_free(text);
    return weir_py_raise(st);
  }
  PyObject *result = PyUnicode_FromString(text ? text : "");
  weir_string_free(text);
  return result;
}

static const char *utf8(PyObject *text) { return PyUnicode_AsUTF8AndSize(text, NULL); }

/* ---- options and extents ---- */
weir_options *weir_py_options(PyObject *dict) {
  weir_options *o = NULL;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  weir_status st = weir_options_create(&o);
  while (st == WEIR_OK && PyDict_Next(dict, &at, &key, &value)) {
    const char *k = utf8(key), *v = k ? utf8(value) : NULL;
    if (!v) {
      weir_options_destroy(o);
      return NULL;
    }
    st = weir_options_set(o, k, v);
  }
  if (st == WEIR_OK) return o;
  weir_options_destroy(o);
  (void)weir_py_raise(st);
  return NULL;
}

/* Returns the number of extents; -1 and an exception: it is no shape. */
static Py_ssize_t read_shape(const char *name, PyObject *shape, int64_t *extents) {
  Py_ssize_t rank = PySequence_Check(shape) ? PySequence_Size(shape) : -1;
  if (rank > WEIR_MAX_RANK)
    PyErr_Format(PyExc_ValueError, "%s has %zd dimensions, and at most %d are possible", name, rank,
                 WEIR_MAX_RANK);
  for (Py_ssize_t k = 0; k < rank && !PyErr_Occurred(); k++) {
    PyObject *x = PySequence_GetItem(shape, k);
    extents[k] = x ? PyLong_AsLongLong(x) : -1;
    Py_XDECREF(x);
  }
  if (rank >= 0 && !PyErr_Occurred()) return rank;
  if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))
    PyErr_Format(PyExc_TypeError, "the shape of %s is a tuple of integers, not %R", name, shape);
  return -1;
}

static weir_status bind_input(weir_shapes *s, weir_fusion *f, size_t i, PyObject *shape) {
  int64_t extents[WEIR_MAX_RANK];
  weir_tensor t;
  weir_tensor_info info;
  weir_status st = weir_fusion_input_at(f, i, &t);
  if (st == WEIR_OK) st = weir_tensor_describe(f, t, &info);
  if (st != WEIR_OK) return st;
  Py_ssize_t rank = read_shape(info.name, shape, extents);
  return rank < 0 ? WEIR_BAD_USAGE : weir_shapes_input(s, t, extents, (size_t)rank, info.name);
}

static weir_status bind_names(weir_shapes *s, PyObject *dict) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    PyObject *text = PyUnicode_FromFormat("%S=%S", key, value);
    const char *definition = text ? utf8(text) : NULL;
    weir_status st = definition ? weir_shapes_define(s, definition) : WEIR_BAD_USAGE;
    Py_XDECREF(text);
    if (st != WEIR_OK) return st;
  }
  return WEIR_OK;
}

/* Binds the shapes that are not None. */
static weir_status bind_inputs(weir_shapes *s, weir_fusion *f, PyObject *shapes) {
  Py_ssize_t n = PySequence_Size(shapes);
  weir_status st = WEIR_OK;
  if (n != (Py_ssize_t)weir_fusion_input_count(f)) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, "%s takes %zu inputs, but %zd are given", weir_fusion_name(f),
                   weir_fusion_input_count(f), n);
    return WEIR_BAD_USAGE;
  }
  for (Py_ssize_t i = 0; st == WEIR_OK && i < n; i++) {
    PyObject *shape = PySequence_GetItem(shapes, i);
    if (!shape) st = WEIR_BAD_USAGE;
    else if (shape != Py_None) st = bind_input(s, f, (size_t)i, shape);
    Py_XDECREF(shape);
  }
  return st;
}

/* Takes over the shapes; destroys them on failure. */
static weir_shapes *finish_shapes(weir_shapes *s, weir_status st, int complete) {
  if (st == WEIR_OK && complete) st = weir_shapes_complete(s);
  if (st == WEIR_OK) return s;
  if (!PyErr_Occurred()) (void)weir_py_raise(st);
  weir_shapes_destroy(s);
  return NULL;
}

weir_shapes *weir_py_shapes(weir_fusion *f, PyObject *shapes, PyObject *extents, int complete) {
  weir_shapes *s = NULL;
  weir_status st = weir_shapes_create(f, &s);
  if (st == WEIR_OK && extents && extents != Py_None) st = bind_names(s, extents);
  if (st == WEIR_OK && shapes && shapes != Py_None) st = bind_inputs(s, f, shapes);
  return finish_shapes(s, st, complete);
}

/* ---- shapes in capsules ---- */
static const char *capsule_name = "weir.shapes";

static void drop_shapes(PyObject *capsule) {
  weir_shapes_destroy(PyCapsule_GetPointer(capsule, capsule_name));
}

PyObject *weir_py_bind(weir_fusion *f, PyObject *shapes, PyObject *extents, int complete) {
  weir_shapes *s = weir_py_shapes(f, shapes, extents, complete);
  PyObject *capsule = s ? PyCapsule_New(s, capsule_name, drop_shapes) : NULL;
  if (s && !capsule) weir_shapes_destroy(s);
  return capsule;
}

weir_shapes *weir_py_bound(PyObject *capsule) {
  return PyCapsule_GetPointer(capsule, capsule_name);
}

/* ---- the type ---- */
static weir_py_module *self_of(PyObject *o) { return (weir_py_module *)o; }

static void dealloc(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  weir_module_destroy(self_of(o)->module);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(o);
  Py_DECREF(type);
}

/* Module(name, text) */
static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  const char *name, *text;
  Py_ssize_t length;
  (void)keywords;
  if (!PyArg_ParseTuple(args, "ss#", &name, &text, &length)) return NULL;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  PyObject *o = allocate(type, 0);
  if (!o) return NULL;
  weir_status st;
  weir_module *m = NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = weir_module_parse(name, text, (size_t)length, NULL, &m);
  Py_END_ALLOW_THREADS;
  self_of(o)->module = m;
  if (st == WEIR_OK) return o;
  (void)weir_py_raise(st);
  Py_DECREF(o);
  return NULL;
}

static weir_fusion *find(PyObject *o, const char *name) {
  weir_fusion *f = NULL;
  weir_status st = weir_module_find(self_of(o)->module, name, &f);
  if (st != WEIR_OK) (void)weir_py_raise(st);
  return f;
}

static PyObject *print(PyObject *o, PyObject *unused) {
  (void)unused;
  char *text = NULL;
  weir_status st = weir_module_print(self_of(o)->module, &text);
  return weir_py_text(st, text);
}

static PyObject *names(PyObject *o, PyObject *unused) {
  (void)unused;
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < weir_module_count(self_of(o)->module); i++) {
    weir_fusion *f = NULL;
    (void)weir_module_at(self_of(o)->module, i, &f);
    PyObject *item =
        Py_BuildValue("(sO)", weir_fusion_name(f), weir_fusion_is_host(f) ? Py_True : Py_False);
    if (!item || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

/* [(name, dtype, rank, type), ...] of one side */
static PyObject *tensors(weir_fusion *f, int outputs) {
  size_t n = outputs ? weir_fusion_output_count(f) : weir_fusion_input_count(f);
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < n; i++) {
    weir_tensor t = {0};
    weir_tensor_info info = {0};
    (void)(outputs ? weir_fusion_output_at(f, i, &t) : weir_fusion_input_at(f, i, &t));
    (void)weir_tensor_describe(f, t, &info);
    char *type = NULL;
    (void)weir_tensor_type(f, t, &type);
    PyObject *item = Py_BuildValue("(ssnz)", info.name, weir_dtype_text(info.dtype),
                                   (Py_ssize_t)info.rank, type);
    weir_string_free(type);
    if (!item || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

static PyObject *signature(PyObject *o, PyObject *args) {
  const char *name;
  if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
  weir_fusion *f = find(o, name);
  return f ? Py_BuildValue("(NN)", tensors(f, 0), tensors(f, 1)) : NULL;
}

static PyObject *list_shapes(weir_fusion *f, const weir_shapes *s, int inputs) {
  size_t n = inputs ? weir_fusion_input_count(f) : weir_fusion_output_count(f);
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < n; i++) {
    int64_t extents[WEIR_MAX_RANK];
    size_t rank = 0;
    weir_tensor t;
    weir_status st = inputs ? weir_fusion_input_at(f, i, &t) : weir_fusion_output_at(f, i, &t);
    if (st == WEIR_OK) st = weir_shapes_of(s, t, extents, &rank);
    if (st != WEIR_OK) (void)weir_py_raise(st);
    PyObject *shape = st == WEIR_OK ? PyTuple_New((Py_ssize_t)rank) : NULL;
    for (size_t k = 0; shape && k < rank; k++)
      (void)PyTuple_SetItem(shape, (Py_ssize_t)k, PyLong_FromLongLong(extents[k]));
    if (!shape || PyList_Append(list, shape) != 0) Py_CLEAR(list);
    Py_XDECREF(shape);
  }
  return list;
}

/* shapes(name, [shape, ...] or a capsule, of_inputs=False): those of the outputs, or of the inputs. */
static PyObject *output_shapes(PyObject *o, PyObject *args) {
  const char *name;
  PyObject *inputs;
  int of_inputs = 0;
  if (!PyArg_ParseTuple(args, "sO|p", &name, &inputs, &of_inputs)) return NULL;
  weir_fusion *f = find(o, name);
  if (!f) return NULL;
  if (PyCapsule_CheckExact(inputs)) {
    const weir_shapes *bound = weir_py_bound(inputs);
    return bound ? list_shapes(f, bound, of_inputs) : NULL;
  }
  weir_shapes *s = weir_py_shapes(f, inputs, NULL, 1);
  PyObject *list = s ? list_shapes(f, s, of_inputs) : NULL;
  weir_shapes_destroy(s);
  return list;
}

/* bind(name, [shape or None, ...], {extent: value}, complete): a capsule; the module must live as long. */
static PyObject *bind(PyObject *o, PyObject *args) {
  const char *name;
  PyObject *shapes, *extents;
  int complete;
  if (!PyArg_ParseTuple(args, "sOO!p", &name, &shapes, &PyDict_Type, &extents, &complete))
    return NULL;
  weir_fusion *f = find(o, name);
  return f ? weir_py_bind(f, shapes, extents, complete) : NULL;
}

static PyObject *lower(PyObject *o, PyObject *args) {
  const char *name, *style;
  PyObject *dict;
  char *text = NULL;
  if (!PyArg_ParseTuple(args, "sO!s", &name, &PyDict_Type, &dict, &style)) return NULL;
  weir_fusion *f = find(o, name);
  weir_options *options = f ? weir_py_options(dict) : NULL;
  if (!options) return NULL;
  weir_status st = weir_lower(f, options, style, &text);
  PyObject *result = weir_py_text(st, text);
  weir_options_destroy(options);
  return result;
}

/* why(name, options, extents or None, [name, ...]) */
static PyObject *why(PyObject *o, PyObject *args) {
  const char *name, *list[64];
  PyObject *dict, *extents, *asked;
  char *text = NULL;
  if (!PyArg_ParseTuple(args, "sO!OO!", &name, &PyDict_Type, &dict, &extents, &PyTuple_Type,
                        &asked))
    return NULL;
  Py_ssize_t n = PyTuple_Size(asked);
  if (n > 64) return PyErr_Format(PyExc_ValueError, "at most 64 names");
  for (Py_ssize_t i = 0; i < n; i++)
    if (!(list[i] = utf8(PyTuple_GetItem(asked, i)))) return NULL;
  weir_fusion *f = find(o, name);
  weir_options *options = f ? weir_py_options(dict) : NULL;
  weir_shapes *s = options ? weir_py_shapes(f, NULL, extents, 0) : NULL;
  PyObject *result = NULL;
  if (s) {
    weir_status st = weir_why(f, options, s, list, (size_t)n, &text);
    result = weir_py_text(st, text);
  }
  weir_shapes_destroy(s);
  weir_options_destroy(options);
  return result;
}

/* ---- device memory from Python ---- */
static void *device_alloc(void *context, int32_t gpu, size_t size_bytes) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *callable = ((weir_py_program *)context)->alloc;
  PyObject *result = PyObject_CallFunction(callable, "in", (int)gpu, (Py_ssize_t)size_bytes);
  void *block = result ? PyLong_AsVoidPtr(result) : NULL;
  if (PyErr_Occurred()) PyErr_WriteUnraisable(callable);
  Py_XDECREF(result);
  PyGILState_Release(gil);
  return block;
}

static void device_free(void *context, int32_t gpu, void *block) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *callable = ((weir_py_program *)context)->free;
  PyObject *address = PyLong_FromVoidPtr(block);
  PyObject *result = address ? PyObject_CallFunction(callable, "iN", (int)gpu, address) : NULL;
  if (!result) PyErr_WriteUnraisable(callable);
  Py_XDECREF(result);
  PyGILState_Release(gil);
}

static weir_status compile_into(weir_py_program *to, weir_fusion *f, weir_options *options,
                                const weir_world *world) {
  weir_device_allocator a = {.struct_size = sizeof a, .alloc = device_alloc, .free = device_free};
  a.context = to;
  weir_status st = to->alloc ? weir_options_set_device_allocator(options, &a) : WEIR_OK;
  if (st == WEIR_OK) st = weir_options_set_world(options, world);
  Py_BEGIN_ALLOW_THREADS;
  if (st == WEIR_OK) st = weir_compile(f, options, NULL, &to->program);
  Py_END_ALLOW_THREADS;
  return st;
}

/* compile(name, options, alloc or None, free or None, world or None) */
static PyObject *compile(PyObject *o, PyObject *args) {
  const char *name;
  PyObject *dict, *alloc, *release, *given;
  weir_world *world;
  if (!PyArg_ParseTuple(args, "sO!OOO", &name, &PyDict_Type, &dict, &alloc, &release, &given))
    return NULL;
  if (weir_py_world_of(given, &world) != 0) return NULL;
  weir_fusion *f = find(o, name);
  weir_options *options = f ? weir_py_options(dict) : NULL;
  if (!options) return NULL;
  PyTypeObject *type = (PyTypeObject *)weir_py_program_type;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  weir_py_program *result = (weir_py_program *)allocate(type, 0);
  if (result && alloc != Py_None) {
    Py_INCREF(alloc);
    Py_INCREF(release);
    result->alloc = alloc;
    result->free = release;
  }
  if (result) {
    result->inputs = tensors(f, 0);
    result->outputs = tensors(f, 1);
  }
  weir_status st = result ? compile_into(result, f, options, world) : WEIR_OK;
  weir_options_destroy(options);
  if (st == WEIR_OK) return (PyObject *)result;
  (void)weir_py_raise(st);
  Py_DECREF(result);
  return NULL;
}

static PyMethodDef methods[] = {{"print", print, METH_NOARGS, NULL},
                                {"names", names, METH_NOARGS, NULL},
                                {"signature", signature, METH_VARARGS, NULL},
                                {"shapes", output_shapes, METH_VARARGS, NULL},
                                {"bind", bind, METH_VARARGS, NULL},
                                {"lower", lower, METH_VARARGS, NULL},
                                {"why", why, METH_VARARGS, NULL},
                                {"compile", compile, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc},
                              {Py_tp_new, (void *)create},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)"Parsed programs."},
                              {0, NULL}};
static PyType_Spec spec = {"weir._weir.Module", sizeof(weir_py_module), 0, Py_TPFLAGS_DEFAULT,
                           slots};

int weir_py_add_module(PyObject *m) {
  PyObject *type = PyType_FromSpec(&spec);
  return type ? PyModule_AddObject(m, "Module", type) : -1;
}

/* ---- functions of the module ---- */
static PyObject *set_error(PyObject *m, PyObject *type) {
  (void)m;
  PyObject *before = weir_py_error;
  Py_INCREF(type);
  weir_py_error = type;
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

static PyObject *version(PyObject *m, PyObject *unused) {
  (void)m, (void)unused;
  return PyUnicode_FromString(weir_version());
}

static PyObject *list(PyObject *m, PyObject *args) {
  const char *kind;
  char *text = NULL;
  (void)m;
  if (!PyArg_ParseTuple(args, "s", &kind)) return NULL;
  weir_status st = weir_list(kind, &text);
  return weir_py_text(st, text);
}

static PyObject *launch_rank(PyObject *m, PyObject *unused) {
  (void)m, (void)unused;
  return PyLong_FromLongLong(weir_launch_rank());
}

static PyMethodDef functions[] = {{"set_error", set_error, METH_O, NULL},
                                  {"version", version, METH_NOARGS, NULL},
                                  {"list", list, METH_VARARGS, NULL},
                                  {"launch_rank", launch_rank, METH_NOARGS, NULL},
                                  {"log_to", weir_py_log_to, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_weir", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__weir(void); /* Python finds it by name */

PyMODINIT_FUNC PyInit__weir(void) {
  PyObject *m = PyModule_Create(&definition);
  if (m && (weir_py_add_module(m) != 0 || weir_py_add_program(m) != 0 ||
            weir_py_add_pending(m) != 0 || weir_py_add_world(m) != 0))
    Py_CLEAR(m);
  return m;
}
