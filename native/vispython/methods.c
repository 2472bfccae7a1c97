// What `_viscore` offers to the bootstrap inside a worker, on every system.
#include "worker.h"

vis_worker vis_this_worker;

static PyObject *vis_facts(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (!vis_this_worker.installed) {
        PyErr_SetString(PyExc_RuntimeError, "this process is not a worker");
        return NULL;
    }
    PyObject *facts = vis_own_facts();
    char mode[2] = {vis_this_worker.mode, 0};
    PyObject *text = facts ? PyUnicode_FromString(mode) : NULL;
    int failed =
        !text || PyDict_SetItemString(facts, "mode", text) != 0 ||
        PyDict_SetItemString(facts, "hook_before_init",
                             vis_this_worker.hook_before_init ? Py_True : Py_False) != 0;
    Py_XDECREF(text);
    if (failed) Py_CLEAR(facts);
    return facts;
}

// begin_run(number, tells): whether the host may be told of refusals meanwhile.
static PyObject *begin_run(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long number;
    int tells;
    if (!PyArg_ParseTuple(arguments, "Kp", &number, &tells)) return NULL;
    vis_open_to_interrupts();
    atomic_store(&vis_this_worker.active_run, number);
    vis_let_tell(tells != 0);
    Py_RETURN_NONE;
}

static PyObject *end_run(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    vis_let_tell(false);
    uint64_t run = atomic_exchange(&vis_this_worker.active_run, 0);
    if (run != 0) atomic_store(&vis_this_worker.ended_run, run);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"facts", vis_facts, METH_NOARGS,
     PyDoc_STR("What the core measured while it was installed.")},
    {"send", vis_send, METH_VARARGS, PyDoc_STR("Send one frame (type, payload).")},
    {"receive", vis_receive, METH_NOARGS,
     PyDoc_STR("Wait for one frame of the host: (type, payload).")},
    {"descriptors", vis_descriptors, METH_NOARGS,
     PyDoc_STR("The descriptors that came with the last frame; the caller closes them.")},
    {"waiting", vis_is_waiting, METH_NOARGS,
     PyDoc_STR("Whether the main thread waits for a frame.")},
    {"start_control", vis_start_control, METH_NOARGS,
     PyDoc_STR("Start the control thread; guest code runs on the calling thread.")},
    {"compile_expression", vis_compile_expression, METH_VARARGS,
     PyDoc_STR("Compile (source, filename) as one expression, without flags.")},
    {"begin_run", begin_run, METH_VARARGS,
     PyDoc_STR("Let interrupts for the run of this number through.")},
    {"end_run", end_run, METH_NOARGS, PyDoc_STR("Let no interrupt through.")},
    {"flush_stdio", vis_flush_stdio, METH_NOARGS, PyDoc_STR("Flush the streams of C.")},
    {"trip_counts", vis_trip_counts, METH_NOARGS,
     PyDoc_STR("How often each noteworthy audit event was seen since the last call.")},
    {"confine", vis_confine, METH_VARARGS,
     PyDoc_STR("Take (rules, closed, library, processes, ctypes, native) of the host.")},
    {"denials", vis_denials, METH_NOARGS,
     PyDoc_STR("What was refused since the last call, and how many were not kept.")},
    {NULL, NULL, 0, NULL},
};

int vis_worker_setup(PyObject *module) {
    if (PyModule_AddFunctions(module, methods) < 0) return -1;
    return PyModule_AddFunctions(module, vis_own_methods);
}
