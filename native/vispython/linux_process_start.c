// Refuses that a worker starts processes: by a system call filter of its own.
//
// It is installed in all threads before any code of the guest runs, on top of the jail's,
// and nothing takes it away. Threads go on; clone3, whose flags a filter cannot see, does
// not exist, and the C library then uses clone. The audit hook and the method that is put
// in place of _posixsubprocess.fork_exec only say in words what the kernel refuses.
#include "confine.h"
#include "denial.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "a filter for this architecture has to be written first"
#endif

#define LOAD(field)                                                                      \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(number) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number))
// Answer with `number` if the accumulator is `value`.
#define IF_EQUAL_ANSWER(value, number)                                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1), ANSWER(number)

static struct sock_filter program[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCHITECTURE, 1, 0),
    ANSWER(EPERM),
    LOAD(nr),
    IF_EQUAL_ANSWER(__NR_execve, EPERM),
    IF_EQUAL_ANSWER(__NR_execveat, EPERM),
#ifdef __NR_fork
    IF_EQUAL_ANSWER(__NR_fork, EPERM),
    IF_EQUAL_ANSWER(__NR_vfork, EPERM),
#endif
    IF_EQUAL_ANSWER(__NR_clone3, ENOSYS),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    LOAD(args[0]), // the low half, on little endian
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    ANSWER(EPERM),
};

static int errno_of(long result) {
    return result < 0 ? errno : 0;
}

static int install(void) {
    struct sock_fprog filter = {
        .len = sizeof program / sizeof *program,
        .filter = program,
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
    long result =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
    if (result > 0) return EAGAIN; // a thread that has filters of its own
    return errno_of(result);
}

// ---- the words -----------------------------------------------------------------------

static PyObject *say_refused(void) {
    vis_refuse_option("_posixsubprocess.fork_exec", "process", "processes=False",
                      PyExc_PermissionError, NULL, "starting a process is refused");
    return NULL;
}

static PyObject *refuse_arguments(PyObject *module, PyObject *arguments) {
    (void)module;
    (void)arguments;
    return say_refused();
}

static PyObject *refuse_fast(PyObject *module, PyObject *const *arguments,
                             Py_ssize_t count) {
    (void)module;
    (void)arguments;
    (void)count;
    return say_refused();
}

// Replace the function where the module's definition names it, so that a module that is
// made anew has the same.
static void explain_fork_exec(PyObject *module) {
    PyModuleDef *definition = PyModule_GetDef(module);
    PyMethodDef *method = definition ? definition->m_methods : NULL;
    for (; method && method->ml_name; method++) {
        if (strcmp(method->ml_name, "fork_exec") != 0) continue;
        // The calling convention stays: functions made before have it built in.
        if (method->ml_flags == METH_VARARGS) method->ml_meth = refuse_arguments;
        if (method->ml_flags == METH_FASTCALL)
            method->ml_meth = (PyCFunction)(void (*)(void))refuse_fast;
    }
}

bool vis_refuse_processes(int answers[2]) {
    int failed = install();
    if (failed) {
        errno = failed;
        PyErr_SetFromErrno(PyExc_OSError);
        return false;
    }
    // Neither would do anything without the filter: there is no such file, and a process
    // cannot share its handlers without its memory.
    answers[0] = errno_of(syscall(SYS_execve, "", NULL, NULL));
    answers[1] = errno_of(syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0));
    if (answers[0] != EPERM || answers[1] != EPERM) {
        PyErr_SetString(PyExc_RuntimeError,
                        "processes=False: the kernel took the filter and does not obey");
        return false;
    }
    PyObject *module = PyImport_ImportModule("_posixsubprocess");
    if (!module) return false;
    explain_fork_exec(module);
    Py_DECREF(module);
    return true;
}
