// Find what a pattern of a policy names below one directory.
//
// Follows no link: what is below one is not the grant's. What matches is not looked into,
// since a rule on a folder holds for all that is in it; but a grant in it is looked
// through on its own.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "pattern.h"
#include "plan.h"
#include "visjail.h"

typedef struct {
    vj_pattern pattern;
    char text[VJ_PATH_MAX]; // the parts of the pattern
    char path[VJ_PATH_MAX];
    char *found;
    size_t size;
    size_t capacity;
    uint64_t entries_left;
    uint64_t matches_left;
    int depth; // folders that are open
    vj_error *error;
} expansion;

static vj_status refuse(expansion *state, int number, const char *why) {
    vj_fail(state->error, VJ_REFUSED, VJ_STAGE_HOST, number, why);
    return VJ_REFUSED;
}

static bool is_gone(int number) {
    return number == ENOENT || number == ENOTDIR || number == ELOOP;
}

// 'd' for a directory, 'l' for a link, 'f' for a regular file, 'o' for anything else.
static char kind_of_mode(mode_t mode) {
    if (S_ISDIR(mode)) return 'd';
    if (S_ISLNK(mode)) return 'l';
    return S_ISREG(mode) ? 'f' : 'o';
}

static vj_status remember(expansion *state, char kind, size_t length) {
    if (!state->matches_left--) return refuse(state, 0, "it names too many files");
    if (state->size + length + 2 > state->capacity) {
        size_t wanted = (state->capacity + length + 2) * 2;
        char *larger = realloc(state->found, wanted);
        if (!larger) {
            return vj_fail(state->error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM,
                           "out of memory");
        }
        state->found = larger;
        state->capacity = wanted;
    }
    state->found[state->size] = kind;
    memcpy(state->found + state->size + 1, state->path, length + 1);
    state->size += length + 2;
    return VJ_OK;
}

static vj_status visit(expansion *state, int parent, const char *name, size_t length,
                       uint64_t places);

static vj_status visit_entry(expansion *state, int directory, const struct dirent *entry,
                             size_t length, uint64_t places) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) return VJ_OK;
    if (!state->entries_left--) return refuse(state, 0, "too many files to look through");
    uint64_t next = vj_pattern_step(&state->pattern, places, entry->d_name);
    if (!next) return VJ_OK;
    struct stat status = {0};
    char kind = 'f';
    if (entry->d_type == DT_DIR) {
        kind = 'd';
    } else if (entry->d_type == DT_LNK) {
        kind = 'l';
    } else if (entry->d_type != DT_REG) {
        if (fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW)) {
            return is_gone(errno) ? VJ_OK
                                  : refuse(state, errno, "a file cannot be looked at");
        }
        kind = kind_of_mode(status.st_mode);
    }
    bool done = vj_pattern_done(&state->pattern, next);
    if (!done && kind != 'd') return VJ_OK;
    size_t name_length = strlen(entry->d_name);
    if (length + name_length + 2 > sizeof state->path) {
        return refuse(state, ENAMETOOLONG, "a folder is nested too deep to look through");
    }
    state->path[length] = '/';
    memcpy(state->path + length + 1, entry->d_name, name_length + 1);
    size_t longer = length + 1 + name_length;
    vj_status result = done ? remember(state, kind, longer)
                            : visit(state, directory, entry->d_name, longer, next);
    state->path[length] = 0;
    return result;
}

// A directory that this user can neither list nor enter nor open to itself is as closed
// to a guest: nothing in it needs a rule.
static bool is_closed(int parent, const char *name) {
    struct stat status;
    return !fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) &&
           status.st_uid != geteuid() && faccessat(parent, name, X_OK, AT_EACCESS) != 0;
}

static vj_status visit(expansion *state, int parent, const char *name, size_t length,
                       uint64_t places) {
    int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (directory < 0) {
        if (is_gone(errno)) return VJ_OK;
        if (errno == EACCES && is_closed(parent, name)) return VJ_OK;
        return refuse(state, errno, "a folder cannot be looked through");
    }
    // As in posix_search.c: each level is an open descriptor.
    if (state->depth >= VJ_NESTED_MAX) {
        close(directory);
        return refuse(state, ENAMETOOLONG, "a folder is nested too deep to look through");
    }
    DIR *stream = fdopendir(directory);
    if (!stream) {
        int number = errno;
        close(directory);
        return refuse(state, number, "a folder cannot be looked through");
    }
    state->depth++;
    vj_status status = VJ_OK;
    const struct dirent *entry = NULL;
    errno = 0;
    while (status == VJ_OK && (entry = readdir(stream))) {
        status = visit_entry(state, directory, entry, length, places);
        errno = 0;
    }
    if (status == VJ_OK && errno) {
        status = refuse(state, errno, "a folder cannot be looked through");
    }
    closedir(stream);
    state->depth--;
    return status;
}

// From the fixed beginning of the pattern, down to the directory to look through.
static vj_status descend(expansion *state, const char *directory, size_t fixed) {
    uint64_t places = vj_pattern_start(&state->pattern);
    size_t length = fixed;
    while (directory[length]) {
        const char *name = directory + length + (directory[length] == '/');
        size_t name_length = strcspn(name, "/");
        char part[VJ_PATH_MAX];
        memcpy(part, name, name_length);
        part[name_length] = 0;
        places = vj_pattern_step(&state->pattern, places, part);
        length = (size_t)(name - directory) + name_length;
        if (!places) return VJ_OK;
        if (!vj_pattern_done(&state->pattern, places)) continue;
        // The caller looks here because a grant lies in what is named on the way.
        char next = directory[length];
        state->path[length] = 0;
        vj_status status = remember(state, 'd', length);
        state->path[length] = next;
        if (status != VJ_OK) return status;
    }
    return visit(state, AT_FDCWD, directory, length == 1 ? 0 : length, places);
}

vj_status vj_expand(const vj_expand_request *request, char **matches, uint64_t *size,
                    vj_error *error) {
    *matches = NULL;
    *size = 0;
    expansion *state = calloc(1, sizeof *state);
    if (!state) {
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    }
    state->entries_left = request->most_entries;
    state->matches_left = request->most_matches;
    state->error = error;
    size_t length = strlen(request->directory);
    vj_status status = refuse(state, ENAMETOOLONG, "the path is too long");
    if (length < sizeof state->path && strlen(request->pattern) < sizeof state->text) {
        memcpy(state->path, request->directory, length + 1);
        memcpy(state->text, request->pattern, strlen(request->pattern) + 1);
        status = vj_pattern_parse(state->text, &state->pattern)
                     ? descend(state, request->directory, request->fixed)
                     : refuse(state, 0, "the pattern has too many parts");
    }
    if (status == VJ_OK) {
        *matches = state->found;
        *size = state->size;
    } else {
        free(state->found);
    }
    free(state);
    return status;
}
