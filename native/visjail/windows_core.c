// What every call of WindowsJail begins and ends with; see windows_core.h.

#include "windows_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vj_identifiers *vj_windows_numbers(void) {
    // The one thing that lasts as long as the process: a number that came back would name
    // another object than the one its holder means.
    static vj_identifiers numbers;
    return &numbers;
}

// ---- errors

static void copy_text(char *to, size_t room, const char *text) {
    memset(to, 0, room);
    for (size_t i = 0; text[i] && i + 1 < room; i++) to[i] = text[i];
}

vj_windows_status vj_windows_fail(vj_windows_error *error, vj_windows_status status,
                                  const char *step, uint32_t os_error, const char *text) {
    error->os_error = os_error;
    error->index = -1;
    copy_text(error->step, sizeof error->step, step);
    copy_text(error->text, sizeof error->text, text);
    return status;
}

vj_windows_status vj_windows_fail_os(vj_windows_error *error, const char *step,
                                     uint32_t os_error) {
    char text[sizeof error->text];
    snprintf(text, sizeof text, "%s: Windows says error %lu", step,
             (unsigned long)os_error);
    return vj_windows_fail(error, VJ_WINDOWS_SYSTEM, step, os_error, text);
}

vj_windows_status vj_windows_fail_text(vj_windows_error *error, const char *step,
                                       vj_windows_fault fault) {
    return vj_windows_fail(error, VJ_WINDOWS_REFUSED, step, 0,
                           vj_windows_fault_text(fault));
}

// ---- requests

typedef struct {
    uint32_t size;
    uint32_t version;
} beginning;

static bool is_known(const void *structure, size_t size) {
    const beginning *own = structure;
    return own && own->size == size && own->version == VJ_WINDOWS_VERSION;
}

vj_windows_status vj_windows_check(const void *structure, size_t size,
                                   vj_windows_error *error) {
    // A record that is not one cannot be written to.
    if (!is_known(error, sizeof *error)) return VJ_WINDOWS_REFUSED;
    vj_windows_fail(error, VJ_WINDOWS_OK, "", 0, "");
    if (!structure || is_known(structure, size)) return VJ_WINDOWS_OK;
    return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "request", 0,
                           "a structure has a size or version that is not known here");
}

vj_windows_status vj_windows_take_text(const vj_windows_text *text, char *to, size_t room,
                                       const char *step, vj_windows_error *error) {
    to[0] = 0;
    if (text->size >= room) return vj_windows_fail_text(error, step, VJ_WINDOWS_TOO_LONG);
    if (!text->size) return VJ_WINDOWS_OK;
    if (memchr(text->bytes, 0, (size_t)text->size)) {
        return vj_windows_fail_text(error, step, VJ_WINDOWS_NUL);
    }
    memcpy(to, text->bytes, (size_t)text->size);
    to[text->size] = 0;
    return VJ_WINDOWS_OK;
}

// ---- objects by their numbers

static vj_windows_status stale(vj_windows_error *error, const char *what) {
    char text[sizeof error->text];
    snprintf(text, sizeof text, "there is no such %s (any more)", what);
    return vj_windows_fail(error, VJ_WINDOWS_STALE, what, 0, text);
}

vj_windows_status vj_windows_context_find(vj_windows_id id, vj_windows_context **context,
                                          vj_windows_error *error) {
    vj_identified *found =
        vj_identifiers_find(vj_windows_numbers(), id, VJ_WINDOWS_CONTEXT_KIND);
    *context = (vj_windows_context *)(void *)found; // its first member
    return found ? VJ_WINDOWS_OK : stale(error, "context");
}

vj_windows_status vj_windows_process_find(vj_windows_id id, vj_windows_process **process,
                                          vj_windows_error *error) {
    vj_identified *found =
        vj_identifiers_find(vj_windows_numbers(), id, VJ_WINDOWS_PROCESS_KIND);
    *process = (vj_windows_process *)(void *)found; // its first member
    return found ? VJ_WINDOWS_OK : stale(error, "process");
}

void vj_windows_context_drop(vj_windows_context *context) {
    vj_identifiers_drop(vj_windows_numbers(), &context->identified);
}

void vj_windows_process_drop(vj_windows_process *process) {
    vj_identifiers_drop(vj_windows_numbers(), &process->identified);
}

// ---- the states of a context

static vj_windows_status wrong_state(const vj_windows_context *context,
                                     vj_windows_context_state wanted,
                                     vj_windows_error *error) {
    // Found before it was closed, by another thread.
    if (context->closed) return stale(error, "context");
    switch (context->state) {
    case VJ_WINDOWS_CONTEXT_CLOSING:
        return vj_windows_fail(error, VJ_WINDOWS_CLOSING, "state", 0,
                               "another thread is closing the context");
    case VJ_WINDOWS_CONTEXT_POISONED:
        return vj_windows_fail(error, VJ_WINDOWS_POISONED, "state", 0,
                               "an earlier error has left something of the context: all "
                               "that can be done is to close it");
    case VJ_WINDOWS_CONTEXT_OPEN:
    case VJ_WINDOWS_CONTEXT_SEALED: break;
    }
    return vj_windows_fail(error, VJ_WINDOWS_STATE, "state", 0,
                           wanted == VJ_WINDOWS_CONTEXT_OPEN
                               ? "the context is sealed: nothing is staged any more"
                               : "the context has to be sealed before it runs anything");
}

vj_windows_status vj_windows_operation_begin(vj_windows_context *context,
                                             vj_windows_context_state state, bool alone,
                                             vj_windows_error *error) {
    vj_windows_status status = VJ_WINDOWS_OK;
    vj_monitor_enter(&context->streams.monitor);
    while (alone && context->alone && context->state == state) {
        vj_monitor_wait(&context->streams.monitor, VJ_WINDOWS_SLICE_MS);
    }
    if (context->state == state) {
        context->operations++;
        if (alone) context->alone = true;
    } else {
        status = wrong_state(context, state, error);
    }
    vj_monitor_leave(&context->streams.monitor);
    return status;
}

static void poison(vj_windows_context *context) {
    // Who closes it finds out for itself.
    if (context->state != VJ_WINDOWS_CONTEXT_CLOSING) {
        context->state = VJ_WINDOWS_CONTEXT_POISONED;
    }
}

void vj_windows_operation_end(vj_windows_context *context, bool alone, bool failed) {
    vj_monitor_enter(&context->streams.monitor);
    context->operations--;
    if (alone) context->alone = false;
    if (failed) poison(context);
    vj_monitor_wake(&context->streams.monitor);
    vj_monitor_leave(&context->streams.monitor);
}

bool vj_windows_goes_on(vj_windows_context *context) {
    vj_monitor_enter(&context->streams.monitor);
    bool goes_on = context->state != VJ_WINDOWS_CONTEXT_CLOSING;
    vj_monitor_leave(&context->streams.monitor);
    return goes_on;
}

void vj_windows_poison(vj_windows_context *context) {
    vj_monitor_enter(&context->streams.monitor);
    poison(context);
    vj_monitor_leave(&context->streams.monitor);
}

// ---- handles of one call

static void keep(vj_windows_remains *remains, vj_windows_handle *slot) {
    if (remains->count == remains->room) {
        size_t room = remains->room ? 2 * remains->room : 8;
        vj_windows_handle *larger =
            realloc(remains->handles, room * sizeof(vj_windows_handle));
        if (!larger) return;
        remains->handles = larger;
        remains->room = room;
    }
    remains->handles[remains->count++] = *slot;
    *slot = NULL;
}

uint32_t vj_windows_handle_done(const vj_windows_os *os, vj_windows_handle *slot,
                                vj_windows_remains *remains) {
    uint32_t error = vj_windows_handle_release(os, slot);
    if (error) (void)vj_windows_handle_release(os, slot);
    if (*slot && remains) keep(remains, slot);
    return error;
}

void vj_windows_listing_done(const vj_windows_os *os, vj_windows_listing *slot) {
    if (*slot) os->listing_close(os, *slot);
    *slot = NULL;
}

uint32_t vj_windows_remains_close(const vj_windows_os *os, vj_windows_remains *remains) {
    while (remains->count) {
        vj_windows_handle *last = &remains->handles[remains->count - 1];
        uint32_t error = vj_windows_handle_release(os, last);
        if (error) return error;
        remains->count--;
    }
    return 0;
}

// ---- paths

const char *vj_windows_place_name(vj_windows_place place) {
    switch (place) {
    case VJ_WINDOWS_PLACE_APP: return "app";
    case VJ_WINDOWS_PLACE_WORK: return "work";
    case VJ_WINDOWS_PLACE_TEMP: return "temp";
    case VJ_WINDOWS_PLACE_ROOT:
    case VJ_WINDOWS_PLACES: break;
    }
    return "";
}

bool vj_windows_path(const vj_windows_context *context, const char *name,
                     const char *rest, uint16_t *to, size_t room) {
    const char *const parts[] = {context->root, name, rest};
    size_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t written = 0;
        if (!parts[i][0]) continue;
        if (i) {
            if (at + 1 >= room) return false;
            to[at++] = '\\';
        }
        if (vj_windows_utf16(parts[i], strlen(parts[i]), to + at, room - at, &written) !=
            VJ_WINDOWS_FINE) {
            return false;
        }
        at += written;
    }
    for (size_t i = 0; i < at; i++) {
        if (to[i] == '/') to[i] = '\\';
    }
    return true;
}
