// Frames between the worker and the host, seen from the worker.
//
// The frame format is that of doc/reference/protocol.md. Reading keeps what has arrived
// in its own buffer, so that an interrupt, which may break a wait at any moment, never
// loses or splits a frame. The host is trusted here; it is the host that must check this
// side.
#include "link.h"
#include "worker.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_VERSION 1
#define SMALL_BUFFER  ((size_t)64 * 1024)
#define MAX_FRAME_PAYLOAD                                                                \
    ((Py_ssize_t)1024 * 1024 * 1024) // bytes; the host sends far less

typedef struct {
    uint8_t version;
    uint8_t type;
    uint16_t flags;
    uint32_t length;
    uint64_t sequence;
} frame_header;
_Static_assert(sizeof(frame_header) == 16, "a header has no gaps");
_Static_assert(PY_LITTLE_ENDIAN, "the numbers of a header are stored as they are");

static struct {
    uint8_t *bytes;
    size_t used;
    size_t capacity;
    uint64_t sequence; // of the last frame that arrived
} inbox;
static uint64_t sent_sequence;
static bool may_tell;
static unsigned told; // frames of this run that nobody had asked for

static int need_channel(void) {
    if (vis_link_is_there()) return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "only the worker itself talks to the host, not a child of it");
    return -1;
}

static int reserve(size_t size) {
    if (size <= inbox.capacity) return 0;
    uint8_t *grown = realloc(inbox.bytes, size);
    if (!grown) {
        PyErr_NoMemory();
        return -1;
    }
    inbox.bytes = grown;
    inbox.capacity = size;
    return 0;
}

// Take the first frame out of the buffer: a new (type, payload), or NULL without an
// exception when it is not complete yet. `missing` gets the size the buffer needs.
static PyObject *take_frame(size_t *needed) {
    frame_header header;
    *needed = sizeof header;
    if (inbox.used < sizeof header) return NULL;
    memcpy(&header, inbox.bytes, sizeof header);
    if (header.version != FRAME_VERSION || header.length > MAX_FRAME_PAYLOAD ||
        header.sequence != inbox.sequence + 1) {
        PyErr_SetString(PyExc_ConnectionError, "the host sent a malformed frame");
        return NULL;
    }
    *needed = sizeof header + header.length;
    if (inbox.used < *needed) return NULL;
    if (!vis_link_take_descriptors(header.flags)) {
        PyErr_SetString(PyExc_ConnectionError, "the host sent too few descriptors");
        return NULL;
    }

    // Not "y#": built against 3.13's headers, that fails in 3.11 and 3.12.
    PyObject *payload = PyBytes_FromStringAndSize(
        (const char *)inbox.bytes + sizeof header, (Py_ssize_t)header.length);
    if (!payload) return NULL;
    PyObject *frame = Py_BuildValue("iN", (int)header.type, payload);
    if (!frame) return NULL;
    inbox.sequence = header.sequence;
    inbox.used -= *needed;
    memmove(inbox.bytes, inbox.bytes + *needed, inbox.used);
    if (inbox.capacity > SMALL_BUFFER && inbox.used <= SMALL_BUFFER) {
        uint8_t *shrunk = realloc(inbox.bytes, SMALL_BUFFER);
        if (shrunk) {
            inbox.bytes = shrunk;
            inbox.capacity = SMALL_BUFFER;
        }
    }
    return frame;
}

// Read more bytes into the buffer; waits. Only here may an interrupt break in.
static int read_more(void) {
    for (;;) {
        size_t got = 0;
        vis_link_event event;
        Py_BEGIN_ALLOW_THREADS;
        event =
            vis_link_read(inbox.bytes + inbox.used, inbox.capacity - inbox.used, &got);
        Py_END_ALLOW_THREADS;
        switch (event) {
        case VIS_LINK_BYTES: inbox.used += got; return 0;
        case VIS_LINK_END:
            PyErr_SetString(PyExc_EOFError, "the host closed the channel");
            return -1;
        case VIS_LINK_FAILED: vis_link_set_error(); return -1;
        case VIS_LINK_BROKEN_OFF: break;
        }
        atomic_store(&vis_this_worker.waiting, 1);
        int raised = PyErr_CheckSignals();
        atomic_store(&vis_this_worker.waiting, 0);
        if (raised) return -1;
    }
}

PyObject *vis_receive(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (need_channel() || reserve(SMALL_BUFFER)) return NULL;
    for (;;) {
        size_t needed;
        PyObject *frame = take_frame(&needed);
        if (frame || PyErr_Occurred()) return frame;
        if (reserve(needed) || read_more()) return NULL;
    }
}

void vis_channel_renew(void) {
    inbox.used = 0;
    inbox.sequence = 0;
    sent_sequence = 0;
}

PyObject *vis_is_waiting(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyBool_FromLong(atomic_load(&vis_this_worker.waiting));
}

// The caller holds the lock of the link.
static bool send_frame(uint8_t type, const void *payload, size_t length) {
    frame_header header = {
        .version = FRAME_VERSION,
        .type = type,
        .length = (uint32_t)length,
        .sequence = ++sent_sequence,
    };
    return vis_link_write(&header, sizeof header, payload, length);
}

void vis_let_tell(bool allowed) {
    // Each run comes here twice: giving the interpreter away costs, if another thread
    // takes it.
    if (!vis_link_try_lock()) {
        Py_BEGIN_ALLOW_THREADS;
        vis_link_lock();
        Py_END_ALLOW_THREADS;
    }
    may_tell = allowed;
    told = 0;
    vis_link_unlock();
}

bool vis_send_aside(uint8_t type, const uint8_t *payload, size_t length) {
    // A child of the worker has no channel, and may have the mutex as another thread held
    // it.
    if (!vis_link_is_there()) return false;
    bool sent;
    Py_BEGIN_ALLOW_THREADS;
    vis_link_lock();
    sent = may_tell && told < VIS_MAX_TOLD && send_frame(type, payload, length);
    if (sent) told++;
    vis_link_unlock();
    Py_END_ALLOW_THREADS;
    return sent;
}

PyObject *vis_send(PyObject *module, PyObject *arguments) {
    (void)module;
    int type;
    PyObject *payload;
    if (!PyArg_ParseTuple(arguments, "iO", &type, &payload) || need_channel())
        return NULL;
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(payload, &bytes, &length)) return NULL;
    if (type < 0 || type > UINT8_MAX || length > MAX_FRAME_PAYLOAD) {
        PyErr_SetString(PyExc_ValueError, "frame type or payload is out of range");
        return NULL;
    }
    bool sent;
    Py_BEGIN_ALLOW_THREADS;
    vis_link_lock();
    sent = send_frame((uint8_t)type, bytes, (size_t)length);
    vis_link_unlock();
    Py_END_ALLOW_THREADS;
    if (!sent) {
        vis_link_set_error();
        return NULL;
    }
    Py_RETURN_NONE;
}
