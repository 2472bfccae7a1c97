// The way back: what a context holds, released in the order in which that works.
//
// Programs first, then what they were given, then what says whose it was. Each step looks
// at its slot, so that this can begin again after any of them has failed; the marker
// stays until everything that it names is gone.

#include <stdlib.h>
#include <string.h>

#include "windows_core.h"

// All of them die before one is waited for.
static void kill_all(vj_windows_context *context) {
    const vj_windows_os *os = context->os;
    vj_monitor_enter(&context->streams.monitor);
    vj_windows_process *process = context->processes;
    for (; process; process = process->next) {
        process->tried = false;
        // One that is taken apart by another thread closes its handles.
        if (process->ending) continue;
        process->killed = process->killed || !process->ended;
        // An error shows when the process is taken apart.
        if (process->job)
            (void)os->job_terminate(os, process->job, VJ_WINDOWS_KILLED_CODE);
    }
    vj_monitor_leave(&context->streams.monitor);
}

static vj_windows_process *next_untried(vj_windows_context *context) {
    vj_monitor_enter(&context->streams.monitor);
    vj_windows_process *process = context->processes;
    while (process && process->tried) process = process->next;
    if (process) {
        process->tried = true;
        vj_identifiers_hold(vj_windows_numbers(), &process->identified);
    }
    vj_monitor_leave(&context->streams.monitor);
    return process;
}

// Each is tried, whatever became of the others; the first error is told.
static vj_windows_status end_processes(vj_windows_context *context,
                                       vj_windows_error *error) {
    vj_windows_status first = VJ_WINDOWS_OK;
    vj_windows_process *process = NULL;
    kill_all(context);
    while ((process = next_untried(context))) {
        vj_windows_error own = {sizeof own, VJ_WINDOWS_VERSION, 0, 0, "", ""};
        vj_windows_status status = vj_windows_process_undo(process, &own);
        if (status != VJ_WINDOWS_OK && first == VJ_WINDOWS_OK) {
            first = status;
            *error = own;
        }
        vj_windows_process_drop(process);
    }
    return first;
}

static vj_windows_status close_streams(vj_windows_context *context,
                                       vj_windows_error *error) {
    uint32_t code = 0;
    vj_windows_status status =
        vj_streams_close(&context->streams, NULL, VJ_WINDOWS_BARRIER_MS, &code);
    if (status == VJ_WINDOWS_SYSTEM) return vj_windows_fail_os(error, "streams", code);
    if (status == VJ_WINDOWS_OK) return VJ_WINDOWS_OK;
    return vj_windows_fail(error, status, "streams", 0,
                           "a canceled read or write has not returned");
}

static uint32_t delete_profile(vj_windows_context *context) {
    uint16_t name[VJ_WINDOWS_PACKAGE_SIZE];
    size_t length = 0, written = 0;
    if (!context->has_profile) return 0;
    while (context->package[length]) length++;
    if (vj_windows_utf16(context->package, length, name, VJ_WINDOWS_PACKAGE_SIZE,
                         &written) != VJ_WINDOWS_FINE) {
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER; // it was made by this name
    }
    uint32_t code = context->os->profile_delete(context->os, name);
    if (!code) context->has_profile = false;
    return code;
}

static uint32_t close_desktop(vj_windows_context *context) {
    if (!context->desktop) return 0;
    uint32_t code = context->os->desktop_close(context->os, context->desktop);
    if (!code) context->desktop = NULL;
    return code;
}

// Of calls that ended without having closed them, and of the marker: nothing can be
// removed that is still open.
static uint32_t let_go(vj_windows_context *context) {
    uint32_t code = vj_windows_remains_close(context->os, &context->remains);
    return code ? code : vj_windows_handle_release(context->os, &context->marker);
}

static bool name_units(const char *name, uint16_t to[VJ_WINDOWS_NAME_MAX]) {
    size_t written = 0;
    return vj_windows_utf16(name, strlen(name), to, VJ_WINDOWS_NAME_MAX, &written) ==
           VJ_WINDOWS_FINE;
}

// By its name in the directory around it, which is still held.
static uint32_t remove_place(vj_windows_context *context, vj_windows_place place) {
    bool is_root = place == VJ_WINDOWS_PLACE_ROOT;
    const char *slash = strrchr(context->root, '\\');
    uint16_t name[VJ_WINDOWS_NAME_MAX];
    if (!context->made[place]) return 0;
    vj_windows_handle parent =
        is_root ? context->parent : context->places[VJ_WINDOWS_PLACE_ROOT];
    if (!parent || !slash ||
        !name_units(is_root ? slash + 1 : vj_windows_place_name(place), name)) {
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER; // it was made there, by this name
    }
    uint32_t code = vj_windows_handle_release(context->os, &context->places[place]);
    if (!code) {
        code = vj_windows_remove_tree(context->os, parent, name,
                                      context->security[VJ_WINDOWS_RECLAIMED],
                                      &context->remains);
    }
    if (!code) context->made[place] = false;
    return code;
}

static uint32_t remove_marker(vj_windows_context *context) {
    uint16_t name[VJ_WINDOWS_NAME_MAX];
    if (!context->has_marker) return 0;
    if (!name_units(VJ_WINDOWS_MARKER_NAME, name)) {
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    }
    uint32_t code =
        context->os->remove(context->os, context->places[VJ_WINDOWS_PLACE_ROOT], name);
    if (!code) context->has_marker = false;
    return code;
}

static uint32_t remove_files(vj_windows_context *context) {
    bool whole = context->flags & VJ_WINDOWS_REMOVE_WORK;
    uint32_t code = remove_place(context, VJ_WINDOWS_PLACE_TEMP);
    if (!code) code = remove_place(context, VJ_WINDOWS_PLACE_APP);
    if (!code && whole) code = remove_place(context, VJ_WINDOWS_PLACE_WORK);
    if (!code) code = remove_marker(context);
    if (!code && whole) code = remove_place(context, VJ_WINDOWS_PLACE_ROOT);
    return code;
}

// Of what stays: `work`, and the root around it.
static uint32_t leave_places(vj_windows_context *context) {
    uint32_t code = 0;
    for (size_t i = VJ_WINDOWS_PLACES; !code && i > 0; i--) {
        code = vj_windows_handle_release(context->os, &context->places[i - 1]);
    }
    return code;
}

static uint32_t close_securities(vj_windows_context *context) {
    const vj_windows_os *os = context->os;
    uint32_t code = 0;
    for (size_t i = 0; !code && i < VJ_WINDOWS_OBJECT_END; i++) {
        if (!context->security[i]) continue;
        code = os->security_close(os, context->security[i]);
        if (!code) context->security[i] = NULL;
    }
    return code;
}

static vj_windows_status fail_at(const vj_windows_context *context, const char *step,
                                 uint32_t code, vj_windows_error *error) {
    const char *obstacle = context->remains.obstacle;
    vj_windows_status status = vj_windows_fail_os(error, step, code);
    size_t length = strlen(error->text), more = strlen(obstacle);
    // Whole, or not at all: half a path is another one.
    if (more && length + 2 + more < sizeof error->text) {
        memcpy(error->text + length, ": ", 2);
        memcpy(error->text + length + 2, obstacle, more + 1);
    }
    return status;
}

vj_windows_status vj_windows_context_undo(vj_windows_context *context,
                                          vj_windows_error *error) {
    static const struct {
        const char *step;
        uint32_t (*undo)(vj_windows_context *context);
    } steps[] = {
        {"desktop", close_desktop},    {"profile", delete_profile},
        {"handles", let_go},           {"files", remove_files},
        {"directories", leave_places}, {"descriptors", close_securities},
    };
    vj_windows_status status = end_processes(context, error);
    if (status == VJ_WINDOWS_OK) status = close_streams(context, error);
    if (status != VJ_WINDOWS_OK) return status;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        context->remains.obstacle[0] = 0;
        uint32_t code = steps[i].undo(context);
        if (code) return fail_at(context, steps[i].step, code, error);
    }
    uint32_t code = vj_windows_handle_release(context->os, &context->parent);
    return code ? vj_windows_fail_os(error, "parent", code) : VJ_WINDOWS_OK;
}

// Become the one that closes, after all calls that are at work in it. VJ_WINDOWS_STALE:
// somebody else has closed it meanwhile.
static vj_windows_status begin_close(vj_windows_context *context,
                                     vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    vj_monitor *monitor = &context->streams.monitor;
    vj_windows_status status = VJ_WINDOWS_OK;
    vj_monitor_enter(monitor);
    // Each of its steps has a bound, so that this one has.
    while (!context->closed && context->state == VJ_WINDOWS_CONTEXT_CLOSING) {
        vj_monitor_wait(monitor, VJ_WINDOWS_SLICE_MS);
    }
    if (context->closed) {
        status = VJ_WINDOWS_STALE;
    } else {
        uint64_t deadline = os->now_ms(os) + VJ_WINDOWS_BARRIER_MS;
        context->state = VJ_WINDOWS_CONTEXT_CLOSING;
        vj_monitor_wake(monitor);
        while (context->operations && os->now_ms(os) < deadline) {
            vj_monitor_wait(monitor, VJ_WINDOWS_SLICE_MS);
        }
        if (context->operations) {
            context->state = VJ_WINDOWS_CONTEXT_POISONED;
            vj_monitor_wake(monitor);
            status = vj_windows_fail(error, VJ_WINDOWS_TIMED_OUT, "close", 0,
                                     "a call for the context is still at work");
        }
    }
    vj_monitor_leave(monitor);
    return status;
}

vj_windows_status vj_windows_close(vj_windows_id id, vj_windows_error *error) {
    vj_windows_context *context = NULL;
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_context_find(id, &context, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = begin_close(context, error);
    if (status == VJ_WINDOWS_OK) {
        vj_monitor *monitor = &context->streams.monitor;
        status = vj_windows_context_undo(context, error);
        vj_monitor_enter(monitor);
        context->closed = status == VJ_WINDOWS_OK;
        context->state = VJ_WINDOWS_CONTEXT_POISONED; // of a closed one nobody asks
        vj_monitor_wake(monitor);
        vj_monitor_leave(monitor);
        if (status == VJ_WINDOWS_OK) {
            vj_identifiers_remove(vj_windows_numbers(), &context->identified);
        }
    } else if (status == VJ_WINDOWS_STALE) {
        status = VJ_WINDOWS_OK; // done, by another thread
    }
    vj_windows_context_drop(context);
    return status;
}
