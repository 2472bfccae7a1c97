// Find what patterns of a policy name below one directory, in one walk for all of them.
//
// Follows no link: what is below one is not the grant's. What matches is not looked into,
// since a rule on a folder holds for all that is in it; but a grant in it is looked
// through on its own.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
    uint64_t matches_left;
} asked_pattern;

// A pattern that something below the folder at hand can still match.
typedef struct {
    uint32_t number;
    uint64_t places;
} open_pattern;

typedef struct {
    asked_pattern *patterns;
    uint32_t count;
    uint32_t current; // a pattern that asks for the folder at hand
    char *text;       // the parts of the patterns
    char path[VJ_PATH_MAX];
    char *found;
    size_t size;
    size_t capacity;
    vj_expand_budget *budget;
    int depth; // folders that are open
    vj_error *error;
} expansion;

static vj_status refuse(expansion *state, int number, const char *why) {
    vj_fail(state->error, VJ_REFUSED, VJ_STAGE_HOST, number, why);
    state->error->index = (int32_t)state->current;
    return VJ_REFUSED;
}

static vj_status no_memory(expansion *state) {
    return vj_fail(state->error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
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

static vj_status remember(expansion *state, uint32_t number, char kind, size_t length) {
    uint64_t *left = &state->patterns[number].matches_left;
    state->current = number;
    if (!*left || !state->budget->matches) {
        return refuse(state, 0, "it names too many files");
    }
    --*left;
    state->budget->matches--;
    char head[16];
    int printed = snprintf(head, sizeof head, "%c%u", kind, number);
    size_t head_length = printed > 0 ? (size_t)printed : 0;
    size_t needed = head_length + length + 1;
    if (!state->found || state->size + needed > state->capacity) {
        size_t wanted = (state->capacity + needed) * 2;
        char *larger = realloc(state->found, wanted);
        if (!larger) return no_memory(state);
        state->found = larger;
        state->capacity = wanted;
    }
    memcpy(state->found + state->size, head, head_length);
    memcpy(state->found + state->size + head_length, state->path, length + 1);
    state->size += needed;
    return VJ_OK;
}

// Read one more name: `next` becomes those of `from` that can still match, or do.
static vj_status step(expansion *state, const char *name, const open_pattern *from,
                      uint32_t count, open_pattern *next, uint32_t *next_count) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t work = 0;
        uint64_t places = vj_pattern_step(&state->patterns[from[i].number].pattern,
                                          from[i].places, name, &work);
        if (work > state->budget->work) {
            state->current = from[i].number;
            return refuse(state, 0, "too many names to compare");
        }
        state->budget->work -= work;
        if (places) next[left++] = (open_pattern){from[i].number, places};
    }
    *next_count = left;
    return VJ_OK;
}

static bool is_done(const expansion *state, const open_pattern *one) {
    return vj_pattern_done(&state->patterns[one->number].pattern, one->places);
}

// Remember the path for each pattern that it matches, and leave those out of the list.
static vj_status take_matches(expansion *state, char kind, size_t length,
                              open_pattern *list, uint32_t *count) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < *count; i++) {
        if (!is_done(state, &list[i])) {
            list[left++] = list[i];
            continue;
        }
        vj_status status = remember(state, list[i].number, kind, length);
        if (status != VJ_OK) return status;
    }
    *count = left;
    return VJ_OK;
}

static vj_status visit(expansion *state, int parent, const char *name, size_t length,
                       const open_pattern *open, uint32_t count);

// `next` has room for as many patterns as are open here.
static vj_status visit_entry(expansion *state, int directory, const struct dirent *entry,
                             size_t length, const open_pattern *open, uint32_t count,
                             open_pattern *next) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) return VJ_OK;
    state->current = open[0].number;
    if (!state->budget->entries) {
        return refuse(state, 0, "too many files to look through");
    }
    state->budget->entries--;
    uint32_t left = 0;
    vj_status result = step(state, entry->d_name, open, count, next, &left);
    if (result != VJ_OK || !left) return result;
    // The static analyser cannot see that it is at most one for each; no code comes of
    // it.
    if (left > count) __builtin_unreachable();
    state->current = next[0].number;
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
    bool any_done = false;
    for (uint32_t i = 0; i < left && !any_done; i++) any_done = is_done(state, &next[i]);
    if (!any_done && kind != 'd') return VJ_OK;
    size_t name_length = strlen(entry->d_name);
    if (length + name_length + 2 > sizeof state->path) {
        return refuse(state, ENAMETOOLONG, "a folder is nested too deep to look through");
    }
    state->path[length] = '/';
    memcpy(state->path + length + 1, entry->d_name, name_length + 1);
    size_t longer = length + 1 + name_length;
    result = take_matches(state, kind, longer, next, &left);
    if (result == VJ_OK && kind == 'd' && left) {
        result = visit(state, directory, entry->d_name, longer, next, left);
    }
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

static vj_status look_through(expansion *state, int directory, DIR *stream, size_t length,
                              const open_pattern *open, uint32_t count) {
    open_pattern *next = malloc(count * sizeof *next);
    if (!next) return no_memory(state);
    vj_status status = VJ_OK;
    const struct dirent *entry = NULL;
    errno = 0;
    while (status == VJ_OK && (entry = readdir(stream))) {
        status = visit_entry(state, directory, entry, length, open, count, next);
        errno = 0;
    }
    if (status == VJ_OK && errno) {
        state->current = open[0].number;
        status = refuse(state, errno, "a folder cannot be looked through");
    }
    free(next);
    return status;
}

static vj_status visit(expansion *state, int parent, const char *name, size_t length,
                       const open_pattern *open, uint32_t count) {
    state->current = open[0].number;
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
    vj_status status = look_through(state, directory, stream, length, open, count);
    closedir(stream);
    state->depth--;
    return status;
}

// From the fixed beginning of the patterns, down to the directory to look through.
static vj_status descend(expansion *state, const char *directory, size_t fixed,
                         open_pattern *open) {
    uint32_t count = state->count;
    for (uint32_t i = 0; i < count; i++) {
        open[i] = (open_pattern){i, vj_pattern_start(&state->patterns[i].pattern)};
    }
    size_t length = fixed;
    while (directory[length]) {
        const char *name = directory + length + (directory[length] == '/');
        size_t name_length = strcspn(name, "/");
        char part[VJ_PATH_MAX];
        memcpy(part, name, name_length);
        part[name_length] = 0;
        vj_status status = step(state, part, open, count, open, &count);
        if (status != VJ_OK || !count) return status;
        length = (size_t)(name - directory) + name_length;
        // The caller looks here because a grant lies in what is named on the way.
        char next = directory[length];
        state->path[length] = 0;
        for (uint32_t i = 0; status == VJ_OK && i < count; i++) {
            if (is_done(state, &open[i])) {
                status = remember(state, open[i].number, 'd', length);
            }
        }
        state->path[length] = next;
        if (status != VJ_OK) return status;
    }
    return visit(state, AT_FDCWD, directory, length == 1 ? 0 : length, open, count);
}

static vj_status parse(expansion *state, const vj_expand_request *request) {
    for (uint64_t at = 0; at < request->patterns_size; at++) {
        state->count += !request->patterns[at];
    }
    if (!state->count) return refuse(state, 0, "no pattern");
    state->patterns = calloc(state->count, sizeof *state->patterns);
    state->text = malloc(request->patterns_size);
    if (!state->patterns || !state->text) return no_memory(state);
    memcpy(state->text, request->patterns, request->patterns_size);
    char *text = state->text;
    for (uint32_t i = 0; i < state->count; i++) {
        char *end = text + strlen(text);
        state->current = i;
        state->patterns[i].matches_left = request->most_matches;
        if (!vj_pattern_parse(text, &state->patterns[i].pattern)) {
            return refuse(state, 0, "the pattern has too many parts");
        }
        text = end + 1;
    }
    return VJ_OK;
}

static vj_status expand(expansion *state, const vj_expand_request *request) {
    size_t length = strlen(request->directory);
    if (length >= sizeof state->path) {
        return refuse(state, ENAMETOOLONG, "the path is too long");
    }
    memcpy(state->path, request->directory, length + 1);
    vj_status status = parse(state, request);
    if (status != VJ_OK) return status;
    open_pattern *open = malloc(state->count * sizeof *open);
    if (!open) return no_memory(state);
    status = descend(state, request->directory, request->fixed, open);
    free(open);
    return status;
}

vj_status vj_expand(const vj_expand_request *request, vj_expand_budget *budget,
                    char **matches, uint64_t *size, vj_error *error) {
    *matches = NULL;
    *size = 0;
    if (!request->patterns_size) return VJ_OK;
    expansion *state = calloc(1, sizeof *state);
    if (!state) {
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    }
    state->budget = budget;
    state->error = error;
    vj_status status = expand(state, request);
    if (status == VJ_OK) {
        *matches = state->found;
        *size = state->size;
    } else {
        free(state->found);
    }
    free(state->patterns);
    free(state->text);
    free(state);
    return status;
}
