/* Tensors of other packages, by DLPack: https://dmlc.github.io/dlpack. */
#include <string.h>

#include "weir_python.h"

/* The two structs that a capsule may hold, with the layouts of DLPack's C header. */
typedef struct managed {
  weir_dl_tensor tensor;
  void *context;
  void (*deleter)(struct managed *self);
} managed;

typedef struct managed_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct managed_versioned *self);
  uint64_t flags;
  weir_dl_tensor tensor;
} managed_versioned;

enum { READ_ONLY = 1 };

static PyObject *name_of_method, *name_of_version, *name_of_stream, *newest, *nothing, *plain;

static int prepare(void) {
  if (newest) return 0;
  name_of_method = PyUnicode_InternFromString("__dlpack__");
  name_of_version = PyUnicode_InternFromString("max_version");
  name_of_stream = PyUnicode_InternFromString("stream");
  newest = Py_BuildValue("(ii)", 1, 0);
  nothing = PyTuple_New(0);
  plain = PyDict_New();
  return name_of_method && name_of_version && name_of_stream && newest && nothing && plain
             ? PyDict_SetItem(plain, name_of_version, newest)
             : -1;
}

/* ---- packages with a table of functions ----
 * DLPack's DLPackExchangeAPI, which types have as __dlpack_c_exchange_api__: no object is made for a tensor. */
typedef struct exchange {
  struct {
    uint32_t major, minor;
    void *older;
  } header;
  void (*unused[3])(void);
  int (*view)(void *object, weir_dl_tensor *result); /* may be NULL; valid while the object lives */
  int (*stream)(int device_type, int32_t device, void **result); /* the package's current one */
} exchange;

typedef struct known_type {
  PyTypeObject *type;
  const exchange *table; /* NULL: it has none */
} known_type;

static const exchange *find_table(PyTypeObject *type) {
  PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
  const exchange *x = NULL;
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
    x = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  PyErr_Clear();
  Py_XDECREF(capsule);
  return x && x->header.major == 1 && x->view ? x : NULL;
}

static const exchange *table_of(PyTypeObject *type) {
  enum { KNOWN = 8 };
  static known_type known[KNOWN];
  static int next;
  for (int i = 0; i < KNOWN; i++)
    if (known[i].type == type) return known[i].table;
  known_type *k = &known[next++ % KNOWN];
  Py_XDECREF((PyObject *)k->type);
  Py_INCREF((PyObject *)type);
  k->type = type;
  k->table = find_table(type);
  return k->table;
}

int weir_py_tensor_view(PyObject *object, weir_dl_tensor *result) {
  const exchange *x = table_of(Py_TYPE(object));
  if (!x) return 0;
  if (x->view(object, result) == 0) return 1;
  PyErr_Clear(); /* __dlpack__ says why */
  return 0;
}

int weir_py_tensor_stream(PyObject *object, weir_dl_device device, void **result) {
  const exchange *x = table_of(Py_TYPE(object));
  if (!x || !x->stream) return 0;
  if (x->stream(device.device_type, device.device_id, result) == 0) return 1;
  PyErr_Clear();
  return 0;
}

/* Takes a tensor by the table; 0: it cannot. Only if `stream` asks for no order, or the caller sees to it. */
static int take_by_table(PyObject *object, PyObject *stream, weir_py_tensor *t) {
  if (stream != Py_None && PyLong_AsLong(stream) != -1) return 0;
  if (!weir_py_tensor_view(object, &t->as_other)) return 0;
  Py_INCREF(object);
  t->capsule = object;
  t->tensor = &t->as_other;
  return 1;
}

static PyObject *call(PyObject *method, PyObject *stream, int with_version) {
  if (with_version && stream == Py_None) return PyObject_Call(method, nothing, plain);
  PyObject *keywords = PyDict_New(), *capsule = NULL;
  int ok = keywords != NULL;
  if (ok && with_version) ok = PyDict_SetItem(keywords, name_of_version, newest) == 0;
  if (ok && stream != Py_None) ok = PyDict_SetItem(keywords, name_of_stream, stream) == 0;
  if (ok) capsule = PyObject_Call(method, nothing, keywords);
  Py_XDECREF(keywords);
  return capsule;
}

static PyObject *call_plainly(PyObject *method, PyObject *stream) {
  return stream == Py_None ? PyObject_CallNoArgs(method) : call(method, stream, 0);
}

/* Packages older than DLPack 1.0 do not know the keyword for the version. This is the last such type seen. */
static PyTypeObject *old_type;

static PyObject *export(PyObject *object, PyObject *stream) {
  PyObject *method = PyObject_GetAttr(object, name_of_method);
  if (!method) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "an array that has __dlpack__ is needed, not %R",
                 Py_TYPE(object));
    return NULL;
  }
  PyTypeObject *type = Py_TYPE(object);
  PyObject *capsule = type == old_type ? call_plainly(method, stream) : call(method, stream, 1);
  if (!capsule && type != old_type && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = call_plainly(method, stream);
    if (capsule) old_type = type;
  }
  Py_DECREF(method);
  return capsule;
}

static int take_versioned(PyObject *capsule, int writes, weir_py_tensor *t) {
  const managed_versioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  if (!m) return -1;
  if (m->major != 1) {
    PyErr_Format(PyExc_BufferError, "DLPack %u.%u is not supported", (unsigned)m->major,
                 (unsigned)m->minor);
    return -1;
  }
  if (writes && (m->flags & READ_ONLY)) {
    PyErr_SetString(PyExc_ValueError, "the array is read-only");
    return -1;
  }
  t->tensor = &m->tensor;
  return 0;
}

static int take_old(PyObject *capsule, weir_py_tensor *t) {
  const managed *m = PyCapsule_GetPointer(capsule, "dltensor");
  if (!m) return -1;
  t->tensor = &m->tensor;
  return 0;
}

static int take(PyObject *object, PyObject *stream, int writes, weir_py_tensor *t) {
  t->tensor = NULL;
  t->capsule = NULL;
  if (prepare() == 0 && take_by_table(object, stream, t)) return 0;
  t->capsule = newest ? export(object, stream) : NULL;
  if (!t->capsule) return -1;
  int st = PyCapsule_IsValid(t->capsule, "dltensor_versioned")
               ? take_versioned(t->capsule, writes, t)
               : take_old(t->capsule, t);
  if (st != 0) weir_py_tensor_drop(t);
  return st;
}

/* Changes the dtype to the one called `name`, which must have elements of the same size. */
static int set_dtype(const char *name, weir_py_tensor *t) {
  weir_dl_dtype has = t->tensor->dtype, is = {0};
  for (int d = WEIR_F64; d <= WEIR_BOOL; d++)
    if (strcmp(weir_dtype_text((weir_dtype)d), name) == 0) is = weir_dtype_to_dl((weir_dtype)d);
  if (is.bits == 0) PyErr_Format(PyExc_ValueError, "there is no dtype '%s'", name);
  else if (has.bits * has.lanes != is.bits * is.lanes)
    PyErr_Format(PyExc_ValueError, "elements of %d bits cannot be %s, which has %d",
                 has.bits * has.lanes, name, is.bits * is.lanes);
  if (PyErr_Occurred()) return -1;
  t->as_other = *t->tensor;
  t->as_other.dtype = is;
  t->tensor = &t->as_other;
  return 0;
}

int weir_py_tensor_take(PyObject *object, PyObject *stream, int writes, weir_py_tensor *t) {
  if (!PyTuple_Check(object)) return take(object, stream, writes, t);
  PyObject *word = PyTuple_GetItem(object, 0), *array = PyTuple_GetItem(object, 1);
  const char *name = word ? PyUnicode_AsUTF8AndSize(word, NULL) : NULL;
  if (!name || !array || take(array, stream, writes, t) != 0) return -1;
  if (set_dtype(name, t) == 0) return 0;
  weir_py_tensor_drop(t);
  return -1;
}

/* A capsule that is still ours frees what it holds. That may run Python code, which would lose a pending
 * exception. */
void weir_py_tensor_drop(weir_py_tensor *t) {
  PyObject *type, *value, *traceback;
  t->tensor = NULL;
  if (!t->capsule) return;
  PyErr_Fetch(&type, &value, &traceback);
  Py_CLEAR(t->capsule);
  PyErr_Restore(type, value, traceback);
}
