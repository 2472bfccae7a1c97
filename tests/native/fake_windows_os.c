// The table of tests: its calls, its objects, its files. See fake_windows_os.h.

#include "fake_windows_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "windows_identity.h"
#include "windows_text.h"

fake_machine *fake;

void fake_die(const char *what) {
    fprintf(stderr, "fake Windows: %s\n", what);
    abort();
}

// ---- calls

uint32_t fake_enter(const char *name) {
    pthread_mutex_lock(&fake->lock);
    if (fake->calls == fake->log_room) {
        fake->log_room = fake->log_room ? fake->log_room * 2 : 4096;
        fake->log = realloc(fake->log, fake->log_room * sizeof *fake->log);
        if (!fake->log) fake_die("out of memory");
    }
    fake->log[fake->calls++] = name;
    if (fake->delay_name && !strcmp(fake->delay_name, name)) {
        uint64_t until = fake_now() + fake->delay_ms;
        while (fake_now() < until) fake_wait((uint32_t)(until - fake_now()));
    }
    if (fake->fail_number && fake->calls == fake->fail_number) return fake->fail_code;
    if (fake->fail_from && fake->calls >= fake->fail_from &&
        strcmp(name, "handle_close") != 0 && strcmp(name, "listing_close") != 0) {
        return fake->fail_code;
    }
    if (fake->fail_name && !strcmp(fake->fail_name, name)) return fake->fail_code;
    return 0;
}

void fake_wait(uint32_t milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_clockwait(&fake->changed, &fake->lock, CLOCK_MONOTONIC, &until);
}

void fake_changed(void) {
    pthread_cond_broadcast(&fake->changed);
}

uint64_t fake_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void fake_utf8(const uint16_t *text, char *to, size_t room) {
    size_t length = 0, written = 0;
    while (text[length]) length++;
    if (vj_windows_utf8(text, length, to, room, &written) != VJ_WINDOWS_FINE) {
        fake_die("a text that is no UTF-16");
    }
}

void fake_utf16(const char *text, uint16_t *to, size_t room) {
    size_t written = 0;
    if (vj_windows_utf16(text, strlen(text), to, room, &written) != VJ_WINDOWS_FINE) {
        fake_die("a text that is no UTF-8");
    }
}

// ---- objects

fake_object *fake_new(fake_kind kind) {
    fake_object *object = calloc(1, sizeof *object);
    if (!object) fake_die("out of memory");
    object->kind = kind;
    object->file = -1;
    object->next = fake->objects;
    fake->objects = object;
    return object;
}

fake_object *fake_of(const void *handle, fake_kind kind) {
    fake_object *object = (fake_object *)handle;
    if (!object) fake_die("a handle that is NULL");
    if (object->closed) fake_die("a handle that was closed");
    if (object->kind != kind) fake_die("a handle of another kind");
    return object;
}

void fake_must_be_secure(vj_windows_security security) {
    // Point 31: nothing is made with the default descriptor of the host's token.
    const fake_object *object = fake_of(security, FAKE_SECURITY);
    if (!strstr(object->text, "D:P")) fake_die("a descriptor that is not protected");
}

static uint32_t handle_close(const vj_windows_os *os, vj_windows_handle handle) {
    (void)os;
    FAKE_CALL();
    fake_object *object = (fake_object *)(void *)handle;
    if (!object || object->closed) fake_die("a handle that is closed twice");
    if (object->inside) fake_die("a handle that is closed while a call uses it");
    object->closed = true;
    switch (object->kind) {
    case FAKE_FILE: close(object->file); break;
    case FAKE_JOB: fake_kill_job(object, 1); break; // KILL_ON_JOB_CLOSE
    case FAKE_SERVER:
    case FAKE_CLIENT: fake_close_pipe_end(object); break;
    case FAKE_PROCESS:
    case FAKE_PROCESS_THREAD:
    case FAKE_PORT:
    case FAKE_EVENT:
    case FAKE_THREAD: break;
    default: fake_die("not closed by CloseHandle");
    }
    fake_changed();
    return fake_leave(0);
}

static uint32_t security_open(const vj_windows_os *os, const uint16_t *sddl,
                              vj_windows_security *security) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_new(FAKE_SECURITY);
    fake_utf8(sddl, object->text, sizeof object->text);
    *security = (vj_windows_security)(void *)object;
    return fake_leave(0);
}

static uint32_t security_close(const vj_windows_os *os, vj_windows_security security) {
    (void)os;
    FAKE_CALL();
    fake_of(security, FAKE_SECURITY)->closed = true;
    return fake_leave(0);
}

// ---- the machine

static uint32_t features(const vj_windows_os *os, vj_windows_features *answer) {
    (void)os;
    FAKE_CALL();
    *answer = (vj_windows_features){.missing = fake->missing,
                                    .build = 26100,
                                    .ui_limits = 0xff,
                                    .host_in_job = fake->lies & FAKE_IN_JOB};
    return fake_leave(0);
}

static uint64_t now_ms(const vj_windows_os *os) {
    (void)os;
    return fake_now();
}

static uint32_t random_bytes(void *bytes, uint32_t size) {
    uint8_t *at = bytes;
    for (uint32_t i = 0; i < size; i++) {
        if (fake->lies & FAKE_SAME_RANDOM) {
            at[i] = 0x5a;
            continue;
        }
        fake->random ^= fake->random << 13;
        fake->random ^= fake->random >> 7;
        fake->random ^= fake->random << 17;
        at[i] = (uint8_t)(fake->random >> 32);
    }
    return 0;
}

static uint32_t fake_random(const vj_windows_os *os, void *bytes, uint32_t size) {
    (void)os;
    FAKE_CALL();
    return fake_leave(random_bytes(bytes, size));
}

static uint32_t user_sid(const vj_windows_os *os, uint16_t *text, uint32_t capacity) {
    (void)os;
    FAKE_CALL();
    fake_utf16(FAKE_USER, text, capacity);
    return fake_leave(0);
}

static uint32_t system_root(const vj_windows_os *os, uint16_t *path, uint32_t capacity) {
    (void)os;
    FAKE_CALL();
    fake_utf16("C:\\Windows", path, capacity);
    return fake_leave(0);
}

static uint32_t self(const vj_windows_os *os, uint32_t *pid, uint64_t *created) {
    (void)os;
    FAKE_CALL();
    *pid = FAKE_PID;
    *created = FAKE_CREATED;
    return fake_leave(0);
}

static uint32_t owner_created(const vj_windows_os *os, uint32_t pid, uint64_t *created) {
    (void)os;
    FAKE_CALL();
    *created = 0;
    if (pid != fake->other_pid) return fake_leave(VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    *created = fake->other_created;
    return fake_leave(0);
}

static uint32_t profile_create(const vj_windows_os *os, const uint16_t *name,
                               uint16_t *sid, uint32_t capacity) {
    (void)os;
    FAKE_CALL();
    char text[128], number[VJ_WINDOWS_SID_SIZE];
    fake_utf8(name, text, sizeof text);
    size_t place = 0;
    while (fake->profiles[place][0] && strcmp(fake->profiles[place], text) != 0) place++;
    if (fake->profiles[place][0]) return fake_leave(VJ_WINDOWS_ERROR_ALREADY_EXISTS);
    snprintf(fake->profiles[place], sizeof fake->profiles[place], "%s", text);
    vj_windows_package_sid(fake->lies & FAKE_OTHER_PROFILE ? "another" : text, number);
    fake_utf16(number, sid, capacity);
    return fake_leave(0);
}

static uint32_t profile_delete(const vj_windows_os *os, const uint16_t *name) {
    (void)os;
    FAKE_CALL();
    char text[128];
    fake_utf8(name, text, sizeof text);
    for (size_t i = 0; i < 63; i++) {
        if (!strcmp(fake->profiles[i], text)) {
            memmove(fake->profiles[i], fake->profiles[i + 1],
                    (63 - i) * sizeof fake->profiles[0]);
        }
    }
    return fake_leave(0);
}

// ---- files

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
    case ENOTEMPTY: return 145; // ERROR_DIR_NOT_EMPTY
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

static uint32_t open_file(const vj_windows_os *os, vj_windows_handle parent,
                          const uint16_t *path, vj_windows_open_mode mode,
                          vj_windows_handle *handle) {
    (void)os;
    FAKE_CALL();
    char host[1024];
    int at = AT_FDCWD;
    if (parent) {
        at = fake_of(parent, FAKE_FILE)->file;
        fake_utf8(path, host, sizeof host);
    } else {
        host_path(path, host, sizeof host);
        if (mode == VJ_WINDOWS_OPEN_ALONE && is_held(host)) {
            return fake_leave(VJ_WINDOWS_ERROR_SHARING_VIOLATION);
        }
    }
    if (fake->locked[0] && !strcmp(fake->locked, host)) {
        return fake_leave(VJ_WINDOWS_ERROR_ACCESS_DENIED);
    }
    int descriptor = open_as_is(at, host);
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

static uint32_t listing_close(const vj_windows_os *os, vj_windows_listing listing) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_of(listing, FAKE_LISTING);
    object->closed = true;
    closedir(object->directory);
    return fake_leave(0);
}

static uint32_t remove_path(const vj_windows_os *os, const uint16_t *path) {
    (void)os;
    FAKE_CALL();
    char host[1024];
    struct stat status;
    host_path(path, host, sizeof host);
    if (fake->busy) {
        fake->busy--;
        return fake_leave(fake->busy_code);
    }
    // Nothing goes away that is held.
    if (is_held(host)) return fake_leave(VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    if (lstat(host, &status)) return fake_leave(errno == ENOENT ? 0 : code_of(errno));
    if (S_ISDIR(status.st_mode) ? rmdir(host) : unlink(host)) {
        return fake_leave(code_of(errno));
    }
    forget_descriptor(host);
    return fake_leave(0);
}

static uint32_t reclaim(const vj_windows_os *os, const uint16_t *path,
                        vj_windows_security security) {
    (void)os;
    FAKE_CALL();
    char host[1024];
    fake_must_be_secure(security);
    host_path(path, host, sizeof host);
    note_descriptor(host, security);
    if (!strcmp(fake->locked, host)) fake->locked[0] = 0;
    return fake_leave(0);
}

void fake_lock(const char *path) {
    snprintf(fake->locked, sizeof fake->locked, "%.*s/%s", 512, fake->root, path);
}

void fake_busy(uint32_t times, uint32_t code) {
    fake->busy = times;
    fake->busy_code = code;
}

void fake_fill_files(vj_windows_os *os) {
    os->features = features;
    os->now_ms = now_ms;
    os->random = fake_random;
    os->user_sid = user_sid;
    os->system_root = system_root;
    os->self = self;
    os->owner_created = owner_created;
    os->handle_close = handle_close;
    os->security_open = security_open;
    os->security_close = security_close;
    os->security_equal = security_equal;
    os->profile_create = profile_create;
    os->profile_delete = profile_delete;
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

bool fake_has_profile(const char *name) {
    for (size_t i = 0; i < 64; i++) {
        if (!strcmp(fake->profiles[i], name)) return true;
    }
    return false;
}
