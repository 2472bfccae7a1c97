// macOS made of Linux, as far as the host's side of Seatbelt calls it; see darwin.h.

#include "darwin.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <libproc.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/attr.h>
#include <sys/event.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef fcntl
#undef ttyname

#define QUEUES_MAX    1024
#define PROCESSES_MAX 64
#define ZOMBIE        5u
#define MARK_MASK     0x7ffffu
#define NO_MARK       0x80000u // at least: what the limit is without a mark

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

static pid_t watched[QUEUES_MAX][PROCESSES_MAX];

int kqueue(void) {
    int queue = eventfd(0, 0);
    if (queue < 0 || queue >= QUEUES_MAX) return -1;
    memset(watched[queue], 0, sizeof watched[queue]);
    return queue;
}

static int wait_for(int queue, struct kevent *event, const struct timespec *timeout) {
    struct pollfd waits[PROCESSES_MAX];
    nfds_t count = 0;
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        if (!watched[queue][i]) continue;
        int file = (int)syscall(SYS_pidfd_open, watched[queue][i], 0);
        waits[count++] = (struct pollfd){.fd = file, .events = POLLIN};
        if (file < 0) waits[count - 1].revents = POLLIN;
    }
    int ready = ppoll(waits, count, timeout, NULL);
    int why = errno;
    for (nfds_t i = 0; i < count; i++) {
        if (waits[i].fd >= 0) close(waits[i].fd);
    }
    errno = why;
    if (ready > 0) *event = (struct kevent){.filter = EVFILT_PROC, .fflags = NOTE_EXIT};
    return ready;
}

int kevent(int queue, const struct kevent *changes, int change_count,
           struct kevent *events, int event_count, const struct timespec *timeout) {
    for (int i = 0; i < change_count; i++) {
        size_t place = 0;
        while (place < PROCESSES_MAX && watched[queue][place]) place++;
        if (kill((pid_t)changes[i].ident, 0) || place == PROCESSES_MAX) {
            errno = ESRCH;
            return -1;
        }
        watched[queue][place] = (pid_t)changes[i].ident;
    }
    return event_count ? wait_for(queue, events, timeout) : 0;
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
static bool hides_marker;
static bool gives_all;

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
