// Pipes, where Linux has other ways than macOS.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "posix_capture.h"

// Of the 64 MiB that the pipes of an ordinary user may hold before new ones get smaller
// (pipe(7), pipe-user-pages-soft), so that 128 floods at once leave the others what they
// have.
#define WIDE (1 << 19)

bool vj_stream_widen(int descriptor) {
    return fcntl(descriptor, F_SETPIPE_SZ, WIDE) >= WIDE;
}

// A program that does not read its input must not end a host that has left SIGPIPE at
// its default. A pipe has no MSG_NOSIGNAL.
int64_t vj_write_quietly(int descriptor, const void *data, uint64_t size) {
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    int problem = pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    if (problem) return -problem;
    ssize_t count = write(descriptor, data, (size_t)size);
    int saved = errno;
    if (count < 0 && saved == EPIPE && !sigismember(&pending, SIGPIPE)) {
        struct timespec now = {0, 0};
        while (sigtimedwait(&pipe_signal, NULL, &now) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return count < 0 ? -saved : count;
}
