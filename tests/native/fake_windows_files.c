// The table of tests: files, which are those of a directory of this machine. See
// fake_windows_os.h.

#include "fake_windows_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

// A name is found whatever its case, as on NTFS.
static void as_it_is_written(char *folder, char *name) {
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        if (strcasecmp(entry->d_name, name) != 0) continue;
        memcpy(name, entry->d_name, strlen(name));
        break;
    }
    if (listing) closedir(listing);
}

static void find_names(char *path, size_t from) {
    for (char *slash = path + from; slash; slash = strchr(slash + 1, '/')) {
        if (*slash != '/') break;
        char *end = strchr(slash + 1, '/');
        *slash = 0;
        if (end) *end = 0;
        as_it_is_written(path, slash + 1);
        *slash = '/';
        if (end) *end = '/';
    }
}

// The path of this machine that "C:\a\b" is.
static void host_path(const uint16_t *path, char *to, size_t room) {
    char text[1024];
    fake_utf8(path, text, sizeof text);
    if ((text[0] != 'C' && text[0] != 'c') || text[1] != ':') fake_die("not on C:");
    int size = snprintf(to, room, "%s%s", fake->root, text + 2);
    if (size < 0 || (size_t)size >= room) fake_die("a path that is too long");
    for (char *at = to; *at; at++) {
        if (*at == '\\') *at = '/';
    }
    while (size > 1 && to[size - 1] == '/') to[--size] = 0;
    find_names(to, strlen(fake->root));
}

static uint32_t code_of(int number) {
    switch (number) {
    case ENOENT: return VJ_WINDOWS_ERROR_FILE_NOT_FOUND;
    case ENOTDIR: return VJ_WINDOWS_ERROR_PATH_NOT_FOUND;
    case EEXIST: return VJ_WINDOWS_ERROR_ALREADY_EXISTS;
    case ENOTEMPTY: return VJ_WINDOWS_ERROR_DIRECTORY_NOT_EMPTY;
    case EACCES:
    case EPERM: return VJ_WINDOWS_ERROR_ACCESS_DENIED;
    default: return 31; // ERROR_GEN_FAILURE
    }
}

static bool exists(const char *path) {
    struct stat status;
    return !lstat(path, &status);
}

static void note_descriptor(const char *path, vj_windows_security security) {
    if (fake->made_count == sizeof fake->made / sizeof *fake->made) fake_die("too much");
    fake->made[fake->made_count][0] = strdup(path);
    fake->made[fake->made_count++][1] = strdup(fake_of(security, FAKE_SECURITY)->text);
}

void fake_forget_descriptors(void) {
    for (size_t i = 0; i < fake->made_count; i++) {
        free(fake->made[i][0]);
        free(fake->made[i][1]);
    }
    fake->made_count = 0;
}

static const char *descriptor_of(const char *path) {
    for (size_t i = 0; i < fake->made_count; i++) {
        if (!strcmp(fake->made[i][0], path)) return fake->made[i][1];
    }
    return NULL;
}

static void forget_descriptor(const char *path) {
    for (size_t i = 0; i < fake->made_count; i++) {
        if (strcmp(fake->made[i][0], path) != 0) continue;
        free(fake->made[i][0]);
        free(fake->made[i][1]);
        memmove(fake->made[i], fake->made[i + 1],
                (--fake->made_count - i) * sizeof fake->made[0]);
        return;
    }
}

static uint32_t directory_create(const vj_windows_os *os, const uint16_t *path,
                                 vj_windows_security security) {
    (void)os;
    FAKE_CALL();
    char host[1024];
    fake_must_be_secure(security);
    host_path(path, host, sizeof host);
    if (exists(host)) return fake_leave(VJ_WINDOWS_ERROR_ALREADY_EXISTS);
    if (mkdir(host, 0700)) return fake_leave(code_of(errno));
    note_descriptor(host, security);
    return fake_leave(0);
}

static uint32_t file_create(const vj_windows_os *os, const uint16_t *path,
                            vj_windows_security security, vj_windows_handle *file) {
    (void)os;
    FAKE_CALL();
    char host[1024];
    fake_must_be_secure(security);
    host_path(path, host, sizeof host);
    if (exists(host)) return fake_leave(VJ_WINDOWS_ERROR_ALREADY_EXISTS);
    int descriptor = open(host, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0) return fake_leave(code_of(errno));
    note_descriptor(host, security);
    fake_object *object = fake_new(FAKE_FILE);
    object->file = descriptor;
    snprintf(object->text, sizeof object->text, "%s", host);
    *file = (vj_windows_handle)(void *)object;
    return fake_leave(0);
}

static bool is_held(const char *path) {
    for (const fake_object *object = fake->objects; object; object = object->next) {
        if (object->kind == FAKE_FILE && !object->closed && !strcmp(object->text, path)) {
            return true;
        }
    }
    return false;
}

static void name_of(int descriptor, char *to, size_t room) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, to, room - 1);
    to[size < 0 ? 0 : size] = 0;
}

// As it is, then for reading, by the file that the first descriptor has.
static int open_as_is(int parent, const char *path) {
    struct stat status;
    int descriptor = openat(parent, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status)) return descriptor;
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return descriptor;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    int readable = open(link, O_RDONLY | O_CLOEXEC);
    int saved = errno;
    close(descriptor);
    errno = saved;
    return readable;
}

// Where something is: from an open directory, and as a whole path. A name that is empty
// is the directory itself.
typedef struct {
    int at;
    char name[1024];
    char path[2100];
} fake_place;

static fake_place place_of(vj_windows_handle parent, const uint16_t *path) {
    fake_place place = {.at = AT_FDCWD};
    if (!parent) {
        host_path(path, place.name, sizeof place.name);
        snprintf(place.path, sizeof place.path, "%s", place.name);
        return place;
    }
    char folder[1024];
    place.at = fake_of(parent, FAKE_FILE)->file;
    fake_utf8(path, place.name, sizeof place.name);
    if (strchr(place.name, '/') || strchr(place.name, '\\')) fake_die("not one name");
    name_of(place.at, folder, sizeof folder);
    snprintf(place.path, sizeof place.path, "%s%s%s", folder, place.name[0] ? "/" : "",
             place.name);
    return place;
}

static fake_locked *lock_at(const char *path) {
    for (size_t i = 0; i < sizeof fake->locked / sizeof *fake->locked; i++) {
        if (!strcmp(fake->locked[i].path, path)) return &fake->locked[i];
    }
    return NULL;
}

static uint32_t locks_of(const char *path) {
    const fake_locked *lock = lock_at(path);
    return lock ? lock->how : 0;
}

static uint32_t open_file(const vj_windows_os *os, vj_windows_handle parent,
                          const uint16_t *path, vj_windows_open_mode mode,
                          vj_windows_handle *handle) {
    (void)os;
    FAKE_CALL();
    fake_place place = place_of(parent, path);
    if (mode == VJ_WINDOWS_OPEN_ALONE && is_held(place.path)) {
        return fake_leave(VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    }
    if (locks_of(place.path) & FAKE_LOCK_LIST) {
        return fake_leave(VJ_WINDOWS_ERROR_ACCESS_DENIED);
    }
    int descriptor = open_as_is(place.at, place.name);
    if (descriptor < 0) return fake_leave(code_of(errno));
    fake_object *object = fake_new(FAKE_FILE);
    object->file = descriptor;
    name_of(descriptor, object->text, sizeof object->text);
    *handle = (vj_windows_handle)(void *)object;
    return fake_leave(0);
}

static uint32_t file_information(const vj_windows_os *os, vj_windows_handle handle,
                                 vj_windows_file *file) {
    (void)os;
    FAKE_CALL();
    struct stat status;
    if (fstat(fake_of(handle, FAKE_FILE)->file, &status)) fake_die("fstat");
    *file = (vj_windows_file){
        .kind = S_ISREG(status.st_mode)   ? VJ_WINDOWS_KIND_FILE
                : S_ISDIR(status.st_mode) ? VJ_WINDOWS_KIND_DIRECTORY
                : S_ISLNK(status.st_mode) ? VJ_WINDOWS_KIND_REPARSE
                                          : VJ_WINDOWS_KIND_OTHER,
        .links = (uint32_t)status.st_nlink,
        .volume = status.st_dev,
        .size = (uint64_t)status.st_size,
        .written = (uint64_t)status.st_mtim.tv_sec * 1000000000u +
                   (uint64_t)status.st_mtim.tv_nsec,
        .changed = (uint64_t)status.st_ctim.tv_sec * 1000000000u +
                   (uint64_t)status.st_ctim.tv_nsec,
    };
    memcpy(file->id, &status.st_ino, sizeof status.st_ino);
    return fake_leave(0);
}

static uint32_t final_path(const vj_windows_os *os, vj_windows_handle handle,
                           uint16_t *path, uint32_t capacity) {
    (void)os;
    FAKE_CALL();
    char host[1024], text[1100];
    name_of(fake_of(handle, FAKE_FILE)->file, host, sizeof host);
    size_t root = strlen(fake->root);
    if (strncmp(host, fake->root, root) != 0) {
        return fake_leave(VJ_WINDOWS_ERROR_NOT_SUPPORTED);
    }
    snprintf(text, sizeof text, "C:%s", host[root] ? host + root : "\\");
    for (char *at = text; *at; at++) {
        if (*at == '/') *at = '\\';
    }
    if (strlen(text) >= capacity) return fake_leave(VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER);
    fake_utf16(text, path, capacity);
    return fake_leave(0);
}

static uint32_t security_equal(const vj_windows_os *os, vj_windows_handle file,
                               vj_windows_security security, bool *equal) {
    (void)os;
    FAKE_CALL();
    const char *made = descriptor_of(fake_of(file, FAKE_FILE)->text);
    *equal = made && !strcmp(made, fake_of(security, FAKE_SECURITY)->text) &&
             !(fake->lies & FAKE_OTHER_DESCRIPTOR);
    return fake_leave(0);
}

static uint32_t file_read(const vj_windows_os *os, vj_windows_handle file, void *bytes,
                          uint32_t size, uint32_t *count) {
    (void)os;
    FAKE_CALL();
    ssize_t result = read(fake_of(file, FAKE_FILE)->file, bytes, size);
    *count = result < 0 ? 0 : (uint32_t)result;
    return fake_leave(result < 0 ? code_of(errno) : 0);
}

static uint32_t file_write(const vj_windows_os *os, vj_windows_handle file,
                           const void *bytes, uint32_t size) {
    (void)os;
    FAKE_CALL();
    int descriptor = fake_of(file, FAKE_FILE)->file;
    for (uint32_t written = 0; written < size;) {
        ssize_t result = write(descriptor, (const char *)bytes + written, size - written);
        if (result < 0) return fake_leave(code_of(errno));
        written += (uint32_t)result;
    }
    return fake_leave(0);
}

static uint32_t listing_open(const vj_windows_os *os, vj_windows_handle directory,
                             vj_windows_listing *listing) {
    (void)os;
    FAKE_CALL();
    int descriptor = openat(fake_of(directory, FAKE_FILE)->file, ".",
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return fake_leave(code_of(errno));
    fake_object *object = fake_new(FAKE_LISTING);
    object->directory = fdopendir(descriptor);
    *listing = (vj_windows_listing)(void *)object;
    return fake_leave(0);
}

static uint32_t listing_next(const vj_windows_os *os, vj_windows_listing listing,
                             vj_windows_entry *entry) {
    (void)os;
    FAKE_CALL();
    DIR *directory = fake_of(listing, FAKE_LISTING)->directory;
    const struct dirent *found;
    do {
        found = readdir(directory);
    } while (found && (!strcmp(found->d_name, ".") || !strcmp(found->d_name, "..")));
    if (!found) return fake_leave(VJ_WINDOWS_ERROR_NO_MORE_FILES);
    fake_utf16(found->d_name, entry->name, VJ_WINDOWS_NAME_MAX);
    entry->kind = found->d_type == DT_DIR   ? VJ_WINDOWS_KIND_DIRECTORY
                  : found->d_type == DT_REG ? VJ_WINDOWS_KIND_FILE
                  : found->d_type == DT_LNK ? VJ_WINDOWS_KIND_REPARSE
                                            : VJ_WINDOWS_KIND_OTHER;
    return fake_leave(0);
}

static void listing_close(const vj_windows_os *os, vj_windows_listing listing) {
    (void)os;
    pthread_mutex_lock(&fake->lock);
    fake_object *object = fake_of(listing, FAKE_LISTING);
    object->closed = true;
    closedir(object->directory);
    pthread_mutex_unlock(&fake->lock);
}

static uint32_t remove_path(const vj_windows_os *os, vj_windows_handle parent,
                            const uint16_t *path) {
    (void)os;
    FAKE_CALL();
    struct stat status;
    fake_place place = place_of(parent, path);
    if (fake->busy) {
        fake->busy--;
        return fake_leave(fake->busy_code);
    }
    // Nothing goes away that is held.
    if (is_held(place.path)) return fake_leave(VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    char folder[2100];
    snprintf(folder, sizeof folder, "%s", place.path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    if (locks_of(folder) & FAKE_LOCK_ENTRIES) {
        return fake_leave(VJ_WINDOWS_ERROR_ACCESS_DENIED);
    }
    if (fstatat(place.at, place.name, &status, AT_SYMLINK_NOFOLLOW)) {
        return fake_leave(errno == ENOENT ? 0 : code_of(errno));
    }
    if (unlinkat(place.at, place.name, S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0)) {
        return fake_leave(code_of(errno));
    }
    forget_descriptor(place.path);
    return fake_leave(0);
}

static uint32_t reclaim(const vj_windows_os *os, vj_windows_handle parent,
                        const uint16_t *path, vj_windows_security security) {
    (void)os;
    FAKE_CALL();
    struct stat status;
    fake_must_be_secure(security);
    fake_place place = place_of(parent, path);
    if (fstatat(place.at, place.name, &status, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) {
        return fake_leave(code_of(errno));
    }
    if (S_ISREG(status.st_mode)) fake_die("the rights of a file were to be changed");
    fake_locked *lock = lock_at(place.path);
    if (lock && lock->how & FAKE_LOCK_OWNER) {
        return fake_leave(VJ_WINDOWS_ERROR_ACCESS_DENIED);
    }
    forget_descriptor(place.path);
    note_descriptor(place.path, security);
    if (lock) *lock = (fake_locked){.how = 0};
    return fake_leave(0);
}

void fake_lock(const char *path, uint32_t how) {
    fake_locked *lock = lock_at("");
    if (!lock) fake_die("too many locks");
    snprintf(lock->path, sizeof lock->path, "%.*s/%s", 512, fake->root, path);
    lock->how = how;
}

void fake_act(uint64_t number, void (*act)(void)) {
    fake->act_number = number;
    fake->act = number ? act : NULL;
}

void fake_describe(const char *path, const char *sddl) {
    char host[1024];
    snprintf(host, sizeof host, "%.*s/%s", 512, fake->root, path);
    if (fake->made_count == sizeof fake->made / sizeof *fake->made) fake_die("too much");
    fake->made[fake->made_count][0] = strdup(host);
    fake->made[fake->made_count++][1] = strdup(sddl);
}

void fake_busy(uint32_t times, uint32_t code) {
    fake->busy = times;
    fake->busy_code = code;
}

void fake_fill_files(vj_windows_os *os) {
    os->security_equal = security_equal;
    os->directory_create = directory_create;
    os->file_create = file_create;
    os->open = open_file;
    os->file_information = file_information;
    os->final_path = final_path;
    os->file_read = file_read;
    os->file_write = file_write;
    os->listing_open = listing_open;
    os->listing_next = listing_next;
    os->listing_close = listing_close;
    os->remove = remove_path;
    os->reclaim = reclaim;
}

const char *fake_descriptor(const char *path) {
    char host[2048];
    snprintf(host, sizeof host, "%s/%s", fake->root, path);
    return descriptor_of(host);
}

unsigned fake_descriptors_outside(const char *folder) {
    char host[2048];
    unsigned count = 0;
    snprintf(host, sizeof host, "%s/%s/", fake->root, folder);
    for (size_t i = 0; i < fake->made_count; i++) {
        count += strncmp(fake->made[i][0], host, strlen(host)) != 0;
    }
    return count;
}

bool fake_is_held(const char *path) {
    char host[1024];
    snprintf(host, sizeof host, "%.*s/%s", 512, fake->root, path);
    return is_held(host);
}
