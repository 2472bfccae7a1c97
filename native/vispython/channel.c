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
#include <unistd.h>

#define FRAME_VERSION 1
#define SMALL_BUFFER  ((size_t)64 * 1024)
// Descriptors that may come with one frame, and wait for theirs.
#define MAX_DESCRIPTORS 64
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
// Held while a frame is sent, so that two threads do not mix theirs.
static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sent_sequence;
static bool may_tell;
static unsigned told; // frames of this run that nobody had asked for

// Descriptors that came with bytes of the inbox, and those of the frame that was taken
// last.
static struct {
    int waiting[MAX_DESCRIPTORS];
    unsigned count;
    int taken[MAX_DESCRIPTORS];
    unsigned taken_count;
} descriptors;

static void close_taken(void) {
    while (descriptors.taken_count > 0)
        close(descriptors.taken[--descriptors.taken_count]);
}

// The first `count` of those that wait belong to the frame that is taken now.
static int take_descriptors(unsigned count) {
    if (count > descriptors.count) return -1;
    close_taken();
    memcpy(descriptors.taken, descriptors.waiting, count * sizeof(int));
    descriptors.taken_count = count;
    descriptors.count -= count;
    memmove(descriptors.waiting, descriptors.waiting + count,
            descriptors.count * sizeof(int));
    return 0;
}

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
    if (take_descriptors(le16toh(header.flags)) < 0) {
        PyErr_SetString(PyExc_ConnectionError, "the host sent too few descriptors");
        return NULL;
    }

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

static void keep_descriptors(struct msghdr *message) {
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
         part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(part) + i * sizeof descriptor,
                   sizeof descriptor);
            if (descriptors.count < MAX_DESCRIPTORS)
                descriptors.waiting[descriptors.count++] = descriptor;
            else close(descriptor);
        }
    }
}

// Read more bytes into the buffer; waits. Only here may an interrupt break in.
static int read_more(void) {
    for (;;) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))];
        struct iovec part = {inbox.bytes + inbox.used, inbox.capacity - inbox.used};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        ssize_t got;
        Py_BEGIN_ALLOW_THREADS;
        got = recvmsg(vis_this_worker.channel, &message, MSG_CMSG_CLOEXEC);
        Py_END_ALLOW_THREADS;
        if (got > 0) keep_descriptors(&message);
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

// The descriptors of the last frame, which now belong to the caller; once.
PyObject *vis_descriptors(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    PyObject *list = PyTuple_New((Py_ssize_t)descriptors.taken_count);
    if (!list) return NULL;
    for (unsigned i = 0; i < descriptors.taken_count; i++) {
        PyObject *number = PyLong_FromLong(descriptors.taken[i]);
        if (!number || PyTuple_SetItem(list, (Py_ssize_t)i, number) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    descriptors.taken_count = 0;
    return list;
}

void vis_channel_renew(void) {
    inbox.used = 0;
    inbox.sequence = 0;
    sent_sequence = 0;
    close_taken();
    while (descriptors.count > 0) close(descriptors.waiting[--descriptors.count]);
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

// The caller holds `sending`.
static int send_frame(uint8_t type, const void *payload, size_t length) {
    frame_header header = {
        .version = FRAME_VERSION,
        .type = type,
        .length = htole32((uint32_t)length),
        .sequence = htole64(++sent_sequence),
    };
    struct iovec parts[2] = {{&header, sizeof header},
                             {(void *)(uintptr_t)payload, length}};
    return send_all(parts, 2);
}

void vis_let_tell(bool allowed) {
    // Each run comes here twice: giving the interpreter away costs, if another thread
    // takes it.
    if (pthread_mutex_trylock(&sending) != 0) {
        Py_BEGIN_ALLOW_THREADS;
        pthread_mutex_lock(&sending);
        Py_END_ALLOW_THREADS;
    }
    may_tell = allowed;
    told = 0;
    pthread_mutex_unlock(&sending);
}

bool vis_send_aside(uint8_t type, const uint8_t *payload, size_t length) {
    // A child of the worker has no channel, and may have the mutex as another thread held
    // it.
    if (vis_this_worker.channel < 0) return false;
    bool sent;
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&sending);
    sent = may_tell && told < VIS_MAX_TOLD && send_frame(type, payload, length) == 0;
    if (sent) told++;
    pthread_mutex_unlock(&sending);
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
    int failed;
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&sending);
    failed = send_frame((uint8_t)type, bytes, (size_t)length);
    pthread_mutex_unlock(&sending);
    Py_END_ALLOW_THREADS;
    if (failed) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
