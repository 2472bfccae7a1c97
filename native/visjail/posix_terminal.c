// Reading a terminal in large pieces.
//
// The kernel hands out 4 KiB of a terminal a read. A host that came back to its own
// language for each would slow down what the programs write. So where whole pieces come,
// it is waited a moment for the next ones.

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "posix_process.h"

#define PIECE     4096
#define ENOUGH    65536
#define MOMENT_MS 1

// Whether more comes within a moment, and nothing else does.
static bool comes(struct pollfd events[2]) {
    return poll(events, 2, MOMENT_MS) > 0 && events[0].revents && !events[1].revents;
}

vj_status vj_terminal_read(int descriptor, int wakeup, int64_t timeout_ns, char *data,
                           uint64_t capacity, uint64_t *size, vj_error *error) {
    *size = 0;
    struct pollfd events[2] = {
        {.fd = descriptor, .events = POLLIN},
        {.fd = wakeup, .events = POLLIN},
    };
    int timeout = timeout_ns < 0 ? -1 : (int)((timeout_ns + 999999) / 1000000);
    int ready = poll(events, 2, timeout);
    if (ready < 0 && errno != EINTR) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno,
                       "cannot wait for a terminal");
    }
    if (ready == 0) return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, 0, "no output");
    if (ready < 0 || !events[0].revents) {
        return vj_fail(error, VJ_INTERRUPTED, VJ_STAGE_HOST, EINTR, "woken up");
    }
    while (capacity - *size >= PIECE) {
        ssize_t count = read(descriptor, data + *size, PIECE);
        if (count > 0) {
            *size += (uint64_t)count;
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (*size >= PIECE && *size < ENOUGH && comes(events)) continue;
            if (*size) return VJ_OK;
            return vj_fail(error, VJ_INTERRUPTED, VJ_STAGE_HOST, EAGAIN, "no output");
        }
        // End of file, or EIO: every program has let go of it. What came before goes
        // first.
        if (*size) return VJ_OK;
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, errno, "the terminal has ended");
    }
    return VJ_OK;
}
