// The audit hook: it explains and counts, it is no wall.
//
// CPython raises no event for many ways to a file or a process, so nothing rests on this.
// It is in C because a hook added from Python does not see sub-interpreters. It runs for
// every event of the guest, so an uninteresting one costs a look at its first letter, or
// a search in a short table, and nothing more.
#include "judge.h"
#include "worker.h"

#include <string.h>

typedef int (*judge)(const char *event, PyObject *arguments);

typedef struct {
    const char *name;
    judge judge;
    bool counted; // an act that reaches under the interpreter, worth knowing after a run
} interest;

// In the order of strcmp.
static const interest interests[] = {
    {"code.__new__", NULL, true},
    {"cpython.PyInterpreterState_New", NULL, true},
    {"cpython.remote_debugger_script", NULL, true},
    {"ctypes.cdata", NULL, true},
    {"ctypes.dlopen", vis_judge_dlopen, true},
    {"ctypes.dlsym", NULL, true},
    {"ctypes.string_at", NULL, true},
    {"gc.get_objects", NULL, true},
    {"gc.get_referrers", NULL, true},
    {"import", vis_judge_import, false},
    {"marshal.loads", NULL, true},
    {"open", vis_judge_open, false},
    {"os.exec", vis_judge_start, true},
    {"os.fork", vis_judge_start, true},
    {"os.forkpty", vis_judge_start, true},
    {"os.listdir", vis_judge_list, false},
    {"os.mkdir", vis_judge_change, false},
    {"os.posix_spawn", vis_judge_start, true},
    {"os.remove", vis_judge_change, false},
    {"os.rmdir", vis_judge_change, false},
    {"os.scandir", vis_judge_list, false},
    {"os.symlink", vis_judge_change, false},
    {"os.system", vis_judge_start, true},
    {"subprocess.Popen", vis_judge_start, true},
    {"sys._current_frames", NULL, true},
    {"sys.addaudithook", NULL, true},
    {"sys.remote_exec", NULL, true},
};
#define INTEREST_COUNT (sizeof interests / sizeof *interests)

static _Atomic uint64_t trip_counts[INTEREST_COUNT];

static const interest *find(const char *event) {
    size_t low = 0, high = INTEREST_COUNT;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(event, interests[middle].name);
        if (order == 0) return &interests[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

int vis_audit_hook(const char *event, PyObject *arguments, void *unused) {
    (void)unused;
    switch (event[0]) {
    case 'c':
    case 'g':
    case 'i':
    case 'm':
    case 'o':
    case 's': break;
    default: return 0;
    }
    const interest *found = find(event);
    if (!found) return 0;
    if (found->counted &&
        atomic_load_explicit(&vis_this_worker.active_run, memory_order_relaxed) != 0)
        atomic_fetch_add_explicit(&trip_counts[found - interests], 1,
                                  memory_order_relaxed);
    return found->judge ? found->judge(event, arguments) : 0;
}

PyObject *vis_trip_counts(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    PyObject *counts = PyDict_New();
    if (!counts) return NULL;
    for (size_t i = 0; i < INTEREST_COUNT; i++) {
        uint64_t seen = atomic_exchange(&trip_counts[i], 0);
        if (seen == 0) continue;
        PyObject *number = PyLong_FromUnsignedLongLong(seen);
        int failed =
            !number || PyDict_SetItemString(counts, interests[i].name, number) != 0;
        Py_XDECREF(number);
        if (failed) {
            Py_DECREF(counts);
            return NULL;
        }
    }
    return counts;
}
