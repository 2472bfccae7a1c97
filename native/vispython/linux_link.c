// The bytes between a worker and its host on Linux: a stream socket, with which
// descriptors come. See link.h.
#include "link.h"
#include "linux_worker.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

// Descriptors that may come with one frame, and wait for theirs.
#define MAX_DESCRIPTORS 64

static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;

// Descriptors that came with bytes that were read, and those of the frame that was taken
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

bool vis_link_take_descriptors(unsigned count) {
    if (count > descriptors.count) return false;
    close_taken();
    memcpy(descriptors.taken, descriptors.waiting, count * sizeof(int));
    descriptors.taken_count = count;
    descriptors.count -= count;
    memmove(descriptors.waiting, descriptors.waiting + count,
            descriptors.count * sizeof(int));
    return true;
}

void vis_link_drop_descriptors(void) {
    close_taken();
    while (descriptors.count > 0) close(descriptors.waiting[--descriptors.count]);
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

bool vis_link_is_there(void) {
    return vis_this_process.channel >= 0;
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

vis_link_event vis_link_read(void *bytes, size_t size, size_t *got) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))];
    struct iovec part = {bytes, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t came = recvmsg(vis_this_process.channel, &message, MSG_CMSG_CLOEXEC);
    if (came == 0) return VIS_LINK_END;
    if (came < 0) return errno == EINTR ? VIS_LINK_BROKEN_OFF : VIS_LINK_FAILED;
    keep_descriptors(&message);
    *got = (size_t)came;
    return VIS_LINK_BYTES;
}

bool vis_link_write(const void *first, size_t first_size, const void *second,
                    size_t second_size) {
    struct iovec both[2] = {{(void *)(uintptr_t)first, first_size},
                            {(void *)(uintptr_t)second, second_size}};
    struct iovec *parts = both;
    size_t count = 2;
    while (count > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t sent = sendmsg(vis_this_process.channel, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
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
    return true;
}

void vis_link_set_error(void) {
    PyErr_SetFromErrno(PyExc_OSError);
}

void vis_link_lock(void) {
    pthread_mutex_lock(&sending);
}

bool vis_link_try_lock(void) {
    return pthread_mutex_trylock(&sending) == 0;
}

void vis_link_unlock(void) {
    pthread_mutex_unlock(&sending);
}
