// macOS made of Linux, as far as the host's side of Seatbelt calls it; see darwin.h.

#include "darwin.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <libproc.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/attr.h>
#include <sys/clonefile.h>
#include <sys/epoll.h>
#include <sys/event.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef fcntl
#undef ttyname

#define ZOMBIE    5u
#define MARK_MASK 0x7ffffu
#define NO_MARK   0x80000u // at least: what the limit is without a mark

// ---- descriptors and numbers -----------------------------------------------

int darwin_fcntl(int file, int command, ...) {
    va_list list;
    va_start(list, command);
    void *pointer = va_arg(list, void *);
    va_end(list);
    if (command == F_SETNOSIGPIPE) return signal(SIGPIPE, SIG_IGN) == SIG_ERR ? -1 : 0;
    if (command == F_GETPATH) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t size = readlink(link, pointer, 1023);
        if (size < 0) return -1;
        ((char *)pointer)[size] = 0;
        return 0;
    }
    return fcntl(file, command, (intptr_t)pointer);
}

char *darwin_terminal(int file) {
    static char name[] = "/dev/ttys000";
    return isatty(file) ? name : NULL;
}

uint64_t clock_gettime_nsec_np(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void darwin_random(void *bytes, size_t size) {
    if (getrandom(bytes, size, 0) != (ssize_t)size) abort();
}

int getattrlist(const char *path, void *asked, void *answer, size_t size,
                unsigned options) {
    (void)options;
    char found[PATH_MAX];
    struct {
        uint32_t size;
        attrreference_t path;
    } head = {.size = (uint32_t)size, .path = {.attr_dataoffset = sizeof head.path}};
    const struct attrlist *wanted = asked;
    if (wanted->commonattr != ATTR_CMN_FULLPATH || !realpath(path, found)) return -1;
    char *odd = strstr(found, "two-spellings");
    if (odd) *odd = 'T';
    head.path.attr_length = (uint32_t)strlen(found) + 1;
    memcpy(answer, &head, sizeof head);
    snprintf((char *)answer + sizeof head, size - sizeof head, "%s", found);
    return 0;
}

uint32_t _dyld_image_count(void) {
    return getenv("DARWIN_IMAGE") ? 1 : 0;
}

const char *_dyld_get_image_name(uint32_t number) {
    (void)number;
    return getenv("DARWIN_IMAGE");
}

int clonefile(const char *source, const char *target, uint32_t flags) {
    (void)source;
    (void)flags;
    int file = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return file < 0 ? -1 : close(file);
}

// ---- processes -------------------------------------------------------------

int proc_listallpids(void *buffer, int size) {
    DIR *folder = opendir("/proc");
    int count = 0;
    if (!folder) return -1;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        if (buffer && (size_t)(count + 1) * sizeof(int) <= (size_t)size)
            ((int *)buffer)[count] = atoi(entry->d_name);
        count++;
    }
    closedir(folder);
    int room = size / (int)sizeof(int);
    return buffer && count > room ? room : count;
}

int proc_pidinfo(int process, int kind, uint64_t argument, void *buffer, int size) {
    char path[64];
    char line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "re");
    struct proc_bsdinfo about = {0};
    if (!file || kind != PROC_PIDTBSDINFO || size != (int)sizeof about) {
        if (file) fclose(file);
        errno = ESRCH;
        return 0;
    }
    bool whole = fgets(line, sizeof line, file);
    fclose(file);
    char *behind = whole ? strrchr(line, ')') : NULL;
    char state = 0;
    unsigned parent = 0;
    unsigned long long start = 0;
    // Fields 3, 4 and 22.
    if (!behind || sscanf(behind + 2,
                          "%c %u %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                          "%*s %*s %*s %*s %*s %*s %llu",
                          &state, &parent, &start) != 3) {
        errno = ESRCH;
        return 0;
    }
    // Who is only left to be reaped is found with argument 1 alone.
    if (!argument && (state == 'Z' || state == 'X')) {
        errno = ESRCH;
        return 0;
    }
    about.pbi_status = state == 'Z' || state == 'X' ? ZOMBIE : 2;
    about.pbi_ppid = parent;
    about.pbi_start_tvsec = start;
    snprintf(path, sizeof path, "/proc/%d/status", process);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Uid: %u", &about.pbi_uid) == 1) break;
    }
    if (file) fclose(file);
    memcpy(buffer, &about, sizeof about);
    return size;
}

// ---- queues of events ------------------------------------------------------

// A queue is one of epoll(7), which can be waited for itself, as that of macOS.
int kqueue(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

static int add(int queue, int file, int16_t filter) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint16_t)filter};
    return file < 0 ? -1 : epoll_ctl(queue, EPOLL_CTL_ADD, file, &event);
}

static int change(int queue, const struct kevent *asked) {
    int file = (int)asked->ident;
    if (asked->filter == EVFILT_READ && asked->flags & EV_DELETE)
        return epoll_ctl(queue, EPOLL_CTL_DEL, file, NULL);
    if (asked->filter == EVFILT_READ) return add(queue, file, asked->filter);
    if (asked->filter == EVFILT_PROC)
        return add(queue, (int)syscall(SYS_pidfd_open, file, 0), asked->filter);
    return asked->fflags & NOTE_TRIGGER ? add(queue, eventfd(1, EFD_CLOEXEC), EVFILT_USER)
                                        : 0;
}

int kevent(int queue, const struct kevent *changes, int change_count,
           struct kevent *events, int event_count, const struct timespec *timeout) {
    for (int i = 0; i < change_count; i++) {
        if (change(queue, &changes[i])) return -1;
    }
    if (!event_count) return 0;
    struct epoll_event found = {0};
    int milliseconds =
        timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000)
                : -1;
    int ready = epoll_wait(queue, &found, 1, milliseconds);
    if (ready > 0)
        *events = (struct kevent){.filter = (int16_t)(uint16_t)found.data.u64,
                                  .fflags = NOTE_EXIT};
    return ready;
}

// ---- a sandbox that only marks ---------------------------------------------

const int SANDBOX_CHECK_NO_REPORT = 0x40000000;

static uint32_t mark_of(const char *marker) {
    uint32_t mark = 5381;
    for (; *marker && *marker != '"'; marker++) mark = mark * 33 + (unsigned char)*marker;
    return mark & MARK_MASK;
}

// What a profile that names these services gets wrong about the lookup of names.
#define NO_MARKER  "com.example.no-marker"
#define EVERY_NAME "com.example.every-name"
#define LEAKS      "com.example.leaks-" // and the letter of an act (macos_try.h)
static bool hides_marker;
static bool gives_all;
char darwin_leaks;

int sandbox_init_with_parameters(const char *profile, uint64_t flags,
                                 const char *const parameters[], char **error) {
    (void)flags;
    (void)parameters;
    *error = NULL;
    const char *marker = strstr(profile, "visruntime.jail.");
    const char *refused = strstr(profile, "com.example.not-compiled");
    if (!marker || refused) {
        *error = strdup("line 1: not compiled");
        return -1;
    }
    hides_marker = strstr(profile, NO_MARKER);
    gives_all = strstr(profile, EVERY_NAME);
    const char *leak = strstr(profile, LEAKS);
    if (leak) darwin_leaks = leak[sizeof LEAKS - 1];
    uint32_t mark = mark_of(marker);
    struct rlimit both = {mark, mark};
    return setrlimit(RLIMIT_MSGQUEUE, &both);
}

void sandbox_free_error(char *error) {
    free(error);
}

int sandbox_check(pid_t process, const char *operation, int kind, ...) {
    struct rlimit both;
    if (prlimit(process, RLIMIT_MSGQUEUE, NULL, &both)) return -1;
    bool is_sandboxed = both.rlim_max < NO_MARK;
    if (!operation) return is_sandboxed;
    va_list list;
    va_start(list, kind);
    const char *name = va_arg(list, const char *);
    va_end(list);
    if (hides_marker || gives_all) return hides_marker;
    return is_sandboxed && both.rlim_max != mark_of(name);
}

static int disclaims(posix_spawnattr_t *attributes, int disclaim) {
    (void)attributes;
    return disclaim != 1;
}

// Missing where DARWIN_LACKS names it.
void *darwin_symbol(void *handle, const char *name) {
    (void)handle;
    const char *missing = getenv("DARWIN_LACKS");
    if (missing && !strcmp(missing, name)) return NULL;
    bool is_known = !strcmp(name, "responsibility_spawnattrs_setdisclaim");
    return is_known ? (void *)(uintptr_t)disclaims : NULL;
}
