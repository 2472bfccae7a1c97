// Messages between the host and the programs of a jail, with the descriptors that they
// bring. What they mean is in message.h.

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "message.h"
#include "posix_process.h"

vj_status vj_send(int socket, const vj_message *message, const void *data, size_t size,
                  const int *descriptors, uint32_t count, vj_error *error) {
    struct iovec parts[2] = {
        {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message},
        {.iov_base = (void *)(uintptr_t)data, .iov_len = size},
    };
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(VJ_DESCRIPTORS_MAX * sizeof(int))];
    } control = {0};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = size ? 2 : 1};
    if (count) {
        header.msg_control = control.space;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(part), descriptors, count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return VJ_OK;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, errno, "the jail has ended");
    }
    if (errno == ETOOMANYREFS) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno,
                       "too many descriptors in flight for this user");
    }
    return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno, "cannot send to the jail");
}

void vj_close_all(const int *descriptors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) close(descriptors[i]);
}

// Receive one message and, where `data` is not NULL, what stands behind it.
// `descriptors` has room for VJ_DESCRIPTORS_MAX.
vj_status vj_receive_with(int socket, int flags, vj_message *message, void *data,
                          size_t capacity, int *descriptors, uint32_t *count,
                          vj_error *error) {
    struct iovec parts[2] = {
        {.iov_base = message, .iov_len = sizeof *message},
        {.iov_base = data, .iov_len = capacity},
    };
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(VJ_DESCRIPTORS_MAX * sizeof(int))];
    } control;
    struct msghdr header = {
        .msg_iov = parts,
        .msg_iovlen = data ? 2 : 1,
        .msg_control = control.space,
        .msg_controllen = sizeof control.space,
    };
    *count = 0;
    ssize_t size = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) {
        return vj_fail(error, VJ_INTERRUPTED, VJ_STAGE_HOST, EINTR, "interrupted");
    }
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, EAGAIN, "nothing there");
    }
    if (size <= 0)
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, 0, "the jail has ended");
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS) {
        *count = (uint32_t)((first->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(descriptors, CMSG_DATA(first), *count * sizeof(int));
    }
    size_t expected = sizeof *message + (data ? message->data_size : 0);
    bool is_whole = (size_t)size == expected && !(header.msg_flags & MSG_TRUNC);
    if (is_whole && !(header.msg_flags & MSG_CTRUNC)) return VJ_OK;
    vj_close_all(descriptors, *count);
    *count = 0;
    if (is_whole) { // nobody sends more than there is room for: it is this process that
                    // has none
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, EMFILE, "too many open files");
    }
    return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, EBADMSG, "a malformed message");
}

vj_status vj_receive(int socket, int flags, vj_message *message, int *descriptors,
                     uint32_t *count, vj_error *error) {
    return vj_receive_with(socket, flags, message, NULL, 0, descriptors, count, error);
}

vj_status vj_failure_of(const vj_message *message, vj_error *error) {
    vj_fail(error, VJ_SYSTEM, message->stage, message->error,
            vj_stage_name(message->stage));
    error->index = message->index;
    return VJ_SYSTEM;
}
