// Starting and ending jailed programs on macOS; see macos_seatbelt.h.
//
// A program is started by posix_spawn, without a copy of the host's memory: the helper
// gets a session of its own, the default of every signal, no variable, and no descriptor
// but those that are named here (POSIX_SPAWN_CLOEXEC_DEFAULT).

#include "macos_seatbelt.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "macos_end.h"
#include "macos_sandbox.h"

// Not in the headers that build without an SDK (util.h).
int openpty(int *master, int *slave, char *name, struct termios *modes,
            struct winsize *size);

#define SECOND_NS       1000000000u
#define START_TIMEOUT_S 30 // a large profile takes the kernel a second or more
#define FIRST_FREE      32 // above all numbers that the helper is given
#define GIVEN           (VJ_BRIEF_FD_FAILED + 1)
#define END_BOUND_NS    10000000000u
#define WATCHER_NS      2000000000u // for the watcher to end after it has ended a jail
#define MOMENT_NS       5000000

struct vj_macos_run {
    pid_t child;
    pid_t watcher;
    int events;           // kqueue
    int orders;           // to the watcher
    uint64_t deadline_ns; // when the watcher ends the jail; 0: never
    bool has_ended;
    vj_macos_exit result;
    char marker[VJ_MARKER_SIZE];
};

static vj_status failed(vj_error *error, uint32_t stage, const char *text) {
    return vj_fail(error, VJ_SYSTEM, stage, errno, text);
}

static uint64_t now_ns(void) {
    return clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW);
}

bool vj_macos_is_sandboxed(void) {
    // An error counts as a sandbox: what cannot be asked is not assumed.
    return sandbox_check(getpid(), NULL, VJ_SANDBOX_FILTER_NONE) != 0;
}

// ---- starting --------------------------------------------------------------

// A pipe whose ends no program inherits, with numbers that no descriptor of the helper
// has. Between the two calls another thread's fork can still take a copy along: macOS has
// no pipe2. Such a copy of the brief's end would only make the helper wait, and start
// fail at its bound.
static bool make_pipe(int ends[2]) {
    int made[2];
    if (pipe(made)) return false;
    ends[0] = fcntl(made[0], F_DUPFD_CLOEXEC, FIRST_FREE);
    ends[1] = fcntl(made[1], F_DUPFD_CLOEXEC, FIRST_FREE);
    int why = errno;
    close(made[0]);
    close(made[1]);
    errno = why;
    if (ends[0] >= 0 && ends[1] >= 0) return true;
    if (ends[0] >= 0) close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
    errno = why;
    return false;
}

static void end_pipe(int ends[2]) {
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) close(ends[i]);
        ends[i] = -1;
    }
}

static int fill_actions(posix_spawn_file_actions_t *actions, const int sources[GIVEN]) {
    for (int i = 0; i < GIVEN; i++) {
        if (sources[i] < 0) continue;
        int result = posix_spawn_file_actions_adddup2(actions, sources[i], i);
        if (result) return result;
    }
    return 0;
}

// So that a process answers for itself, and has nothing of what the user let this program
// do (camera, full access to the disk). No header declares it: looked up, so that a macOS
// without it refuses by name what it cannot start.
typedef int (*disclaim_function)(posix_spawnattr_t *attributes, int disclaim);

static disclaim_function find_disclaim(void) {
    return (disclaim_function)dlsym(RTLD_DEFAULT,
                                    "responsibility_spawnattrs_setdisclaim");
}

static int fill_attributes(posix_spawnattr_t *attributes) {
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    short flags = POSIX_SPAWN_CLOEXEC_DEFAULT | POSIX_SPAWN_SETSID |
                  POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    int result = posix_spawnattr_setflags(attributes, flags);
    if (!result) result = posix_spawnattr_setsigmask(attributes, &none);
    if (!result) result = posix_spawnattr_setsigdefault(attributes, &all);
    disclaim_function disclaim = find_disclaim();
    if (!result) result = disclaim ? disclaim(attributes, 1) : ENOSYS;
    return result;
}

// The program's descriptors are duplicated out of the way first: one of them could have a
// number that another one is about to get.
static int take_descriptors(const vj_macos_spawn *spawn, int sources[GIVEN]) {
    for (int i = 0; i < GIVEN; i++) sources[i] = -1;
    for (int i = 0; i < VJ_BRIEF_DESCRIPTORS; i++) {
        if (spawn->descriptors[i] < 0) continue;
        sources[i] = fcntl(spawn->descriptors[i], F_DUPFD_CLOEXEC, FIRST_FREE);
        if (sources[i] < 0) return errno;
    }
    return 0;
}

static int spawn_with(const char *program, char *const *arguments,
                      const int sources[GIVEN], pid_t *process) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *variables[] = {NULL};
    int result = posix_spawn_file_actions_init(&actions);
    if (result) return result;
    result = posix_spawnattr_init(&attributes);
    if (!result) {
        result = fill_actions(&actions, sources);
        if (!result) result = fill_attributes(&attributes);
        if (!result)
            result = posix_spawn(process, program, &actions, &attributes, arguments,
                                 variables);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

static int spawn_helper(const vj_macos_spawn *spawn, int brief, int answers,
                        pid_t *child) {
    int sources[GIVEN];
    char *arguments[] = {(char *)(uintptr_t)spawn->helper, NULL};
    int result = take_descriptors(spawn, sources);
    sources[VJ_BRIEF_FD] = brief;
    sources[VJ_BRIEF_FD_FAILED] = answers;
    if (!result) result = spawn_with(spawn->helper, arguments, sources, child);
    for (int i = 0; i < VJ_BRIEF_DESCRIPTORS; i++) {
        if (sources[i] >= 0) close(sources[i]);
    }
    return result;
}

// Who ends the jail if this process is killed. It is there before the program is.
static int spawn_watcher(const vj_macos_spawn *spawn, vj_macos_run *run) {
    char host[16];
    snprintf(host, sizeof host, "%d", getpid());
    char *arguments[] = {(char *)(uintptr_t)spawn->watcher,
                         (char *)(uintptr_t)spawn->marker, host, NULL};
    int sources[GIVEN];
    for (int i = 0; i < GIVEN; i++) sources[i] = -1;
    int orders[2] = {-1, -1};
    if (!make_pipe(orders)) return errno;
    sources[STDIN_FILENO] = orders[0];
    int result = fcntl(orders[1], F_SETNOSIGPIPE, 1) ? errno : 0;
    if (!result) result = spawn_with(spawn->watcher, arguments, sources, &run->watcher);
    close(orders[0]);
    run->orders = orders[1];
    return result;
}

// The jail is ended so many nanoseconds from now. False: nobody takes the order.
static bool order_end(const vj_macos_run *run, uint64_t after_ns) {
    ssize_t wrote = 0;
    do {
        wrote = write(run->orders, &after_ns, sizeof after_ns);
    } while (wrote < 0 && errno == EINTR);
    return wrote == (ssize_t)sizeof after_ns;
}

// Write all, within the time. The helper reads to the end before anything else.
static bool write_all(int pipe, const char *bytes, uint64_t size, uint64_t deadline) {
    if (fcntl(pipe, F_SETNOSIGPIPE, 1) || fcntl(pipe, F_SETFL, O_NONBLOCK)) return false;
    while (size) {
        ssize_t wrote = write(pipe, bytes, size);
        if (wrote > 0) {
            bytes += wrote;
            size -= (uint64_t)wrote;
            continue;
        }
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && errno != EAGAIN) return false;
        uint64_t now = now_ns();
        if (now >= deadline) {
            errno = ETIMEDOUT;
            return false;
        }
        struct pollfd wait = {.fd = pipe, .events = POLLOUT};
        poll(&wait, 1, (int)((deadline - now) / 1000000u) + 1);
    }
    return true;
}

// Read one record within the time. `*size` is 0 at the end of the pipe.
static bool read_record(int pipe, uint64_t deadline, vj_brief_failed *record,
                        uint64_t *size) {
    *size = 0;
    while (*size < sizeof *record) {
        uint64_t now = now_ns();
        if (now >= deadline) {
            errno = ETIMEDOUT;
            return false;
        }
        struct pollfd wait = {.fd = pipe, .events = POLLIN};
        int ready = poll(&wait, 1, (int)((deadline - now) / 1000000u) + 1);
        if (ready <= 0) continue;
        ssize_t got = read(pipe, (char *)record + *size, sizeof *record - *size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (!got) return true;
        *size += (uint64_t)got;
    }
    return true;
}

// What the helper says: that it is about to execute the program, and then nothing more.
static vj_status read_answer(int pipe, uint64_t deadline, vj_error *error) {
    bool is_ready = false;
    for (;;) {
        vj_brief_failed record = {0};
        uint64_t size = 0;
        if (!read_record(pipe, deadline, &record, &size))
            return failed(error, VJ_STAGE_SUPERVISOR, "hearing of the helper");
        if (is_ready && !size) return VJ_OK;
        vj_status status = vj_brief_failure(&record, size, error);
        if (status != VJ_OK) return status;
        is_ready = true;
    }
}

static vj_status make_brief(const vj_macos_spawn *spawn, void **block, uint64_t *size,
                            vj_error *error) {
    const vj_macos_profile *profile = spawn->profile;
    vj_brief_view view = {
        .header = {.flags = spawn->flags,
                   .parameters = profile->parameter_count,
                   .arguments = spawn->argument_count,
                   .environment = spawn->environment_count,
                   .host = getpid(),
                   .file = spawn->file,
                   .limit = spawn->limit,
                   .limits = spawn->limits},
        .profile = profile->text,
        .directory = spawn->directory,
        .canary = spawn->canary ? spawn->canary : "",
        .marker = spawn->marker,
        .arguments = (const char **)(uintptr_t)spawn->arguments,
        .environment = (const char **)(uintptr_t)spawn->environment,
    };
    view.parameters = calloc(2 * (size_t)profile->parameter_count + 1, sizeof(char *));
    if (!view.parameters)
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_REQUEST, 0, "no memory");
    const char *at = profile->parameters;
    for (uint32_t i = 0; i < 2 * profile->parameter_count; i++) {
        view.parameters[i] = at;
        at += strlen(at) + 1;
    }
    vj_status status = vj_brief_write(&view, block, size, error);
    free((void *)view.parameters);
    return status;
}

static void reap(vj_macos_run *run) {
    struct rusage usage;
    int status = 0;
    pid_t reaped = 0;
    do {
        reaped = wait4(run->child, &status, 0, &usage);
    } while (reaped < 0 && errno == EINTR);
    run->has_ended = true;
    if (reaped != run->child) {
        run->result.status = SIGKILL; // somebody else took its end: that is no success
        return;
    }
    run->result = (vj_macos_exit){
        .status = status,
        .user_us =
            (uint64_t)usage.ru_utime.tv_sec * 1000000u + (uint64_t)usage.ru_utime.tv_usec,
        .system_us =
            (uint64_t)usage.ru_stime.tv_sec * 1000000u + (uint64_t)usage.ru_stime.tv_usec,
        // macOS counts bytes where others count pages of a kibibyte.
        .resident_kib = (uint64_t)usage.ru_maxrss / 1024u,
    };
}

static vj_status watch(vj_macos_run *run, vj_error *error) {
    run->events = kqueue();
    if (run->events < 0) return failed(error, VJ_STAGE_HOST, "making a queue of events");
    if (fcntl(run->events, F_SETFD, FD_CLOEXEC))
        return failed(error, VJ_STAGE_HOST, "keeping a queue from programs");
    struct kevent ends;
    EV_SET(&ends, (uintptr_t)run->child, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL);
    if (!kevent(run->events, &ends, 1, NULL, 0, NULL)) return VJ_OK;
    if (errno != ESRCH) return failed(error, VJ_STAGE_HOST, "watching the program");
    // It has ended already, and waits to be reaped: nothing would tell of that again.
    struct kevent told[2];
    EV_SET(&told[0], 0, EVFILT_USER, EV_ADD, 0, 0, NULL);
    EV_SET(&told[1], 0, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL);
    if (kevent(run->events, told, 2, NULL, 0, NULL))
        return failed(error, VJ_STAGE_HOST, "telling of a program that has ended");
    return VJ_OK;
}

static vj_status start_helper(const vj_macos_spawn *spawn, vj_macos_run *run,
                              const void *block, uint64_t size, vj_error *error) {
    int brief[2] = {-1, -1};
    int answers[2] = {-1, -1};
    if (!make_pipe(brief)) return failed(error, VJ_STAGE_DESCRIPTORS, "making a pipe");
    if (!make_pipe(answers)) {
        vj_status status = failed(error, VJ_STAGE_DESCRIPTORS, "making a pipe");
        end_pipe(brief);
        return status;
    }
    int result = spawn_helper(spawn, brief[0], answers[1], &run->child);
    close(brief[0]);
    close(answers[1]);
    brief[0] = answers[1] = -1;
    vj_status status = VJ_OK;
    if (result) {
        run->child = 0;
        status =
            vj_fail(error, VJ_SYSTEM, VJ_STAGE_PROCESS, result, "starting the helper");
    } else {
        uint64_t deadline = now_ns() + (uint64_t)START_TIMEOUT_S * SECOND_NS;
        bool wrote = write_all(brief[1], block, size, deadline);
        int why = errno;
        close(brief[1]);
        brief[1] = -1;
        // A helper that stopped reading says why, unless it never began.
        status = read_answer(answers[0], deadline, error);
        if (status == VJ_OK && !wrote)
            status =
                vj_fail(error, VJ_SYSTEM, VJ_STAGE_REQUEST, why, "telling the helper");
    }
    end_pipe(brief);
    end_pipe(answers);
    return status;
}

static vj_status check_spawn(const vj_macos_spawn *spawn, vj_error *error) {
    if (spawn->size != sizeof *spawn || spawn->version != VJ_MACOS_SPAWN_VERSION)
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_REQUEST, 0,
                       "a spawn of another version");
    if (spawn->helper[0] != '/' || spawn->watcher[0] != '/' ||
        strlen(spawn->marker) != VJ_MARKER_SIZE - 1)
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_REQUEST, 0,
                       "helper and watcher have absolute paths, and a jail a marker");
    if (!strstr(spawn->profile->text, spawn->marker))
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_REQUEST, 0,
                       "the profile does not allow the jail's marker as a service");
    if (!find_disclaim())
        return vj_fail(
            error, VJ_REFUSED, VJ_STAGE_HOST, ENOSYS,
            "this macOS starts no process that answers for itself, so the guest "
            "could do what the user let this program do");
    // macOS maps no ids: the guest would be root, which much of the system trusts.
    if (!geteuid())
        return vj_fail(
            error, VJ_REFUSED, VJ_STAGE_HOST, 0,
            "a guest of root would be root on macOS; call as an ordinary user");
    struct sigaction ends;
    if (sigaction(SIGCHLD, NULL, &ends) || ends.sa_handler == SIG_IGN ||
        ends.sa_flags & SA_NOCLDWAIT)
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_HOST, 0,
                       "this process ignores SIGCHLD, so the kernel would not say how a "
                       "program ended; give SIGCHLD its default");
    if (vj_macos_is_sandboxed())
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_NESTED, 0,
                       "this process is in a sandbox already, and a second one cannot be "
                       "entered");
    return VJ_OK;
}

static vj_status set_time(vj_macos_run *run, const vj_macos_spawn *spawn, uint64_t begun,
                          vj_error *error) {
    uint64_t passed = now_ns() - begun;
    uint64_t left = spawn->timeout_ns > passed ? spawn->timeout_ns - passed : 0;
    run->deadline_ns = begun + spawn->timeout_ns;
    if (order_end(run, left)) return VJ_OK;
    return failed(error, VJ_STAGE_HOST, "telling the watcher the time");
}

vj_status vj_macos_start(const vj_macos_spawn *spawn, vj_macos_run **run,
                         vj_error *error) {
    *run = NULL;
    vj_status status = check_spawn(spawn, error);
    if (status != VJ_OK) return status;
    void *block = NULL;
    uint64_t size = 0;
    status = make_brief(spawn, &block, &size, error);
    if (status != VJ_OK) return status;
    vj_macos_run *made = calloc(1, sizeof *made);
    if (!made) {
        free(block);
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, 0, "no memory for a run");
    }
    made->events = made->orders = -1;
    uint64_t begun = now_ns();
    memcpy(made->marker, spawn->marker, VJ_MARKER_SIZE);
    int result = spawn_watcher(spawn, made);
    if (result) {
        made->watcher = 0;
        status =
            vj_fail(error, VJ_SYSTEM, VJ_STAGE_PROCESS, result, "starting the watcher");
    }
    if (status == VJ_OK) status = start_helper(spawn, made, block, size, error);
    free(block);
    if (status == VJ_OK) status = watch(made, error);
    // Only now: before it was in its sandbox the watcher would not have found it.
    if (status == VJ_OK && spawn->timeout_ns)
        status = set_time(made, spawn, begun, error);
    if (status != VJ_OK) {
        vj_macos_run_free(made);
        return status;
    }
    *run = made;
    return VJ_OK;
}

int32_t vj_macos_run_process(const vj_macos_run *run) {
    return run->child;
}

// ---- waiting and signals ---------------------------------------------------

vj_status vj_macos_run_wait(vj_macos_run *run, int64_t timeout_ns, vj_macos_exit *result,
                            vj_error *error) {
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / SECOND_NS),
                            .tv_nsec = (long)(timeout_ns % SECOND_NS)};
    if (!run->has_ended) {
        siginfo_t about = {0};
        // It may have ended before it was watched.
        if (waitid(P_PID, (id_t)run->child, &about, WEXITED | WNOHANG | WNOWAIT))
            return failed(error, VJ_STAGE_HOST, "asking for the program");
        if (!about.si_pid) {
            struct kevent event;
            int count =
                kevent(run->events, NULL, 0, &event, 1, timeout_ns < 0 ? NULL : &time);
            if (count < 0 && errno == EINTR)
                return vj_fail(error, VJ_INTERRUPTED, VJ_STAGE_HOST, EINTR, "a signal");
            if (count < 0) return failed(error, VJ_STAGE_HOST, "waiting for the program");
            if (!count)
                return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, 0, "it still runs");
        }
        reap(run);
    }
    *result = run->result;
    return VJ_OK;
}

vj_status vj_macos_run_signal(vj_macos_run *run, int32_t signal_number, vj_error *error) {
    // The number of a program that was reaped may be anybody's.
    if (run->has_ended)
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, ESRCH, "the program has ended");
    if (kill(run->child, signal_number)) return failed(error, VJ_STAGE_HOST, "a signal");
    return VJ_OK;
}

// ---- the whole jail --------------------------------------------------------

int32_t vj_macos_run_descriptor(const vj_macos_run *run) {
    return run->events;
}

bool vj_macos_run_has_ended(const vj_macos_run *run) {
    siginfo_t about = {0};
    if (run->has_ended) return true;
    // What cannot be waited for is not there.
    return waitid(P_PID, (id_t)run->child, &about, WEXITED | WNOHANG | WNOWAIT) ||
           about.si_pid;
}

void vj_macos_run_kill(vj_macos_run *run) {
    vj_ended ended;
    vj_error ignored;
    if (run->has_ended || order_end(run, 0)) return;
    // There is no watcher any more.
    vj_macos_end_jail(run->marker, run->child, 0, END_BOUND_NS, &ended, &ignored);
}

static vj_status end_all(vj_macos_run *run, uint64_t grace_ns, uint64_t bound_ns,
                         vj_ended *ended, vj_error *error) {
    pid_t child = run->has_ended ? 0 : run->child;
    vj_status status =
        vj_macos_end_jail(run->marker, child, grace_ns, bound_ns, ended, error);
    if (status == VJ_OK && child) reap(run);
    return status;
}

vj_status vj_macos_run_end(vj_macos_run *run, uint64_t grace_ns, uint64_t bound_ns,
                           uint32_t *left, vj_error *error) {
    vj_ended ended = {0};
    vj_status status = end_all(run, grace_ns, bound_ns, &ended, error);
    *left = ended.left;
    return status;
}

// Whether it was the watcher that ended the program, at its time: it is the only one who
// knows, and says so when it has ended everything else.
static bool was_timed_out(vj_macos_run *run) {
    uint64_t now = now_ns();
    if (!run->watcher || !run->deadline_ns || now < run->deadline_ns) return false;
    for (uint64_t until = now + WATCHER_NS; now < until; now = now_ns()) {
        int status = 0;
        pid_t reaped = waitpid(run->watcher, &status, WNOHANG);
        if (reaped == run->watcher) {
            run->watcher = 0;
            return WIFEXITED(status) && WEXITSTATUS(status) == VJ_WATCH_ENDED;
        }
        if (reaped < 0 && errno != EINTR) return false;
        const struct timespec moment = {.tv_nsec = MOMENT_NS};
        nanosleep(&moment, NULL);
    }
    return false;
}

static void end_watcher(vj_macos_run *run) {
    if (!run->watcher) return;
    kill(run->watcher, SIGKILL);
    int status = 0;
    while (waitpid(run->watcher, &status, 0) < 0 && errno == EINTR) {
    }
    run->watcher = 0;
}

vj_status vj_macos_run_finish(vj_macos_run *run, vj_macos_exit *result, vj_error *error) {
    if (!run->has_ended) reap(run);
    bool was_killed =
        WIFSIGNALED(run->result.status) && WTERMSIG(run->result.status) == SIGKILL;
    if (was_killed && was_timed_out(run)) run->result.timed_out = 1;
    vj_ended ended = {0};
    vj_status status = end_all(run, 0, END_BOUND_NS, &ended, error);
    run->result.killed += ended.members;
    // Else it stays, and tries once more when this process has ended.
    if (status == VJ_OK) end_watcher(run);
    *result = run->result;
    return status;
}

void vj_macos_run_free(vj_macos_run *run) {
    if (!run) return;
    vj_status status = VJ_OK;
    // Who was finished has no watcher any more, and nobody is left.
    if (run->child && (run->watcher || !run->has_ended)) {
        vj_error error;
        vj_ended ended;
        status = end_all(run, 0, END_BOUND_NS, &ended, &error);
    }
    // Last: until here it ends the jail if this process is killed. If somebody may be
    // left it stays, and tries once more when this process has ended.
    if (status == VJ_OK) end_watcher(run);
    if (run->events >= 0) close(run->events);
    if (run->orders >= 0) close(run->orders);
    free(run);
}

// ---- terminals -------------------------------------------------------------

vj_status vj_macos_terminal(uint16_t rows, uint16_t columns, int32_t *master,
                            int32_t *slave, vj_error *error) {
    *master = *slave = -1;
    if (!rows || !columns)
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_TERMINAL, EINVAL,
                       "a terminal of no size");
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    int ends[2];
    if (openpty(&ends[0], &ends[1], NULL, NULL, &size))
        return failed(error, VJ_STAGE_TERMINAL, "making a terminal");
    if (fcntl(ends[0], F_SETFD, FD_CLOEXEC) || fcntl(ends[1], F_SETFD, FD_CLOEXEC)) {
        vj_status status = failed(error, VJ_STAGE_TERMINAL, "keeping a terminal");
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    *master = ends[0];
    *slave = ends[1];
    return VJ_OK;
}
