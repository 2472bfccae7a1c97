// Canaries: forbidden acts, tried inside the jail by a confined child, before the
// jail is ready. The answers go to the host as one int32 each: the errno that the
// act got, 0 if it succeeded (which ends the jail), -1 if it says nothing here.
//
// The order is that of CANARIES in src/visruntime/_jail/canaries.py.

#include "linux_canary.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/in.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NOT_APPLICABLE  (-1)
#define LANDLOCK_SCOPES 6u // the first ABI that scopes signals
#define LOWEST_PRIORITY 19
#define STRANGERS_MAX   128

static int32_t answer(long result) {
    return result < 0 ? (int32_t)-result : 0;
}

// An address that is nobody's (TEST-NET-1, RFC 5737); without a route the
// kernel refuses before anything is sent.
static long connect_outside(void) {
    VJ_AUTO_FD socket =
        (int)sys(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) return socket;
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = 0x0900; // discard, in network order
    address.sin_addr.s_addr = __builtin_bswap32(0xc0000201);
    return sys(SYS_connect, socket, &address, sizeof address);
}

static long connect_unix(const char *path) {
    VJ_AUTO_FD socket = (int)sys(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return socket;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    vj_text text = {.data = address.sun_path, .capacity = sizeof address.sun_path};
    vj_text_string(&text, path);
    return sys(SYS_connect, socket, &address, sizeof address);
}

// By a name that the kernel chooses. Not without namespaces, where no AF_UNIX socket is
// made.
void vj_canary_stranger_make(vj_setup *setup) {
    if (setup->plan->backend == VJ_BACKEND_LANDLOCK) return;
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    long made = sys(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    long result = made;
    if (made >= 0) result = sys(SYS_bind, made, &any, sizeof any.sun_family);
    if (result >= 0) result = sys(SYS_listen, made, STRANGERS_MAX);
    // Above the standard descriptors, which are about to be closed.
    if (result >= 0) result = sys(SYS_fcntl, made, F_DUPFD_CLOEXEC, VJ_FD_FIRST_FREE);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_CANARIES, result);
    sys(SYS_close, made);
    setup->stranger = (int)result;
}

// Without waiting: with the host's network others could fill its queue.
static long connect_stranger(int stranger) {
    VJ_AUTO_FD socket =
        (int)sys(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) return socket;
    struct sockaddr_un address = {0};
    uint32_t size = sizeof address;
    long result = sys(SYS_getsockname, stranger, &address, &size);
    return result < 0 ? result : sys(SYS_connect, socket, &address, size);
}

// The filter answers before anything is looked at.
static long make_set_id_file(void) {
    vj_canary_name name;
    long result = vj_canary_name_choose(&name);
    if (result < 0) return result;
    VJ_AUTO_FD folder =
        (int)sys(SYS_openat, AT_FDCWD, "/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    long file = sys(SYS_openat, folder, name.text,
                    O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 04700);
    if (file < 0) return file;
    sys(SYS_close, file);
    result = sys(SYS_unlinkat, folder, name.text, 0);
    return result < 0 ? -result : 0;
}

static long make_in_root(void) {
    VJ_AUTO_FD root =
        (int)sys(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    return root < 0 ? root : vj_canary_make_directory_in(root);
}

static long open_and_close(const char *path, int flags) {
    long file =
        sys(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (file < 0) return file;
    sys(SYS_close, file);
    return 0;
}

static long open_and_close_socket(void) {
    long socket = sys(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket >= 0) sys(SYS_close, socket);
    return socket;
}

static long hold_no_capability(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct held[2] = {{0}};
    long result = sys(SYS_capget, &header, held);
    if (result < 0) return result;
    uint32_t any =
        held[0].effective | held[0].permitted | held[1].effective | held[1].permitted;
    return any ? 0 : -EPERM;
}

// Behind a guest's busy programs it would end nothing any more.
static long idle_the_supervisor(void) {
    int priority = 0;
    return sys(SYS_sched_setscheduler, sys(SYS_getppid), SCHED_IDLE, &priority);
}

static uint32_t fixed_acts(const vj_setup *setup, int32_t *answers) {
    int private_network = (setup->plan->flags & VJ_PLAN_PRIVATE_NETWORK) != 0;
    int on_host = setup->plan->backend == VJ_BACKEND_LANDLOCK;
    int empty_root =
        !vj_plan_string(setup->plan, vj_plan_operations(setup->plan)->source)[0];
    uint32_t count = 0;
    answers[count++] = answer(sys(SYS_mount, "none", "/tmp", "tmpfs", 0, 0));
    answers[count++] = answer(sys(SYS_unshare, CLONE_NEWUSER));
    answers[count++] = answer(make_in_root());
    // The mounts let everyone list the empty root; only Landlock does not.
    answers[count++] = setup->ruleset >= 0 && empty_root
                           ? answer(open_and_close("/", O_RDONLY | O_DIRECTORY))
                           : NOT_APPLICABLE;
    answers[count++] = answer(sys(SYS_socket, AF_PACKET, SOCK_RAW, 0));
    answers[count++] = private_network ? answer(connect_outside()) : NOT_APPLICABLE;
    answers[count++] = answer(sys(SYS_io_uring_setup, 1, 0));
    answers[count++] = answer(open_and_close("/proc/sys/kernel/core_pattern", O_WRONLY));
    answers[count++] = answer(make_set_id_file());
    answers[count++] = setup->landlock_abi >= LANDLOCK_SCOPES
                           ? answer(sys(SYS_kill, sys(SYS_getppid), 0))
                           : NOT_APPLICABLE;
    answers[count++] = answer(sys(SYS_ptrace, PTRACE_ATTACH, sys(SYS_getppid), 0, 0));
    answers[count++] = answer(hold_no_capability());
    // No socket: the kernel would refuse the connection, only the broker denies it.
    int brokered = (setup->plan->flags & VJ_PLAN_BROKER_SOCKETS) != 0;
    answers[count++] = brokered ? answer(connect_unix("/proc")) : NOT_APPLICABLE;
    answers[count++] =
        brokered ? answer(sys(SYS_socket, AF_UNIX, SOCK_DGRAM, 0)) : NOT_APPLICABLE;
    // What only a jail without namespaces has to refuse.
    answers[count++] = on_host ? answer(open_and_close_socket()) : NOT_APPLICABLE;
    answers[count++] =
        on_host ? answer(sys(SYS_fchmodat, AT_FDCWD, "/dev/null", 0666)) : NOT_APPLICABLE;
    answers[count++] =
        on_host ? answer(open_and_close("/proc/self/status", O_RDONLY)) : NOT_APPLICABLE;
    answers[count++] = answer(idle_the_supervisor());
    answers[count++] =
        answer(sys(SYS_setpriority, PRIO_PROCESS, sys(SYS_getppid), LOWEST_PRIORITY));
    answers[count++] =
        setup->stranger >= 0 ? answer(connect_stranger(setup->stranger)) : NOT_APPLICABLE;
    return count;
}

// A folder that others exchange for a link meanwhile is not the one of the policy.
static long open_denied(const char *path) {
    long place = vj_open_no_links(AT_FDCWD, path);
    return place == -ELOOP || place == -ENOTDIR ? -ESTALE : place;
}

// A folder is tried with an empty file in it: the kernel says that it is no program
// (ENOEXEC) only where it would have executed one.
static long execute(const char *path) {
    static const char *const nothing[] = {0};
    vj_canary_name name;
    long result = vj_canary_name_choose(&name);
    if (result < 0) return result;
    VJ_AUTO_FD place = (int)open_denied(path);
    if (place < 0) return place;
    long file = sys(SYS_openat, place, name.text,
                    O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0700);
    if (file == -ENOTDIR) return sys(SYS_faccessat, AT_FDCWD, path, 1 /* X_OK */);
    if (file < 0) return file;
    sys(SYS_close, file);
    result = sys(SYS_execveat, place, name.text, nothing, nothing, AT_SYMLINK_NOFOLLOW);
    long gone = sys(SYS_unlinkat, place, name.text, 0);
    if (gone < 0 && gone != -ENOENT) return -gone;
    return result == -ENOEXEC ? 0 : result;
}

static long write_to(const char *path) {
    long result = open_and_close(path, O_WRONLY);
    // A program that runs: the kernel says so before it looks at the mount.
    if (result == -ETXTBSY) return sys(SYS_faccessat, AT_FDCWD, path, 2 /* W_OK */);
    if (result != -EISDIR) return result;
    VJ_AUTO_FD place = (int)open_denied(path);
    return place < 0 ? place : vj_canary_make_directory_in(place);
}

// A link that could be moved is back under its name at once.
static long move_link(const char *path) {
    const char *name = 0;
    vj_canary_name other;
    long result = vj_canary_name_choose(&other);
    if (result < 0) return result;
    VJ_AUTO_FD above = (int)vj_open_above(AT_FDCWD, path, &name);
    if (above < 0) return above;
    result = sys(SYS_renameat2, above, name, above, other.text, RENAME_NOREPLACE);
    if (result < 0) return result;
    return sys(SYS_renameat2, above, other.text, above, name, RENAME_NOREPLACE);
}

static long try_path(char act, const char *path) {
    switch (act) {
    case 'r': return open_and_close(path, O_RDONLY);
    case 'w': return write_to(path);
    case 'x': return execute(path);
    case 'c': return vj_canary_make(path);        // of the wall
    case 'b': return vj_canary_make_simply(path); // of the broker
    case 'l': return move_link(path);
    default: return -ENOSYS;
    }
}

typedef struct {
    const vj_setup *setup;
    int32_t *answers;
    uint32_t count;
    vj_stage stage;
    long error;
    int32_t index; // of the act that ends the opening
} trial;

// The answer of the act at `index`; false if there is none to judge, for which the
// opening ends.
static int is_answered(trial *state, uint32_t index, long result) {
    if (result <= 0 && result != -ESTALE) return 1;
    state->stage = result > 0 ? VJ_STAGE_LEFT : VJ_STAGE_SOURCE_CHANGED;
    state->error = result > 0 ? -result : result;
    state->index = (int32_t)index;
    return 0;
}

// What the wall alone answered, in the order of the acts.
static int32_t wall_answers[VJ_ANSWERS_MAX];

static int try_wall(void *argument) {
    trial *state = argument;
    const vj_plan *plan = state->setup->plan;
    state->error = vj_confine(state->setup, &state->stage);
    if (state->error < 0) return 125;
    const vj_operation *operations = vj_plan_operations(plan);
    for (uint32_t i = 0; i < plan->operation_count && state->count < VJ_ANSWERS_MAX;
         i++) {
        if (operations[i].kind != VJ_OPERATION_TRY || operations[i].mode != 'c') continue;
        long result = vj_canary_make(vj_plan_string(plan, operations[i].path));
        if (!is_answered(state, i, result)) return 125;
        state->answers[state->count++] = answer(result);
    }
    return 0;
}

static int try_all(void *argument) {
    trial *state = argument;
    const vj_plan *plan = state->setup->plan;
    state->error = vj_confine(state->setup, &state->stage);
    if (state->error < 0) return 125;
    state->count = fixed_acts(state->setup, state->answers);
    const vj_operation *operations = vj_plan_operations(plan);
    int tried_before = (plan->flags & VJ_PLAN_BROKER_NAMES) != 0;
    uint32_t of_wall = 0;
    int brokered = 0;
    for (uint32_t i = 0; i < plan->operation_count && state->count < VJ_ANSWERS_MAX;
         i++) {
        if (operations[i].kind != VJ_OPERATION_TRY) continue;
        char act = (char)operations[i].mode;
        const char *path = vj_plan_string(plan, operations[i].path);
        int32_t *place = &state->answers[state->count++];
        if (act == 'c' && tried_before) {
            *place = wall_answers[of_wall++];
            continue;
        }
        long result =
            act == 'b' && !brokered++ ? vj_canary_make(path) : try_path(act, path);
        if (!is_answered(state, i, result)) return 125;
        *place = answer(result);
    }
    return 0;
}

// Wait for the child that tries, and end the opening if it could not.
static void finish(const trial *state, long pid) {
    if (pid < 0) vj_setup_fail(state->setup, VJ_STAGE_CANARIES, pid);
    int status = 0;
    sys(SYS_wait4, pid, &status, 0, 0);
    if (state->error < 0) {
        vj_setup failed = *state->setup;
        failed.failed_index = state->index;
        vj_setup_fail(&failed, state->stage, state->error);
    }
    if (status != 0) vj_setup_fail(state->setup, VJ_STAGE_CANARIES, -EIO);
}

// A child with a memory of its own, but for `state` and the answers, which it
// shares: the broker must be able to read it, and pid 1 must not be readable.
static long start_readable(trial *state) {
    long pid = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid != 0) return pid;
    sys(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
    vj_exit_process(try_all(state));
}

typedef struct {
    trial state;
    int32_t answers[VJ_ANSWERS_MAX];
} shared_trial;

static uint32_t try_with_broker(const vj_setup *setup, int32_t *answers) {
    long address = vj_call(SYS_mmap, 0, sizeof(shared_trial), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (address < 0 && address > -4096) {
        vj_setup_fail(setup, VJ_STAGE_CANARIES, address);
    }
    shared_trial *shared = (shared_trial *)address;
    shared->state = (trial){.setup = setup, .answers = shared->answers, .index = -1};
    finish(&shared->state, start_readable(&shared->state));
    memcpy(answers, shared->answers, sizeof shared->answers);
    uint32_t count = shared->state.count;
    sys(SYS_munmap, address, sizeof *shared);
    return count;
}

static char stack[32768] __attribute__((aligned(16)));

void vj_canaries_try_wall(const vj_setup *setup) {
    trial state = {.setup = setup, .answers = wall_answers, .index = -1};
    finish(&state, vj_spawn_shared(try_wall, &state, stack + sizeof stack));
}

uint32_t vj_canaries_try(const vj_setup *setup, int32_t answers[VJ_ANSWERS_MAX]) {
    if (setup->plan->flags & VJ_PLAN_BROKER) return try_with_broker(setup, answers);
    trial state = {.setup = setup, .answers = answers, .index = -1};
    finish(&state, vj_spawn_shared(try_all, &state, stack + sizeof stack));
    return state.count;
}
