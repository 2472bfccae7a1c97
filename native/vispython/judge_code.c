// Code that is no Python: native modules, libraries, and programs that are started.
//
// The first two are refused by the hook alone: a guest that means to run machine code
// finds a way, and meets the kernel's layers with it. Starting programs is refused by the
// kernel (linux_process_start.c), and the hook says so in words.
#include "confine.h"
#include "denial.h"
#include "judge.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static PyObject *encoded(PyObject *given) {
    if (PyBytes_Check(given)) return Py_NewRef(given);
    PyObject *bytes = PyUnicode_Check(given) ? PyUnicode_EncodeFSDefault(given) : NULL;
    if (!bytes) PyErr_Clear(); // the call itself will say what is wrong
    return bytes;
}

// Judge a file with machine code by the place where it really lies: only what the policy
// lets be read and not written is still what it was when somebody granted it.
static int judge_native(const char *event, PyObject *given, PyObject *kind) {
    PyObject *bytes = encoded(given);
    const char *path = bytes ? PyBytes_AsString(bytes) : NULL;
    int answer = 0;
    // A name without a folder is looked for in the system's places. What is not there the
    // call itself refuses.
    if (path && strchr(path, '/') && access(path, F_OK) == 0) {
        char place[PATH_MAX];
        bool has_place = realpath(path, place) != NULL; // a file in memory has none
        if (!has_place || !vis_rules_allow(VJ_RIGHT_READ, place) ||
            vis_rules_allow(VJ_RIGHT_WRITE, place))
            answer = vis_refuse_option(
                event, "native code", "native_modules=\"read-only\"", kind,
                has_place ? place : path,
                "machine code is not loaded from where the guest can write; "
                "Runtime(native_modules=\"anywhere\") allows it");
    }
    Py_XDECREF(bytes);
    return answer;
}

static bool ends_with_module(PyObject *name, const char *module) {
    PyObject *bytes = encoded(name);
    const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
    const char *last = text ? strrchr(text, '.') : NULL;
    bool same = text && strcmp(last ? last + 1 : text, module) == 0;
    Py_XDECREF(bytes);
    return same;
}

// ("import", module, filename, ...): the file is given where it is machine code.
int vis_judge_import(const char *event, PyObject *arguments) {
    if (PyTuple_Size(arguments) < 2) return 0;
    if (vis_confined.refuses_ctypes &&
        ends_with_module(PyTuple_GetItem(arguments, 0), "_ctypes"))
        return vis_refuse_option(event, "module", "ctypes=False", PyExc_ImportError,
                                 "_ctypes", "the module _ctypes is refused");
    PyObject *file = PyTuple_GetItem(arguments, 1);
    if (file == Py_None || !vis_confined.refuses_native || !vis_rules_known()) return 0;
    return judge_native(event, file, PyExc_ImportError);
}

// ("ctypes.dlopen", name).
int vis_judge_dlopen(const char *event, PyObject *arguments) {
    if (PyTuple_Size(arguments) < 1 || !vis_confined.refuses_native || !vis_rules_known())
        return 0;
    return judge_native(event, PyTuple_GetItem(arguments, 0), PyExc_PermissionError);
}

// An event that comes before a process starts; its program is the first argument, if any.
int vis_judge_start(const char *event, PyObject *arguments) {
    if (!vis_confined.refuses_processes) return 0;
    PyObject *bytes =
        PyTuple_Size(arguments) > 0 ? encoded(PyTuple_GetItem(arguments, 0)) : NULL;
    int answer = vis_refuse_option(
        event, "process", "processes=False", PyExc_PermissionError,
        bytes ? PyBytes_AsString(bytes) : NULL, "starting a process is refused");
    Py_XDECREF(bytes);
    return answer;
}

// ---- what is built into the interpreter ------------------------------------------

// As in CPython's import.h, which hides it from abi3; the layout has not changed
// since 2.0.
typedef struct {
    const char *name;
    PyObject *(*start)(void);
} builtin_entry;

static PyObject *(*start_ctypes)(void);

// _imp.create_builtin raises no event.
static PyObject *start_ctypes_if_allowed(void) {
    if (!vis_confined.refuses_ctypes) return start_ctypes();
    vis_refuse_option("import", "module", "ctypes=False", PyExc_ImportError, "_ctypes",
                      "the module _ctypes is refused");
    return NULL;
}

void vis_wrap_inittab(void *table) {
    for (builtin_entry *entry = table; entry->name; entry++) {
        if (strcmp(entry->name, "_ctypes") != 0 || !entry->start) continue;
        start_ctypes = entry->start;
        entry->start = start_ctypes_if_allowed;
    }
}
