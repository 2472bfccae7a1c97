// What only a worker on Linux has: its sockets, its threads, and copies of itself.
#ifndef VISPYTHON_LINUX_WORKER_H
#define VISPYTHON_LINUX_WORKER_H

#include "worker.h"

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

// Signals that only the worker uses. glibc keeps the first two real-time signals for
// itself and programs count from SIGRTMIN upwards, so these sit at the other end.
#define VIS_SIGNAL_INTERRUPT (SIGRTMAX - 3)
#define VIS_SIGNAL_DUMP      (SIGRTMAX - 4)

// What a copy of the worker gets instead of its own, in this order: channel, control
// socket, stdout, stderr.
#define VIS_COPY_DESCRIPTORS 4

typedef struct {
    int channel;           // stream socket to the host; -1 when there is none
    int control;           // packet socket to the control thread; -1 likewise
    pthread_t main_thread; // where guest code runs
    pthread_t control_thread;
    bool control_runs;                  // it has been started, and not joined
    bool is_copying;                    // between fork and the end of its handlers
    int for_copy[VIS_COPY_DESCRIPTORS]; // as the host sent them; -1: none
} vis_linux_worker;

extern vis_linux_worker vis_this_process; // in boot.c

// linux_link.c: close what came and was not taken.
void vis_link_drop_descriptors(void);

// Functions of the module that only Linux has.
PyObject *vis_await_copy_order(PyObject *module, PyObject *unused);
PyObject *vis_refuse_copy(PyObject *module, PyObject *unused);
PyObject *vis_count_threads(PyObject *module, PyObject *unused);
PyObject *vis_copy(PyObject *module, PyObject *has_keeper);
PyObject *vis_close_memory(PyObject *module, PyObject *unused);
PyObject *vis_keep_forever(PyObject *module, PyObject *object);

#endif
