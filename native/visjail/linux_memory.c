// Memory of the jail as a whole: the cgroups that bound it, and the watch where
// there is none.
//
// A cgroup is joined by the first process of visjail-init, before it has read
// anything but its plan, so that nothing of the jail was ever outside of it. The
// kernel ends one process when the limit is reached; the keepers see its count rise
// and end their runs. (memory.oom.group would take pid 1 as well, and cgroup v1 has
// no such thing.)
//
// Without a cgroup nothing that an ordinary uid can reach bounds the sum, so the
// keepers measure it every WATCH_NS: first what is resident, which counts shared
// pages once per process and is cheap, and when that is over, the proportional
// sizes. What belongs to no process (unmapped memfds, socket buffers) is not seen.

#include "linux_init.h"
#include "linux_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define SHARED_BYTES 4096u
#define STATUS_BYTES 16384u
#define WATCH_NS     10000000ull

// The proportional sizes are read under a lock of each process, which a thread of the
// guest's can hold (linux_watchdog.c). A keeper that waits for it keeps no limit.
#define READS_MOST_NS 3000000000ull

// A measurement is followed by a pause of this many times its length.
#define MOST_OF_TIME 4

// A jail that cannot go on: for a second, within a thirty-second of its limit, with
// less than an eighth of it in files, and those read again at 1 MiB a second.
#define STUCK_LOOK_NS  100000000ull
#define STUCK_LOOKS    10
#define STUCK_ROOM     32
#define STUCK_FILES    8
#define STUCK_REFAULTS 25 // pages in one look

// How long what the kernel ended may take to give its memory back.
#define GIVE_BACK_NS 1000000000ull

// On a page that all keepers share: one measures, all see. Two that measure at once
// do no harm.
struct vj_watch {
    uint64_t next;        // when the next measurement is due
    uint64_t sum;         // what the last one found, in bytes
    uint64_t over_at;     // when the last one was over the limit, 0: never
    uint64_t reads_since; // when a keeper began such a read, 0: none does
};

typedef struct {
    vj_watch *watch;
    uint64_t resident;     // sum of the resident sizes, with what is swapped out
    uint64_t proportional; // each shared page divided among those that have it
    int exactly;           // whether the second is wanted
} memory_sums;

// ---- numbers in files --------------------------------------------------------

static uint64_t number_at(const char *text, const char *end) {
    uint64_t number = 0;
    while (text < end && (*text == ' ' || *text == '\t')) text++;
    while (text < end && *text >= '0' && *text <= '9') {
        number = number * 10 + (uint64_t)(*text++ - '0');
    }
    return number;
}

// The number behind `name` at the start of a line; 0 when there is no such line.
static uint64_t named_number(const char *text, long size, const char *name) {
    long length = (long)strlen(name);
    for (long at = 0; at + length < size; at++) {
        if ((at == 0 || text[at - 1] == '\n') && !memcmp(text + at, name, (size_t)length))
            return number_at(text + at + length, text + size);
    }
    return 0;
}

// ---- cgroups -----------------------------------------------------------------

void vj_groups_join(vj_setup *setup) {
    const vj_tree_limits *tree = &setup->plan->tree;
    long result = 0;
    for (uint32_t i = 0; result >= 0 && i < tree->groups; i++) {
        result = sys(SYS_write, VJ_FD_GROUPS + (int)i, "0", 1); // whoever writes it
    }
    // What is not there may be a file that the host left open to its programs.
    unsigned last = VJ_FD_COUNTERS + (tree->counters ? 0 : VJ_COUNTERS) - 1;
    if (result >= 0) result = sys(SYS_close_range, VJ_FD_GROUPS, last, 0);
    for (uint32_t i = 0; result >= 0 && i < tree->counters; i++) {
        result = sys(SYS_fcntl, VJ_FD_COUNTERS + (int)i, F_SETFD, FD_CLOEXEC);
    }
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_GROUP, result);
}

static uint64_t kills(void) {
    char text[512];
    long size =
        sys(SYS_pread64, VJ_FD_COUNTERS + VJ_COUNTER_EVENTS, text, sizeof text, 0);
    // memory.events of cgroup v2 and memory.oom_control of v1 write it alike.
    return named_number(text, size, "oom_kill ");
}

static uint64_t usage(void) {
    char text[64];
    long size = sys(SYS_pread64, VJ_FD_COUNTERS + VJ_COUNTER_USAGE, text, sizeof text, 0);
    return size > 0 ? number_at(text, text + size) : 0;
}

static int has_room(const vj_setup *setup) {
    uint64_t limit = setup->plan->tree.memory_bytes;
    return usage() < limit - limit / STUCK_ROOM;
}

// The count rises when the kernel sends the signal. A process that ends so leaves the
// list of those that may be chosen before all of its memory is counted as free: what a
// keeper allocates in between has the kernel end the keeper, and so the jail. To look at
// the counters allocates nothing.
static int is_given_back(const vj_setup *setup, vj_memory *memory) {
    uint64_t time = vj_clock();
    if (!memory->killed_at) memory->killed_at = time;
    return has_room(setup) || time >= memory->killed_at + GIVE_BACK_NS;
}

// The kernel ends nothing while it can still drop pages of files. A jail whose own
// programs are all that is left to drop reads them again and again, for minutes, and
// gets nowhere. It is at its limit like any other: this sees it.
static int is_stuck(const vj_setup *setup, vj_memory *memory) {
    uint64_t limit = setup->plan->tree.memory_bytes;
    uint64_t time = vj_clock();
    if (time < memory->look_at) return 0;
    memory->look_at = time + STUCK_LOOK_NS;
    if (has_room(setup)) {
        memory->stuck = 0;
        return 0;
    }
    static char text[8192];
    long size =
        sys(SYS_pread64, VJ_FD_COUNTERS + VJ_COUNTER_STATISTICS, text, sizeof text, 0);
    uint64_t files = named_number(text, size, "active_file ") +
                     named_number(text, size, "inactive_file ");
    uint64_t before = memory->refaults;
    memory->refaults = named_number(text, size, "workingset_refault_file ");
    int stuck = files < limit / STUCK_FILES && memory->refaults > before + STUCK_REFAULTS;
    // The first look only learns the count.
    memory->stuck = stuck && before ? memory->stuck + 1 : 0;
    return memory->stuck >= STUCK_LOOKS;
}

// ---- the watch -----------------------------------------------------------------

void vj_watch_prepare(vj_setup *setup) {
    if (!setup->plan->tree.watch_bytes) return;
    long page = vj_call(SYS_mmap, 0, SHARED_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page < 0 && page > -4096) vj_setup_fail(setup, VJ_STAGE_LIMITS, page);
    setup->watch = (vj_watch *)page;
}

static long read_of(int folder, const char *process, const char *name, char *text,
                    size_t size) {
    char path[64];
    vj_text at = {.data = path, .capacity = sizeof path};
    vj_text_string(&at, process);
    vj_text_string(&at, name);
    if (at.overflow) return -ENAMETOOLONG;
    VJ_AUTO_FD file = (int)sys(SYS_openat, folder, path, O_RDONLY | O_CLOEXEC, 0);
    return file < 0 ? file : sys(SYS_read, file, text, size);
}

// Add what a process has, as one of its threads shows it: a thread that has ended shows
// no memory, though the others go on with all of it. -EALREADY: it was added.
static long add_as_seen(int folder, const char *name, void *context) {
    memory_sums *sums = context;
    // The groups of the caller stand in it before the sizes.
    static char text[STATUS_BYTES];
    long size = read_of(folder, name, "/status", text, sizeof text);
    uint64_t resident = named_number(text, size, "VmRSS:");
    uint64_t swapped = named_number(text, size, "VmSwap:");
    // A page for each 2 MiB of the address space that was ever looked at.
    uint64_t tables = named_number(text, size, "VmPTE:");
    if (!resident && !tables) return 0;
    sums->resident += (resident + swapped + tables) * 1024;
    if (!sums->exactly) return -EALREADY;
    __atomic_store_n(&sums->watch->reads_since, vj_clock(), __ATOMIC_RELAXED);
    size = read_of(folder, name, "/smaps_rollup", text, sizeof text);
    __atomic_store_n(&sums->watch->reads_since, 0, __ATOMIC_RELAXED);
    // A guest can close this file to others, not the one above.
    if (size > 0) {
        resident = named_number(text, size, "Pss:");
        swapped = named_number(text, size, "SwapPss:");
    }
    sums->proportional += (resident + swapped + tables) * 1024;
    return -EALREADY;
}

static long add_process(int proc, const char *process, void *context) {
    if (!add_as_seen(proc, process, context)) {
        vj_tree_each_thread(proc, process, add_as_seen, context);
    }
    return 0;
}

static void measure(const vj_setup *setup) {
    vj_watch *watch = setup->watch;
    uint64_t start = vj_clock();
    if (start < __atomic_load_n(&watch->next, __ATOMIC_RELAXED)) return;
    __atomic_store_n(&watch->next, start + WATCH_NS, __ATOMIC_RELAXED);
    const vj_tree_limits *tree = &setup->plan->tree;
    memory_sums sums = {.watch = watch};
    vj_tree_each(add_process, &sums);
    uint64_t sum = sums.resident;
    if (sum > tree->watch_bytes) {
        sums = (memory_sums){.watch = watch, .exactly = 1};
        vj_tree_each(add_process, &sums);
        sum = sums.proportional;
    }
    uint64_t end = vj_clock();
    uint64_t next = start + (end - start) * (MOST_OF_TIME + 1);
    if (next > start + WATCH_NS) __atomic_store_n(&watch->next, next, __ATOMIC_RELAXED);
    __atomic_store_n(&watch->sum, sum, __ATOMIC_RELAXED);
    if (sum > tree->watch_bytes) {
        __atomic_store_n(&watch->over_at, end, __ATOMIC_RELAXED);
    }
}

int vj_watch_is_stuck(const vj_setup *setup) {
    if (!setup->watch) return 0;
    uint64_t since = __atomic_load_n(&setup->watch->reads_since, __ATOMIC_RELAXED);
    return since && vj_clock() > since + READS_MOST_NS;
}

// ---- for a keeper --------------------------------------------------------------

void vj_memory_begin(const vj_setup *setup, vj_memory *memory) {
    *memory = (vj_memory){.started = vj_clock()};
    if (setup->plan->tree.counters) memory->kills = kills();
}

int vj_memory_is_bounded(const vj_setup *setup) {
    return setup->plan->tree.counters || setup->watch;
}

int vj_memory_is_over(const vj_setup *setup, vj_memory *memory, int at_once) {
    if (setup->plan->tree.counters) {
        if (kills() > memory->kills) return at_once || is_given_back(setup, memory);
        if (is_stuck(setup, memory)) return 1;
    }
    if (!setup->watch) return 0;
    measure(setup);
    uint64_t sum = __atomic_load_n(&setup->watch->sum, __ATOMIC_RELAXED);
    if (sum > memory->watched) memory->watched = sum;
    return __atomic_load_n(&setup->watch->over_at, __ATOMIC_RELAXED) > memory->started;
}
