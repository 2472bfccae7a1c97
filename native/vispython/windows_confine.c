// What a worker on Windows does not have, each said by name.
//
// A WindowsJail knows no rules about paths of the host, with which a refusal could be
// explained, so the audit hook counts and judges nothing. What one system call filter
// holds on Linux nothing in this process could hold here: such options are refused, and
// whoever wants no child processes has the jail's own limit.
#include "confine.h"
#include "core.h"
#include "judge.h"

PyObject *vis_confine(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *rules, *closed;
    const char *library;
    int processes, ctypes, native;
    if (!PyArg_ParseTuple(arguments, "OOsppp", &rules, &closed, &library, &processes,
                          &ctypes, &native))
        return NULL;
    const char *refused = PyObject_Size(rules) != 0 || PyObject_Size(closed) != 0
                              ? "rules about paths"
                          : !processes ? "processes=False"
                          : !ctypes    ? "ctypes=False"
                          : !native    ? "native_modules=\"read-only\""
                                       : NULL;
    if (PyErr_Occurred()) return NULL;
    if (!refused) Py_RETURN_NONE;
    return PyErr_Format(PyExc_RuntimeError, "a worker on Windows cannot hold %s",
                        refused);
}

PyObject *vis_denials(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return Py_BuildValue("([]i)", 0);
}

// ---- the hook's questions -------------------------------------------------------------

static int let_go_on(const char *event, PyObject *arguments) {
    (void)event;
    (void)arguments;
    return 0;
}

int vis_judge_open(const char *event, PyObject *arguments) {
    return let_go_on(event, arguments);
}

int vis_judge_list(const char *event, PyObject *arguments) {
    return let_go_on(event, arguments);
}

int vis_judge_change(const char *event, PyObject *arguments) {
    return let_go_on(event, arguments);
}

int vis_judge_import(const char *event, PyObject *arguments) {
    return let_go_on(event, arguments);
}

int vis_judge_dlopen(const char *event, PyObject *arguments) {
    return let_go_on(event, arguments);
}

int vis_judge_start(const char *event, PyObject *arguments) {
    return let_go_on(event, arguments);
}

// ---- values beside the frames
// ----------------------------------------------------------

// No descriptor crosses, so there is no memory to map and no pipe to fill.
int memory_setup(PyObject *module) {
    (void)module;
    return 0;
}

int transfer_setup(PyObject *module) {
    (void)module;
    return 0;
}
