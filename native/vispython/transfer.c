// Large values on their way from a worker to its host, through a pipe of the host's.
//
// The worker lends the kernel its own pages (vmsplice), and the host copies them out: one
// copy, and fresh memory on one side only. What the host has read is a copy that nobody
// else can change. Fresh shared memory would cost a page fault and a cleared page for
// each 4 KiB on the one side, and a fault on the other, which takes several times as
// long.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core.h"

#define HUGE_PAGE ((uintptr_t)2 * 1024 * 1024)

// ---- the worker's half ----

// Move some of `size` bytes. All but the last `behind` may be lent instead of copied;
// `*lends` becomes 0 where the kernel lends nothing of this memory.
static ssize_t pour_some(int descriptor, char *bytes, size_t size, size_t behind,
                         int *lends) {
    if (*lends && size > behind) {
        struct iovec part = {.iov_base = bytes, .iov_len = size - behind};
        ssize_t moved = vmsplice(descriptor, &part, 1, 0);
        if (moved >= 0 || errno == EINTR || errno == EPIPE) return moved;
        *lends = 0; // a filter, or memory that is no ordinary pages
    }
    return write(descriptor, bytes, size);
}

// pour(descriptor, data): write all of `data` into a pipe. When it returns, nothing in
// the pipe is the caller's memory any more: the last bytes, as many as the pipe holds,
// are copied into it, so all that was lent before them has been read.
static PyObject *pour(PyObject *module, PyObject *arguments) {
    (void)module;
    int descriptor;
    Py_buffer data;
    if (!PyArg_ParseTuple(arguments, "iy*", &descriptor, &data)) return NULL;
    int room = fcntl(descriptor, F_GETPIPE_SZ);
    int lends = room > 0;
    char *at = data.buf;
    size_t left = (size_t)data.len;
    int failed = 0;
    while (left > 0) {
        ssize_t moved;
        Py_BEGIN_ALLOW_THREADS;
        moved = pour_some(descriptor, at, left, (size_t)room, &lends);
        Py_END_ALLOW_THREADS;
        if (moved < 0 && errno != EINTR) {
            PyErr_SetFromErrno(PyExc_OSError);
            failed = 1;
            break;
        }
        if (moved > 0) {
            at += moved;
            left -= (size_t)moved;
        }
        if (left > 0 && PyErr_CheckSignals()) {
            failed = 1;
            break;
        }
    }
    PyBuffer_Release(&data);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

// ---- the host's half ----

typedef struct {
    PyObject base;
    PyObject *bytes; // shown to nobody before all of it has been read
    Py_ssize_t filled;
    int busy; // a thread is reading into it
} intake;

static void deallocate(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(((intake *)self)->bytes);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int usable(const intake *self) {
    if (self->bytes && !self->busy) return 1;
    PyErr_SetString(PyExc_ValueError, "these bytes are taken, or being read");
    return 0;
}

// read(descriptor) -> bytes that are missing. Reads once, as much as is there.
static PyObject *read_once(PyObject *object, PyObject *number) {
    intake *self = (intake *)object;
    int descriptor = (int)PyLong_AsLong(number);
    if (PyErr_Occurred() || !usable(self)) return NULL;
    char *start = PyBytes_AsString(self->bytes);
    Py_ssize_t size = PyBytes_Size(self->bytes);
    if (self->filled == size) return PyLong_FromLong(0);
    self->busy = 1;
    ssize_t got;
    Py_BEGIN_ALLOW_THREADS;
    got = read(descriptor, start + self->filled, (size_t)(size - self->filled));
    Py_END_ALLOW_THREADS;
    self->busy = 0;
    if (got < 0) return PyErr_SetFromErrno(PyExc_OSError);
    if (got == 0) {
        PyErr_SetString(PyExc_EOFError, "the other end was closed too early");
        return NULL;
    }
    self->filled += got;
    return PyLong_FromSsize_t(size - self->filled);
}

static PyObject *take(PyObject *object, PyObject *unused) {
    (void)unused;
    intake *self = (intake *)object;
    if (!usable(self)) return NULL;
    if (self->filled != PyBytes_Size(self->bytes)) {
        PyErr_SetString(PyExc_ValueError, "bytes are missing");
        return NULL;
    }
    PyObject *bytes = self->bytes;
    self->bytes = NULL;
    return bytes;
}

static PyMethodDef intake_methods[] = {
    {"read", read_once, METH_O,
     PyDoc_STR(
         "read(descriptor) -> int\n\n"
         "Read once and return how many bytes are missing. EOFError: it has ended.\n"
         "BlockingIOError: nothing is there.")},
    {"take", take, METH_NOARGS,
     PyDoc_STR(
         "take() -> bytes\n\nAll that was read; ValueError while some is missing.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot intake_slots[] = {
    {Py_tp_doc, (void *)"Bytes of a size that is known, while they arrive."},
    {Py_tp_dealloc, (void *)deallocate},
    {Py_tp_methods, intake_methods},
    {0, NULL},
};

static PyType_Spec intake_spec = {
    .name = "_viscore.Intake",
    .basicsize = sizeof(intake),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = intake_slots,
};

// Memory that is about to be filled costs a fault for each page; with pages of 2 MiB
// there are 512 times fewer. A kernel that has none just leaves it as it is.
static void prefer_huge_pages(PyObject *bytes) {
    char *start = PyBytes_AsString(bytes);
    size_t size = (size_t)PyBytes_Size(bytes);
    // madvise wants an address on a boundary.
    size_t skip = -(uintptr_t)start & (HUGE_PAGE - 1);
    if (size < skip + HUGE_PAGE) return;
    madvise(start + skip, (size - skip) & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
}

static PyObject *make_intake(PyObject *module, PyObject *number) {
    Py_ssize_t size = PyLong_AsSsize_t(number);
    if (size == -1 && PyErr_Occurred()) return NULL;
    if (size <= 0) {
        PyErr_SetString(PyExc_ValueError, "size must be positive");
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)core_state_of(module)->intake_type;
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (!self) return NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
    if (!bytes) {
        Py_DECREF(self);
        return NULL;
    }
    prefer_huge_pages(bytes);
    ((intake *)self)->bytes = bytes;
    return self;
}

static PyMethodDef transfer_methods[] = {
    {"pour", pour, METH_VARARGS,
     PyDoc_STR(
         "pour(descriptor, data) -> None\n\n"
         "Write all of data into a pipe that somebody reads; lends pages instead of\n"
         "copying them. Afterwards data may change.")},
    {"make_intake", make_intake, METH_O,
     PyDoc_STR("make_intake(size) -> Intake\n\nRoom for so many bytes.")},
    {NULL, NULL, 0, NULL},
};

int transfer_setup(PyObject *module) {
    PyObject *type = PyType_FromSpec(&intake_spec);
    if (!type) return -1;
    core_state_of(module)->intake_type = type;
    return PyModule_AddFunctions(module, transfer_methods);
}
