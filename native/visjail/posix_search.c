// Find what a mount alone does not tame, at and below the path of one grant.
//
//   s  a socket: a read-only mount does not stop connect(2)
//   f  a FIFO: a read-only mount does not stop writing to it
//   v  a device node: only a mount without devices keeps from what is behind it
// clang-format off
//   i  a set-id file, or one with capabilities: a write by a shared mapping keeps both
//   n  a folder of installed code with a file of several names in it; they are numbered
//   h  a name of a file that was asked for
//   u  a directory that cannot be listed, but that a guest could enter
//   k  what the list of secret names (secret_names.h) names, a link too; of a folder
//      nothing more is looked at
// clang-format on
//
// Names of files with several names (one may lie outside of the grant) are no findings
// but entries of a table without paths: a guest can make millions of them.
//
// Nothing is skipped in silence: what cannot be looked at is either out of the
// guest's reach too, or is named, or ends the search with an error.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "plan.h"
#include "policy_tree.h"
#include "posix_status.h"
#include "secret_names.h"
#include "visjail.h"

#define FOLDERS_MAX   4096  // of installed code with linked files, in one grant
#define OPENING_COSTS 8192u // opening a file takes as long as looking at so many bytes

typedef struct {
    char *found;
    size_t size;
    size_t capacity;
    vj_link *links;
    size_t link_count;
    size_t link_capacity;
    uint64_t links_left;
    uint64_t names_left; // of files that were asked for
    const vj_search_request *request;
    size_t installed; // length of the path of the folder of installed code around, or 0
    uint32_t folder;  // its number, once it has one
    uint32_t next_folder;
    uint64_t entries_left;
    uint64_t findings_left;
    uint64_t secrets_left;
    uint64_t key_bytes_left;
    int depth; // folders that are open
    int files; // VJ_SEARCH_*: what to look at each file for
    const char *secrets;
    size_t secrets_size;
    vj_secret_hints hints;
    char path[VJ_PATH_MAX];
    char content[VJ_SECRET_KEY_BYTES]; // of the last file that was read
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
    if (kind == 'h' && !state->names_left--) {
        return refuse(state, 0, "too many names of one file");
    }
    if (strchr("sfviu", kind) && !state->findings_left--) {
        return refuse(state, 0,
                      "too many sockets, FIFOs, devices, closed folders or privileged "
                      "programs");
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

// ---- files with several names ----------------------------------------------

static bool is_installed(const char *name, size_t length) {
    static const char *const names[] = {"site-packages", "dist-packages", "node_modules"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == length && !memcmp(names[i], name, length)) return true;
    }
    return false;
}

// Give the folder of installed code around a name its number.
static vj_status number_folder(search *state) {
    if (!state->installed || state->folder) return VJ_OK;
    if (state->next_folder - state->request->first_folder == FOLDERS_MAX) {
        return refuse(state, 0, "too many folders of installed code");
    }
    state->folder = state->next_folder++;
    char after = state->path[state->installed];
    state->path[state->installed] = 0;
    vj_status status = remember(state, 'n', state->installed);
    state->path[state->installed] = after;
    return status;
}

// One of the names of a file that has several; its path is in state->path.
static vj_status remember_link(search *state, const struct stat *status, size_t length) {
    const vj_search_request *request = state->request;
    vj_file_id file = {
        .device = vj_status_device(status),
        .inode = status->st_ino,
    };
    if (vj_links_have(request->wanted, request->wanted_count, file)) {
        vj_status remembered = remember(state, 'h', length);
        if (remembered != VJ_OK) return remembered;
    }
    if (!(state->files & VJ_SEARCH_LINKS)) return VJ_OK;
    const vj_node *rule = vj_tree_nearest(request->rules, state->path);
    const vj_node *grant = rule;
    while (grant && !grant->grant) grant = grant->parent;
    // What a place of the jail's own covers is out of sight under this name.
    if (grant && grant->is_private) return VJ_OK;
    if (!state->links_left--)
        return refuse(state, 0, "too many files with several names");
    vj_status numbered = number_folder(state);
    if (numbered != VJ_OK) return numbered;
    if (state->link_count == state->link_capacity) {
        size_t wanted = state->link_capacity ? state->link_capacity * 2 : 1024;
        vj_link *larger = realloc(state->links, wanted * sizeof *larger);
        if (!larger) {
            return vj_fail(state->error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM,
                           "out of memory");
        }
        state->links = larger;
        state->link_capacity = wanted;
    }
    vj_rights rights = rule ? rule->in_force : (vj_rights){0};
    state->links[state->link_count++] = (vj_link){
        .file = file,
        .count = (uint32_t)status->st_nlink,
        .folder = state->folder,
        .rights = (rights.read ? VJ_LINK_READ : 0u) | (rights.write ? VJ_LINK_WRITE : 0u),
    };
    return VJ_OK;
}

// ---- what one name is ------------------------------------------------------

static char kind_of_file(const search *state, int directory, const char *name,
                         const struct stat *status) {
    if (S_ISSOCK(status->st_mode)) return 's';
    if (S_ISFIFO(status->st_mode)) return 'f';
    if (S_ISDIR(status->st_mode)) return 'd';
    if (S_ISLNK(status->st_mode)) return 'l';
    if (S_ISCHR(status->st_mode) || S_ISBLK(status->st_mode)) {
        return state->files & VJ_SEARCH_DEVICES ? 'v' : 0;
    }
    if (!S_ISREG(status->st_mode)) return 0;
    bool set_id = status->st_mode & (S_ISUID | S_ISGID);
    if (set_id && (state->files & VJ_SEARCH_SET_ID)) return 'i';
    if ((state->files & VJ_SEARCH_CAPABILITIES) &&
        vj_status_is_privileged(directory, name))
        return 'i';
    bool linked = (state->files & VJ_SEARCH_LINKS) || state->request->wanted_count;
    return status->st_nlink > 1 && linked ? 'h' : 0;
}

// Gone, or replaced by something else, between two looks at it.
static bool is_gone(int number) {
    return number == ENOENT || number == ENOTDIR || number == ELOOP;
}

// 'd' for a directory, 'l' for a link, 'h' for one of several names (with its status), a
// kind of finding, 0 for what is of no interest, or 'e' with errno for what cannot be
// looked at.
static char kind_of(const search *state, int directory, const struct dirent *entry,
                    struct stat *status) {
    switch (entry->d_type) {
    case DT_SOCK: return 's';
    case DT_FIFO: return 'f';
    case DT_DIR: return 'd';
    case DT_LNK: return 'l';
    case DT_CHR:
    case DT_BLK: return state->files & VJ_SEARCH_DEVICES ? 'v' : 0;
    case DT_REG:
        if (!(state->files & ~(VJ_SEARCH_DEVICES | VJ_SEARCH_NO_INSTALLED)) &&
            !state->request->wanted_count) {
            return 0;
        }
        break;
    case DT_UNKNOWN: break;
    default: return 0;
    }
    if (fstatat(directory, entry->d_name, status, AT_SYMLINK_NOFOLLOW)) {
        return is_gone(errno) ? 0 : 'e';
    }
    return kind_of_file(state, directory, entry->d_name, status);
}

// Whether a file begins as a private key does. One that cannot be read counts: its
// owner could open it to a guest, or make it readable later.
static vj_status look_for_key(search *state, int directory, const char *name,
                              bool *holds_key) {
    if (state->key_bytes_left < OPENING_COSTS + sizeof state->content) {
        return refuse(state, 0, "too many files that could hold private keys");
    }
    int file = openat(directory, name,
                      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0) {
        state->key_bytes_left -= OPENING_COSTS;
        *holds_key = !is_gone(errno);
        return VJ_OK;
    }
    size_t size = 0;
    ssize_t got = 0;
    while (size < sizeof state->content &&
           (got = read(file, state->content + size, sizeof state->content - size)) > 0)
        size += (size_t)got;
    close(file);
    state->key_bytes_left -= OPENING_COSTS + size;
    *holds_key = got < 0 || vj_secret_is_key(state->content, size);
    return VJ_OK;
}

// Whether the entry whose path is in state->path is on the list of secret names.
static vj_status look_for_secret(search *state, int directory, const struct dirent *entry,
                                 char kind, size_t path_length, bool *is_secret) {
    int what = kind == 'd'   ? VJ_SECRET_FOLDER
               : kind == 'l' ? VJ_SECRET_FOLDER | VJ_SECRET_FILE
                             : VJ_SECRET_FILE;
    vj_secret_found found = vj_secret_match(state->secrets, state->secrets_size,
                                            state->path, path_length, what);
    *is_secret = found.entry >= 0;
    if (!*is_secret || !found.by_content || kind == 'l') return VJ_OK;
    return look_for_key(state, directory, entry->d_name, is_secret);
}

static vj_status visit(search *state, int parent, const char *name, size_t length,
                       bool installed);

static vj_status visit_entry(search *state, int directory, const struct dirent *entry,
                             size_t length, bool installed) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) return VJ_OK;
    if (!state->entries_left--) return refuse(state, 0, "too many files to look through");
    struct stat found = {0};
    char kind = kind_of(state, directory, entry, &found);
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
    bool is_secret = false;
    if (looked_for) {
        status = look_for_secret(state, directory, entry, kind, longer, &is_secret);
    }
    if (is_secret && status == VJ_OK) {
        status = remember(state, 'k', longer);
        if (kind == 'd') {
            state->path[length] = 0;
            return status;
        }
    }
    if (status == VJ_OK && kind == 'd') {
        bool enters = !state->installed && is_installed(entry->d_name, name_length);
        if (enters) state->installed = longer;
        status = visit(state, directory, entry->d_name, longer, installed);
        if (enters) {
            state->installed = 0;
            state->folder = 0;
        }
    } else if (status == VJ_OK && kind == 'h') {
        status = remember_link(state, &found, longer);
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
    installed = installed || vj_secret_installed(state->secrets, state->secrets_size,
                                                 state->path, strlen(state->path));
    if (installed && (state->files & VJ_SEARCH_NO_INSTALLED)) return VJ_OK;
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
    // Each level is an open descriptor, of which the host's other threads need some too.
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
    state->depth--;
    return status;
}

// The grant itself, which may be a file.
static vj_status visit_top(search *state, const char *path, size_t length) {
    for (size_t end = 1, start = 1; end <= length && !state->installed; end++) {
        if (path[end] && path[end] != '/') continue;
        if (is_installed(path + start, end - start)) state->installed = end;
        start = end + 1;
    }
    struct stat found = {0};
    if (fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW)) {
        return is_gone(errno) ? VJ_OK
                              : refuse(state, errno, "a file cannot be looked at");
    }
    char kind = kind_of_file(state, AT_FDCWD, path, &found);
    switch (kind) {
    case 'd': return visit(state, AT_FDCWD, path, length == 1 ? 0 : length, false);
    case 'h': return remember_link(state, &found, length);
    case 'l':
    case 0: return VJ_OK;
    default: return remember(state, kind, length);
    }
}

vj_status vj_search(const vj_search_request *request, vj_search_result *result,
                    vj_error *error) {
    *result = (vj_search_result){0};
    size_t length = strlen(request->directory);
    search *state = calloc(1, sizeof *state);
    if (!state) {
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    }
    state->entries_left = request->most_entries;
    state->findings_left = request->most_findings;
    state->secrets_left = request->most_secrets;
    state->key_bytes_left = request->most_key_bytes;
    state->links_left = request->most_links;
    state->names_left = request->most_secrets;
    state->request = request;
    state->next_folder = request->first_folder;
    state->files = request->files;
    state->secrets = request->secrets;
    state->secrets_size = (size_t)request->secrets_size;
    state->error = error;
    vj_secret_prepare(state->secrets, state->secrets_size, &state->hints);
    vj_status status = refuse(state, ENAMETOOLONG, "the path is too long");
    if ((state->files & VJ_SEARCH_CAPABILITIES) && !vj_status_is_known()) {
        status = refuse(state, 0, "without /proc no capabilities can be looked for");
    } else if (length < sizeof state->path) {
        memcpy(state->path, request->directory, length + 1);
        status = visit_top(state, request->directory, length);
    }
    if (status == VJ_OK) {
        result->findings = state->found;
        result->size = state->size;
        result->links = state->links;
        result->link_count = state->link_count;
    } else {
        free(state->found);
        free(state->links);
    }
    free(state);
    return status;
}

void vj_free(void *memory) {
    free(memory);
}
