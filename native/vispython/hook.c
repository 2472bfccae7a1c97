// The audit hook: it explains and counts, it is no wall.
//
// CPython raises no event for many ways to a file or a process, so nothing rests on this.
// It is in C because a hook added from Python does not see sub-interpreters. It runs for
// every event of the guest, so an uninteresting one costs a table look-up by first
// letter and nothing more.
#include "worker.h"

#include <string.h>

// Events worth knowing about after a run: acts that reach under the interpreter.
static const char *const trip_names[] = {
    "code.__new__",
    "cpython.PyInterpreterState_New",
    "cpython.remote_debugger_script",
    "ctypes.cdata",
    "ctypes.dlopen",
    "ctypes.dlsym",
    "ctypes.string_at",
    "gc.get_objects",
    "gc.get_referrers",
    "marshal.loads",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "subprocess.Popen",
    "sys._current_frames",
    "sys.addaudithook",
};
#define TRIP_COUNT (sizeof trip_names / sizeof *trip_names)

static _Atomic uint64_t trip_counts[TRIP_COUNT];

int vis_audit_hook(const char *event, PyObject *arguments, void *unused) {
    (void)arguments;
    (void)unused;
    switch (event[0]) {
    case 'c':
    case 'g':
    case 'm':
    case 'o':
    case 's': break;
    default: return 0;
    }
    if (atomic_load_explicit(&vis_this_worker.active_run, memory_order_relaxed) == 0)
        return 0;
    for (size_t i = 0; i < TRIP_COUNT; i++) {
        if (event[0] == trip_names[i][0] && strcmp(event, trip_names[i]) == 0) {
            atomic_fetch_add_explicit(&trip_counts[i], 1, memory_order_relaxed);
            break;
        }
    }
    return 0;
}

PyObject *vis_trip_counts(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    PyObject *counts = PyDict_New();
    if (!counts) return NULL;
    for (size_t i = 0; i < TRIP_COUNT; i++) {
        uint64_t seen = atomic_exchange(&trip_counts[i], 0);
        if (seen == 0) continue;
        PyObject *number = PyLong_FromUnsignedLongLong(seen);
        int failed = !number || PyDict_SetItemString(counts, trip_names[i], number) != 0;
        Py_XDECREF(number);
        if (failed) {
            Py_DECREF(counts);
            return NULL;
        }
    }
    return counts;
}
