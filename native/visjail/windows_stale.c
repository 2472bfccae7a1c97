// What hosts that are dead have left in a directory (point 24).
//
// A root is taken for one only if its name has the form, it has the owner and the rights
// that a root of this user's is made with, its marker names it again, and the process
// that the marker names is gone: no process has that pid, or one that was created at
// another time. The name alone says nothing, and neither does what somebody else has
// written.

#include <stdlib.h>
#include <string.h>

#include "windows_core.h"

typedef struct {
    const vj_windows_os *os;
    uint16_t path[VJ_WINDOWS_PLACE_SIZE]; // of the parent
    vj_windows_handle parent;
    vj_windows_handle root; // of the entry at hand
    char name[VJ_WINDOWS_ROOT_NAME_SIZE];
    vj_windows_entry entry;
    vj_windows_marker marker;
    char owner[VJ_WINDOWS_SID_SIZE];
    vj_windows_security security;
} stale_search;

enum { SHORT_NAME = 32 }; // of what lies in a root, with its NUL

// "vj-" and 16 digits.
static bool has_form(const uint16_t *name, char to[VJ_WINDOWS_ROOT_NAME_SIZE]) {
    static const char prefix[] = "vj-";
    for (size_t i = 0; i + 1 < VJ_WINDOWS_ROOT_NAME_SIZE; i++) {
        uint16_t unit = name[i];
        bool digit = (unit >= '0' && unit <= '9') || (unit >= 'a' && unit <= 'f');
        if (i < 3 ? unit != (uint16_t)prefix[i] : !digit) return false;
        to[i] = (char)unit;
    }
    to[VJ_WINDOWS_ROOT_NAME_SIZE - 1] = 0;
    return !name[VJ_WINDOWS_ROOT_NAME_SIZE - 1];
}

static void widen(const char *name, uint16_t to[SHORT_NAME]) {
    size_t i = 0;
    for (; name[i] && i + 1 < SHORT_NAME; i++) to[i] = (uint16_t)name[i];
    to[i] = 0;
}

// ERROR_SHARING_VIOLATION, and others: not stale.
static uint32_t read_marker(stale_search *search, bool *valid) {
    const vj_windows_os *os = search->os;
    char text[VJ_WINDOWS_MARKER_SIZE + 1];
    vj_windows_handle handle = NULL;
    vj_windows_file file = {0};
    uint32_t size = 0;
    uint16_t name[SHORT_NAME];
    *valid = false;
    widen(VJ_WINDOWS_MARKER_NAME, name);
    // Its host has it open as long as it lives, and shares it with nobody who would
    // delete it.
    uint32_t code = os->open(os, search->root, name, VJ_WINDOWS_OPEN_ALONE, &handle);
    if (code) return code;
    code = os->file_information(os, handle, &file);
    while (!code && file.kind == VJ_WINDOWS_KIND_FILE && size < sizeof text) {
        uint32_t count = 0;
        code =
            os->file_read(os, handle, text + size, (uint32_t)sizeof text - size, &count);
        if (!count) break;
        size += count;
    }
    uint32_t closing = vj_windows_handle_done(os, &handle, NULL);
    if (code || closing) return code ? code : closing;
    *valid = file.kind == VJ_WINDOWS_KIND_FILE && size < sizeof text &&
             vj_windows_marker_read(text, size, &search->marker) &&
             !strcmp(search->marker.nonce, search->name);
    return 0;
}

// Only the package that belongs to this name, whatever the marker says.
static bool names_its_package(const stale_search *search) {
    char package[VJ_WINDOWS_PACKAGE_SIZE];
    return vj_windows_package_name(search->name, package, sizeof package) ==
               VJ_WINDOWS_FINE &&
           !strcmp(package, search->marker.package);
}

// Nobody but this user, or who may do everything anyway, gives a directory this owner.
static uint32_t is_own(stale_search *search, bool *own) {
    const vj_windows_os *os = search->os;
    char sid[VJ_WINDOWS_SID_SIZE];
    vj_windows_security security = NULL;
    vj_windows_error ignored = {sizeof ignored, VJ_WINDOWS_VERSION, 0, 0, "", ""};
    *own = false;
    if (vj_windows_package_sid(search->marker.package, sid) != VJ_WINDOWS_FINE) return 0;
    if (vj_windows_describe(os, VJ_WINDOWS_ROOT, search->owner, sid, &security,
                            &ignored) != VJ_WINDOWS_OK) {
        return ignored.os_error;
    }
    uint32_t code = os->security_equal(os, search->root, security, own);
    uint32_t closing = os->security_close(os, security);
    if (closing) closing = os->security_close(os, security);
    return code ? code : closing;
}

static uint32_t is_dead(const stale_search *search, bool *dead) {
    const vj_windows_os *os = search->os;
    uint64_t created = 0;
    uint32_t code = os->owner_created(os, search->marker.pid, &created);
    *dead = code ? code == VJ_WINDOWS_ERROR_INVALID_PARAMETER
                 : created != search->marker.created;
    // Who may not ask does not know that it is dead.
    return code == VJ_WINDOWS_ERROR_INVALID_PARAMETER ? 0 : code;
}

// In the order of windows_close.c: the marker goes last.
static uint32_t remove_context(stale_search *search) {
    const vj_windows_os *os = search->os;
    bool whole = search->marker.flags & VJ_WINDOWS_REMOVE_WORK;
    const char *const places[] = {"temp", "app", whole ? "work" : NULL};
    uint16_t package[VJ_WINDOWS_PACKAGE_SIZE];
    size_t written = 0;
    uint32_t code = 0;
    uint16_t name[SHORT_NAME];
    if (vj_windows_utf16(search->marker.package, strlen(search->marker.package), package,
                         VJ_WINDOWS_PACKAGE_SIZE, &written) != VJ_WINDOWS_FINE) {
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    }
    code = os->profile_delete(os, package);
    for (size_t i = 0; !code && i < sizeof places / sizeof *places; i++) {
        if (!places[i]) continue;
        widen(places[i], name);
        code = vj_windows_remove_tree(os, search->root, name, search->security, NULL);
    }
    if (!code) {
        widen(VJ_WINDOWS_MARKER_NAME, name);
        code = os->remove(os, search->root, name);
    }
    if (code || !whole) return code;
    code = vj_windows_handle_done(os, &search->root, NULL);
    widen(search->name, name);
    return code
               ? code
               : vj_windows_remove_tree(os, search->parent, name, search->security, NULL);
}

static uint32_t judge_root(stale_search *search, uint64_t *removed) {
    bool valid = false, own = false, dead = false;
    if (read_marker(search, &valid) || !valid || !names_its_package(search)) return 0;
    if (is_own(search, &own) || !own) return 0;
    if (is_dead(search, &dead) || !dead) return 0;
    uint32_t code = remove_context(search);
    if (!code) (*removed)++;
    return code;
}

// What concerns one entry alone does not end the search.
static uint32_t judge_entry(stale_search *search, uint64_t *removed) {
    const vj_windows_os *os = search->os;
    vj_windows_file file = {0};
    if (search->entry.kind != VJ_WINDOWS_KIND_DIRECTORY ||
        !has_form(search->entry.name, search->name)) {
        return 0;
    }
    uint32_t code = os->open(os, search->parent, search->entry.name, VJ_WINDOWS_OPEN_HOLD,
                             &search->root);
    if (code) return 0;
    code = os->file_information(os, search->root, &file);
    code =
        code || file.kind != VJ_WINDOWS_KIND_DIRECTORY ? 0 : judge_root(search, removed);
    uint32_t closing = vj_windows_handle_done(os, &search->root, NULL);
    return code ? code : closing;
}

static uint32_t search_parent(stale_search *search, uint64_t *removed) {
    const vj_windows_os *os = search->os;
    vj_windows_listing listing = NULL;
    uint32_t code =
        os->open(os, NULL, search->path, VJ_WINDOWS_OPEN_HOLD, &search->parent);
    if (!code) code = os->listing_open(os, search->parent, &listing);
    // One root that cannot be removed keeps no other: the first error is told at the end.
    uint32_t first = 0;
    while (!code) {
        code = os->listing_next(os, listing, &search->entry);
        if (code) break;
        uint32_t own = judge_entry(search, removed);
        if (!first) first = own;
    }
    if (code == VJ_WINDOWS_ERROR_NO_MORE_FILES) code = 0;
    if (!code) code = first;
    vj_windows_listing_done(os, &listing);
    uint32_t closing = vj_windows_handle_done(os, &search->parent, NULL);
    return code ? code : closing;
}

static vj_windows_status remove_all(stale_search *search, uint64_t *removed,
                                    vj_windows_error *error) {
    const vj_windows_os *os = search->os;
    vj_windows_status status = vj_windows_learn_user(os, search->owner, error);
    if (status == VJ_WINDOWS_OK) {
        status = vj_windows_describe(os, VJ_WINDOWS_RECLAIMED, search->owner, "",
                                     &search->security, error);
    }
    if (status != VJ_WINDOWS_OK) return status;
    uint32_t code = search_parent(search, removed);
    uint32_t closing = os->security_close(os, search->security);
    if (closing) closing = os->security_close(os, search->security);
    if (!code) code = closing;
    return code ? vj_windows_fail_os(error, "stale contexts", code) : VJ_WINDOWS_OK;
}

vj_windows_status vj_windows_remove_stale(const vj_windows_text *parent,
                                          uint64_t *removed, vj_windows_error *error) {
    char text[VJ_WINDOWS_PLACE_SIZE];
    size_t written = 0;
    *removed = 0;
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status == VJ_WINDOWS_OK) {
        status = vj_windows_take_text(parent, text, sizeof text, "parent", error);
    }
    if (status != VJ_WINDOWS_OK) return status;
    stale_search *search = calloc(1, sizeof *search);
    if (!search) {
        return vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "parent", 0, "out of memory");
    }
    search->os = vj_windows_os_table();
    vj_windows_fault fault = vj_windows_source_fault(text);
    if (fault == VJ_WINDOWS_FINE) {
        fault = vj_windows_utf16(text, strlen(text), search->path, VJ_WINDOWS_PLACE_SIZE,
                                 &written);
    }
    for (size_t i = 0; i < written; i++) {
        if (search->path[i] == '/') search->path[i] = '\\';
    }
    status = fault == VJ_WINDOWS_FINE ? remove_all(search, removed, error)
                                      : vj_windows_fail_text(error, "parent", fault);
    free(search);
    return status;
}
