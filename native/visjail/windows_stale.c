// What hosts that are dead have left in a directory (point 24).
//
// A root is taken for one only if its name has the form, its marker names it again, and
// the process that the marker names is gone: no process has that pid, or one that was
// created at another time. The name alone says nothing.

#include <stdlib.h>
#include <string.h>

#include "windows_core.h"

typedef struct {
    const vj_windows_os *os;
    uint16_t path[VJ_WINDOWS_PLACE_SIZE]; // of the parent, then of the root
    size_t parent_length;
    char name[VJ_WINDOWS_ROOT_NAME_SIZE];
    vj_windows_entry entry;
    vj_windows_marker marker;
    vj_windows_security security;
} stale_search;

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

// The path of something in the root; empty: the root itself.
static bool set_path(stale_search *search, const char *below) {
    size_t at = search->parent_length;
    const char *const parts[] = {search->name, below};
    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(parts[i]);
        if (!length) continue;
        if (at + length + 2 > VJ_WINDOWS_PLACE_SIZE) return false;
        search->path[at++] = '\\';
        for (size_t j = 0; j < length; j++) search->path[at++] = (uint16_t)parts[i][j];
    }
    search->path[at] = 0;
    return true;
}

// ERROR_SHARING_VIOLATION, and others: not stale.
static uint32_t read_marker(stale_search *search, bool *valid) {
    const vj_windows_os *os = search->os;
    char text[VJ_WINDOWS_MARKER_SIZE + 1];
    vj_windows_handle handle = NULL;
    vj_windows_file file = {0};
    uint32_t size = 0;
    *valid = false;
    if (!set_path(search, VJ_WINDOWS_MARKER_NAME)) return 0;
    // Its host has it open as long as it lives, and shares it with nobody who would
    // delete it.
    uint32_t code = os->open(os, NULL, search->path, VJ_WINDOWS_OPEN_ALONE, &handle);
    if (code) return code;
    code = os->file_information(os, handle, &file);
    while (!code && file.kind == VJ_WINDOWS_KIND_FILE && size < sizeof text) {
        uint32_t count = 0;
        code =
            os->file_read(os, handle, text + size, (uint32_t)sizeof text - size, &count);
        if (!count) break;
        size += count;
    }
    uint32_t closing = vj_windows_handle_done(os, &handle);
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
    if (vj_windows_utf16(search->marker.package, strlen(search->marker.package), package,
                         VJ_WINDOWS_PACKAGE_SIZE, &written) != VJ_WINDOWS_FINE) {
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    }
    code = os->profile_delete(os, package);
    for (size_t i = 0; !code && i < sizeof places / sizeof *places; i++) {
        if (!places[i] || !set_path(search, places[i])) continue;
        code = vj_windows_remove_tree(os, search->path, search->security);
    }
    if (!code && set_path(search, VJ_WINDOWS_MARKER_NAME)) {
        code = os->remove(os, search->path);
    }
    if (!code && whole && set_path(search, "")) {
        code = vj_windows_remove_tree(os, search->path, search->security);
    }
    return code;
}

// What concerns one entry alone does not end the search.
static uint32_t judge_entry(stale_search *search, uint64_t *removed) {
    bool valid = false, dead = false;
    if (search->entry.kind != VJ_WINDOWS_KIND_DIRECTORY ||
        !has_form(search->entry.name, search->name)) {
        return 0;
    }
    if (read_marker(search, &valid) || !valid || !names_its_package(search)) return 0;
    if (is_dead(search, &dead) || !dead) return 0;
    uint32_t code = remove_context(search);
    if (!code) (*removed)++;
    return code;
}

static uint32_t search_parent(stale_search *search, uint64_t *removed) {
    const vj_windows_os *os = search->os;
    vj_windows_handle parent = NULL;
    vj_windows_listing listing = NULL;
    uint32_t code = os->open(os, NULL, search->path, VJ_WINDOWS_OPEN_HOLD, &parent);
    if (!code) code = os->final_path(os, parent, search->path, VJ_WINDOWS_PLACE_SIZE);
    if (!code) code = os->listing_open(os, parent, &listing);
    while (search->path[search->parent_length]) search->parent_length++;
    if (search->parent_length && search->path[search->parent_length - 1] == '\\') {
        search->parent_length--;
    }
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
    uint32_t closing = vj_windows_listing_done(os, &listing);
    if (!code) code = closing;
    closing = vj_windows_handle_done(os, &parent);
    return code ? code : closing;
}

static vj_windows_status remove_all(stale_search *search, uint64_t *removed,
                                    vj_windows_error *error) {
    const vj_windows_os *os = search->os;
    char owner[VJ_WINDOWS_SID_SIZE];
    vj_windows_status status = vj_windows_learn_user(os, owner, error);
    if (status == VJ_WINDOWS_OK) {
        status = vj_windows_describe(os, VJ_WINDOWS_PRIVATE, owner, "", &search->security,
                                     error);
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
