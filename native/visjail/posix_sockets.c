// Find socket files below a directory, so that they can be masked.
//
// A read-only mount does not stop connect(2): a socket of the host that is
// visible in the jail is a door out of it.

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
#include "visjail.h"

typedef struct {
    char *found;
    size_t size;
    size_t capacity;
    uint64_t entries_left;
    char path[VJ_PATH_MAX];
    vj_error *error;
} search;

static vj_status remember(search *state, size_t length) {
    if (state->size + length + 1 > state->capacity) {
        size_t wanted = (state->capacity + length + 1) * 2;
        char *larger = realloc(state->found, wanted);
        if (!larger) {
            return vj_fail(state->error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM,
                           "out of memory");
        }
        state->found = larger;
        state->capacity = wanted;
    }
    memcpy(state->found + state->size, state->path, length + 1);
    state->size += length + 1;
    return VJ_OK;
}

static unsigned char type_of(int directory, const struct dirent *entry) {
    if (entry->d_type != DT_UNKNOWN) return entry->d_type;
    struct stat status;
    if (fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW))
        return DT_UNKNOWN;
    return S_ISSOCK(status.st_mode) ? DT_SOCK : S_ISDIR(status.st_mode) ? DT_DIR : DT_REG;
}

static vj_status visit(search *state, int parent, const char *name, size_t length);

static vj_status visit_entry(search *state, int directory, const struct dirent *entry,
                             size_t length) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) return VJ_OK;
    if (!state->entries_left--) {
        return vj_fail(state->error, VJ_REFUSED, VJ_STAGE_HOST, 0,
                       "too many files to look for sockets");
    }
    unsigned char type = type_of(directory, entry);
    if (type != DT_SOCK && type != DT_DIR) return VJ_OK;
    size_t name_length = strlen(entry->d_name);
    if (length + name_length + 2 > sizeof state->path) {
        return vj_fail(state->error, VJ_REFUSED, VJ_STAGE_HOST, ENAMETOOLONG,
                       "a path is too long to look for sockets");
    }
    state->path[length] = '/';
    memcpy(state->path + length + 1, entry->d_name, name_length + 1);
    vj_status status = type == DT_SOCK ? remember(state, length + 1 + name_length)
                                       : visit(state, directory, entry->d_name,
                                               length + 1 + name_length);
    state->path[length] = 0;
    return status;
}

static vj_status visit(search *state, int parent, const char *name, size_t length) {
    int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    // What this user cannot list, the guest cannot either; what has gone is gone.
    if (directory < 0) return VJ_OK;
    DIR *stream = fdopendir(directory);
    if (!stream) {
        close(directory);
        return vj_fail(state->error, VJ_NO_MEMORY, VJ_STAGE_HOST, errno, "out of memory");
    }
    vj_status status = VJ_OK;
    const struct dirent *entry;
    while (status == VJ_OK && (entry = readdir(stream))) {
        status = visit_entry(state, directory, entry, length);
    }
    closedir(stream);
    return status;
}

vj_status vj_find_sockets(const char *directory, uint64_t most_entries, char **paths,
                          uint64_t *size, vj_error *error) {
    search *state = calloc(1, sizeof *state);
    *paths = NULL;
    *size = 0;
    if (!state)
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    state->entries_left = most_entries;
    state->error = error;
    size_t length = strlen(directory);
    vj_status status = VJ_OK;
    if (length < sizeof state->path) {
        memcpy(state->path, directory, length + 1);
        status = visit(state, AT_FDCWD, directory, length == 1 ? 0 : length);
    }
    if (status == VJ_OK) {
        *paths = state->found;
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
