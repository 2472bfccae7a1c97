// What the broker makes of a call of a guest, whatever the guest and the kernel say.
//
// sources: native/visjail/linux_text.c
// libraries: -no-pie -Wl,--unresolved-symbols=ignore-in-object-files
//
// The broker's own code runs on a kernel of this file: a few folders, of which some are
// behind a wall, descriptors, and the memory of a guest that may hold something else each
// time it is read. Any call may fail with any errno. What must hold whatever comes:
//
//   - it stays within its memory (AddressSanitizer) and what C defines (UBSan);
//   - each call is answered once, and no descriptor is left behind: the broker lives as
//     long as the jail;
//   - a name is only made after the guest was asked for since it was last looked at;
//   - no name that is held is made, whichever path, descriptor or link leads to it;
//   - a socket is only led to what is granted, and never by the guest's own call;
//   - what it records of a refusal stays within the ring of the run that it is of.
#include "fuzz.h"

// What this header itself calls would go to the real kernel.
#define vj_close_slot close_for_real
#include "../../native/visjail/linux_init.h"
#undef vj_close_slot

static long model_call(long number, long a, long b, long c, long d, long e, long f);

static inline void vj_close_slot(const int *descriptor) {
    if (*descriptor >= 0) model_call(SYS_close, *descriptor, 0, 0, 0, 0, 0);
}

#define vj_call model_call

#include "../../native/visjail/linux_broker.c"
#include "../../native/visjail/linux_broker_guest.c"

// Names that two of the files have for themselves.
#define identify    identify_object
#define open_object open_socket_object
#include "../../native/visjail/linux_broker_connect.c"
#undef identify
#undef open_object
#include "../../native/visjail/linux_broker_names.c"
#include "../../native/visjail/linux_broker_target.c"
#define to bind_to
#include "../../native/visjail/linux_broker_bind.c"
#undef to
#include "../../native/visjail/linux_broker_create.c"
#include "../../native/visjail/linux_broker_refuse.c"

// ---- the files of the model ------------------------------------------------

static const struct {
    const char *path;
    const char *link; // where it leads, for a link
    int is_folder;
} nodes[] = {
    {"/", NULL, 1},
    {"/w", NULL, 1},
    {"/w/a", NULL, 1},
    {"/w/a/b", NULL, 1},
    {"/w/free", NULL, 1},
    {"/w/free/x", NULL, 1},
    {"/w/file", NULL, 0},
    {"/w/link", "/w/a", 0},
    {"/w/free/up", "../a/b", 0},
    {"/out", NULL, 1},
    {"/out/granted", NULL, 0}, // sockets
    {"/out/other", NULL, 0},
    // What may come later: a guest makes the first, the host the other.
    {"/w/a/b/deep", NULL, 1},
    {"/w/hold", NULL, 1},
};
#define NODES        (sizeof nodes / sizeof *nodes)
#define NODE_GRANTED 10
#define NODES_FIRST  12
// Names that are held, and the last folder on the way that is there when a jail opens.
// That and what is above it are mount points, which the kernel keeps where they are.
static const struct {
    const char *path;
    const char *above;
} held[] = {{"/w/hold", "/w"}, {"/w/a/b/deep/hold", "/w/a/b"}, {"/w/a/.x", "/w/a"}};
#define HELD (sizeof held / sizeof *held)

enum { FIRST_DESCRIPTOR = 100, DESCRIPTORS_MAX = 1024 };
enum { FREE_SLOT = 0, NODE, NEW_FILE, STATUS, PIDFD, SOCKET };
typedef struct {
    int kind;
    long node; // of a socket: its family
} slot;
static slot slots[DESCRIPTORS_MAX];
static fuzz_input *drawn;
static int serves;     // nothing fails before that
static int has_failed; // anything, in this call
static int guest_gone; // the guest, when it was asked for
static uint32_t node_count;
static int was_asked;    // for the guest, since it was last looked at
static uint32_t answers; // to the notification at hand
static uint32_t continued;
static uint64_t current_id;
static struct seccomp_notif current;

static long give(int kind, long node) {
    for (int i = 0; i < DESCRIPTORS_MAX; i++) {
        if (slots[i].kind) continue;
        slots[i] = (slot){.kind = kind, .node = node};
        return FIRST_DESCRIPTOR + i;
    }
    abort();
}

static slot *slot_of(long descriptor) {
    if (descriptor < FIRST_DESCRIPTOR) return NULL;
    if (descriptor >= FIRST_DESCRIPTOR + DESCRIPTORS_MAX) return NULL;
    slot *found = &slots[descriptor - FIRST_DESCRIPTOR];
    return found->kind ? found : NULL;
}

static long node_at(const char *path) {
    for (size_t i = 0; i < node_count; i++) {
        if (!strcmp(nodes[i].path, path)) return (long)i;
    }
    return -ENOENT;
}

// The object at `path` from the folder `start`.
static long resolve(long start, const char *path, int follow, int links) {
    char now[2 * VJ_PATH_MAX];
    if (links > 8) return -ELOOP;
    strcpy(now, path[0] == '/' ? "/" : nodes[start].path);
    long node = node_at(now);
    while (*path) {
        while (*path == '/') path++;
        size_t length = strcspn(path, "/");
        if (!length) break;
        if (length > 255) return -ENAMETOOLONG;
        if (!nodes[node].is_folder) return -ENOTDIR;
        if (length == 2 && !memcmp(path, "..", 2)) {
            char *slash = strrchr(now, '/');
            slash[slash == now ? 1 : 0] = 0;
        } else if (length != 1 || path[0] != '.') {
            size_t end = strlen(now);
            snprintf(now + end, sizeof now - end, "%s%.*s", end > 1 ? "/" : "",
                     (int)length, path);
        }
        path += length;
        long folder = node;
        node = node_at(now);
        if (node < 0) return node;
        if (nodes[node].link && (*path || follow)) {
            // A link in a folder starts from that folder.
            node = resolve(folder, nodes[node].link, 1, links + 1);
            if (node < 0) return node;
            strcpy(now, nodes[node].path);
        }
    }
    return node;
}

// ---- what must hold --------------------------------------------------------

// A name is made in the folder of `descriptor`, by `number`.
static void name_is_made(long descriptor, const char *name, long number) {
    FUZZ_CHECK(was_asked);
    const slot *folder = slot_of(descriptor);
    FUZZ_CHECK(folder && folder->kind == NODE && nodes[folder->node].is_folder);
    size_t length = strlen(name);
    while (length && name[length - 1] == '/') length--;
    FUZZ_CHECK(length && !memchr(name, '/', length));
    FUZZ_CHECK(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
    char path[2 * VJ_PATH_MAX];
    const char *above = nodes[folder->node].path;
    snprintf(path, sizeof path, "%s/%.*s", strcmp(above, "/") ? above : "", (int)length,
             name);
    size_t size = strlen(path);
    for (size_t i = 0; i < HELD; i++) {
        const char *name_held = held[i].path;
        size_t whole = strlen(name_held);
        int is_below = size >= whole && !memcmp(path, name_held, whole) &&
                       (path[whole] == '/' || !path[whole]);
        int is_above = size > strlen(held[i].above) && size < whole &&
                       !memcmp(path, name_held, size) && name_held[size] == '/';
        FUZZ_CHECK(!is_below && (!is_above || number == SYS_mkdirat));
    }
    // A guest makes what is not behind the wall itself. (Of a move one end may be.)
    int is_free = !strncmp(above, "/w/free", 7) || !strncmp(above, "/out", 4);
    FUZZ_CHECK(has_failed || number == SYS_renameat2 || (!is_free && strcmp(above, "/")));
}

static void mode_is_plain(long mode) {
    FUZZ_CHECK(!(mode & SET_ID_BITS));
}

// ---- the calls of the model ------------------------------------------------

static const char *const words_of_guests[] = {
    "hold",
    "/w/hold",
    "a",
    "/w/a/b/deep",
    "deep/hold",
    "b/deep",
    "/w/link/.x",
    "up/deep",
    "/proc/self/fd/3/",
    "/dev/fd/4/hold",
    "/proc/self/fd/",
    "../",
    "new",
    "/w/free/new",
    "/out/granted",
    "/out/other",
    "/proc/self/cwd/x",
    "/w//a/./b/../new",
    ".x/",
    "s",
};
#define WORDS (sizeof words_of_guests / sizeof *words_of_guests)

// One read of the guest's memory: words, bytes, or less than was asked for.
static long read_guest(const struct iovec *here, const struct iovec *there) {
    was_asked = 0;
    size_t size = here->iov_len;
    char *bytes = here->iov_base;
    FUZZ_CHECK(size <= VJ_PATH_MAX && size == there->iov_len);
    uint32_t kind = fuzz_below(drawn, 16);
    if (!kind) return -EFAULT;
    size_t got = kind == 1 ? 1 + fuzz_below(drawn, (uint32_t)size) : size;
    if (kind == 2) { // without an end
        memset(bytes, 'l', got);
    } else if (kind == 3) {
        fuzz_take(drawn, bytes, got);
    } else {
        memset(bytes, 0, got);
        size_t at = 0;
        if (current.data.nr == SYS_connect || current.data.nr == SYS_bind) {
            uint16_t family = fuzz_below(drawn, 8) ? AF_UNIX : AF_INET;
            memcpy(bytes, &family, got < 2 ? got : 2);
            at = 2;
        }
        uint32_t count = 1 + fuzz_below(drawn, 3);
        for (uint32_t i = 0; i < count && at < got; i++) {
            const char *word = words_of_guests[fuzz_below(drawn, WORDS)];
            size_t length = strlen(word);
            if (length > got - at) length = got - at;
            memcpy(bytes + at, word, length);
            at += length;
            if (i + 1 < count && at < got) bytes[at++] = '/';
        }
    }
    return (long)got;
}

static long open_model(long directory, const char *path, long flags, long mode) {
    if (!strncmp(path, "/proc/", 6)) {
        was_asked = 0;
        FUZZ_CHECK(!(flags & O_CREAT));
        if (strstr(path, "/status")) return give(STATUS, atol(path + strlen("/proc/")));
        uint32_t node = fuzz_below(drawn, node_count);
        if (flags & O_DIRECTORY && !nodes[node].is_folder) return -ENOTDIR;
        return give(NODE, node);
    }
    const slot *start = slot_of(directory);
    if (path[0] != '/') FUZZ_CHECK(start && start->kind == NODE);
    if (flags & O_CREAT) {
        FUZZ_CHECK((flags & (O_EXCL | O_NOFOLLOW)) == (O_EXCL | O_NOFOLLOW));
        mode_is_plain(mode);
        name_is_made(directory, path, SYS_openat);
        return give(NEW_FILE, 0);
    }
    long node = resolve(start ? start->node : 0, path, !(flags & O_NOFOLLOW), 0);
    if (node >= 0 && (flags & O_DIRECTORY) && !nodes[node].is_folder) return -ENOTDIR;
    return node < 0 ? node : give(NODE, node);
}

static long look(long directory, const char *path, struct statx *status) {
    const slot *start = slot_of(directory);
    if (start && start->kind != NODE) return -EBADF;
    long node = path[0] ? resolve(start ? start->node : 0, path, 0, 0)
                        : (start ? start->node : -EBADF);
    if (node < 0) return node;
    status->stx_dev_minor = 1;
    status->stx_ino = (uint64_t)node + 1;
    status->stx_nlink = fuzz_below(drawn, 2);
    return 0;
}

// A thread of process 77, whose parents lead to the keeper, or anywhere else.
enum { GUEST = 77, KEEPER = 40 };
static long read_status(long process, char *to, size_t size) {
    char text[96];
    long parent = process == GUEST ? 50 : process == 50 ? KEEPER : 1;
    if (!fuzz_below(drawn, 12)) parent = (long)fuzz_below(drawn, 99) - 1;
    int length =
        snprintf(text, sizeof text, "Name:\tx\nUmask:\t0022\nTgid:\t%d\nPPid:\t%ld\n",
                 GUEST, parent);
    size_t got = (size_t)length < size ? (size_t)length : size;
    memcpy(to, text, got);
    if (!fuzz_below(drawn, 8)) fuzz_take(drawn, to, got);
    return (long)got;
}

static long where(const char *link, char *to, size_t size) {
    const slot *found = slot_of(atol(link + strlen("/proc/self/fd/")));
    FUZZ_CHECK(found && found->kind == NODE);
    const char *path = nodes[found->node].path;
    uint32_t kind = fuzz_below(drawn, 32);
    has_failed |= kind < 2;
    if (kind == 0 && serves) { // longer than there is room for, or out of sight
        memset(to, 'p', size);
        return (long)size;
    }
    if (kind == 1 && serves) path = "(unreachable)/x";
    size_t length = strlen(path);
    FUZZ_CHECK(length < size);
    memcpy(to, path, length);
    return (long)length;
}

static long control(long request_number, void *argument) {
    switch ((unsigned long)request_number) {
    case SECCOMP_IOCTL_NOTIF_RECV: *(struct seccomp_notif *)argument = current; return 0;
    case SECCOMP_IOCTL_NOTIF_ID_VALID:
        FUZZ_CHECK(*(uint64_t *)argument == current_id);
        was_asked = fuzz_below(drawn, 32) != 0;
        guest_gone |= !was_asked;
        return was_asked ? 0 : -ENOENT;
    case SECCOMP_IOCTL_NOTIF_SEND: {
        const struct seccomp_notif_resp *answer = argument;
        FUZZ_CHECK(answer->id == current_id && answer->error <= 0);
        if (answer->flags & SECCOMP_USER_NOTIF_FLAG_CONTINUE) {
            FUZZ_CHECK(answer->error == 0 && answer->val == 0);
            continued++;
        }
        answers++;
        return 0;
    }
    case SECCOMP_IOCTL_NOTIF_ADDFD: {
        const struct seccomp_notif_addfd *given = argument;
        const slot *file = slot_of((int)given->srcfd);
        FUZZ_CHECK(file && file->kind == NEW_FILE && given->id == current_id);
        FUZZ_CHECK(was_asked);
        return 5;
    }
    case SIOCUNIXFILE: return give(NODE, fuzz_below(drawn, node_count));
    default: abort();
    }
}

// connect(2): to the object, by a descriptor of the broker, or to no path at all.
static void is_led(long socket, const struct sockaddr_un *address, long length) {
    FUZZ_CHECK(length >= 0 && length <= (long)sizeof(struct sockaddr_storage));
    char copy[sizeof(struct sockaddr_storage) + 1] = {0};
    memcpy(copy, address, (size_t)length);
    const struct sockaddr_un *seen = (const void *)copy;
    if (slot_of(socket)->node != AF_UNIX) return; // its kernel takes no such address
    if (length <= 2 || seen->sun_family != AF_UNIX || !seen->sun_path[0]) return;
    FUZZ_CHECK(!strncmp(seen->sun_path, "/proc/self/fd/", 14));
    const slot *object = slot_of(atol(seen->sun_path + 14));
    FUZZ_CHECK(object && object->kind == NODE);
    int is_allowed = object->node == NODE_GRANTED;
    for (uint32_t i = 0; i < own_count; i++) {
        is_allowed |= own[i].inode == (uint64_t)object->node + 1;
    }
    FUZZ_CHECK(is_allowed);
}

static int may_fail(long number) {
    return number != SYS_close && number != SYS_ioctl && number != SYS_umask &&
           number != SYS_kill;
}

static long model_call(long number, long a, long b, long c, long d, long e, long f) {
    (void)f;
    static const int errors[] = {ENOENT, EACCES, ENOMEM, EINTR,
                                 EEXIST, EBADF,  EIO,    ELOOP};
    const char *text = (const char *)b;
    if (serves && may_fail(number) && !fuzz_below(drawn, 24)) {
        has_failed = 1;
        return -errors[fuzz_below(drawn, sizeof errors / sizeof *errors)];
    }
    switch (number) {
    case SYS_process_vm_readv: return read_guest((void *)b, (void *)d);
    case SYS_ioctl: return control(b, (void *)c);
    case SYS_openat: return open_model(a, text, c, d);
    case SYS_openat2: {
        const struct open_how *how = (const void *)c;
        FUZZ_CHECK(how->flags & O_PATH && how->resolve & RESOLVE_NO_MAGICLINKS);
        return open_model(a, text, (long)how->flags, 0);
    }
    case SYS_close: {
        slot *closed = slot_of(a);
        FUZZ_CHECK(closed); // not twice
        *closed = (slot){.kind = FREE_SLOT};
        return 0;
    }
    case SYS_statx: return look(a, text, (void *)e);
    case SYS_readlinkat: return where(text, (void *)c, (size_t)d);
    case SYS_read: return read_status(slot_of(a)->node, (void *)b, (size_t)c);
    case SYS_pidfd_open:
        was_asked = 0;
        return fuzz_below(drawn, 4) ? give(PIDFD, 0) : -EINVAL;
    case SYS_pidfd_getfd:
        was_asked = 0;
        return give(SOCKET, fuzz_below(drawn, 8) ? AF_UNIX : AF_INET);
    case SYS_fcntl: return give(NODE, slot_of(a)->node);
    case SYS_fchdir: FUZZ_CHECK(slot_of(a)); return 0;
    case SYS_umask: return 0;
    case SYS_getsockopt: *(int *)d = (int)slot_of(a)->node; return 0;
    case SYS_mkdirat:
        mode_is_plain(c);
        name_is_made(a, text, number);
        return 0;
    case SYS_mknodat:
        mode_is_plain(c);
        name_is_made(a, text, number);
        return 0;
    case SYS_symlinkat:
        FUZZ_CHECK(strlen((const char *)a) < VJ_PATH_MAX);
        name_is_made(b, (const char *)c, number);
        return 0;
    case SYS_linkat:
        FUZZ_CHECK(a == AT_FDCWD && slot_of(atol(text + strlen("/proc/self/fd/"))));
        name_is_made(c, (const char *)d, number);
        return 0;
    case SYS_renameat2:
        name_is_made(c, (const char *)d, number);
        if (e & RENAME_EXCHANGE) name_is_made(a, text, number);
        return 0;
    case SYS_connect: is_led(a, (const void *)b, c); return 0;
    case SYS_bind: {
        char copy[sizeof(struct sockaddr_storage)];
        FUZZ_CHECK(was_asked && c >= 0 && c <= (long)sizeof copy);
        memcpy(copy, (const void *)b, (size_t)c);
        return 0;
    }
    case SYS_clone: return 4242;
    case SYS_mmap: { // the places, once in the life of a broker
        static char room[4096] __attribute__((aligned(16)));
        FUZZ_CHECK((size_t)b <= sizeof room);
        return (long)room;
    }
    case SYS_wait4:
        *(int *)b = fuzz_below(drawn, 2) ? 0 : SIGSEGV;
        return fuzz_below(drawn, 2) ? 0 : a;
    case SYS_kill: return 0;
    default: fprintf(stderr, "call %ld\n", number); abort();
    }
}

// ---- one broker after the other --------------------------------------------

enum { OPERATIONS = 4, RULES = 3 };
static struct {
    vj_plan plan;
    vj_operation operations[OPERATIONS];
    vj_access_rule rules[RULES];
    char strings[256];
} plan;

static uint32_t string(const char *text) {
    static uint32_t end;
    uint32_t at = end;
    FUZZ_CHECK(end + strlen(text) < sizeof plan.strings);
    strcpy(plan.strings + end, text);
    end += (uint32_t)strlen(text) + 1;
    return (uint32_t)offsetof(__typeof__(plan), strings) + at;
}

static void write_plan(void) {
    static const struct {
        const char *path;
        vj_access access;
    } rules[RULES] = {{"/w", VJ_ACCESS_WALLED},
                      {"/w/free", VJ_ACCESS_WRITE},
                      {"/out", VJ_ACCESS_WRITE}};
    plan.plan.operation_count = OPERATIONS;
    plan.plan.access_count = RULES;
    for (size_t i = 0; i < HELD; i++) {
        plan.operations[i].kind = VJ_OPERATION_NAME;
        plan.operations[i].source = string(held[i].above);
        plan.operations[i].path = string(held[i].path);
    }
    plan.operations[HELD].kind = VJ_OPERATION_SOCKET;
    plan.operations[HELD].path = string(nodes[NODE_GRANTED].path);
    for (size_t i = 0; i < RULES; i++) {
        plan.rules[i].path = string(rules[i].path);
        plan.rules[i].access = rules[i].access;
    }
}

static const int numbers[] = {
    SYS_connect, SYS_bind,      SYS_openat, SYS_mkdirat,
    SYS_mknodat, SYS_symlinkat, SYS_linkat, SYS_renameat2,
#ifdef SYS_open
    SYS_open,    SYS_creat,     SYS_mkdir,  SYS_mknod,
    SYS_symlink, SYS_link,      SYS_rename, SYS_renameat,
#endif
};

static void draw_call(void) {
    static const int folders_of_guests[] = {AT_FDCWD, 3, 77, -1};
    memset(&current, 0, sizeof current);
    current.id = current_id;
    current.pid = 1 + fuzz_below(drawn, 99);
    current.data.nr = numbers[fuzz_below(drawn, sizeof numbers / sizeof *numbers)];
    for (int i = 0; i < 6; i++) {
        uint64_t *value = (uint64_t *)&current.data.args[i];
        switch (fuzz_below(drawn, 4)) {
        case 0:
            *value = (uint64_t)(int64_t)folders_of_guests[fuzz_below(drawn, 4)];
            break;
        case 1: *value = fuzz_below(drawn, sizeof(struct sockaddr_storage) + 2); break;
        case 2: *value = O_CREAT | fuzz_below(drawn, 0xffff); break;
        default: fuzz_take(drawn, value, sizeof *value); break;
        }
    }
    if (fuzz_below(drawn, 4)) {
        if (current.data.nr == SYS_connect || current.data.nr == SYS_bind) {
            current.data.args[2] = fuzz_below(drawn, sizeof(struct sockaddr_un) + 1);
        } else {
            current.data.args[0] = (uint64_t)(int64_t)AT_FDCWD;
            current.data.args[2] = (uint64_t)(int64_t)AT_FDCWD;
        }
    }
}

static vj_refusals refusals;
enum { REFUSALS_AT = 3, REFUSALS_OTHER = 4 }; // slots

static void begin_refusals(void) {
    memset(refusals.slots, 0, sizeof refusals.slots);
    memset(refusals.records[REFUSALS_AT], 0, sizeof refusals.records[REFUSALS_AT]);
    refusals.slots[REFUSALS_AT].keeper = KEEPER;
    refusals.slots[REFUSALS_AT].written = vj_refusal_count_of(7, 0);
    refusals.slots[REFUSALS_AT].read = vj_refusal_count_of(7, 0);
    refusals.slots[REFUSALS_AT].lost = vj_refusal_count_of(7, 0);
}

static void check_refusals(void) {
    static const vj_refusal none;
    vj_refusal_slot *slot = &refusals.slots[REFUSALS_AT];
    FUZZ_CHECK(slot->written >> 32 == 7 && slot->lost >> 32 == 7);
    uint32_t written = (uint32_t)slot->written;
    FUZZ_CHECK(written - (uint32_t)slot->read <= VJ_REFUSALS_MAX);
    for (uint32_t i = 0; i < written && i < VJ_REFUSALS_MAX; i++) {
        const vj_refusal *record =
            &refusals.records[REFUSALS_AT][(written - 1 - i) % VJ_REFUSALS_MAX];
        FUZZ_CHECK(record->number == slot->written - i);
        FUZZ_CHECK(record->kind && record->kind < VJ_REFUSAL_END && record->error > 0);
        FUZZ_CHECK(record->length <= VJ_REFUSAL_TEXT);
    }
    FUZZ_CHECK(!memcmp(&refusals.records[REFUSALS_OTHER], &none, sizeof none));
    if (!fuzz_below(drawn, 64)) // by the host
        slot->read = slot->written;
}

static void serve_one(service *state) {
    draw_call();
    was_asked = 0;
    has_failed = 0;
    guest_gone = 0;
    answers = 0;
    continued = 0;
    uint32_t waiting = state->waiting_count;
    take_one(state);
    if (state->waiting_count > waiting) { // what its child does
        const vj_broker_call *call = find_call(state->shared.setup, current.data.nr);
        reply(&state->shared, current_id, call->act(&state->shared, &current));
    }
    int number = current.data.nr;
    FUZZ_CHECK(answers == 1 || (answers == 0 && (guest_gone || has_failed)));
    uint32_t flags = state->shared.setup->plan->flags;
    int is_never_let =
        number == SYS_connect || (number == SYS_bind && !(flags & VJ_PLAN_BROKER_NAMES));
    FUZZ_CHECK(!continued || !is_never_let);
    check_refusals();
    if (fuzz_below(drawn, 2)) tend_waiting(state);
}

static uint32_t open_slots(void) {
    uint32_t count = 0;
    for (int i = 0; i < DESCRIPTORS_MAX; i++) count += slots[i].kind != FREE_SLOT;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    drawn = &input;
    if (!plan.plan.operation_count) write_plan();
    memset(slots, 0, sizeof slots);
    folder_count = name_count = place_count = own_count = granted_count = 0;
    serves = 0;
    node_count = NODES_FIRST;
    current_id = 1 + fuzz_below(&input, 9);
    static const uint32_t clauses[] = {VJ_PLAN_BROKER, VJ_PLAN_BROKER_NAMES,
                                       VJ_PLAN_BROKER_SOCKETS};
    plan.plan.flags = clauses[fuzz_below(&input, 3)];
    begin_refusals();
    const vj_setup setup = {
        .plan = &plan.plan, .scratch_device = 99, .refusals = &refusals};
    FUZZ_CHECK(vj_broker_sockets_prepare(&setup) == 0);
    FUZZ_CHECK(vj_broker_names_prepare(&setup) == 0);
    if (fuzz_below(&input, 2)) node_count = NODES;
    uint32_t held_open = open_slots();

    static service state;
    state = (service){.shared = {.setup = &setup, .listener = LISTENER}};
    if (!fuzz_below(&input, 16)) {
        state.waiting_count = WAITING_MAX;
        for (int i = 0; i < WAITING_MAX; i++) state.waiting[i].id = current_id;
    }
    serves = 1;
    while (input.left) {
        serve_one(&state);
        FUZZ_CHECK(open_slots() == held_open + own_count);
    }
    return 0;
}
