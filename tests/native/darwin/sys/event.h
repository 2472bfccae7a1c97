// Events of processes and descriptors, as macOS tells them; see darwin.h.
#ifndef VJ_TEST_EVENT_H
#define VJ_TEST_EVENT_H

#include <stdint.h>
#include <time.h>

#define EVFILT_READ  (-1)
#define EVFILT_PROC  (-5)
#define EVFILT_USER  (-10)
#define EV_ADD       0x1
#define EV_DELETE    0x2
#define EV_ONESHOT   0x10
#define NOTE_EXIT    0x80000000u
#define NOTE_TRIGGER 0x01000000u

struct kevent {
    uintptr_t ident;
    int16_t filter;
    uint16_t flags;
    uint32_t fflags;
    intptr_t data;
    void *udata;
};

#define EV_SET(event, what, kind, how, notes, number, user)                              \
    (*(event) = (struct kevent){.ident = (what),                                         \
                                .filter = (kind),                                        \
                                .flags = (how),                                          \
                                .fflags = (notes),                                       \
                                .data = (number),                                        \
                                .udata = (user)})

int kqueue(void);
int kevent(int queue, const struct kevent *changes, int change_count,
           struct kevent *events, int event_count, const struct timespec *timeout);

#endif
