// A context: made in one go, sealed, asked for its state.
//
// The order is what keeps a crash at any point clean: the root first, then the marker in
// it that says whose it is, then what lies outside of it (the profile, the desktop).
// Every directory has its final descriptor from the moment on which it exists.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_core.h"

// 64 random bits do not meet what is there already; something is wrong if they do.
#define ROOT_ATTEMPTS 8

static void destroy(vj_identified *object) {
    vj_windows_context *context = (vj_windows_context *)(void *)object;
    for (size_t i = 0; i < context->staged_count; i++) free(context->staged[i]);
    free(context->staged);
    free(context->remains.handles);
    free(context);
}

static vj_windows_context *new_context(void) {
    vj_windows_context *context = calloc(1, sizeof *context);
    if (!context) return NULL;
    vj_identified_begin(&context->identified, VJ_WINDOWS_CONTEXT_KIND, destroy);
    // Nobody else may touch it before it is whole.
    context->state = VJ_WINDOWS_CONTEXT_CLOSING;
    context->os = vj_windows_os_table();
    context->streams.os = context->os;
    context->streams.identifiers = vj_windows_numbers();
    context->streams.owner = &context->identified;
    return context;
}

// ---- what this Windows can do

static vj_windows_status check_features(const vj_windows_os *os,
                                        vj_windows_features *features,
                                        vj_windows_error *error) {
    static const char *const names[] = {
        "AppContainer profiles",
        "the opt-out of ALL APPLICATION PACKAGES (LPAC)",
        "the process attribute SECURITY_CAPABILITIES",
        "the process attribute HANDLE_LIST",
        "the process attribute JOB_LIST",
        "limits of jobs that can be read back",
        "pseudo consoles",
        "private desktops with their helper program",
        "the system's random numbers",
    };
    char text[sizeof error->text];
    uint32_t code = os->features(os, features);
    if (code) return vj_windows_fail_os(error, "features", code);
    if (!features->missing) return VJ_WINDOWS_OK;
    int at = snprintf(text, sizeof text, "this Windows (build %lu) lacks",
                      (unsigned long)features->build);
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!(features->missing >> i & 1) || at < 0 || (size_t)at >= sizeof text)
            continue;
        at += snprintf(text + at, sizeof text - (size_t)at, "%s %s", any ? "," : "",
                       names[i]);
        any = true;
    }
    return vj_windows_fail(error, VJ_WINDOWS_UNAVAILABLE, "features",
                           VJ_WINDOWS_ERROR_NOT_SUPPORTED, text);
}

vj_windows_status vj_windows_probe(uint32_t *build, vj_windows_error *error) {
    vj_windows_features features = {0};
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    *build = 0;
    if (status != VJ_WINDOWS_OK) return status;
    status = check_features(vj_windows_os_table(), &features, error);
    *build = features.build;
    return status;
}

// ---- create, step by step

static vj_windows_status take_utf8(const uint16_t *text, char *to, size_t room,
                                   const char *step, vj_windows_error *error) {
    size_t length = 0, written = 0;
    while (text[length]) length++;
    vj_windows_fault fault = vj_windows_utf8(text, length, to, room, &written);
    return fault == VJ_WINDOWS_FINE ? VJ_WINDOWS_OK
                                    : vj_windows_fail_text(error, step, fault);
}

vj_windows_status vj_windows_learn_user(const vj_windows_os *os,
                                        char owner[VJ_WINDOWS_SID_SIZE],
                                        vj_windows_error *error) {
    uint16_t text[VJ_WINDOWS_SID_MAX];
    uint32_t code = os->user_sid(os, text, VJ_WINDOWS_SID_MAX);
    if (code) return vj_windows_fail_os(error, "user", code);
    return take_utf8(text, owner, VJ_WINDOWS_SID_SIZE, "user", error);
}

static vj_windows_status learn_host(vj_windows_context *context,
                                    vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    uint16_t text[VJ_WINDOWS_PLACE_SIZE];
    vj_windows_status status = vj_windows_learn_user(os, context->owner, error);
    if (status != VJ_WINDOWS_OK) return status;
    uint32_t code = os->system_root(os, text, VJ_WINDOWS_PLACE_SIZE);
    if (code) return vj_windows_fail_os(error, "system root", code);
    return take_utf8(text, context->system_root, sizeof context->system_root,
                     "system root", error);
}

// Open the parent, and see what it is really called. `parent` is replaced by that.
static vj_windows_status hold_parent(vj_windows_context *context, char *parent,
                                     size_t room, vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    uint16_t path[VJ_WINDOWS_PLACE_SIZE];
    vj_windows_file file = {0};
    size_t written = 0;
    vj_windows_fault fault = vj_windows_source_fault(parent);
    if (fault == VJ_WINDOWS_FINE) {
        fault = vj_windows_utf16(parent, strlen(parent), path, VJ_WINDOWS_PLACE_SIZE,
                                 &written);
    }
    if (fault != VJ_WINDOWS_FINE) return vj_windows_fail_text(error, "parent", fault);
    for (size_t i = 0; i < written; i++) {
        if (path[i] == '/') path[i] = '\\';
    }
    uint32_t code = os->open(os, NULL, path, VJ_WINDOWS_OPEN_HOLD, &context->parent);
    if (!code) code = os->file_information(os, context->parent, &file);
    if (code) return vj_windows_fail_os(error, "parent", code);
    if (file.kind != VJ_WINDOWS_KIND_DIRECTORY) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "parent", 0,
                               "the parent is not a directory of this machine");
    }
    code = os->final_path(os, context->parent, path, VJ_WINDOWS_PLACE_SIZE);
    if (code) return vj_windows_fail_os(error, "parent", code);
    vj_windows_status status = take_utf8(path, parent, room, "parent", error);
    if (status != VJ_WINDOWS_OK) return status;
    // Before anything is made: the longest path of a socket fits, too.
    fault = vj_windows_parent_fault(parent);
    if (fault == VJ_WINDOWS_SOCKET_TOO_LONG) {
        char text[sizeof error->text];
        snprintf(text, sizeof text,
                 "the parent is too long: a socket in `work` would need %lu bytes of %u",
                 (unsigned long)vj_windows_socket_bytes(parent),
                 VJ_WINDOWS_SOCKET_BYTES_MAX);
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "parent", 0, text);
    }
    return fault == VJ_WINDOWS_FINE ? VJ_WINDOWS_OK
                                    : vj_windows_fail_text(error, "parent", fault);
}

static uint32_t close_security(vj_windows_context *context, size_t i) {
    const vj_windows_os *os = context->os;
    if (!context->security[i]) return 0;
    uint32_t code = os->security_close(os, context->security[i]);
    if (!code) context->security[i] = NULL;
    return code;
}

vj_windows_status vj_windows_describe(const vj_windows_os *os, vj_windows_object object,
                                      const char *owner, const char *package,
                                      vj_windows_security *security,
                                      vj_windows_error *error) {
    char sddl[VJ_WINDOWS_SDDL_SIZE];
    uint16_t text[VJ_WINDOWS_SDDL_SIZE];
    size_t written = 0;
    vj_windows_fault fault = vj_windows_sddl(object, owner, package, sddl, sizeof sddl);
    if (fault == VJ_WINDOWS_FINE) {
        fault =
            vj_windows_utf16(sddl, strlen(sddl), text, VJ_WINDOWS_SDDL_SIZE, &written);
    }
    if (fault != VJ_WINDOWS_FINE) return vj_windows_fail_text(error, "descriptor", fault);
    uint32_t code = os->security_open(os, text, security);
    return code ? vj_windows_fail_os(error, "descriptor", code) : VJ_WINDOWS_OK;
}

static vj_windows_status describe(vj_windows_context *context, vj_windows_error *error) {
    vj_windows_status status = VJ_WINDOWS_OK;
    for (size_t i = 0; status == VJ_WINDOWS_OK && i < VJ_WINDOWS_OBJECT_END; i++) {
        // Of a root whose name was taken.
        uint32_t code = close_security(context, i);
        if (code) return vj_windows_fail_os(error, "descriptor", code);
        status = vj_windows_describe(context->os, (vj_windows_object)i, context->owner,
                                     context->package_sid, &context->security[i], error);
    }
    return status;
}

// A name from the system's random numbers, and all that follows from it. No clock and no
// pid stand in for them.
static vj_windows_status name_root(vj_windows_context *context, const char *parent,
                                   char name[VJ_WINDOWS_ROOT_NAME_SIZE],
                                   vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    uint8_t bytes[8] = {0};
    uint32_t code = os->random(os, bytes, sizeof bytes);
    if (code) return vj_windows_fail_os(error, "random numbers", code);
    vj_windows_root_name(bytes, name);
    size_t length = strlen(parent);
    while (length && (parent[length - 1] == '\\' || parent[length - 1] == '/')) length--;
    int size = snprintf(context->root, sizeof context->root, "%.*s\\%s", (int)length,
                        parent, name);
    if (size < 0 || (size_t)size >= sizeof context->root) {
        return vj_windows_fail_text(error, "root", VJ_WINDOWS_TOO_LONG);
    }
    const char *const *capabilities = NULL;
    size_t count = vj_windows_capabilities(&capabilities);
    vj_windows_fault fault =
        vj_windows_package_name(name, context->package, sizeof context->package);
    if (fault == VJ_WINDOWS_FINE) {
        fault = vj_windows_package_sid(context->package, context->package_sid);
    }
    if (fault == VJ_WINDOWS_FINE) {
        fault = count == 1
                    ? vj_windows_capability_sid(capabilities[0], context->capability_sid)
                    : VJ_WINDOWS_TOO_MANY;
    }
    if (fault != VJ_WINDOWS_FINE) return vj_windows_fail_text(error, "identity", fault);
    return describe(context, error);
}

static vj_windows_security place_security(const vj_windows_context *context,
                                          vj_windows_place place) {
    switch (place) {
    case VJ_WINDOWS_PLACE_ROOT: return context->security[VJ_WINDOWS_ROOT];
    case VJ_WINDOWS_PLACE_APP: return context->security[VJ_WINDOWS_APP];
    case VJ_WINDOWS_PLACE_WORK:
    case VJ_WINDOWS_PLACE_TEMP: return context->security[VJ_WINDOWS_WORK];
    case VJ_WINDOWS_PLACES: break;
    }
    return NULL;
}

// Hold the directory that was made, and read back what it says.
static vj_windows_status hold_made(const vj_windows_os *os, const uint16_t *path,
                                   vj_windows_security security,
                                   vj_windows_handle *handle, vj_windows_error *error) {
    bool equal = false;
    vj_windows_file file = {0};
    uint32_t opened = os->open(os, NULL, path, VJ_WINDOWS_OPEN_HOLD, handle);
    if (!opened) opened = os->file_information(os, *handle, &file);
    if (!opened) opened = os->security_equal(os, *handle, security, &equal);
    if (opened) return vj_windows_fail_os(error, "descriptor of directory", opened);
    if (!equal || file.kind != VJ_WINDOWS_KIND_DIRECTORY) {
        return vj_windows_fail(error, VJ_WINDOWS_MISMATCH, "descriptor of directory", 0,
                               "a directory does not have the descriptor with which it "
                               "was made; is it on NTFS?");
    }
    return VJ_WINDOWS_OK;
}

static vj_windows_status make_place(vj_windows_context *context, vj_windows_place place,
                                    uint32_t *code, vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    vj_windows_security security = place_security(context, place);
    uint16_t path[VJ_WINDOWS_PLACE_SIZE];
    if (!vj_windows_path(context, vj_windows_place_name(place), "", path,
                         VJ_WINDOWS_PLACE_SIZE)) {
        return vj_windows_fail_text(error, "directory", VJ_WINDOWS_TOO_LONG);
    }
    *code = os->directory_create(os, path, security);
    if (*code) return vj_windows_fail_os(error, "directory", *code);
    context->made[place] = true;
    return hold_made(os, path, security, &context->places[place], error);
}

static vj_windows_status make_root(vj_windows_context *context, const char *parent,
                                   char name[VJ_WINDOWS_ROOT_NAME_SIZE],
                                   vj_windows_error *error) {
    for (int attempt = 1;; attempt++) {
        uint32_t code = 0;
        vj_windows_status status = name_root(context, parent, name, error);
        if (status == VJ_WINDOWS_OK) {
            status = make_place(context, VJ_WINDOWS_PLACE_ROOT, &code, error);
        }
        if (code != VJ_WINDOWS_ERROR_ALREADY_EXISTS || attempt == ROOT_ATTEMPTS) {
            return status;
        }
    }
}

static vj_windows_status make_marker(vj_windows_context *context, const char *name,
                                     vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    vj_windows_marker marker = {.flags = context->flags};
    char text[VJ_WINDOWS_MARKER_SIZE];
    uint16_t path[VJ_WINDOWS_PLACE_SIZE];
    uint32_t code = os->self(os, &marker.pid, &marker.created);
    if (code) return vj_windows_fail_os(error, "marker", code);
    snprintf(marker.nonce, sizeof marker.nonce, "%s", name);
    snprintf(marker.package, sizeof marker.package, "%s", context->package);
    size_t size = vj_windows_marker_write(&marker, text, sizeof text);
    if (!size || !vj_windows_path(context, VJ_WINDOWS_MARKER_NAME, "", path,
                                  VJ_WINDOWS_PLACE_SIZE)) {
        return vj_windows_fail_text(error, "marker", VJ_WINDOWS_TOO_LONG);
    }
    code = os->file_create(os, path, context->security[VJ_WINDOWS_PRIVATE],
                           &context->marker);
    if (!code) {
        context->has_marker = true;
        code = os->file_write(os, context->marker, text, (uint32_t)size);
    }
    return code ? vj_windows_fail_os(error, "marker", code) : VJ_WINDOWS_OK;
}

static vj_windows_status make_profile(vj_windows_context *context,
                                      vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    uint16_t name[VJ_WINDOWS_PACKAGE_SIZE];
    uint16_t text[VJ_WINDOWS_SID_MAX];
    char sid[VJ_WINDOWS_SID_SIZE];
    size_t written = 0;
    vj_windows_fault fault = vj_windows_utf16(context->package, strlen(context->package),
                                              name, VJ_WINDOWS_PACKAGE_SIZE, &written);
    if (fault != VJ_WINDOWS_FINE) return vj_windows_fail_text(error, "profile", fault);
    // Without capabilities: what a launch gets, it gets by itself (point 27). A call that
    // failed may have made a part of it; one that found it there has not.
    uint32_t code = os->profile_create(os, name, text, VJ_WINDOWS_SID_MAX);
    context->has_profile = code != VJ_WINDOWS_ERROR_ALREADY_EXISTS;
    if (code) return vj_windows_fail_os(error, "profile", code);
    vj_windows_status status = take_utf8(text, sid, sizeof sid, "profile", error);
    if (status != VJ_WINDOWS_OK) return status;
    if (strcmp(sid, context->package_sid) != 0) {
        return vj_windows_fail(error, VJ_WINDOWS_MISMATCH, "profile", 0,
                               "the package has another identifier than its name gives");
    }
    return VJ_WINDOWS_OK;
}

// The folders of the package. Windows writes their paths into the environment of a guest,
// below the LOCALAPPDATA that it was given, and makes none of them. They go with `temp`.
// Each is held until the last is made: in `temp` a process of low integrity may put a
// link in the place of one.
static vj_windows_status make_package_folders(vj_windows_context *context,
                                              vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    vj_windows_security security = context->security[VJ_WINDOWS_WORK];
    const char *const names[] = {"Packages", context->package, "AC", "Temp"};
    vj_windows_handle held[sizeof names / sizeof *names] = {NULL};
    char below[VJ_WINDOWS_PLACE_SIZE];
    uint16_t path[VJ_WINDOWS_PLACE_SIZE];
    size_t length = 0;
    vj_windows_status status = VJ_WINDOWS_OK;
    for (size_t i = 0; status == VJ_WINDOWS_OK && i < sizeof held / sizeof *held; i++) {
        length += (size_t)snprintf(below + length, sizeof below - length, "%s%s",
                                   i ? "\\" : "", names[i]);
        if (!vj_windows_path(context, vj_windows_place_name(VJ_WINDOWS_PLACE_TEMP), below,
                             path, VJ_WINDOWS_PLACE_SIZE)) {
            status = vj_windows_fail_text(error, "package folder", VJ_WINDOWS_TOO_LONG);
            continue;
        }
        uint32_t code = os->directory_create(os, path, security);
        status = code ? vj_windows_fail_os(error, "package folder", code)
                      : hold_made(os, path, security, &held[i], error);
    }
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        uint32_t code = vj_windows_handle_done(os, &held[i], &context->remains);
        if (code && status == VJ_WINDOWS_OK) {
            status = vj_windows_fail_os(error, "package folder", code);
        }
    }
    return status;
}

static vj_windows_status make_desktop(vj_windows_context *context, const char *name,
                                      vj_windows_error *error) {
    const vj_windows_os *os = context->os;
    char sddl[VJ_WINDOWS_SDDL_SIZE];
    uint16_t text[VJ_WINDOWS_SDDL_SIZE];
    uint16_t desktop[VJ_WINDOWS_ROOT_NAME_SIZE];
    size_t written = 0;
    vj_windows_fault fault = vj_windows_sddl(VJ_WINDOWS_DESKTOP, context->owner,
                                             context->package_sid, sddl, sizeof sddl);
    if (fault == VJ_WINDOWS_FINE) {
        fault =
            vj_windows_utf16(sddl, strlen(sddl), text, VJ_WINDOWS_SDDL_SIZE, &written);
    }
    if (fault == VJ_WINDOWS_FINE) {
        fault = vj_windows_utf16(name, strlen(name), desktop, VJ_WINDOWS_ROOT_NAME_SIZE,
                                 &written);
    }
    if (fault != VJ_WINDOWS_FINE) return vj_windows_fail_text(error, "desktop", fault);
    uint32_t code = os->desktop_open(
        os, desktop, text, context->security[VJ_WINDOWS_PRIVATE], &context->desktop);
    return code ? vj_windows_fail_os(error, "desktop", code) : VJ_WINDOWS_OK;
}

static vj_windows_status make_all(vj_windows_context *context, char *parent, size_t room,
                                  vj_windows_error *error) {
    char name[VJ_WINDOWS_ROOT_NAME_SIZE];
    uint32_t code = 0;
    vj_windows_status status = learn_host(context, error);
    if (status == VJ_WINDOWS_OK) status = hold_parent(context, parent, room, error);
    if (status == VJ_WINDOWS_OK) status = make_root(context, parent, name, error);
    if (status == VJ_WINDOWS_OK) status = make_marker(context, name, error);
    for (vj_windows_place place = VJ_WINDOWS_PLACE_APP;
         status == VJ_WINDOWS_OK && place < VJ_WINDOWS_PLACES; place++) {
        status = make_place(context, place, &code, error);
    }
    if (status == VJ_WINDOWS_OK) status = make_profile(context, error);
    if (status == VJ_WINDOWS_OK) status = make_package_folders(context, error);
    if (status == VJ_WINDOWS_OK) status = make_desktop(context, name, error);
    return status;
}

static void set_state(vj_windows_context *context, vj_windows_context_state state,
                      bool closed) {
    vj_monitor_enter(&context->streams.monitor);
    context->state = state;
    context->closed = closed;
    vj_monitor_wake(&context->streams.monitor);
    vj_monitor_leave(&context->streams.monitor);
}

// An attempt that failed: take it back, or leave a poisoned context for the caller.
static void give_up(vj_windows_context *context, vj_windows_id *id) {
    vj_windows_error ignored = {sizeof ignored, VJ_WINDOWS_VERSION, 0, 0, "", ""};
    // Nothing that the host could want is in it yet.
    context->flags |= VJ_WINDOWS_REMOVE_WORK;
    bool undone = vj_windows_context_undo(context, &ignored) == VJ_WINDOWS_OK;
    set_state(context, VJ_WINDOWS_CONTEXT_POISONED, undone);
    if (undone) vj_identifiers_remove(vj_windows_numbers(), &context->identified);
    else *id = context->identified.id;
}

vj_windows_status vj_windows_create(const vj_windows_create_options *options,
                                    vj_windows_id *id, vj_windows_context_info *info,
                                    vj_windows_error *error) {
    char parent[VJ_WINDOWS_PLACE_SIZE];
    vj_windows_status status = vj_windows_check(options, sizeof *options, error);
    *id = 0;
    if (status == VJ_WINDOWS_OK) status = vj_windows_check(info, sizeof *info, error);
    if (status != VJ_WINDOWS_OK) return status;
    if (options->flags & ~(uint32_t)VJ_WINDOWS_REMOVE_WORK) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "request", 0,
                               "a flag is not known here");
    }
    status =
        vj_windows_take_text(&options->parent, parent, sizeof parent, "parent", error);
    if (status != VJ_WINDOWS_OK) return status;
    vj_windows_context *context = new_context();
    if (!context) {
        return vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "context", 0,
                               "out of memory");
    }
    context->flags = options->flags;
    // Nothing is made on a Windows that cannot enforce it (point 67).
    status = check_features(context->os, &context->features, error);
    // A number first: it is how the rest of a failed attempt is found again.
    if (status == VJ_WINDOWS_OK &&
        !vj_identifiers_add(vj_windows_numbers(), &context->identified)) {
        status =
            vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "context", 0, "out of memory");
    }
    if (status == VJ_WINDOWS_OK) {
        status = make_all(context, parent, sizeof parent, error);
        if (status == VJ_WINDOWS_OK) {
            set_state(context, VJ_WINDOWS_CONTEXT_OPEN, false);
            *id = context->identified.id;
            info->build = context->features.build;
            info->reserved = 0;
            snprintf(info->package, sizeof info->package, "%s", context->package);
            snprintf(info->package_sid, sizeof info->package_sid, "%s",
                     context->package_sid);
            snprintf(info->root, sizeof info->root, "%s", context->root);
        } else {
            give_up(context, id);
        }
    }
    vj_windows_context_drop(context);
    return status;
}

// ---- the other states

// Unless somebody has begun to close it.
static void seal(vj_windows_context *context) {
    vj_monitor_enter(&context->streams.monitor);
    if (context->state == VJ_WINDOWS_CONTEXT_OPEN) {
        context->state = VJ_WINDOWS_CONTEXT_SEALED;
    }
    vj_monitor_leave(&context->streams.monitor);
}

vj_windows_status vj_windows_seal(vj_windows_id id, vj_windows_error *error) {
    vj_windows_context *context = NULL;
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_context_find(id, &context, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = vj_windows_operation_begin(context, VJ_WINDOWS_CONTEXT_OPEN, true, error);
    if (status == VJ_WINDOWS_OK) {
        // Is it still what guests may read and not change?
        const vj_windows_os *os = context->os;
        bool equal = false;
        uint32_t code = os->security_equal(os, context->places[VJ_WINDOWS_PLACE_APP],
                                           context->security[VJ_WINDOWS_APP], &equal);
        if (code) {
            status = vj_windows_fail_os(error, "seal", code);
        } else if (!equal) {
            status = vj_windows_fail(error, VJ_WINDOWS_MISMATCH, "seal", 0,
                                     "somebody has changed the descriptor of `app`");
        }
        if (status == VJ_WINDOWS_OK) seal(context);
        vj_windows_operation_end(context, true, false);
    }
    vj_windows_context_drop(context);
    return status;
}

vj_windows_status vj_windows_state_of(vj_windows_id id, vj_windows_context_state *state,
                                      vj_windows_error *error) {
    vj_windows_context *context = NULL;
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_context_find(id, &context, error);
    if (status != VJ_WINDOWS_OK) return status;
    vj_monitor_enter(&context->streams.monitor);
    *state = context->state;
    bool closed = context->closed;
    vj_monitor_leave(&context->streams.monitor);
    vj_windows_context_drop(context);
    if (!closed) return VJ_WINDOWS_OK;
    return vj_windows_fail(error, VJ_WINDOWS_STALE, "context", 0,
                           "another thread has closed the context");
}
