// Frames between the worker and the host, seen from the worker.
//
// The frame format is that of doc/reference/protocol.md. Reading keeps what has arrived
// in its own buffer, so that an interrupt, which may break a wait at any moment, never
// loses or splits a frame. The host is trusted here; it is the host that must check this
// side.
#include "worker.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define FRAME_VERSION 1
#define SMALL_BUFFER  ((size_t)64 * 1024)
#define MAX_FRAME_PAYLOAD                                                                \
    ((Py_ssize_t)1024 * 1024 * 1024) // bytes; the host sends far less

typedef struct __attribute__((packed)) {
    uint8_t version;
    uint8_t type;
    uint16_t flags;
    uint32_t length;
    uint64_t sequence;
} frame_header;

static struct {
    uint8_t *bytes;
    size_t used;
    size_t capacity;
    uint64_t sequence; // of the last frame that arrived
} inbox;
static uint64_t sent_sequence;

static int need_channel(void) {
    if (vis_this_worker.channel >= 0) return 0;
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
    uint32_t length = le32toh(header.length);
    uint64_t sequence = le64toh(header.sequence);
    if (header.version != FRAME_VERSION || length > MAX_FRAME_PAYLOAD ||
        sequence != inbox.sequence + 1) {
        PyErr_SetString(PyExc_ConnectionError, "the host sent a malformed frame");
        return NULL;
    }
    *needed = sizeof header + length;
    if (inbox.used < *needed) return NULL;

    // Not "y#": built against 3.13's headers, that fails in 3.11 and 3.12.
    PyObject *payload = PyBytes_FromStringAndSize(
        (const char *)inbox.bytes + sizeof header, (Py_ssize_t)length);
    if (!payload) return NULL;
    PyObject *frame = Py_BuildValue("iN", (int)header.type, payload);
    if (!frame) return NULL;
    inbox.sequence = sequence;
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
        ssize_t got;
        Py_BEGIN_ALLOW_THREADS;
        got = recv(vis_this_worker.channel, inbox.bytes + inbox.used,
                   inbox.capacity - inbox.used, 0);
        Py_END_ALLOW_THREADS;
        if (got > 0) {
            inbox.used += (size_t)got;
            return 0;
        }
        if (got == 0) {
            PyErr_SetString(PyExc_EOFError, "the host closed the channel");
            return -1;
        }
        if (errno != EINTR) {
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
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

// A frame is sent whole whatever interrupts it: half a frame would end the worker.
static int send_all(struct iovec *parts, size_t count) {
    while (count > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t sent = sendmsg(vis_this_worker.channel, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return -1;
        size_t left = (size_t)sent;
        while (count > 0 && left >= parts->iov_len) {
            left -= parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    return 0;
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
    frame_header header = {
        .version = FRAME_VERSION,
        .type = (uint8_t)type,
        .length = htole32((uint32_t)length),
        .sequence = htole64(++sent_sequence),
    };
    struct iovec parts[2] = {{&header, sizeof header}, {bytes, (size_t)length}};
    int failed;
    Py_BEGIN_ALLOW_THREADS;
    failed = send_all(parts, 2);
    Py_END_ALLOW_THREADS;
    if (failed) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
