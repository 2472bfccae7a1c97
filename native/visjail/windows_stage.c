// Copy what a guest needs into its directory `app`, over the table.
//
// A source is opened once, as it is: never through a link, and so that nobody writes,
// renames or deletes it meanwhile. What it is, what it is called and how it looks is
// asked of that handle, before the copy and again after it. Everything below a directory
// is opened from its handle. What was copied is written down, and taken back if anything
// fails.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_core.h"

#define BLOCK_SIZE    65536u
#define RELATIVE_SIZE 1040u // 259 units of UTF-16 in UTF-8, and more than a name besides
#define DEFAULT_DEPTH 64u
#define MOST_DEPTH    64u // of VJ_WINDOWS_DEPTH_MAX names
#define DEFAULT_FILES 100000u
#define DEFAULT_BYTES (4ull << 30)
#define DEFAULT_NAMES (32ull << 20)

// A directory that is open.
typedef struct {
    vj_windows_handle handle;
    vj_windows_listing listing;
    vj_windows_file seen;
    size_t path_length;     // of its own path in stage_walk.path
    size_t relative_length; // of the destination's
} stage_level;

typedef struct {
    vj_windows_context *context;
    const vj_windows_os *os;
    vj_windows_error *error;
    vj_windows_stage_request limits; // with the defaults filled in
    uint64_t name_bytes;
    vj_windows_stage_info done;
    size_t first; // of context->staged that is this call's
    size_t app_units;
    // The source at hand, as its handle says, and the destination.
    uint16_t path[VJ_WINDOWS_PATH_MAX];
    uint16_t real[VJ_WINDOWS_PATH_MAX];
    char relative[RELATIVE_SIZE];
    vj_windows_entry entry;
    stage_level levels[MOST_DEPTH + 1];
    uint8_t block[BLOCK_SIZE];
} stage_walk;

static size_t units_of(const uint16_t *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}

static vj_windows_status refuse(stage_walk *walk, const char *text) {
    return vj_windows_fail(walk->error, VJ_WINDOWS_REFUSED, "stage", 0, text);
}

static vj_windows_status has_changed(stage_walk *walk) {
    return vj_windows_fail(walk->error, VJ_WINDOWS_CHANGED, "stage", 0,
                           "a source changed while it was copied");
}

static vj_windows_status no_memory(stage_walk *walk) {
    return vj_windows_fail(walk->error, VJ_WINDOWS_NO_MEMORY, "stage", 0,
                           "out of memory");
}

// ---- what was made

static bool make_room(vj_windows_context *context) {
    if (context->staged_count < context->staged_capacity) return true;
    size_t wanted = context->staged_capacity ? context->staged_capacity * 2 : 64;
    char **larger = realloc(context->staged, wanted * sizeof(char *));
    if (!larger) return false;
    context->staged = larger;
    context->staged_capacity = wanted;
    return true;
}

// One file or directory of `app`, by the table's call, and a note of it. The note is made
// first: what exists and is not written down would stay.
static vj_windows_status make(stage_walk *walk, const char *relative,
                              vj_windows_handle *file, uint32_t *code) {
    vj_windows_context *context = walk->context;
    uint16_t path[VJ_WINDOWS_PLACE_SIZE];
    vj_windows_fault fault = vj_windows_destination_fault(relative, walk->app_units);
    *code = 0;
    if (fault != VJ_WINDOWS_FINE) {
        return vj_windows_fail_text(walk->error, "destination", fault);
    }
    if (!vj_windows_path(context, "app", relative, path, VJ_WINDOWS_PLACE_SIZE)) {
        return vj_windows_fail_text(walk->error, "destination", VJ_WINDOWS_TOO_LONG);
    }
    size_t size = strlen(relative) + 1;
    char *note = malloc(size);
    if (note) memcpy(note, relative, size);
    if (!note || !make_room(context)) {
        free(note);
        return no_memory(walk);
    }
    vj_windows_security security = context->security[VJ_WINDOWS_APP];
    *code = file ? walk->os->file_create(walk->os, path, security, file)
                 : walk->os->directory_create(walk->os, path, security);
    if (*code) {
        free(note);
        if (*code != VJ_WINDOWS_ERROR_ALREADY_EXISTS) {
            return vj_windows_fail_os(walk->error, "destination", *code);
        }
        return refuse(walk, "two sources have the same destination");
    }
    context->staged[context->staged_count++] = note;
    return VJ_WINDOWS_OK;
}

// Back to where this call began. False: something stays. By paths, as they were made:
// `app` is held, and nothing of low integrity writes in it.
static bool take_back(stage_walk *walk) {
    vj_windows_context *context = walk->context;
    while (context->staged_count > walk->first) {
        char *note = context->staged[context->staged_count - 1];
        uint16_t path[VJ_WINDOWS_PLACE_SIZE];
        if (!vj_windows_path(context, "app", note, path, VJ_WINDOWS_PLACE_SIZE) ||
            walk->os->remove(walk->os, NULL, path)) {
            return false;
        }
        free(note);
        context->staged_count--;
    }
    return true;
}

// Names that Windows takes for one, among all that was ever staged here.
static vj_windows_status check_clashes(stage_walk *walk) {
    const vj_windows_context *context = walk->context;
    size_t count = context->staged_count;
    if (!count) return VJ_WINDOWS_OK;
    const char **paths = malloc(count * sizeof *paths);
    if (!paths) return no_memory(walk);
    for (size_t i = 0; i < count; i++) paths[i] = context->staged[i];
    bool clash = vj_windows_find_clash(paths, count) != count;
    free(paths);
    if (!clash) return VJ_WINDOWS_OK;
    return refuse(walk, "two destinations differ in case only");
}

static vj_windows_status count_name(stage_walk *walk, size_t units, uint64_t bytes) {
    walk->name_bytes += 2 * (uint64_t)units;
    if (walk->name_bytes > walk->limits.most_name_bytes) {
        return refuse(walk, "the names of the sources are longer than allowed");
    }
    if (walk->done.files + walk->done.directories >= walk->limits.most_files) {
        return refuse(walk, "the sources are more files than allowed");
    }
    if (bytes > walk->limits.most_bytes - walk->done.bytes) {
        return refuse(walk, "the sources are larger than allowed");
    }
    return VJ_WINDOWS_OK;
}

// ---- one source, by its handle

// Its path from the handle is the one that led to it: no link, no other volume.
static vj_windows_status check_path(stage_walk *walk, vj_windows_handle handle) {
    uint32_t code =
        walk->os->final_path(walk->os, handle, walk->real, VJ_WINDOWS_PATH_MAX);
    if (code) return vj_windows_fail_os(walk->error, "path of the source", code);
    size_t length = units_of(walk->path);
    if (memcmp(walk->path, walk->real, (length + 1) * sizeof *walk->path) != 0) {
        return has_changed(walk);
    }
    return VJ_WINDOWS_OK;
}

static vj_windows_status look(stage_walk *walk, vj_windows_handle handle,
                              vj_windows_file *file) {
    uint32_t code = walk->os->file_information(walk->os, handle, file);
    if (code) return vj_windows_fail_os(walk->error, "source", code);
    switch (file->kind) {
    case VJ_WINDOWS_KIND_FILE:
    case VJ_WINDOWS_KIND_DIRECTORY: return VJ_WINDOWS_OK;
    case VJ_WINDOWS_KIND_REPARSE:
        return refuse(walk, "a source is a link or another reparse point");
    default: return refuse(walk, "a source is neither a file nor a directory");
    }
}

// After the copy. Not by the time of any change: virus scanners leave their marks while
// the content cannot change.
static vj_windows_status look_again(stage_walk *walk, vj_windows_handle handle,
                                    const vj_windows_file *seen) {
    vj_windows_file now = {0};
    vj_windows_status status = look(walk, handle, &now);
    if (status != VJ_WINDOWS_OK) return status;
    if (now.kind != seen->kind || now.volume != seen->volume ||
        memcmp(now.id, seen->id, sizeof now.id) != 0 || now.written != seen->written ||
        now.links != seen->links ||
        (now.kind == VJ_WINDOWS_KIND_FILE && now.size != seen->size)) {
        return has_changed(walk);
    }
    return check_path(walk, handle);
}

static vj_windows_status copy_bytes(stage_walk *walk, vj_windows_handle from,
                                    vj_windows_handle to, uint64_t size) {
    const vj_windows_os *os = walk->os;
    for (uint64_t copied = 0;;) {
        uint32_t count = 0;
        if (!vj_windows_goes_on(walk->context)) {
            return vj_windows_fail(walk->error, VJ_WINDOWS_CLOSING, "stage", 0,
                                   "another thread is closing the context");
        }
        uint32_t code = os->file_read(os, from, walk->block, BLOCK_SIZE, &count);
        if (code) return vj_windows_fail_os(walk->error, "read the source", code);
        if (!count) return copied == size ? VJ_WINDOWS_OK : has_changed(walk);
        if (count > size - copied) return has_changed(walk);
        code = os->file_write(os, to, walk->block, count);
        if (code) return vj_windows_fail_os(walk->error, "write the copy", code);
        copied += count;
    }
}

static vj_windows_status stage_file(stage_walk *walk, vj_windows_handle from,
                                    const vj_windows_file *seen) {
    vj_windows_handle to = NULL;
    uint32_t code = 0;
    vj_windows_status status = count_name(walk, units_of(walk->path), seen->size);
    if (status == VJ_WINDOWS_OK) status = make(walk, walk->relative, &to, &code);
    if (status != VJ_WINDOWS_OK) return status;
    status = copy_bytes(walk, from, to, seen->size);
    code = vj_windows_handle_done(walk->os, &to, &walk->context->remains);
    if (status == VJ_WINDOWS_OK && code) {
        status = vj_windows_fail_os(walk->error, "close the copy", code);
    }
    if (status == VJ_WINDOWS_OK) status = look_again(walk, from, seen);
    walk->done.files++;
    walk->done.bytes += seen->size;
    return status;
}

// ---- a directory and all that is in it

static vj_windows_status enter(stage_walk *walk, stage_level *level,
                               vj_windows_handle *handle, const vj_windows_file *seen) {
    uint32_t code = 0;
    vj_windows_status status = count_name(walk, units_of(walk->path), 0);
    // `app` itself is there.
    if (status == VJ_WINDOWS_OK && walk->relative[0]) {
        status = make(walk, walk->relative, NULL, &code);
    }
    if (status != VJ_WINDOWS_OK) return status;
    walk->done.directories++;
    *level = (stage_level){.seen = *seen,
                           .path_length = units_of(walk->path),
                           .relative_length = strlen(walk->relative)};
    code = walk->os->listing_open(walk->os, *handle, &level->listing);
    if (code) return vj_windows_fail_os(walk->error, "list the source", code);
    level->handle = *handle;
    *handle = NULL;
    return VJ_WINDOWS_OK;
}

static vj_windows_status leave(stage_walk *walk, stage_level *level) {
    vj_windows_listing_done(walk->os, &level->listing);
    uint32_t code =
        vj_windows_handle_done(walk->os, &level->handle, &walk->context->remains);
    return code ? vj_windows_fail_os(walk->error, "close the source", code)
                : VJ_WINDOWS_OK;
}

// The paths of the next entry.
static vj_windows_status extend(stage_walk *walk, const stage_level *level) {
    size_t at = level->path_length, written = 0;
    size_t units = units_of(walk->entry.name);
    if (at && walk->path[at - 1] != '\\') walk->path[at++] = '\\';
    if (at + units >= VJ_WINDOWS_PATH_MAX) {
        return vj_windows_fail_text(walk->error, "source", VJ_WINDOWS_TOO_LONG);
    }
    memcpy(walk->path + at, walk->entry.name, (units + 1) * sizeof *walk->path);
    size_t end = level->relative_length;
    if (end) walk->relative[end++] = '/';
    vj_windows_fault fault =
        end < RELATIVE_SIZE
            ? vj_windows_utf8(walk->entry.name, units, walk->relative + end,
                              RELATIVE_SIZE - end, &written)
            : VJ_WINDOWS_TOO_LONG;
    if (fault == VJ_WINDOWS_FINE) return VJ_WINDOWS_OK;
    return vj_windows_fail_text(walk->error, "source", fault);
}

// The next entry of the directory at `*depth`, or the end of it.
static vj_windows_status step(stage_walk *walk, size_t *depth) {
    const vj_windows_os *os = walk->os;
    stage_level *level = &walk->levels[*depth - 1];
    vj_windows_handle handle = NULL;
    vj_windows_file seen = {0};
    uint32_t code = os->listing_next(os, level->listing, &walk->entry);
    if (code == VJ_WINDOWS_ERROR_NO_MORE_FILES) {
        walk->path[level->path_length] = 0;
        walk->relative[level->relative_length] = 0;
        vj_windows_status status = look_again(walk, level->handle, &level->seen);
        if (status == VJ_WINDOWS_OK) status = leave(walk, level);
        if (status == VJ_WINDOWS_OK) (*depth)--;
        return status;
    }
    if (code) return vj_windows_fail_os(walk->error, "list the source", code);
    vj_windows_status status = extend(walk, level);
    if (status != VJ_WINDOWS_OK) return status;
    code = os->open(os, level->handle, walk->entry.name, VJ_WINDOWS_OPEN_PIN, &handle);
    // Listed a moment ago.
    if (code == VJ_WINDOWS_ERROR_FILE_NOT_FOUND) return has_changed(walk);
    if (code) return vj_windows_fail_os(walk->error, "open the source", code);
    status = look(walk, handle, &seen);
    if (status == VJ_WINDOWS_OK) status = check_path(walk, handle);
    if (status == VJ_WINDOWS_OK && seen.kind == VJ_WINDOWS_KIND_FILE) {
        status = stage_file(walk, handle, &seen);
    } else if (status == VJ_WINDOWS_OK && *depth >= walk->limits.most_depth) {
        status = refuse(walk, "the sources are deeper than allowed");
    } else if (status == VJ_WINDOWS_OK) {
        status = enter(walk, &walk->levels[*depth], &handle, &seen);
        if (walk->levels[*depth].handle) (*depth)++;
    }
    code = vj_windows_handle_done(os, &handle, &walk->context->remains);
    if (status == VJ_WINDOWS_OK && code) {
        status = vj_windows_fail_os(walk->error, "close the source", code);
    }
    return status;
}

static vj_windows_status stage_directory(stage_walk *walk, vj_windows_handle *handle,
                                         const vj_windows_file *seen) {
    size_t depth = 0;
    vj_windows_status status = enter(walk, &walk->levels[0], handle, seen);
    if (walk->levels[0].handle) depth = 1;
    while (status == VJ_WINDOWS_OK && depth) status = step(walk, &depth);
    while (depth) {
        vj_windows_error first = *walk->error;
        (void)leave(walk, &walk->levels[--depth]);
        *walk->error = first;
    }
    return status;
}

// ---- one item of the request

// The directories above a destination; those that were staged before stay.
static vj_windows_status make_parents(stage_walk *walk) {
    char *relative = walk->relative;
    for (char *slash = strchr(relative, '/'); slash; slash = strchr(slash + 1, '/')) {
        uint32_t code = 0;
        *slash = 0;
        vj_windows_status status = make(walk, relative, NULL, &code);
        *slash = '/';
        if (status != VJ_WINDOWS_OK && code != VJ_WINDOWS_ERROR_ALREADY_EXISTS) {
            return status;
        }
    }
    return VJ_WINDOWS_OK;
}

static vj_windows_status stage_opened(stage_walk *walk, vj_windows_handle *handle) {
    vj_windows_file seen = {0};
    vj_windows_status status = look(walk, *handle, &seen);
    if (status != VJ_WINDOWS_OK) return status;
    // What the host calls it may lead over its own links and short names; from here on
    // it is called what it is.
    uint32_t code =
        walk->os->final_path(walk->os, *handle, walk->path, VJ_WINDOWS_PATH_MAX);
    if (code) return vj_windows_fail_os(walk->error, "path of the source", code);
    if (!walk->relative[0] && seen.kind == VJ_WINDOWS_KIND_FILE) {
        return vj_windows_fail_text(walk->error, "destination", VJ_WINDOWS_EMPTY);
    }
    status = make_parents(walk);
    if (status != VJ_WINDOWS_OK) return status;
    if (seen.kind == VJ_WINDOWS_KIND_FILE) return stage_file(walk, *handle, &seen);
    return stage_directory(walk, handle, &seen);
}

static vj_windows_status stage_source(stage_walk *walk, const vj_windows_source *source) {
    const vj_windows_os *os = walk->os;
    char text[VJ_WINDOWS_PLACE_SIZE];
    uint16_t path[VJ_WINDOWS_PLACE_SIZE];
    vj_windows_handle handle = NULL;
    size_t written = 0;
    vj_windows_status status =
        vj_windows_take_text(&source->source, text, sizeof text, "source", walk->error);
    if (status == VJ_WINDOWS_OK) {
        status = vj_windows_take_text(&source->destination, walk->relative,
                                      sizeof walk->relative, "destination", walk->error);
    }
    if (status != VJ_WINDOWS_OK) return status;
    vj_windows_fault fault = vj_windows_source_fault(text);
    if (fault == VJ_WINDOWS_FINE) {
        fault =
            vj_windows_utf16(text, strlen(text), path, VJ_WINDOWS_PLACE_SIZE, &written);
    }
    if (fault != VJ_WINDOWS_FINE) {
        return vj_windows_fail_text(walk->error, "source", fault);
    }
    for (size_t i = 0; i < written; i++) {
        if (path[i] == '/') path[i] = '\\';
    }
    uint32_t code = os->open(os, NULL, path, VJ_WINDOWS_OPEN_PIN, &handle);
    if (code) return vj_windows_fail_os(walk->error, "open the source", code);
    status = stage_opened(walk, &handle);
    code = vj_windows_handle_done(os, &handle, &walk->context->remains);
    if (status == VJ_WINDOWS_OK && code) {
        status = vj_windows_fail_os(walk->error, "close the source", code);
    }
    return status;
}

static void set_limits(stage_walk *walk, const vj_windows_stage_request *request) {
    walk->limits = *request;
    if (!request->most_depth) walk->limits.most_depth = DEFAULT_DEPTH;
    if (walk->limits.most_depth > MOST_DEPTH) walk->limits.most_depth = MOST_DEPTH;
    if (!request->most_files) walk->limits.most_files = DEFAULT_FILES;
    if (!request->most_bytes) walk->limits.most_bytes = DEFAULT_BYTES;
    if (!request->most_name_bytes) walk->limits.most_name_bytes = DEFAULT_NAMES;
}

// `*left`: what was copied could not be taken back.
static vj_windows_status stage(vj_windows_context *context,
                               const vj_windows_stage_request *request,
                               vj_windows_stage_info *info, bool *left,
                               vj_windows_error *error) {
    uint16_t app[VJ_WINDOWS_PLACE_SIZE];
    stage_walk *walk = calloc(1, sizeof *walk);
    if (!walk) {
        return vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "stage", 0, "out of memory");
    }
    walk->context = context;
    walk->os = context->os;
    walk->error = error;
    walk->first = context->staged_count;
    set_limits(walk, request);
    if (vj_windows_path(context, "app", "", app, VJ_WINDOWS_PLACE_SIZE)) {
        walk->app_units = units_of(app);
    }
    vj_windows_status status = VJ_WINDOWS_OK;
    for (uint32_t i = 0; status == VJ_WINDOWS_OK && i < request->source_count; i++) {
        status = stage_source(walk, &request->sources[i]);
        if (status != VJ_WINDOWS_OK) error->index = (int32_t)i;
    }
    if (status == VJ_WINDOWS_OK) status = check_clashes(walk);
    if (status == VJ_WINDOWS_OK) {
        info->files = walk->done.files;
        info->directories = walk->done.directories;
        info->bytes = walk->done.bytes;
    } else {
        *left = !take_back(walk) || context->remains.count;
    }
    free(walk);
    return status;
}

vj_windows_status vj_windows_stage(vj_windows_id id,
                                   const vj_windows_stage_request *request,
                                   vj_windows_stage_info *info, vj_windows_error *error) {
    vj_windows_context *context = NULL;
    bool left = false;
    vj_windows_status status = vj_windows_check(request, sizeof *request, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_check(info, sizeof *info, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_context_find(id, &context, error);
    if (status != VJ_WINDOWS_OK) return status;
    info->files = info->directories = info->bytes = 0;
    status = vj_windows_operation_begin(context, VJ_WINDOWS_CONTEXT_OPEN, true, error);
    if (status == VJ_WINDOWS_OK) {
        status = stage(context, request, info, &left, error);
        vj_windows_operation_end(context, true, left);
    }
    vj_windows_context_drop(context);
    return status;
}
