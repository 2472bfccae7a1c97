// visjail-macos-watch: ends a jail when its host was killed.
//
// macOS ends no child with its parent, and an end of file says nothing where a forked
// child of the host holds the other end. So the kernel is asked for the end of that very
// process. The host kills the watcher when the jail has ended.
//
//   visjail-macos-watch MARKER HOST

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <unistd.h>

#include "macos_end.h"
#include "macos_members.h"

#define BOUND_NS 60000000000u

int main(int count, char **arguments) {
    if (count != 3 || strlen(arguments[1]) != VJ_MARKER_SIZE - 1) return 2;
    pid_t host = (pid_t)strtol(arguments[2], NULL, 10);
    if (host <= 1) return 2;
    int events = kqueue();
    struct kevent ends;
    EV_SET(&ends, (uintptr_t)host, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0, NULL);
    // Who started it may be gone already, and its number somebody else's.
    if (events >= 0 && !kevent(events, &ends, 1, NULL, 0, NULL) && getppid() == host) {
        struct kevent event;
        while (kevent(events, NULL, 0, &event, 1, NULL) < 0 && errno == EINTR) {
        }
    }
    vj_error error;
    uint32_t left = 0;
    return vj_macos_end_jail(arguments[1], 0, 0, BOUND_NS, &left, &error) == VJ_OK ? 0
                                                                                   : 1;
}
