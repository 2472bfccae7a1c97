// Find what a mount alone does not tame, below one directory of a grant.
//
//   s  a socket: a read-only mount does not stop connect(2)
//   f  a FIFO: a read-only mount does not stop writing to it
//   i  a set-id file: writing through a shared mapping keeps the bit
//   h  a file with several names: one of them may lie outside of the grant
//   u  a directory that cannot be listed, but that a guest could enter
//   k  what the list of secret names (secret_names.h) names, a link too; of a folder
//      nothing more is looked at
//
// Nothing is skipped in silence: what cannot be looked at is either out of the
// guest's reach too, or is named, or ends the search with an error.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "plan.h"
#include "secret_names.h"
#include "visjail.h"

typedef struct {
    char *found;
    size_t size;
    size_t capacity;
    uint64_t entries_left;
    uint64_t findings_left;
    uint64_t secrets_left;
    int files; // VJ_SEARCH_*: what to look at each file for
    const char *secrets;
    size_t secrets_size;
    vj_secret_hints hints;
    char path[VJ_PATH_MAX];
    vj_error *error;
} search;

static vj_status refuse(search *state, int number, const char *why) {
    vj_fail(state->error, VJ_REFUSED, VJ_STAGE_HOST, number, why);
    return VJ_REFUSED;
}

static vj_status remember(search *state, char kind, size_t length) {
    if (kind == 'k' && !state->secrets_left--) {
        return refuse(state, 0, "too many files that hold secrets");
    }
    if (kind != 'h' && kind != 'k' && !state->findings_left--) {
        return refuse(state, 0, "too many sockets, FIFOs or closed folders");
    }
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

static char kind_of_status(const struct stat *status, int files) {
    if (S_ISSOCK(status->st_mode)) return 's';
    if (S_ISFIFO(status->st_mode)) return 'f';
    if (S_ISDIR(status->st_mode)) return 'd';
    if (!S_ISREG(status->st_mode)) return 0;
    bool set_id = status->st_mode & (S_ISUID | S_ISGID);
    if (set_id && (files & VJ_SEARCH_SET_ID)) return 'i';
    return status->st_nlink > 1 && (files & VJ_SEARCH_LINKS) ? 'h' : 0;
}

// Gone, or replaced by something else, between two looks at it.
static bool is_gone(int number) {
    return number == ENOENT || number == ENOTDIR || number == ELOOP;
}

// 'd' for a directory, 'l' for a link, a kind of finding, 0 for what is of no
// interest, or 'e' with errno for what cannot be looked at.
static char kind_of(const search *state, int directory, const struct dirent *entry) {
    switch (entry->d_type) {
    case DT_SOCK: return 's';
    case DT_FIFO: return 'f';
    case DT_DIR: return 'd';
    case DT_LNK: return 'l';
    case DT_REG:
        if (!state->files) return 0;
        break;
    case DT_UNKNOWN: break;
    default: return 0;
    }
    struct stat status;
    if (fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW)) {
        return is_gone(errno) ? 0 : 'e';
    }
    return kind_of_status(&status, state->files);
}

// Whether a file begins as a private key does. One that cannot be read counts: its
// owner could open it to a guest, or make it readable later.
static bool holds_key(int directory, const char *name) {
    int file = openat(directory, name,
                      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0) return !is_gone(errno);
    char bytes[VJ_SECRET_KEY_BYTES];
    size_t size = 0;
    ssize_t got = 0;
    while (size < sizeof bytes &&
           (got = read(file, bytes + size, sizeof bytes - size)) > 0)
        size += (size_t)got;
    close(file);
    return got < 0 || vj_secret_is_key(bytes, size);
}

// Whether the entry whose path is in state->path is on the list of secret names.
static bool is_secret(const search *state, int directory, const struct dirent *entry,
                      char kind, size_t path_length) {
    int what = kind == 'd'   ? VJ_SECRET_FOLDER
               : kind == 'l' ? VJ_SECRET_FOLDER | VJ_SECRET_FILE
                             : VJ_SECRET_FILE;
    vj_secret_found found = vj_secret_match(state->secrets, state->secrets_size,
                                            state->path, path_length, what);
    if (found.entry < 0) return false;
    return !found.by_content || kind == 'l' || holds_key(directory, entry->d_name);
}

static vj_status visit(search *state, int parent, const char *name, size_t length,
                       bool installed);

static vj_status visit_entry(search *state, int directory, const struct dirent *entry,
                             size_t length, bool installed) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) return VJ_OK;
    if (!state->entries_left--) return refuse(state, 0, "too many files to look through");
    char kind = kind_of(state, directory, entry);
    size_t name_length = strlen(entry->d_name);
    bool looked_for = !installed && state->secrets_size &&
                      vj_secret_worth(&state->hints, entry->d_name, name_length);
    if (kind == 'e') return refuse(state, errno, "a file cannot be looked at");
    if ((!kind || kind == 'l') && !looked_for) return VJ_OK;
    if (length + name_length + 2 > sizeof state->path) {
        return refuse(state, ENAMETOOLONG, "a folder is nested too deep to look through");
    }
    state->path[length] = '/';
    memcpy(state->path + length + 1, entry->d_name, name_length + 1);
    size_t longer = length + 1 + name_length;
    vj_status status = VJ_OK;
    if (looked_for && is_secret(state, directory, entry, kind, longer)) {
        status = remember(state, 'k', longer);
        if (kind == 'd') {
            state->path[length] = 0;
            return status;
        }
    }
    if (status == VJ_OK && kind == 'd') {
        status = visit(state, directory, entry->d_name, longer, installed);
    } else if (status == VJ_OK && kind && kind != 'l') {
        status = remember(state, kind, longer);
    }
    state->path[length] = 0;
    return status;
}

// A directory that this user may not list. Without the right to enter it
// either, and without owning it (the owner could change that), it is as closed
// to a guest.
static vj_status visit_closed(search *state, int parent, const char *name,
                              size_t length) {
    struct stat status;
    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW)) {
        return is_gone(errno) ? VJ_OK
                              : refuse(state, errno, "a folder cannot be looked at");
    }
    bool enters = faccessat(parent, name, X_OK, AT_EACCESS) == 0;
    if (!enters && status.st_uid != geteuid()) return VJ_OK;
    return remember(state, 'u', length);
}

static vj_status visit(search *state, int parent, const char *name, size_t length,
                       bool installed) {
    int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (directory < 0) {
        if (is_gone(errno)) return VJ_OK;
        if (errno == EACCES) return visit_closed(state, parent, name, length);
        return refuse(state, errno, "a folder cannot be looked through");
    }
    // Listed but not entered, nothing in it could be looked at or covered.
    if (faccessat(parent, name, X_OK, AT_EACCESS)) {
        close(directory);
        return visit_closed(state, parent, name, length);
    }
    DIR *stream = fdopendir(directory);
    if (!stream) {
        int number = errno;
        close(directory);
        return refuse(state, number, "a folder cannot be looked through");
    }
    installed = installed || vj_secret_installed(state->secrets, state->secrets_size,
                                                 state->path, strlen(state->path));
    vj_status status = VJ_OK;
    const struct dirent *entry;
    errno = 0;
    while (status == VJ_OK && (entry = readdir(stream))) {
        status = visit_entry(state, directory, entry, length, installed);
        errno = 0;
    }
    if (status == VJ_OK && errno) {
        status = refuse(state, errno, "a folder cannot be looked through");
    }
    closedir(stream);
    return status;
}

vj_status vj_search(const vj_search_request *request, char **findings, uint64_t *size,
                    vj_error *error) {
    *findings = NULL;
    *size = 0;
    size_t length = strlen(request->directory);
    search *state = calloc(1, sizeof *state);
    if (!state) {
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    }
    state->entries_left = request->most_entries;
    state->findings_left = request->most_findings;
    state->secrets_left = request->most_secrets;
    state->files = request->files;
    state->secrets = request->secrets;
    state->secrets_size = (size_t)request->secrets_size;
    state->error = error;
    vj_secret_prepare(state->secrets, state->secrets_size, &state->hints);
    vj_status status = refuse(state, ENAMETOOLONG, "the path is too long");
    if (length < sizeof state->path) {
        memcpy(state->path, request->directory, length + 1);
        status =
            visit(state, AT_FDCWD, request->directory, length == 1 ? 0 : length, false);
    }
    if (status == VJ_OK) {
        *findings = state->found;
        *size = state->size;
    } else {
        free(state->found);
    }
    free(state);
    return status;
}

void vj_free(void *memory) {
    free(memory);
}
