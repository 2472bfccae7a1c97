// What the files of the guest worker share: the state of this process as a worker, and
// the functions that the `_viscore` module offers to the bootstrap.
//
// There is one worker per process and it lives until the process ends, so its state is
// one static object (in boot.c). In the host, which loads the same module for the value
// codec, it stays empty and every function here answers "not a worker".
#ifndef VISPYTHON_WORKER_H
#define VISPYTHON_WORKER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "boot.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Signals that only the worker uses. glibc keeps the first two real-time signals for
// itself and programs count from SIGRTMIN upwards, so these sit at the other end.
#define VIS_SIGNAL_INTERRUPT (SIGRTMAX - 3)
#define VIS_SIGNAL_DUMP      (SIGRTMAX - 4)

// How often an interrupt that was not obeyed is sent again, in milliseconds.
#define VIS_INTERRUPT_REPEAT_MS 250
// How often to look whether the run to interrupt has begun.
#define VIS_INTERRUPT_EARLY_MS 5

// What a copy of the worker gets instead of its own, in this order: channel, control
// socket, stdout, stderr.
#define VIS_COPY_DESCRIPTORS 4

typedef struct {
    int channel;           // stream socket to the host; -1 when there is none
    int control;           // packet socket to the control thread; -1 likewise
    char mode;             // 'L' libpython was loaded, 'P' preloaded into python
    bool installed;        // the hook is in place
    bool hook_before_init; // measured: CPython was not initialised at that moment
    pthread_t main_thread; // where guest code runs
    pthread_t control_thread;
    bool control_runs;                  // it has been started, and not joined
    bool is_copying;                    // between fork and the end of its handlers
    int for_copy[VIS_COPY_DESCRIPTORS]; // as the host sent them; -1: none
    _Atomic uint64_t active_run;        // run that may be interrupted now; 0 between runs
    _Atomic uint64_t ended_run; // the last run that is over; runs are numbered from 1
    _Atomic int waiting; // the main thread waits for a frame and may be interrupted
} vis_worker;

extern vis_worker vis_this_worker;

PyMODINIT_FUNC PyInit__viscore(void);

// channel.c: forget what came and went, as a process has that gets a new channel.
void vis_channel_renew(void);
// How many frames of one run the host gets unasked.
#define VIS_MAX_TOLD 100
// Let frames be sent that nobody asked for, or no longer; once this returns none is on
// its way.
void vis_let_tell(bool allowed);
// Send such a frame with the lock of the interpreter held; false where there may be none.
bool vis_send_aside(uint8_t type, const uint8_t *payload, size_t length);

// hook.c
int vis_audit_hook(const char *event, PyObject *arguments, void *unused);

// Functions of the module that the bootstrap inside a worker calls.
PyObject *vis_send(PyObject *module, PyObject *arguments);
PyObject *vis_receive(PyObject *module, PyObject *unused);
PyObject *vis_descriptors(PyObject *module, PyObject *unused);
PyObject *vis_is_waiting(PyObject *module, PyObject *unused);
PyObject *vis_compile_expression(PyObject *module, PyObject *arguments);
PyObject *vis_start_control(PyObject *module, PyObject *unused);
PyObject *vis_begin_run(PyObject *module, PyObject *arguments);
PyObject *vis_end_run(PyObject *module, PyObject *unused);
PyObject *vis_trip_counts(PyObject *module, PyObject *unused);
PyObject *vis_await_copy_order(PyObject *module, PyObject *unused);
PyObject *vis_refuse_copy(PyObject *module, PyObject *unused);
PyObject *vis_count_threads(PyObject *module, PyObject *unused);
PyObject *vis_copy(PyObject *module, PyObject *has_keeper);
PyObject *vis_close_memory(PyObject *module, PyObject *unused);
PyObject *vis_keep_forever(PyObject *module, PyObject *object);
PyObject *vis_confine(PyObject *module, PyObject *arguments);
PyObject *vis_denials(PyObject *module, PyObject *unused);

// Add them to `module`; -1 with an exception on failure.
int vis_worker_setup(PyObject *module);

#endif
