// Delete a directory of a context, over the table.
//
// Guests have made what is in it: names that Win32 would read in another way, paths that
// are longer than programs expect, junctions. So names are taken as they are listed, a
// reparse point is deleted and never followed, and the depth is bounded by the path
// alone. It runs when no process of the context is left.

#include "windows_core.h"

#include <stdlib.h>

typedef struct {
    const vj_windows_os *os;
    uint16_t *path; // VJ_WINDOWS_PATH_MAX units
    size_t length;
    vj_windows_security security;
    uint64_t deadline; // of all that is busy; 0: nothing was yet
} tree_walk;

// A job is empty a moment before Windows lets go of what its processes had mapped.
#define BUSY_MS      2000u
#define BUSY_STEP_MS 20u

static size_t units_of(const uint16_t *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}

// The first entry of the directory, or ERROR_NO_MORE_FILES.
static uint32_t first_entry(const tree_walk *walk, vj_windows_entry *entry) {
    const vj_windows_os *os = walk->os;
    vj_windows_handle directory = NULL;
    vj_windows_listing listing = NULL;
    uint32_t error = os->open(os, NULL, walk->path, VJ_WINDOWS_OPEN_HOLD, &directory);
    // A guest can make a directory that lets nobody in. It is this user's all the same.
    if (error == VJ_WINDOWS_ERROR_ACCESS_DENIED) {
        error = os->reclaim(os, walk->path, walk->security);
        if (error) return error;
        error = os->open(os, NULL, walk->path, VJ_WINDOWS_OPEN_HOLD, &directory);
    }
    if (error) return error;
    error = os->listing_open(os, directory, &listing);
    if (!error) error = os->listing_next(os, listing, entry);
    uint32_t closing = vj_windows_listing_done(os, &listing);
    if (!error) error = closing;
    closing = vj_windows_handle_done(os, &directory);
    return error ? error : closing;
}

static bool descend(tree_walk *walk, const uint16_t *name) {
    size_t length = units_of(name);
    if (walk->length + 1 + length >= VJ_WINDOWS_PATH_MAX) return false;
    walk->path[walk->length++] = '\\';
    for (size_t i = 0; i < length; i++) walk->path[walk->length++] = name[i];
    walk->path[walk->length] = 0;
    return true;
}

static void ascend(tree_walk *walk) {
    while (walk->path[walk->length - 1] != '\\') walk->length--;
    walk->path[--walk->length] = 0;
}

static void pause_for(const vj_windows_os *os, uint64_t milliseconds) {
    vj_monitor pause = VJ_MONITOR_INITIALIZER;
    uint64_t until = os->now_ms(os) + milliseconds;
    vj_monitor_enter(&pause);
    for (uint64_t now = os->now_ms(os); now < until; now = os->now_ms(os)) {
        vj_monitor_wait(&pause, (uint32_t)(until - now));
    }
    vj_monitor_leave(&pause);
}

// An image that is still mapped gives ERROR_ACCESS_DENIED, one that is open another code.
static uint32_t remove_entry(tree_walk *walk) {
    const vj_windows_os *os = walk->os;
    for (;;) {
        uint32_t error = os->remove(os, walk->path);
        if (error != VJ_WINDOWS_ERROR_ACCESS_DENIED &&
            error != VJ_WINDOWS_ERROR_SHARING_VIOLATION) {
            return error;
        }
        uint64_t now = os->now_ms(os);
        if (!walk->deadline) walk->deadline = now + BUSY_MS;
        if (now >= walk->deadline) return error;
        pause_for(os, BUSY_STEP_MS);
    }
}

// Always the first entry that is left: no list of a directory has to be kept while
// another one is emptied.
static uint32_t empty_and_remove(tree_walk *walk, vj_windows_entry *entry) {
    for (size_t depth = 0;;) {
        uint32_t error = first_entry(walk, entry);
        if (error == VJ_WINDOWS_ERROR_NO_MORE_FILES) {
            error = remove_entry(walk);
            if (error) return error;
            if (!depth--) return 0;
            ascend(walk);
            continue;
        }
        if (error) return error;
        if (!descend(walk, entry->name)) return VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER;
        if (entry->kind == VJ_WINDOWS_KIND_DIRECTORY) {
            depth++;
            continue;
        }
        error = remove_entry(walk);
        if (error) return error;
        ascend(walk);
    }
}

uint32_t vj_windows_remove_tree(const vj_windows_os *os, const uint16_t *path,
                                vj_windows_security security) {
    size_t length = units_of(path);
    vj_windows_entry *entry = malloc(sizeof *entry);
    tree_walk walk = {.os = os,
                      .path = malloc(VJ_WINDOWS_PATH_MAX * sizeof(uint16_t)),
                      .length = length,
                      .security = security};
    uint32_t error = VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    if (entry && walk.path) {
        for (size_t i = 0; i <= length; i++) walk.path[i] = path[i];
        error = empty_and_remove(&walk, entry);
        if (error == VJ_WINDOWS_ERROR_FILE_NOT_FOUND ||
            error == VJ_WINDOWS_ERROR_PATH_NOT_FOUND) {
            // Gone already, if it is the directory itself.
            error = walk.length == length ? 0 : error;
        }
    }
    free(walk.path);
    free(entry);
    return error;
}
