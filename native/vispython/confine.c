// Takes over what the host says about this worker, before any code of the guest runs.
#include "confine.h"

#include "denial.h"
#include "rules.h"

#include <stdlib.h>
#include <string.h>

vis_confinement vis_confined;

static bool copy_bytes(PyObject *value, const char **copy) {
    const char *text = value && PyBytes_Check(value) ? PyBytes_AsString(value) : NULL;
    *copy = text ? strdup(text) : NULL;
    if (*copy) return true;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "bytes are needed");
    return false;
}

// One rule: (kind, path, name).
static bool take_rule(PyObject *given, vj_rule *rule, const char **name) {
    if (!given || !PyTuple_Check(given) || PyTuple_Size(given) != 3) {
        PyErr_SetString(PyExc_TypeError, "a rule has three parts");
        return false;
    }
    long kind = PyLong_AsLong(PyTuple_GetItem(given, 0));
    if (kind < 0 || kind >= VJ_RULE_END) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no kind of a rule");
        return false;
    }
    *rule = (vj_rule){.kind = (uint32_t)kind};
    return copy_bytes(PyTuple_GetItem(given, 1), &rule->path) &&
           copy_bytes(PyTuple_GetItem(given, 2), name);
}

// What is taken stays until the process ends, also where a later part is wrong: the host
// then ends the worker.
static vis_rules taken;

static bool take_rules(PyObject *rules, PyObject *closed) {
    size_t count = (size_t)PyList_Size(rules);
    size_t closed_count = (size_t)PyList_Size(closed);
    taken.rules = calloc(count + 1, sizeof *taken.rules);
    taken.names = (const char **)calloc(count + 1, sizeof *taken.names);
    taken.closed = (const char **)calloc(closed_count + 1, sizeof *taken.closed);
    if (!taken.rules || !taken.names || !taken.closed) {
        PyErr_NoMemory();
        return false;
    }
    for (; taken.count < count; taken.count++) {
        if (!take_rule(PyList_GetItem(rules, (Py_ssize_t)taken.count),
                       &taken.rules[taken.count], &taken.names[taken.count]))
            return false;
    }
    for (; taken.closed_count < closed_count; taken.closed_count++) {
        if (!copy_bytes(PyList_GetItem(closed, (Py_ssize_t)taken.closed_count),
                        &taken.closed[taken.closed_count]))
            return false;
    }
    if (taken.count && !vis_rules_set(&taken)) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

// confine(rules, closed, library, processes, ctypes, native): once, by the bootstrap.
// Returns the errnos with which starting a process was refused, or None.
PyObject *vis_confine(PyObject *module, PyObject *arguments) {
    (void)module;
    static bool done;
    PyObject *rules, *closed;
    const char *library;
    int processes, ctypes, native;
    if (!PyArg_ParseTuple(arguments, "OOsppp", &rules, &closed, &library, &processes,
                          &ctypes, &native))
        return NULL;
    if (done || !PyList_Check(rules) || !PyList_Check(closed)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a worker is confined once, by lists of rules");
        return NULL;
    }
    done = true;
    int answers[2] = {0, 0};
    if (!vis_denials_set_library(library)) return PyErr_NoMemory();
    if (!processes && !vis_refuse_processes(answers)) return NULL;
    if (!take_rules(rules, closed)) return NULL;
    vis_confined = (vis_confinement){
        .refuses_processes = !processes,
        .refuses_ctypes = !ctypes,
        .refuses_native = !native,
    };
    if (processes) Py_RETURN_NONE;
    return Py_BuildValue("(ii)", answers[0], answers[1]);
}
