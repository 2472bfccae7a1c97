// What the files of the guest worker share: the state of this process as a worker, and
// the functions that the `_viscore` module offers to the bootstrap.
//
// There is one worker per process and it lives until the process ends, so its state is
// one static object (in methods.c; what only one system has is beside its boot.c). In the
// host, which loads the same module for the value codec, it stays empty and every
// function here answers "not a worker".
#ifndef VISPYTHON_WORKER_H
#define VISPYTHON_WORKER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// How often an interrupt that was not obeyed is sent again, in milliseconds.
#define VIS_INTERRUPT_REPEAT_MS 250
// How often to look whether the run to interrupt has begun.
#define VIS_INTERRUPT_EARLY_MS 5

typedef struct {
    char mode;                   // 'L' libpython was loaded, 'P' preloaded into python
    bool installed;              // the hook is in place
    bool hook_before_init;       // measured: CPython was not initialised at that moment
    _Atomic uint64_t active_run; // run that may be interrupted now; 0 between runs
    _Atomic uint64_t ended_run;  // the last run that is over; runs are numbered from 1
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
PyObject *vis_trip_counts(PyObject *module, PyObject *unused);
PyObject *vis_flush_stdio(PyObject *module, PyObject *unused);
PyObject *vis_confine(PyObject *module, PyObject *arguments);
PyObject *vis_denials(PyObject *module, PyObject *unused);

// What each system has of its own: further functions, what it tells of itself in `facts`,
// and what has to be put in order before a run can be interrupted.
extern PyMethodDef vis_own_methods[];
PyObject *vis_own_facts(void);
void vis_open_to_interrupts(void);

// Add them to `module`; -1 with an exception on failure.
int vis_worker_setup(PyObject *module);

#endif
