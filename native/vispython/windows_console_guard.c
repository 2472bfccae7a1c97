// Consoles of Windows in a worker: opening one by its name raises the audit event `open`.
//
// CPython opens files through `io.FileIO`, which raises that event, but consoles through
// `_io._WindowsConsoleIO`, which raises none (3.11 to 3.13). So its initialiser is
// replaced: in the type, from which calls, dispatch by `io.open` and later subclasses
// have it, and in the descriptor `__init__`, which wrappers that somebody keeps refer to.
// A subclass that is there already has a copy of the old one, and then there is no guard.
//
// A module of its own, and only of builds for Windows: it needs the insides of types,
// which the stable ABI hides. It takes any type whose initialiser gets the arguments of a
// console; tests give it another one.
#undef Py_LIMITED_API // which the other files of this folder keep to
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <string.h>

// One for the process, as the type was until 3.11: other interpreters are refused, since
// each has a type of its own from 3.12 on.
static struct {
    PyTypeObject *type;
    initproc original;
} guarded;

// The name of what is opened, so that nobody is asked for it twice: a number for a
// descriptor that is open already, else text.
static PyObject *resolved(PyObject *file) {
    if (PyLong_Check(file)) return Py_NewRef(file);
    if (PyIndex_Check(file)) {
        PyObject *number = PyNumber_Index(file);
        // As the initialiser does: what is no number after all is a path.
        if (number || !PyErr_ExceptionMatches(PyExc_Exception)) return number;
        PyErr_Clear();
    }
    PyObject *path = NULL;
    if (!PyUnicode_FSDecoder(file, (void *)&path)) return NULL;
    PyObject *exact = PyUnicode_FromObject(path);
    Py_DECREF(path);
    return exact;
}

static int tell_hook(PyObject *path, PyObject *mode) {
    int writes = 0;
    if (mode && PyUnicode_Check(mode)) {
        writes = PyUnicode_FindChar(mode, 'w', 0, PyUnicode_GET_LENGTH(mode), 1) >= 0;
    }
    return PySys_Audit("open", "OOi", path, mode ? mode : Py_None, writes);
}

// Copies of what was given, with `name` for the file: nobody else can change them between
// the question and the opening.
static int initialise(PyObject *self, PyObject *arguments, PyObject *keywords,
                      PyObject *name) {
    int result = -1;
    PyObject *given = NULL;
    PyObject *named = keywords ? PyDict_Copy(keywords) : NULL;
    if (keywords && !named) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(arguments);
    if (count) {
        given = PyTuple_New(count);
        if (!given) goto done;
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *item = i ? PyTuple_GET_ITEM(arguments, i) : name;
            PyTuple_SET_ITEM(given, i, Py_NewRef(item));
        }
    } else {
        given = Py_NewRef(arguments);
        if (PyDict_SetItemString(named, "file", name) < 0) goto done;
    }
    result = guarded.original(self, given, named);
done:
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

static int guarded_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    PyObject *file = NULL, *mode = NULL, *key = NULL, *value = NULL;
    Py_ssize_t at = 0;
    if (PyTuple_GET_SIZE(arguments) > 0) file = PyTuple_GET_ITEM(arguments, 0);
    if (PyTuple_GET_SIZE(arguments) > 1) mode = PyTuple_GET_ITEM(arguments, 1);
    while (keywords && PyDict_Next(keywords, &at, &key, &value)) {
        // A subclass of text could be one name for us and another one for CPython.
        if (!PyUnicode_CheckExact(key)) {
            PyErr_SetString(PyExc_TypeError, "keywords must be plain text");
            return -1;
        }
        if (!file && PyUnicode_CompareWithASCIIString(key, "file") == 0) file = value;
        if (!mode && PyUnicode_CompareWithASCIIString(key, "mode") == 0) mode = value;
    }
    // Without a file it has its own error for that.
    if (!file) return guarded.original(self, arguments, keywords);
    Py_XINCREF(mode);
    PyObject *name = resolved(file);
    int result = -1;
    if (name && (PyLong_Check(name) || tell_hook(name, mode) == 0)) {
        result = initialise(self, arguments, keywords, name);
    }
    Py_XDECREF(name);
    Py_XDECREF(mode);
    return result;
}

static PyObject *refuse_interpreter(PyObject *module, PyObject *arguments,
                                    PyObject *keywords) {
    (void)module;
    (void)arguments;
    (void)keywords;
    PyErr_SetString(PyExc_RuntimeError,
                    "no further interpreter: its consoles would not be guarded");
    return NULL;
}

// The table entry of the function that makes interpreters, from which any function object
// comes, now and later; NULL with an error if it is not as it should be, and without one
// if there is no module `name`. The audit event of a new interpreter is no help:
// CPython 3.12 crashes when it is refused, and 3.13 does not raise it for these.
static PyMethodDef *maker_of(const char *name) {
    PyObject *module = PyImport_ImportModule(name);
    if (!module) {
        if (PyErr_ExceptionMatches(PyExc_ModuleNotFoundError)) PyErr_Clear();
        return NULL;
    }
    PyObject *create = PyObject_GetAttrString(module, "create");
    Py_DECREF(module);
    if (!create) return NULL;
    PyMethodDef *entry = NULL;
    if (PyCFunction_Check(create)) entry = ((PyCFunctionObject *)create)->m_ml;
    Py_DECREF(create); // the table is static
    if (entry && entry->ml_flags == (METH_VARARGS | METH_KEYWORDS)) return entry;
    PyErr_Format(PyExc_RuntimeError, "%s.create is not CPython's own", name);
    return NULL;
}

// The descriptor `__init__` of `type` if it is the one that CPython made for its
// initialiser; else NULL with an error.
static PyWrapperDescrObject *own_initialiser(PyTypeObject *type) {
    PyObject *names = PyObject_GetAttrString((PyObject *)type, "__dict__");
    PyObject *found = names ? PyMapping_GetItemString(names, "__init__") : NULL;
    Py_XDECREF(names);
    if (!found) return NULL;
    PyWrapperDescrObject *wrapper = (PyWrapperDescrObject *)found;
    initproc wrapped = NULL;
    bool own = Py_IS_TYPE(found, &PyWrapperDescr_Type);
    // Copied, since C knows no cast between functions and data.
    if (own) memcpy(&wrapped, &wrapper->d_wrapped, sizeof wrapped);
    own = own && PyDescr_TYPE(wrapper) == type && wrapped && wrapped == type->tp_init;
    Py_DECREF(found); // the type keeps it
    if (own) return wrapper;
    PyErr_SetString(PyExc_RuntimeError, "the type's initialiser is not CPython's own");
    return NULL;
}

static int refuse_subclasses(PyTypeObject *type) {
    PyObject *found =
        PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    Py_ssize_t count = found ? PyObject_Length(found) : -1;
    Py_XDECREF(found);
    if (count > 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "start-up code has made a subclass, which keeps the "
                        "initialiser that is not guarded");
    }
    return count == 0 ? 0 : -1;
}

static PyObject *guard(PyObject *module, PyObject *argument) {
    (void)module;
    if (!PyType_Check(argument)) {
        PyErr_SetString(PyExc_TypeError, "a type is needed");
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)argument;
    if (guarded.type) {
        PyErr_SetString(PyExc_RuntimeError, "a type is guarded already");
        return NULL;
    }
    PyWrapperDescrObject *wrapper = own_initialiser(type);
    if (!wrapper || refuse_subclasses(type) < 0) return NULL;
    static const char *const names[] = {"_interpreters", "_xxsubinterpreters"};
    PyMethodDef *makers[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        makers[i] = maker_of(names[i]);
        if (!makers[i] && PyErr_Occurred()) return NULL;
    }
    // From here on nothing can fail.
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (makers[i])
            makers[i]->ml_meth = (PyCFunction)(void (*)(void))refuse_interpreter;
    }
    guarded.type = (PyTypeObject *)Py_NewRef(argument);
    guarded.original = type->tp_init;
    type->tp_init = guarded_init;
    memcpy(&wrapper->d_wrapped, &type->tp_init, sizeof type->tp_init);
    PyType_Modified(type);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"guard", guard, METH_O, "Let the initialiser of a type raise the event `open`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_visconsole",
    .m_size = -1,
    .m_methods = functions,
};

// An import finds it by its name. NOLINTNEXTLINE(misc-use-internal-linkage)
PyMODINIT_FUNC PyInit__visconsole(void) {
    return PyModule_Create(&definition);
}
