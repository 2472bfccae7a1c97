// Puts the core into a CPython before that CPython starts.
//
// Two ways lead here: the loader has loaded libpython and calls viscore_install (mode L),
// or this library is preloaded into a python executable and its constructor runs before
// main (mode P). Both run before Py_Initialize, so the hook sees every event and
// no code of an environment runs earlier.
#include "boot.h"
#include "confine.h"
#include "linux_worker.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

vis_linux_worker vis_this_process = {
    .channel = -1, .control = -1, .for_copy = {-1, -1, -1, -1}};

typedef int (*audit_hook)(const char *event, PyObject *arguments, void *data);
typedef int (*add_audit_hook)(audit_hook hook, void *data);
typedef int (*append_inittab)(const char *name, PyObject *(*init)(void));
typedef int (*is_initialized)(void);
typedef const char *(*get_version)(void);

// Move `descriptor` to a high number, closed on exec, where programs that walk or reuse
// small numbers do not meet it.
static int move_high(int descriptor) {
    struct rlimit limit;
    int lowest = 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        // Above 1000 the kernel's table would grow for nothing.
        rlim_t ceiling = limit.rlim_cur > 1020 ? 1020 : limit.rlim_cur;
        lowest = ceiling > 24 ? (int)ceiling - 16 : 3;
    }
    int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, lowest);
    if (moved >= 0) close(descriptor);
    return moved;
}

static bool is_socket(int descriptor, int expected_type) {
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == expected_type;
}

// A function pointer from dlsym: ISO C has no cast for it, copying the bits is the way.
#define LOOK_UP(pointer, name)                                                           \
    do {                                                                                 \
        void *found = dlsym(RTLD_DEFAULT, name);                                         \
        memcpy((void *)&(pointer), (const void *)&found, sizeof found);                  \
    } while (0)

const char *viscore_install(const vis_boot *boot) {
    add_audit_hook add_hook;
    append_inittab append;
    is_initialized initialized;
    get_version version;
    LOOK_UP(add_hook, "PySys_AddAuditHook");
    LOOK_UP(append, "PyImport_AppendInittab");
    LOOK_UP(initialized, "Py_IsInitialized");
    LOOK_UP(version, "Py_GetVersion");
    if (!add_hook || !append || !initialized || !version)
        return "this interpreter exports no PySys_AddAuditHook, PyImport_AppendInittab, "
               "Py_IsInitialized or Py_GetVersion";
    // Its objects begin otherwise than those of the stable ABI, which this is compiled
    // for.
    if (strstr(version(), "free-threading"))
        return "this is a free-threaded build of CPython; use one with the GIL";
    if (!is_socket(boot->channel, SOCK_STREAM) ||
        !is_socket(boot->control, SOCK_SEQPACKET))
        return "the channel or the control descriptor is not the socket of the host";

    bool before_init = initialized() == 0;
    if (add_hook(vis_audit_hook, NULL) != 0) return "PySys_AddAuditHook failed";
    if (append("_viscore", PyInit__viscore) != 0) return "PyImport_AppendInittab failed";
    // Appending has moved the table to memory that can be written.
    void **inittab = dlsym(RTLD_DEFAULT, "PyImport_Inittab");
    if (inittab) vis_wrap_inittab(*inittab);

    vis_this_process.channel = move_high(boot->channel);
    vis_this_process.control = move_high(boot->control);
    if (vis_this_process.channel < 0 || vis_this_process.control < 0)
        return "the descriptors of the host could not be moved";
    vis_this_worker.mode = boot->mode;
    vis_this_worker.hook_before_init = before_init;
    vis_this_worker.installed = true;
    // What C code prints must keep its place among what Python code prints.
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    return NULL;
}

// Undo what the loader put into the environment: this library's entry in LD_PRELOAD and
// the variable with the descriptors. Child processes must see neither.
static void restore_environment(void) {
    unsetenv("VISPYTHON_BOOT");
    const char *preload = getenv("LD_PRELOAD");
    const char *rest = preload ? strchr(preload, ':') : NULL;
    char *kept = rest ? strdup(rest + 1) : NULL;
    if (kept) setenv("LD_PRELOAD", kept, 1);
    else unsetenv("LD_PRELOAD");
    free(kept);
}

__attribute__((constructor)) static void install_when_preloaded(void) {
    const char *text = getenv("VISPYTHON_BOOT");
    if (!text) return;
    is_initialized initialized;
    LOOK_UP(initialized, "Py_IsInitialized");
    if (!initialized || initialized() != 0) return;

    // As the loader wrote it; viscore_install checks what the numbers stand for.
    char *end = NULL;
    vis_boot boot = {.mode = 'P', .channel = (int)strtol(text, &end, 10), .control = -1};
    if (*end == ':') boot.control = (int)strtol(end + 1, NULL, 10);
    const char *failure = viscore_install(&boot);
    restore_environment();
    if (failure) {
        dprintf(STDERR_FILENO, "vispython: %s\n", failure);
        _exit(121);
    }
}

PyObject *vis_own_facts(void) {
    return Py_BuildValue("{s:i,s:i,s:i}", "signal_interrupt", VIS_SIGNAL_INTERRUPT,
                         "signal_dump", VIS_SIGNAL_DUMP, "control",
                         vis_this_process.control);
}

PyObject *vis_flush_stdio(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    fflush(stdout);
    fflush(stderr);
    Py_RETURN_NONE;
}

// As on a terminal, so that lines of C code come in order with those of everything else.
static PyObject *vis_buffer_lines(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    Py_RETURN_NONE;
}

static PyObject *vis_forget_host(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (vis_this_process.is_copying) Py_RETURN_NONE; // they are the copy's own already
    if (vis_this_process.channel >= 0) close(vis_this_process.channel);
    if (vis_this_process.control >= 0) close(vis_this_process.control);
    vis_this_process.channel = -1;
    vis_this_process.control = -1;
    atomic_store(&vis_this_worker.active_run, 0);
    Py_RETURN_NONE;
}

PyMethodDef vis_own_methods[] = {
    {"buffer_lines", vis_buffer_lines, METH_NOARGS,
     PyDoc_STR("Let C code write its stdout line by line.")},
    {"forget_host", vis_forget_host, METH_NOARGS,
     PyDoc_STR("Close the descriptors to the host (in a forked child).")},
    {"await_copy_order", vis_await_copy_order, METH_NOARGS,
     PyDoc_STR("Wait until the control thread has what a copy gets, and has ended.")},
    {"refuse_copy", vis_refuse_copy, METH_NOARGS,
     PyDoc_STR("Close what a copy would have got.")},
    {"count_threads", vis_count_threads, METH_NOARGS,
     PyDoc_STR("Threads of this process as the kernel counts them; -1: not known.")},
    {"copy", vis_copy, METH_O,
     PyDoc_STR("Fork a copy with a channel of its own: True in it, False here.")},
    {"close_memory", vis_close_memory, METH_NOARGS,
     PyDoc_STR(
         "Keep others of this uid from the memory of this process, not of its copies.")},
    {"keep_forever", vis_keep_forever, METH_O, PyDoc_STR("Never finalize this object.")},
    {NULL, NULL, 0, NULL},
};
