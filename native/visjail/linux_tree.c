// The tree of a run: which processes there are, and signals to all of them.
//
// Everything here is about the descendants of the calling process, which as
// child subreaper keeps them however often they fork or change their session. Several
// programs that live at once below one keeper are told apart by its direct children.

#include "linux_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/time_types.h>
#include <signal.h>

#define TREE_MAX    65536 // processes looked at in one pass, of the host's too
#define STOP_PASSES 64

// In /proc/PID/stat num_threads is field 20, the parent field 4, the start time 22.
#define THREADS_BEHIND_PARENT 16
#define START_BEHIND_THREADS  2

typedef struct {
    int pid;
    int parent;
    long started; // in ticks since the boot: with the pid, one process for ever
    unsigned char judged;
    unsigned char descendant;
    unsigned char signalled;
    unsigned char stopped; // all of its threads, when it was first seen
    uint64_t ran;          // what it has run so far, where that is wanted
} tree_entry;

typedef struct {
    uint32_t count;
    tree_entry entries[TREE_MAX];
} tree;

// The number that starts `skip` spaces behind `*at`, which ends up behind it.
static long field(const char *line, long size, long *at, int skip) {
    long number = 0;
    while (*at < size && skip > 0) skip -= line[(*at)++] == ' ';
    while (*at < size && line[*at] >= '0' && line[*at] <= '9') {
        number = number * 10 + (line[(*at)++] - '0');
    }
    return number;
}

static long read_status(int proc, const char *name, char *line, size_t size) {
    char path[32];
    vj_text text = {.data = path, .capacity = sizeof path};
    vj_text_string(&text, name);
    vj_text_string(&text, "/stat");
    if (text.overflow) return -ENAMETOOLONG;
    VJ_AUTO_FD file = (int)sys(SYS_openat, proc, path, O_RDONLY | O_CLOEXEC, 0);
    return file < 0 ? file : sys(SYS_read, file, line, size);
}

static int number_of(const char *name) {
    int number = 0;
    for (; *name; name++) {
        if (*name < '0' || *name > '9' || number > 100000000) return 0;
        number = number * 10 + (*name - '0');
    }
    return number;
}

// Call `visit` for each entry of a folder that is a number. `data` is room for a part of
// the list, aligned to 8.
static long each_number(int folder, char *data, size_t capacity,
                        long (*visit)(int folder, const char *name, void *context),
                        void *context) {
    typedef struct {
        unsigned long inode;
        unsigned long offset;
        unsigned short size;
        unsigned char type;
        char name[];
    } entry;
    for (;;) {
        long size = sys(SYS_getdents64, folder, data, capacity);
        if (size <= 0) return size;
        for (long at = 0; at < size;) {
            const entry *found = (const void *)(data + at);
            at += found->size;
            if (!number_of(found->name)) continue;
            long result = visit(folder, found->name, context);
            if (result < 0) return result;
        }
    }
}

long vj_tree_each(long (*visit)(int proc, const char *name, void *context),
                  void *context) {
    static char data[32768] __attribute__((aligned(8)));
    VJ_AUTO_FD proc =
        (int)sys(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return proc < 0 ? proc : each_number(proc, data, sizeof data, visit, context);
}

long vj_tree_each_thread(int proc, const char *process,
                         long (*visit)(int threads, const char *name, void *context),
                         void *context) {
    char data[2048] __attribute__((aligned(8)));
    char path[32];
    vj_text text = {.data = path, .capacity = sizeof path};
    vj_text_string(&text, process);
    vj_text_string(&text, "/task");
    if (text.overflow) return -ENAMETOOLONG;
    VJ_AUTO_FD threads =
        (int)sys(SYS_openat, proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return threads < 0 ? threads
                       : each_number(threads, data, sizeof data, visit, context);
}

// The letter of the state in a line of stat, where `*at` ends up: the name before it may
// itself hold parentheses. 0 where there is none.
static char state_of(const char *line, long size, long *at) {
    *at = size;
    while (*at > 0 && line[*at - 1] != ')') (*at)--;
    return *at > 0 && *at + 1 < size ? line[*at + 1] : '\0';
}

#define A_THREAD_STOPPED 1
#define A_THREAD_RUNS    2

static long look_at_thread(int threads, const char *name, void *context) {
    int *seen = context;
    char line[512] = {0};
    long at = 0;
    char state = state_of(line, read_status(threads, name, line, sizeof line), &at);
    if (state == 'T') *seen |= A_THREAD_STOPPED;
    // One that waits in the kernel (D) runs no code of a guest, and stops before it does.
    else if (state && state != 'Z' && state != 'X' && state != 'D')
        *seen |= A_THREAD_RUNS;
    return 0;
}

// What the first thread shows is the process's state while it runs. One that has ended,
// or waits for a vfork, never shows that the others have stopped.
static int others_stopped(int proc, const char *name) {
    int seen = 0;
    return vj_tree_each_thread(proc, name, look_at_thread, &seen) == 0 &&
           seen == A_THREAD_STOPPED;
}

// Parent and state are the second and first field after the name. False for what is gone
// or dead: a zombie has no children. But a first thread that has ended looks like a
// zombie while others run on.
static int read_entry(int proc, const char *name, tree_entry *entry) {
    char line[512] = {0};
    long size = read_status(proc, name, line, sizeof line);
    long at = 0;
    char state = state_of(line, size, &at);
    if (!state) return 0;
    entry->parent = (int)field(line, size, &at, 2);
    long threads = field(line, size, &at, THREADS_BEHIND_PARENT);
    entry->started = field(line, size, &at, START_BEHIND_THREADS);
    int ended = state == 'Z' || state == 'X';
    entry->stopped = state == 'T' || (threads > 1 && (ended || state == 'D') &&
                                      others_stopped(proc, name));
    return !ended || threads > 1;
}

static long add_entry(int proc, const char *name, void *context) {
    tree *table = context;
    tree_entry entry = {.pid = number_of(name)};
    if (table->count == TREE_MAX) return -E2BIG;
    if (read_entry(proc, name, &entry)) table->entries[table->count++] = entry;
    return 0;
}

static int is_spared(vj_spared spared, int pid) {
    if (spared.only) return pid != spared.only;
    for (uint32_t i = 0; i < spared.count; i++) {
        if (spared.pids[i] == pid) return 1;
    }
    return 0;
}

// The kernel lists processes by their number, and every table keeps that order.
static tree_entry *find_entry(tree *table, int pid) {
    uint32_t from = 0, end = table->count;
    while (from < end) {
        uint32_t middle = from + (end - from) / 2;
        if (table->entries[middle].pid == pid) return &table->entries[middle];
        if (table->entries[middle].pid < pid) from = middle + 1;
        else end = middle;
    }
    return 0;
}

// Mark all processes that descend from `root`.
// Each climbs up to the first that is judged already, so that none is climbed twice.
static void mark_descendants(tree *table, int root, vj_spared spared) {
    for (uint32_t i = 0; i < table->count; i++) {
        tree_entry *at = &table->entries[i];
        int inside = 0;
        // Not for ever: while the table was read, numbers may have been used again.
        for (uint32_t steps = 0; at && steps < table->count; steps++) {
            inside = at->judged ? at->descendant
                                : at->parent == root && !is_spared(spared, at->pid);
            if (at->judged || at->parent == root) break;
            at = find_entry(table, at->parent);
        }
        at = &table->entries[i];
        while (at && !at->judged) {
            at->judged = 1;
            at->descendant = inside != 0;
            at = at->parent == root ? 0 : find_entry(table, at->parent);
        }
    }
}

static tree *look(vj_spared spared) {
    static tree table;
    table.count = 0;
    vj_tree_each(add_entry, &table);
    mark_descendants(&table, (int)sys(SYS_getpid), spared);
    return &table;
}

int vj_tree_is_left(vj_spared spared) {
    const tree *now = look(spared);
    for (uint32_t i = 0; i < now->count; i++) {
        if (now->entries[i].descendant) return 1;
    }
    return 0;
}

long vj_tree_children(int *pids, uint32_t most) {
    const tree *now = look((vj_spared){0});
    int self = (int)sys(SYS_getpid);
    uint32_t count = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        if (now->entries[i].parent != self) continue;
        if (count == most) return -E2BIG;
        pids[count++] = now->entries[i].pid;
    }
    return count;
}

static int on_host, in_scope;

void vj_tree_on_host(void) {
    on_host = 1;
}

void vj_tree_in_scope(void) {
    in_scope = 1;
}

int vj_tree_kill_all(void) {
    if (in_scope) sys(SYS_kill, -1, SIGKILL);
    return in_scope;
}

// The descriptor is one process, and its start time says which.
static void send(const tree_entry *target, int signal) {
    if (!on_host) {
        sys(SYS_kill, target->pid, signal);
        return;
    }
    VJ_AUTO_FD process = (int)sys(SYS_pidfd_open, target->pid, 0);
    VJ_AUTO_FD proc =
        (int)sys(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    char name[16];
    vj_text text = {.data = name, .capacity = sizeof name};
    vj_text_number(&text, (uint64_t)target->pid, 10);
    tree_entry present = {0};
    if (process < 0 || proc < 0 || !read_entry(proc, name, &present)) return;
    if (present.started != target->started) return;
    sys(SYS_pidfd_send_signal, process, signal, 0, 0);
}

// The first `count` entries of the last look.
static void keep(tree *known, const tree *now, uint32_t count) {
    known->count = count;
    memcpy(known->entries, now->entries, count * sizeof now->entries[0]);
}

// One pass: send `signal` to every descendant that has not had it according to
// `known`, which then knows it, and still knows of the spared what it knew before.
// Returns how many were new.
static uint32_t signal_tree(tree *known, vj_spared spared, int signal) {
    tree *now = look(spared); // becomes what is known next, entry by entry
    uint32_t count = 0;
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        tree_entry entry = now->entries[i];
        const tree_entry *before = find_entry(known, entry.pid);
        if (!entry.descendant) {
            if (before) now->entries[count++] = *before;
            continue;
        }
        if (!before || !before->signalled) {
            send(&entry, signal);
            fresh++;
        } else {
            entry.stopped = before->stopped;
        }
        entry.signalled = 1;
        now->entries[count++] = entry;
    }
    keep(known, now, count);
    return fresh;
}

// A stopped process cannot fork: pass after pass finds fewer, until none is new. With
// many processes a pass takes its time, and `until` is when to begin no other.
static void stop(tree *known, vj_spared spared, uint64_t until) {
    for (int pass = 0; pass < STOP_PASSES; pass++) {
        if (!signal_tree(known, spared, SIGSTOP) || vj_clock() >= until) return;
    }
}

static tree suspended;
static tree held;   // at the last look at a suspended run
static tree killed; // kept, so that nothing is counted twice

void vj_tree_forget(void) {
    suspended.count = held.count = killed.count = 0;
}

uint32_t vj_tree_kill(vj_spared spared, int first) {
    static tree stopped;
    stopped.count = 0;
    if (first) killed.count = 0;
    int all = in_scope && !spared.count && !spared.only;
    // One after the other is a race, which whoever forks and ends at once may win.
    if (all) sys(SYS_kill, -1, SIGSTOP);
    else stop(&stopped, spared, UINT64_MAX);
    uint32_t fresh = signal_tree(&killed, spared, SIGKILL);
    if (all) vj_tree_kill_all();
    return fresh;
}

int vj_tree_stands_still(vj_spared spared) {
    const tree *now = look(spared);
    for (uint32_t i = 0; i < now->count; i++) {
        if (now->entries[i].descendant && !now->entries[i].stopped) return 0;
    }
    return 1;
}

// Of an earlier time what was seen of these processes counts no more.
static void forget_descendants(tree *known, vj_spared spared) {
    tree *now = look(spared);
    uint32_t count = 0;
    for (uint32_t i = 0; i < known->count; i++) {
        const tree_entry *entry = find_entry(now, known->entries[i].pid);
        if (entry && !entry->descendant) known->entries[count++] = known->entries[i];
    }
    known->count = count;
}

void vj_tree_suspend(vj_spared spared, uint64_t until) {
    forget_descendants(&suspended, spared);
    forget_descendants(&held, spared);
    stop(&suspended, spared, until);
}

void vj_tree_resume(vj_spared spared) {
    const tree *now = look(spared);
    for (uint32_t i = 0; i < now->count; i++) {
        const tree_entry *entry = &now->entries[i];
        const tree_entry *before = find_entry(&suspended, entry->pid);
        if (entry->descendant && !(before && before->stopped)) {
            send(entry, SIGCONT);
        }
    }
}

long vj_process_number(int descriptor) {
    char path[48], text[1024] = {0};
    vj_text name = {.data = path, .capacity = sizeof path};
    vj_text_string(&name, "/proc/self/fdinfo/");
    vj_text_number(&name, (uint64_t)descriptor, 10);
    VJ_AUTO_FD file = (int)sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long size = file < 0 ? file : sys(SYS_read, file, text, sizeof text - 1);
    static const char key[] = "\nPid:\t";
    long length = (long)sizeof key - 1;
    for (long at = 0; at + length < size; at++) {
        if (memcmp(text + at, key, (size_t)length) != 0) continue;
        at += length;
        return text[at] == '-' ? -1 : field(text, size, &at, 0);
    }
    return -ESRCH;
}

// Anything that changes when the process runs at all: what all its threads ran, in ns,
// also where the first one has ended. The number of a process makes a clock
// (CPUCLOCK_SCHED, 2: linux/posix-timers.h).
static uint64_t what_it_ran(int pid) {
    struct __kernel_timespec time = {0};
    int clock = (int)((~(unsigned)pid << 3) | 2);
    if (sys(SYS_clock_gettime, clock, &time) < 0) return 0;
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint32_t vj_tree_hold(vj_spared spared) {
    tree *now = look(spared); // becomes what is known next, as in signal_tree
    uint32_t count = 0;
    uint32_t running = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        tree_entry entry = now->entries[i];
        const tree_entry *before = find_entry(&held, entry.pid);
        if (!entry.descendant) { // of others: what was seen of them still counts
            if (before) now->entries[count++] = *before;
            continue;
        }
        entry.ran = what_it_ran(entry.pid);
        int is_same = before && before->started == entry.started;
        // A signal takes a moment to arrive, and for ever where the process never gets
        // its turn. One that has run since the last look was continued, also where it has
        // stopped itself again; one that is new was forked by such a one.
        if (!is_same || before->ran != entry.ran) running++;
        if (!entry.stopped) send(&entry, SIGSTOP);
        now->entries[count++] = entry;
    }
    keep(&held, now, count);
    return running;
}

typedef struct {
    int descriptor;
    uint64_t left;
} listing;

static long write_status(int proc, const char *name, void *context) {
    listing *list = context;
    if (number_of(name) == (int)sys(SYS_getpid)) return 0; // not of the guests
    char line[1024];
    long size = read_status(proc, name, line, sizeof line - 1);
    if (size <= 0) return 0; // it has just ended
    line[size++] = '\0';
    if ((uint64_t)size > list->left) return -E2BIG;
    list->left -= (uint64_t)size;
    long result = sys(SYS_write, list->descriptor, line, (size_t)size);
    return result < 0 ? result : 0;
}

long vj_tree_list(int descriptor, uint64_t limit) {
    listing list = {.descriptor = descriptor, .left = limit};
    long result = vj_tree_each(write_status, &list);
    return result == -E2BIG ? 0 : result;
}
