// What the parts of `_viscore` share: the state of one module object.
//
// Each part (codec, and whatever the worker adds) owns one member and one method table;
// core.c only puts them together.
#ifndef VIS_CORE_H
#define VIS_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "codec.h"

struct core_state {
    struct codec_state codec;
    PyObject *memory_type;
    PyObject *intake_type;
};

// The state of the module object `module`; never NULL while the module is alive.
struct core_state *core_state_of(PyObject *module);

// memory.c: add its functions; -1 with an exception on failure.
int memory_setup(PyObject *module);

// transfer.c: the same.
int transfer_setup(PyObject *module);

// Also what the loader gives to PyImport_AppendInittab.
PyMODINIT_FUNC PyInit__viscore(void);

#endif
