// Delete a directory of a context, over the table.
//
// Guests have made what is in it: names that Win32 would read in another way, paths that
// are longer than any name of a file may be, junctions, directories that let nobody in.
// It runs when no process of the context is left, but other programs are there. So
// everything is done by one name in a directory that is held open: whoever puts a
// junction in the place of a folder meanwhile has the junction deleted, and nothing that
// it leads to.

#include "windows_core.h"

#include <stdlib.h>

// A job is empty a moment before Windows lets go of what its processes had mapped.
#define BUSY_MS      2000u
#define BUSY_STEP_MS 20u

// A directory that is held, and is being emptied.
typedef struct {
    vj_windows_handle handle;
    bool reclaimed; // it lets this user delete what is in it
    bool changed;   // since the list of its entries was begun
    bool progress;  // something in it was deleted
} tree_level;

typedef struct {
    const vj_windows_os *os;
    vj_windows_security security;
    vj_windows_remains *remains;
    uint64_t deadline; // of all that is busy; 0: nothing was yet
    tree_level *levels;
    size_t depth;
    size_t room;
    vj_windows_listing listing; // of the deepest of them, or NULL
    vj_windows_entry entry;
} tree_walk;

static void pause_for(const vj_windows_os *os, uint64_t milliseconds) {
    vj_monitor pause = VJ_MONITOR_INITIALIZER;
    uint64_t until = os->now_ms(os) + milliseconds;
    vj_monitor_enter(&pause);
    for (uint64_t now = os->now_ms(os); now < until; now = os->now_ms(os)) {
        vj_monitor_wait(&pause, (uint32_t)(until - now));
    }
    vj_monitor_leave(&pause);
}

// Is it worth another try? After a while, and for a while only.
static bool may_be_busy(tree_walk *walk) {
    const vj_windows_os *os = walk->os;
    uint64_t now = os->now_ms(os);
    if (!walk->deadline) walk->deadline = now + BUSY_MS;
    if (now >= walk->deadline) return false;
    pause_for(os, BUSY_STEP_MS);
    return true;
}

static bool is_absent(uint32_t error) {
    return error == VJ_WINDOWS_ERROR_FILE_NOT_FOUND ||
           error == VJ_WINDOWS_ERROR_PATH_NOT_FOUND;
}

static tree_level *deepest(tree_walk *walk) {
    return walk->depth ? &walk->levels[walk->depth - 1] : NULL;
}

// An image that is still mapped gives ERROR_ACCESS_DENIED, one that is open another code.
// So does what its guest lets nobody delete; but the directory around it decides as well,
// and that is this user's.
static uint32_t remove_entry(tree_walk *walk, vj_windows_handle parent,
                             const uint16_t *name) {
    static const uint16_t itself[] = {0};
    const vj_windows_os *os = walk->os;
    for (;;) {
        tree_level *level = deepest(walk);
        uint32_t error = os->remove(os, parent, name);
        if (error != VJ_WINDOWS_ERROR_ACCESS_DENIED &&
            error != VJ_WINDOWS_ERROR_SHARING_VIOLATION) {
            return error;
        }
        if (error == VJ_WINDOWS_ERROR_ACCESS_DENIED && level && !level->reclaimed) {
            level->reclaimed = true;
            uint32_t own = os->reclaim(os, level->handle, itself, walk->security);
            if (!own) continue;
            // Its owner's rights are gone, too.
            if (own != VJ_WINDOWS_ERROR_ACCESS_DENIED) return own;
        }
        if (!may_be_busy(walk)) return error;
    }
}

static uint32_t open_level(tree_walk *walk, vj_windows_handle parent,
                           const uint16_t *name, tree_level *level) {
    const vj_windows_os *os = walk->os;
    for (;;) {
        uint32_t error = os->open(os, parent, name, VJ_WINDOWS_OPEN_HOLD, &level->handle);
        if (error == VJ_WINDOWS_ERROR_SHARING_VIOLATION && may_be_busy(walk)) continue;
        if (error != VJ_WINDOWS_ERROR_ACCESS_DENIED || level->reclaimed) return error;
        // A guest can make a directory that lets nobody in. It is this user's all the
        // same.
        level->reclaimed = true;
        error = os->reclaim(os, parent, name, walk->security);
        if (error) return error;
    }
}

static bool make_room(tree_walk *walk) {
    if (walk->depth < walk->room) return true;
    size_t room = walk->room ? 2 * walk->room : 16;
    tree_level *larger = realloc(walk->levels, room * sizeof *larger);
    if (!larger) return false;
    walk->levels = larger;
    walk->room = room;
    return true;
}

// A directory says that it is not empty, and shows nothing: Windows may be about to let
// go of what was in it.
static uint32_t stall(tree_walk *walk) {
    return may_be_busy(walk) ? 0 : VJ_WINDOWS_ERROR_DIRECTORY_NOT_EMPTY;
}

// Hold a directory that is not empty. What is none any more is left to the next look.
static uint32_t enter(tree_walk *walk, vj_windows_handle parent, const uint16_t *name) {
    const vj_windows_os *os = walk->os;
    tree_level level = {.handle = NULL};
    vj_windows_file file = {0};
    if (!make_room(walk)) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    vj_windows_listing_done(os, &walk->listing);
    uint32_t error = open_level(walk, parent, name, &level);
    if (is_absent(error)) return 0;
    if (!error) error = os->file_information(os, level.handle, &file);
    if (!error && file.kind == VJ_WINDOWS_KIND_DIRECTORY) {
        walk->levels[walk->depth++] = level;
        return 0;
    }
    uint32_t closing = vj_windows_handle_done(os, &level.handle, walk->remains);
    if (!error) error = closing;
    return error ? error : stall(walk);
}

// `*gone`: it was deleted; else it is a directory, and was entered.
static uint32_t remove_or_enter(tree_walk *walk, vj_windows_handle parent,
                                const uint16_t *name, bool *gone) {
    uint32_t error = remove_entry(walk, parent, name);
    *gone = !error;
    if (walk->depth) deepest(walk)->changed = true;
    if (error == VJ_WINDOWS_ERROR_DIRECTORY_NOT_EMPTY) return enter(walk, parent, name);
    if (walk->depth) deepest(walk)->progress = true;
    return error;
}

// Its next entry, or ERROR_NO_MORE_FILES.
static uint32_t next_entry(tree_walk *walk) {
    const vj_windows_os *os = walk->os;
    if (!walk->listing) {
        uint32_t error = os->listing_open(os, deepest(walk)->handle, &walk->listing);
        if (error) {
            walk->entry.name[0] = 0; // it is the folder itself
            return error;
        }
        deepest(walk)->changed = false;
    }
    uint32_t error = os->listing_next(os, walk->listing, &walk->entry);
    if (error && error != VJ_WINDOWS_ERROR_NO_MORE_FILES) walk->entry.name[0] = 0;
    return error;
}

// All entries of the deepest directory were seen. A list that was read while entries went
// may lack some, so that only one without any change is the last.
static uint32_t leave(tree_walk *walk) {
    tree_level level = *deepest(walk);
    vj_windows_listing_done(walk->os, &walk->listing);
    if (level.changed) return 0;
    walk->depth--;
    uint32_t error = vj_windows_handle_done(walk->os, &level.handle, walk->remains);
    if (error) return error;
    if (!level.progress) return stall(walk);
    if (walk->depth) deepest(walk)->progress = true;
    return 0;
}

static uint32_t empty(tree_walk *walk) {
    while (walk->depth) {
        bool gone = false;
        uint32_t error = next_entry(walk);
        if (error == VJ_WINDOWS_ERROR_NO_MORE_FILES) {
            error = leave(walk);
        } else if (!error) {
            error = remove_or_enter(walk, deepest(walk)->handle, walk->entry.name, &gone);
        }
        if (error) return error;
    }
    return 0;
}

// So that somebody with more rights can remove it by hand.
static void note_obstacle(tree_walk *walk) {
    const vj_windows_os *os = walk->os;
    const uint16_t *name = walk->entry.name;
    char *to = walk->remains->obstacle;
    const size_t room = sizeof walk->remains->obstacle;
    uint16_t path[VJ_WINDOWS_PLACE_SIZE];
    size_t length = 0, at = 0, more = 0;
    to[0] = 0;
    if (!walk->depth ||
        os->final_path(os, deepest(walk)->handle, path, VJ_WINDOWS_PLACE_SIZE)) {
        return;
    }
    while (path[length]) length++;
    if (vj_windows_utf8(path, length, to, room, &at) != VJ_WINDOWS_FINE) return;
    for (length = 0; name[length];) length++;
    if (at + 1 < room && length &&
        vj_windows_utf8(name, length, to + at + 1, room - at - 1, &more) ==
            VJ_WINDOWS_FINE) {
        to[at] = '\\';
    }
}

uint32_t vj_windows_remove_tree(const vj_windows_os *os, vj_windows_handle parent,
                                const uint16_t *name, vj_windows_security security,
                                vj_windows_remains *remains) {
    tree_walk *walk = calloc(1, sizeof *walk);
    bool gone = false;
    uint32_t error = 0;
    if (!walk) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    walk->os = os;
    walk->security = security;
    walk->remains = remains;
    while (!error && !gone) {
        error = remove_or_enter(walk, parent, name, &gone);
        if (!error && !gone) error = empty(walk);
    }
    if (error && remains) note_obstacle(walk);
    vj_windows_listing_done(os, &walk->listing);
    while (walk->depth) {
        (void)vj_windows_handle_done(os, &walk->levels[--walk->depth].handle, remains);
    }
    free(walk->levels);
    free(walk);
    return error;
}
