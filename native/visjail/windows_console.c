// The end of a pseudo console.
//
// ClosePseudoConsole does not return before its clients are gone and all that they wrote
// was read (its documentation; only Windows 11 24H2 is kinder, and nothing here relies on
// that). So it runs in a thread of its own, one per console, and whoever takes the
// process apart reads what nobody else reads, in small pieces, until that thread has
// returned: not until the pipe is at its end, which may come before or after.

#include "windows_core.h"

#define DRAIN_SIZE 8192u

static vj_monitor *monitor_of(vj_windows_process *process) {
    return &process->context->streams.monitor;
}

// ---- one thread that closes

static void closer(void *argument) {
    vj_windows_process *process = argument;
    const vj_windows_os *os = process->context->os;
    os->console_close(os, process->console);
    vj_monitor_enter(monitor_of(process));
    process->closer = VJ_WINDOWS_CLOSER_GONE;
    process->console = NULL;
    vj_monitor_wake(monitor_of(process));
    vj_monitor_leave(monitor_of(process));
    vj_windows_process_drop(process);
}

// Is it for this thread to start it? Nobody may be resizing the console from then on.
static bool take_closing(vj_windows_process *process) {
    vj_monitor *monitor = monitor_of(process);
    vj_monitor_enter(monitor);
    while (process->closer == VJ_WINDOWS_CLOSER_STARTING) {
        vj_monitor_wait(monitor, VJ_WINDOWS_SLICE_MS);
    }
    bool mine = process->console && process->closer == VJ_WINDOWS_CLOSER_NONE;
    if (mine) {
        process->closer = VJ_WINDOWS_CLOSER_STARTING;
        while (process->console_users) vj_monitor_wait(monitor, VJ_WINDOWS_SLICE_MS);
    }
    vj_monitor_leave(monitor);
    return mine;
}

vj_windows_status vj_windows_console_begin_close(vj_windows_process *process,
                                                 vj_windows_error *error) {
    vj_windows_context *context = process->context;
    const vj_windows_os *os = context->os;
    vj_windows_handle thread = NULL;
    if (!take_closing(process)) return VJ_WINDOWS_OK;
    vj_identifiers_hold(vj_windows_numbers(), &process->identified);
    uint32_t code = os->thread_start(os, closer, process,
                                     context->security[VJ_WINDOWS_PRIVATE], &thread);
    vj_monitor_enter(monitor_of(process));
    process->closer_thread = thread;
    if (code) process->closer = VJ_WINDOWS_CLOSER_NONE;
    // It may have returned by now.
    else if (process->closer == VJ_WINDOWS_CLOSER_STARTING) {
        process->closer = VJ_WINDOWS_CLOSER_STARTED;
    }
    vj_monitor_wake(monitor_of(process));
    vj_monitor_leave(monitor_of(process));
    if (!code) return VJ_WINDOWS_OK;
    vj_windows_process_drop(process);
    return vj_windows_fail_os(error, "thread that closes the console", code);
}

// ---- the rest of its output

static bool has_returned(vj_windows_process *process, uint32_t wait_ms) {
    vj_monitor *monitor = monitor_of(process);
    vj_monitor_enter(monitor);
    if (wait_ms && process->closer != VJ_WINDOWS_CLOSER_GONE) {
        vj_monitor_wait(monitor, wait_ms);
    }
    bool returned = process->closer == VJ_WINDOWS_CLOSER_GONE;
    vj_monitor_leave(monitor);
    return returned;
}

static vj_windows_status drain(vj_windows_process *process, vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    uint64_t deadline = os->now_ms(os) + VJ_WINDOWS_END_MS;
    const vj_stream_rest *rest = &process->rest;
    bool finished = !rest->pipe;
    char bytes[DRAIN_SIZE];
    while (!has_returned(process, finished ? VJ_WINDOWS_SLICE_MS : 0)) {
        uint32_t count = 0;
        uint32_t code = finished
                            ? 0
                            : os->pipe_read(os, rest->pipe, rest->event, bytes,
                                            sizeof bytes, VJ_WINDOWS_SLICE_MS, &count);
        switch (code) {
        case 0:
        case VJ_WINDOWS_ERROR_TIMEOUT:
        case VJ_WINDOWS_ERROR_OPERATION_ABORTED: break;
        case VJ_WINDOWS_ERROR_BROKEN_PIPE:
        case VJ_WINDOWS_ERROR_NO_DATA: finished = true; break;
        default: return vj_windows_fail_os(error, "output of the console", code);
        }
        if (os->now_ms(os) >= deadline) {
            return vj_windows_fail(error, VJ_WINDOWS_TIMED_OUT, "console", 0,
                                   "the console does not let itself be closed");
        }
    }
    return VJ_WINDOWS_OK;
}

static bool has_closer(vj_windows_process *process) {
    vj_monitor_enter(monitor_of(process));
    bool has = process->closer != VJ_WINDOWS_CLOSER_NONE;
    vj_monitor_leave(monitor_of(process));
    return has;
}

// The host's end of the output may not have become a stream.
static void take_rest(vj_windows_process *process) {
    if (process->rest.pipe || process->rest.event) return;
    process->rest.pipe = process->host_ends[1];
    process->rest.event = process->events[1];
    process->host_ends[1] = process->events[1] = NULL;
}

vj_windows_status vj_windows_console_finish(vj_windows_process *process,
                                            vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_status status = vj_windows_console_begin_close(process, error);
    if (status != VJ_WINDOWS_OK) return status;
    if (has_closer(process)) {
        take_rest(process);
        status = drain(process, error);
        if (status != VJ_WINDOWS_OK) return status;
        if (process->closer_thread) {
            // It has told that it returns.
            uint32_t code =
                os->thread_wait(os, process->closer_thread, VJ_WINDOWS_END_MS);
            if (code) return vj_windows_fail_os(error, "thread of the console", code);
        }
    }
    uint32_t code = vj_windows_handle_release(os, &process->closer_thread);
    if (!code) code = vj_windows_handle_release(os, &process->rest.pipe);
    if (!code) code = vj_windows_handle_release(os, &process->rest.event);
    return code ? vj_windows_fail_os(error, "console", code) : VJ_WINDOWS_OK;
}

// ---- its size

static vj_windows_status resize(vj_windows_process *process, uint16_t columns,
                                uint16_t rows, vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_monitor_enter(monitor_of(process));
    bool had = process->closer != VJ_WINDOWS_CLOSER_NONE;
    bool has = process->console && !had;
    if (has) process->console_users++;
    vj_monitor_leave(monitor_of(process));
    if (had) {
        return vj_windows_fail(error, VJ_WINDOWS_ENDED, "resize", 0,
                               "the console is gone with its program");
    }
    if (!has) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "resize", 0,
                               "the process has pipes, no console");
    }
    uint32_t code = os->console_resize(os, process->console, columns, rows);
    vj_monitor_enter(monitor_of(process));
    process->console_users--;
    vj_monitor_wake(monitor_of(process));
    vj_monitor_leave(monitor_of(process));
    return code ? vj_windows_fail_os(error, "resize", code) : VJ_WINDOWS_OK;
}

vj_windows_status vj_windows_resize(vj_windows_id id, uint16_t columns, uint16_t rows,
                                    vj_windows_error *error) {
    vj_windows_process *process = NULL;
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status != VJ_WINDOWS_OK) return status;
    if (!vj_windows_is_size(columns, rows)) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "resize", 0,
                               "a console has 1 to 32767 columns and rows");
    }
    status = vj_windows_process_find(id, &process, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = vj_windows_process_use(process, error);
    if (status == VJ_WINDOWS_OK) {
        status = resize(process, columns, rows, error);
        vj_windows_process_leave(process);
    }
    vj_windows_process_drop(process);
    return status;
}

bool vj_windows_is_size(uint16_t columns, uint16_t rows) {
    return columns && rows && columns <= INT16_MAX && rows <= INT16_MAX; // a COORD
}
