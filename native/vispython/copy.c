// Copies this worker: the copy has the state of the interpreter, and a host object, a
// channel and streams of its own.
//
// Only between two runs, and only with one thread: the control thread ends for it, and is
// started again in both. The copy is forked twice, and its parent ends at once, so that
// the keeper of the run, as child subreaper, becomes its parent and measures its end.
// Python's and libc's handlers for forks run as at any other fork.
#include "linux_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// How long a thread that was joined may still be counted, in turns of 0.1 ms.
#define GONE_TURNS 200
#define GONE_NS    100000

static void close_for_copy(void) {
    for (int i = 0; i < VIS_COPY_DESCRIPTORS; i++) {
        if (vis_this_process.for_copy[i] >= 0) close(vis_this_process.for_copy[i]);
        vis_this_process.for_copy[i] = -1;
    }
}

PyObject *vis_await_copy_order(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (!vis_this_process.control_runs) {
        PyErr_SetString(PyExc_RuntimeError, "there is no control thread");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    pthread_join(vis_this_process.control_thread, NULL);
    Py_END_ALLOW_THREADS;
    vis_this_process.control_runs = false;
    Py_RETURN_NONE;
}

PyObject *vis_refuse_copy(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    close_for_copy();
    Py_RETURN_NONE;
}

// Field 20 of /proc/self/stat; the second one, the name, may hold anything.
static long count_threads(void) {
    char line[1024] = {0};
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    const char *at = size > 0 ? strrchr(line, ')') : NULL;
    for (int field = 2; at && field < 20; field++) at = strchr(at + 1, ' ');
    return at ? strtol(at, NULL, 10) : -1;
}

PyObject *vis_count_threads(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    long count = count_threads();
    for (int turn = 0; count > 1 && turn < GONE_TURNS; turn++) {
        struct timespec moment = {.tv_nsec = GONE_NS};
        nanosleep(&moment, NULL);
        count = count_threads();
    }
    return PyLong_FromLong(count);
}

// 1 here, 0 in the copy, -1 with errno.
static int fork_twice(void) {
    pid_t middle = fork();
    if (middle == 0) {
        pid_t self = getpid();
        pid_t copy = fork();
        if (copy != 0) _exit(copy < 0 ? errno : 0);
        // Only as the keeper's child can it be told from others.
        while (getppid() == self) sched_yield();
        return 0;
    }
    if (middle < 0) return -1;
    int status = 0;
    while (waitpid(middle, &status, 0) < 0) {
        // A handler of the guest may have waited for it: the host will see what came of
        // it.
        if (errno != EINTR) return 1;
    }
    if (status == 0) return 1;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    return -1;
}

// The copy's descriptors take the numbers of those that they replace. faulthandler, for
// one, keeps the number of the control socket.
static int take_descriptors(void) {
    const int *given = vis_this_process.for_copy;
    int failed = dup3(given[0], vis_this_process.channel, O_CLOEXEC) < 0 ||
                 dup3(given[1], vis_this_process.control, O_CLOEXEC) < 0 ||
                 dup2(given[2], STDOUT_FILENO) < 0 || dup2(given[3], STDERR_FILENO) < 0;
    close_for_copy();
    return failed ? -1 : 0;
}

static PyObject *become_copy(bool has_keeper, const sigset_t *mask) {
    if (take_descriptors() < 0) _exit(123);
    setsid();
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); // as after any start, see vis_close_memory
    // What this worker leaves behind stays its own, and ends with it.
    if (has_keeper) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    vis_link_drop_descriptors();
    vis_channel_renew();
    vis_this_process.is_copying = true;
    PyOS_AfterFork_Child();
    vis_this_process.is_copying = false;
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    Py_RETURN_TRUE;
}

PyObject *vis_copy(PyObject *module, PyObject *has_keeper) {
    (void)module;
    bool kept = has_keeper == Py_True;
    if (vis_this_process.for_copy[0] < 0 || vis_this_process.control_runs) {
        PyErr_SetString(PyExc_RuntimeError, "no descriptors for a copy have come");
        return NULL;
    }
    sigset_t all, before;
    sigfillset(&all);
    fflush(stdout);
    fflush(stderr);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    PyOS_BeforeFork();
    // The copy is to go to the keeper, and not to come back.
    if (kept) prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    int result = fork_twice();
    if (result == 0) return become_copy(kept, &before);
    int error = errno;
    if (kept) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    PyOS_AfterFork_Parent();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close_for_copy();
    if (result > 0) Py_RETURN_FALSE;
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

// Between processes of one uid and one Landlock domain this alone stands in the way of
// /proc/PID/mem, ptrace(2), process_vm_writev(2) and pidfd_getfd(2): see
// ptrace_access_check in ptrace(2).
PyObject *vis_close_memory(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

// A thing that the copy shares with the worker and that would disturb it by its end.
PyObject *vis_keep_forever(PyObject *module, PyObject *object) {
    (void)module;
    Py_INCREF(object);
    Py_RETURN_NONE;
}
