// Interrupts on Windows; see control.c for Linux.
//
// Windows sends no signal to a thread, so the interpreter is told that one came: that
// needs no lock of it, and it looks at its next chance. What waits for the event of
// Ctrl-C (time.sleep does) is woken by it, a wait for the host by windows_link.c. Other
// waits in C go on until they end, and the host then ends the process.
#include "windows_worker.h"

#include "monitor.h"

#include <signal.h>

// Ctrl-Break, for which Python has no handler of its own: SIGINT stays the guest's.
#define INTERRUPT_SIGNAL SIGBREAK
// How long to wait for an order where there is none.
#define IDLE_MS 60000

static struct {
    vj_monitor monitor;
    uint64_t target; // the run to interrupt; 0: none
    HANDLE of_sleep; // that time.sleep waits for on the main thread; NULL: not known
    bool started;
} orders;

void vis_interrupt_run(uint64_t run) {
    vj_monitor_enter(&orders.monitor);
    orders.target = run;
    vj_monitor_wake(&orders.monitor);
    vj_monitor_leave(&orders.monitor);
}

// Interrupt the target if it is under way; returns when to try again, in milliseconds. An
// order may arrive before its run has begun, or after it ended.
static uint32_t interrupt(void) {
    uint64_t run = orders.target;
    if (atomic_load(&vis_this_worker.ended_run) >= run) return IDLE_MS;
    if (atomic_load(&vis_this_worker.active_run) != run) return VIS_INTERRUPT_EARLY_MS;
    PyErr_SetInterruptEx(INTERRUPT_SIGNAL);
    if (orders.of_sleep) SetEvent(orders.of_sleep);
    vis_link_break_off();
    return VIS_INTERRUPT_REPEAT_MS;
}

static DWORD WINAPI insist(void *unused) {
    (void)unused;
    vj_monitor_enter(&orders.monitor);
    while (orders.started) vj_monitor_wait(&orders.monitor, interrupt());
    vj_monitor_leave(&orders.monitor);
    return 0;
}

PyObject *vis_start_control(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (!vis_this_worker.installed || orders.started) {
        PyErr_SetString(PyExc_RuntimeError, "no pipes of a host, or already started");
        return NULL;
    }
    // Exported for CPython's own extension modules; without it only sleeps end late.
    FARPROC find = vis_find_in_python("_PyOS_SigintEvent");
    if (find) orders.of_sleep = ((void *(*)(void))(void (*)(void))find)();
    orders.started = true;
    HANDLE thread = CreateThread(NULL, 0, insist, NULL, 0, NULL);
    if (!thread) return PyErr_SetFromWindowsErr(0);
    CloseHandle(thread);
    Py_RETURN_NONE;
}

void vis_open_to_interrupts(void) {
    // No mask and no action of C stands in the way. A guest that gets around `reserve`
    // (guest/interrupts.py) and takes the handler away is not interrupted: the host ends
    // it.
}

PyObject *vis_own_facts(void) {
    return Py_BuildValue("{s:i,s:O,s:O}", "signal_interrupt", INTERRUPT_SIGNAL,
                         "signal_dump", Py_None, "control", Py_None);
}
