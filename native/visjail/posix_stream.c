// Single calls of a host on the streams of its run, noted while they last.
//
// A guest holds the other end, and the kernel's lock of a pipe or of a terminal's size
// while it uses it: how long a caller waits for that is the guest's choice, unless
// somebody looks (linux_watchdog.c).

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "posix_capture.h"

// A caller that is ready to wait for the program itself would seem to wait for a lock.
static bool waits_for_program(int descriptor) {
    int flags = fcntl(descriptor, F_GETFL);
    return flags < 0 || !(flags & O_NONBLOCK);
}

int64_t vj_run_read(vj_run *run, int descriptor, void *data, uint64_t size) {
    bool noted = !waits_for_program(descriptor);
    uint32_t call = noted ? vj_run_call(run) : 0;
    ssize_t count = read(descriptor, data, (size_t)size);
    int saved = errno;
    if (noted) vj_run_called(run, call);
    return count < 0 ? -saved : count;
}

int64_t vj_run_write(vj_run *run, int descriptor, const void *data, uint64_t size) {
    bool noted = !waits_for_program(descriptor);
    uint32_t call = noted ? vj_run_call(run) : 0;
    int64_t count = vj_write_quietly(descriptor, data, size);
    if (noted) vj_run_called(run, call);
    return count;
}

int64_t vj_run_pending(vj_run *run, int descriptor) {
    int held = 0;
    uint32_t call = vj_run_call(run);
    int result = ioctl(descriptor, FIONREAD, &held);
    int saved = errno;
    vj_run_called(run, call);
    return result < 0 ? -saved : held;
}

void vj_run_let_go(vj_run *run, int descriptor) {
    uint32_t call = vj_run_call(run);
    close(descriptor);
    vj_run_called(run, call);
}

int32_t vj_run_resize(vj_run *run, int descriptor, uint16_t rows, uint16_t columns) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    uint32_t call = vj_run_call(run);
    int result = ioctl(descriptor, TIOCSWINSZ, &size);
    int saved = errno;
    vj_run_called(run, call);
    return result < 0 ? -saved : 0;
}
