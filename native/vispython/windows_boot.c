// Puts the core into a CPython before that CPython starts, on Windows; see boot.c for
// Linux. The loader has loaded python3XX.dll and calls viscore_install, so the hook sees
// every event and no code of an environment runs earlier.
#include "windows_boot.h"
#include "windows_worker.h"

#include <stdio.h>
#include <string.h>

typedef int (*audit_hook)(const char *event, PyObject *arguments, void *data);
typedef int (*add_audit_hook)(audit_hook hook, void *data);
typedef int (*append_inittab)(const char *name, PyObject *(*init)(void));
typedef int (*is_initialized)(void);
typedef int (*flush_streams)(FILE *stream);

static HMODULE python;

FARPROC vis_find_in_python(const char *name) {
    return python ? GetProcAddress(python, name) : NULL;
}

const char *viscore_install(const vis_windows_boot *boot) {
    python = boot->library;
    // By a type that all functions may be cast to and from.
    void (*add)(void) = (void (*)(void))vis_find_in_python("PySys_AddAuditHook");
    void (*append)(void) = (void (*)(void))vis_find_in_python("PyImport_AppendInittab");
    void (*initialized)(void) = (void (*)(void))vis_find_in_python("Py_IsInitialized");
    if (!add || !append || !initialized)
        return "this interpreter exports no PySys_AddAuditHook, PyImport_AppendInittab "
               "or Py_IsInitialized";
    const char *failure = vis_link_open(boot->input, boot->output);
    if (failure) return failure;
    vis_this_worker.hook_before_init = ((is_initialized)initialized)() == 0;
    if (((add_audit_hook)add)(vis_audit_hook, NULL) != 0)
        return "PySys_AddAuditHook failed";
    if (((append_inittab)append)("_viscore", PyInit__viscore) != 0)
        return "PyImport_AppendInittab failed";
    if (!vis_link_start()) return "there is no room for a thread";
    vis_this_worker.mode = 'L';
    vis_this_worker.installed = true;
    return NULL;
}

// The streams of C that extension modules share with the interpreter are those of its own
// run-time library, whatever this one was built with.
PyObject *vis_flush_stdio(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    HMODULE library = GetModuleHandleW(L"ucrtbase.dll");
    void (*flush)(void) =
        library ? (void (*)(void))GetProcAddress(library, "fflush") : NULL;
    if (flush) ((flush_streams)flush)(NULL);
    Py_RETURN_NONE;
}

PyMethodDef vis_own_methods[] = {
    {NULL, NULL, 0, NULL},
};
