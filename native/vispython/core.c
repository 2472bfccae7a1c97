// The module `_viscore`: puts the parts together, and nothing else.
//
// It is loaded in two ways: by the import system of the host, and by the loader, which
// registers PyInit__viscore before the guest's interpreter starts. It is initialised in
// two phases and keeps everything in its module state, so that sub-interpreters get their
// own.
#include "core.h"

#include "worker.h"

struct core_state *core_state_of(PyObject *module) {
    return PyModule_GetState(module);
}

static int core_exec(PyObject *module) {
    if (codec_setup(module, &core_state_of(module)->codec) < 0) return -1;
    if (memory_setup(module) < 0 || transfer_setup(module) < 0) return -1;
    return vis_worker_setup(module);
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
    struct core_state *state = core_state_of(module);
    if (state == NULL) return 0;
    Py_VISIT(state->memory_type);
    Py_VISIT(state->intake_type);
    return codec_traverse(&state->codec, visit, arg);
}

static int core_clear(PyObject *module) {
    struct core_state *state = core_state_of(module);
    if (state == NULL) return 0;
    Py_CLEAR(state->memory_type);
    Py_CLEAR(state->intake_type);
    codec_clear(&state->codec);
    return 0;
}

static void core_free(void *module) {
    core_clear(module);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, (void *)core_exec},
    {0, NULL},
};

static struct PyModuleDef core_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_viscore",
    .m_doc = "The native part of a visruntime worker; the host uses its value codec too.",
    .m_size = sizeof(struct core_state),
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__viscore(void) {
    return PyModuleDef_Init(&core_definition);
}
