// Compiles the single expressions that most runs are.
//
// The first call of the builtin compile makes all the types of the ast module, which
// takes longer than everything else in a worker's first run. Py_CompileString makes none.
// It knows no flags, so an expression that needs one (a top-level await) is left to the
// builtin.
#include "worker.h"

PyObject *vis_compile_expression(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *source, *filename;
    if (!PyArg_ParseTuple(arguments, "ss", &source, &filename)) return NULL;
    return Py_CompileString(source, filename, Py_eval_input);
}
