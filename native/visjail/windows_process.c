// A program of a context: waited for, killed, taken apart.
//
// Its record holds the handles from the start to the end: nothing is ever opened by a
// pid, which Windows gives to another process as soon as it likes.

#include <stdlib.h>
#include <string.h>

#include "windows_core.h"

static void destroy(vj_identified *object) {
    vj_windows_process *process = (vj_windows_process *)(void *)object;
    vj_windows_context *context = process->context;
    free(process);
    vj_windows_context_drop(context);
}

vj_windows_process *vj_windows_process_new(vj_windows_context *context) {
    vj_windows_process *process = calloc(1, sizeof *process);
    if (!process) return NULL;
    vj_identified_begin(&process->identified, VJ_WINDOWS_PROCESS_KIND, destroy);
    process->context = context;
    vj_identifiers_hold(vj_windows_numbers(), &context->identified);
    vj_identifiers_hold(vj_windows_numbers(), &process->identified);
    vj_monitor_enter(&context->streams.monitor);
    process->next = context->processes;
    context->processes = process;
    vj_monitor_leave(&context->streams.monitor);
    return process;
}

static void unlink_process(vj_windows_process *process) {
    vj_windows_process **at = &process->context->processes;
    while (*at != process) at = &(*at)->next;
    *at = process->next;
    process->next = NULL;
}

static vj_monitor *monitor_of(vj_windows_process *process) {
    return &process->context->streams.monitor;
}

vj_windows_status vj_windows_process_use(vj_windows_process *process,
                                         vj_windows_error *error) {
    vj_monitor_enter(monitor_of(process));
    bool usable = !process->ending && !process->gone;
    if (usable) process->users++;
    vj_monitor_leave(monitor_of(process));
    if (usable) return VJ_WINDOWS_OK;
    return vj_windows_fail(error, VJ_WINDOWS_STALE, "process", 0,
                           "another thread is closing the process");
}

void vj_windows_process_leave(vj_windows_process *process) {
    vj_monitor_enter(monitor_of(process));
    process->users--;
    vj_monitor_wake(monitor_of(process));
    vj_monitor_leave(monitor_of(process));
}

// ---- taken apart

static bool is_empty(vj_windows_process *process) {
    vj_monitor_enter(monitor_of(process));
    bool empty = process->empty;
    vj_monitor_leave(monitor_of(process));
    return empty;
}

// Everything in the job dies. A process that did not get there is ended by itself first.
static vj_windows_status end_all(vj_windows_process *process, vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    uint32_t code = 0;
    if (process->process && !process->in_job) {
        code = os->process_terminate(os, process->process, VJ_WINDOWS_KILLED_CODE);
        if (!code) code = os->process_wait(os, process->process, VJ_WINDOWS_END_MS);
        if (code) return vj_windows_fail_os(error, "end the process", code);
    }
    if (!process->job || is_empty(process)) return VJ_WINDOWS_OK;
    code = os->job_terminate(os, process->job, VJ_WINDOWS_KILLED_CODE);
    if (code) return vj_windows_fail_os(error, "end the job", code);
    // Without its port, nothing was ever started in it.
    if (process->port) {
        code = os->job_wait_empty(os, process->job, process->port, VJ_WINDOWS_END_MS);
        if (code) return vj_windows_fail_os(error, "wait for the end of the job", code);
    }
    // A job is empty before the last process has let go of its files: its handle tells.
    if (process->process) {
        code = os->process_wait(os, process->process, VJ_WINDOWS_END_MS);
        if (code)
            return vj_windows_fail_os(error, "wait for the end of the process", code);
    }
    vj_monitor_enter(monitor_of(process));
    process->empty = true;
    vj_monitor_leave(monitor_of(process));
    return VJ_WINDOWS_OK;
}

static vj_windows_status close_streams(vj_windows_process *process,
                                       vj_windows_error *error) {
    uint32_t code = 0;
    vj_windows_status status = vj_streams_close(&process->context->streams, process,
                                                VJ_WINDOWS_BARRIER_MS, &code);
    if (status == VJ_WINDOWS_OK) return VJ_WINDOWS_OK;
    if (status == VJ_WINDOWS_SYSTEM) return vj_windows_fail_os(error, "streams", code);
    return vj_windows_fail(error, status, "streams", 0,
                           "a canceled read or write has not returned");
}

static vj_windows_status await_users(vj_windows_process *process,
                                     vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    uint64_t deadline = os->now_ms(os) + VJ_WINDOWS_BARRIER_MS;
    vj_monitor_enter(monitor_of(process));
    while (process->users && os->now_ms(os) < deadline) {
        vj_monitor_wait(monitor_of(process), VJ_WINDOWS_SLICE_MS);
    }
    bool used = process->users != 0;
    vj_monitor_leave(monitor_of(process));
    if (!used) return VJ_WINDOWS_OK;
    return vj_windows_fail(error, VJ_WINDOWS_TIMED_OUT, "process", 0,
                           "a call for the process has not returned");
}

static uint32_t release_handles(vj_windows_process *process) {
    const vj_windows_os *os = process->context->os;
    // The job goes last: it is what would still end a process that was overlooked.
    vj_windows_handle *const slots[] = {&process->thread, &process->process,
                                        &process->port, &process->job};
    uint32_t code = 0;
    if (process->attributes) {
        code = os->attributes_close(os, process->attributes);
        if (code) return code;
        process->attributes = NULL;
    }
    for (size_t i = 0; !code && i < VJ_WINDOWS_PIPES; i++) {
        code = vj_windows_handle_release(os, &process->guest_ends[i]);
        if (!code) code = vj_windows_handle_release(os, &process->host_ends[i]);
        if (!code) code = vj_windows_handle_release(os, &process->events[i]);
    }
    for (size_t i = 0; !code && i < sizeof slots / sizeof *slots; i++) {
        code = vj_windows_handle_release(os, slots[i]);
    }
    return code;
}

static vj_windows_status take_apart(vj_windows_process *process,
                                    vj_windows_error *error) {
    vj_windows_status status = end_all(process, error);
    if (status == VJ_WINDOWS_OK) status = close_streams(process, error);
    if (status == VJ_WINDOWS_OK) status = await_users(process, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_console_finish(process, error);
    if (status != VJ_WINDOWS_OK) return status;
    uint32_t code = release_handles(process);
    return code ? vj_windows_fail_os(error, "handles", code) : VJ_WINDOWS_OK;
}

vj_windows_status vj_windows_process_undo(vj_windows_process *process,
                                          vj_windows_error *error) {
    vj_monitor *monitor = monitor_of(process);
    vj_monitor_enter(monitor);
    while (process->ending) vj_monitor_wait(monitor, VJ_WINDOWS_SLICE_MS);
    bool gone = process->gone;
    if (!gone) process->ending = true;
    vj_monitor_leave(monitor);
    if (gone) return VJ_WINDOWS_OK;
    vj_windows_status status = take_apart(process, error);
    vj_monitor_enter(monitor);
    process->ending = false;
    process->gone = status == VJ_WINDOWS_OK;
    if (process->gone) unlink_process(process);
    vj_monitor_wake(monitor);
    vj_monitor_leave(monitor);
    if (status != VJ_WINDOWS_OK) {
        vj_windows_poison(process->context);
        return status;
    }
    vj_identifiers_remove(vj_windows_numbers(), &process->identified);
    vj_windows_process_drop(process); // the list's
    return VJ_WINDOWS_OK;
}

vj_windows_status vj_windows_release(vj_windows_id id, vj_windows_error *error) {
    vj_windows_process *process = NULL;
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_process_find(id, &process, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = vj_windows_process_undo(process, error);
    vj_windows_process_drop(process);
    return status;
}

// ---- kill

vj_windows_status vj_windows_kill(vj_windows_id id, vj_windows_error *error) {
    vj_windows_process *process = NULL;
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_process_find(id, &process, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = vj_windows_process_use(process, error);
    if (status == VJ_WINDOWS_OK) {
        vj_monitor_enter(monitor_of(process));
        if (!process->ended) process->killed = true;
        vj_monitor_leave(monitor_of(process));
        status = end_all(process, error);
        // So that who reads its terminal gets to the end.
        if (status == VJ_WINDOWS_OK) {
            status = vj_windows_console_begin_close(process, error);
        }
        vj_windows_process_leave(process);
    }
    vj_windows_process_drop(process);
    return status;
}

// ---- wait

// The program has ended: so do those that it has started. Its streams stay.
static vj_windows_status reap(vj_windows_process *process, vj_windows_exit *result,
                              vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_job_usage usage = {0};
    uint32_t code = os->process_exit_code(os, process->process, &result->exit_code);
    if (code) return vj_windows_fail_os(error, "exit code", code);
    vj_windows_status status = end_all(process, error);
    if (status != VJ_WINDOWS_OK) return status;
    code = os->job_usage(os, process->job, &usage);
    if (code) return vj_windows_fail_os(error, "usage of the job", code);
    result->processes = usage.processes;
    result->user_ns = usage.user_ns;
    result->kernel_ns = usage.kernel_ns;
    result->peak_process_memory = usage.peak_process_memory;
    result->peak_job_memory = usage.peak_job_memory;
    // The reader of a terminal gets to its end when the console is gone.
    return vj_windows_console_begin_close(process, error);
}

typedef enum { REAP_WAIT, REAP_MINE, REAP_DONE, REAP_AWAY } reap_turn;

// What a thread does that waits for the process. In the monitor.
static reap_turn take_turn(vj_windows_process *process, bool exited) {
    if (process->ended) return REAP_DONE;
    if (process->reaping) {
        vj_monitor_wait(monitor_of(process), VJ_WINDOWS_SLICE_MS);
        return process->ended ? REAP_DONE : REAP_WAIT;
    }
    if (exited) {
        process->reaping = true;
        return REAP_MINE;
    }
    return process->ending ? REAP_AWAY : REAP_WAIT;
}

static vj_windows_status reap_once(vj_windows_process *process, vj_windows_error *error) {
    vj_windows_exit result = {.size = sizeof result, .version = VJ_WINDOWS_VERSION};
    vj_windows_status status = reap(process, &result, error);
    vj_monitor_enter(monitor_of(process));
    process->reaping = false;
    if (status == VJ_WINDOWS_OK) {
        result.killed = process->killed;
        process->result = result;
        process->ended = true;
    }
    vj_monitor_wake(monitor_of(process));
    vj_monitor_leave(monitor_of(process));
    if (status != VJ_WINDOWS_OK) vj_windows_poison(process->context);
    return status;
}

static vj_windows_status await_end(vj_windows_process *process, int64_t timeout_ms,
                                   vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    uint64_t deadline =
        timeout_ms < 0 ? UINT64_MAX : os->now_ms(os) + (uint64_t)timeout_ms;
    for (;;) {
        uint64_t now = os->now_ms(os);
        uint64_t left = deadline > now ? deadline - now : 0;
        uint32_t slice =
            left < VJ_WINDOWS_SLICE_MS ? (uint32_t)left : VJ_WINDOWS_SLICE_MS;
        uint32_t code = os->process_wait(os, process->process, slice);
        if (code && code != VJ_WINDOWS_ERROR_TIMEOUT) {
            return vj_windows_fail_os(error, "wait for the process", code);
        }
        vj_monitor_enter(monitor_of(process));
        reap_turn turn = take_turn(process, !code);
        vj_monitor_leave(monitor_of(process));
        if (turn == REAP_DONE) return VJ_WINDOWS_OK;
        if (turn == REAP_MINE) return reap_once(process, error);
        if (turn == REAP_AWAY) {
            return vj_windows_fail(error, VJ_WINDOWS_STALE, "process", 0,
                                   "another thread is closing the process");
        }
        if (!left) {
            return vj_windows_fail(error, VJ_WINDOWS_TIMED_OUT, "wait", 0,
                                   "the program is still running");
        }
    }
}

static vj_windows_process *use_running(vj_windows_context *context, const void *wanted) {
    vj_monitor_enter(&context->streams.monitor);
    vj_windows_process *process = context->processes;
    while (process && process != wanted) process = process->next;
    if (process && (process->ended || process->reaping || process->ending))
        process = NULL;
    if (process) {
        process->users++;
        vj_identifiers_hold(vj_windows_numbers(), &process->identified);
    }
    vj_monitor_leave(&context->streams.monitor);
    return process;
}

void vj_windows_process_look(vj_windows_context *context, const void *wanted) {
    vj_windows_error ignored = {sizeof ignored, VJ_WINDOWS_VERSION, 0, 0, "", ""};
    vj_windows_process *process = use_running(context, wanted);
    if (!process) return;
    if (!context->os->process_wait(context->os, process->process, 0)) {
        vj_monitor_enter(monitor_of(process));
        reap_turn turn = take_turn(process, true);
        vj_monitor_leave(monitor_of(process));
        // An error poisons the context.
        if (turn == REAP_MINE) (void)reap_once(process, &ignored);
    }
    vj_windows_process_leave(process);
    vj_windows_process_drop(process);
}

vj_windows_status vj_windows_wait(vj_windows_id id, int64_t timeout_ms,
                                  vj_windows_exit *result, vj_windows_error *error) {
    vj_windows_process *process = NULL;
    vj_windows_status status = vj_windows_check(result, sizeof *result, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_process_find(id, &process, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = vj_windows_process_use(process, error);
    if (status == VJ_WINDOWS_OK) {
        status = await_end(process, timeout_ms, error);
        vj_windows_process_leave(process);
    }
    if (status == VJ_WINDOWS_OK) *result = process->result;
    vj_windows_process_drop(process);
    return status;
}
