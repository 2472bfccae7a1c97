// visjail-macos-watch: ends a jail when its host was killed, or when its time is over.
//
// macOS ends no child with its parent, and an end of file says nothing where a forked
// child of the host holds the other end. So the kernel is asked for the end of that very
// process. The host kills the watcher when the jail has ended.
//
// Descriptor 0 brings orders, eight bytes each: so many nanoseconds from now on the jail
// is ended. It ends with 3 if that ended somebody, with 4 if nobody was there any more.
//
//   visjail-macos-watch MARKER HOST

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <time.h>
#include <unistd.h>

#include "macos_end.h"
#include "macos_members.h"
#include "macos_seatbelt.h"

#define BOUND_NS  60000000000u
#define SECOND_NS 1000000000u

static uint64_t now_ns(void) {
    return clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW);
}

// Take an order. Returns false when none can come any more.
static bool take_order(uint64_t *deadline) {
    uint64_t after = 0;
    ssize_t got = read(STDIN_FILENO, &after, sizeof after);
    if (got < 0 && errno == EINTR) return true;
    if (got != (ssize_t)sizeof after) return false;
    uint64_t now = now_ns();
    *deadline = after < UINT64_MAX - now ? now + after : UINT64_MAX;
    return true;
}

// Until the host has ended (false) or the time is over (true).
static bool wait_for_end(int events) {
    uint64_t deadline = 0; // none
    for (;;) {
        uint64_t now = now_ns();
        if (deadline && now >= deadline) return true;
        uint64_t left = deadline ? deadline - now : 0;
        struct timespec time = {.tv_sec = (time_t)(left / SECOND_NS),
                                .tv_nsec = (long)(left % SECOND_NS)};
        struct kevent event = {0};
        int count = kevent(events, NULL, 0, &event, 1, deadline ? &time : NULL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        if (!count) continue;
        if (event.filter == EVFILT_PROC) return false;
        if (!take_order(&deadline)) {
            struct kevent no_more;
            EV_SET(&no_more, STDIN_FILENO, EVFILT_READ, EV_DELETE, 0, 0, NULL);
            kevent(events, &no_more, 1, NULL, 0, NULL);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 3 || strlen(arguments[1]) != VJ_MARKER_SIZE - 1) return 2;
    pid_t host = (pid_t)strtol(arguments[2], NULL, 10);
    if (host <= 1) return 2;
    int events = kqueue();
    struct kevent changes[2];
    EV_SET(&changes[0], (uintptr_t)host, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0,
           NULL);
    EV_SET(&changes[1], STDIN_FILENO, EVFILT_READ, EV_ADD, 0, 0, NULL);
    bool is_over = false;
    // Who started it may be gone already, and its number somebody else's.
    if (events >= 0 && !kevent(events, changes, 2, NULL, 0, NULL) && getppid() == host)
        is_over = wait_for_end(events);
    vj_error error;
    vj_ended ended = {0};
    if (vj_macos_end_jail(arguments[1], 0, 0, BOUND_NS, &ended, &error) != VJ_OK)
        return 1;
    if (!is_over) return 0;
    return ended.members ? VJ_WATCH_ENDED : VJ_WATCH_NOBODY;
}
