// Memory that is mapped from a descriptor and keeps none: Python's own mmap holds a copy
// of the descriptor for as long as the mapping lives, and a host that keeps a thousand
// arrays would run out of them.
#include <errno.h>
#include <sys/mman.h>

#include "core.h"

typedef struct {
    PyObject base;
    void *start;
    Py_ssize_t size;
    int writable;
} memory;

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    memory *mapped = (memory *)self;
    return PyBuffer_FillInfo(view, self, mapped->start, mapped->size, !mapped->writable,
                             flags);
}

static void deallocate(PyObject *self) {
    memory *mapped = (memory *)self;
    if (mapped->start) {
        // Others may have the same memory, and the kernel's lock of its mappings.
        Py_BEGIN_ALLOW_THREADS;
        munmap(mapped->start, (size_t)mapped->size);
        Py_END_ALLOW_THREADS;
    }
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, (void *)"Mapped memory, for as long as somebody looks at it."},
    {Py_tp_dealloc, (void *)deallocate},
    {Py_bf_getbuffer, (void *)get_buffer},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "_viscore.Memory",
    .basicsize = sizeof(memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = memory_slots,
};

// map_memory(descriptor, size, mode): "r" to read, "p" to change a private copy, "w" to
// write into the memory itself, all of whose pages are made at once.
static PyObject *map_memory(PyObject *module, PyObject *arguments) {
    int descriptor;
    long long size;
    const char *mode;
    if (!PyArg_ParseTuple(arguments, "iLs", &descriptor, &size, &mode)) return NULL;
    if (size <= 0 || size > PY_SSIZE_T_MAX) {
        PyErr_SetString(PyExc_ValueError, "size must be positive");
        return NULL;
    }
    int writable = mode[0] != 'r';
    int flags = mode[0] == 'w'   ? MAP_SHARED | MAP_POPULATE
                : mode[0] == 'r' ? MAP_SHARED
                                 : MAP_PRIVATE;
    PyTypeObject *type = (PyTypeObject *)core_state_of(module)->memory_type;
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (!self) return NULL;
    memory *mapped = (memory *)self;
    void *start;
    Py_BEGIN_ALLOW_THREADS;
    start = mmap(NULL, (size_t)size, writable ? PROT_READ | PROT_WRITE : PROT_READ, flags,
                 descriptor, 0);
    Py_END_ALLOW_THREADS;
    if (start == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    mapped->start = start;
    mapped->size = (Py_ssize_t)size;
    mapped->writable = writable;
    return self;
}

static PyMethodDef memory_methods[] = {
    {"map_memory", map_memory, METH_VARARGS,
     PyDoc_STR(
         "map_memory(descriptor, size, mode) -> Memory\n\n"
         "Map memory and keep no descriptor. mode: \"r\" to read, \"p\" to change a\n"
         "private copy, \"w\" to write into the memory itself.")},
    {NULL, NULL, 0, NULL},
};

int memory_setup(PyObject *module) {
    PyObject *type = PyType_FromSpec(&memory_spec);
    if (!type) return -1;
    core_state_of(module)->memory_type = type;
    return PyModule_AddFunctions(module, memory_methods);
}
