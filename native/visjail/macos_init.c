// visjail-macos-init: enters the sandbox and becomes the program.
//
// A process of its own, and single-threaded, because a sandbox is entered by the whole
// process, and nothing safe can be done between fork and exec of a host with threads.
// What it is told comes by a descriptor; it looks at no variable and no file.
//
// The order matters: limits and the terminal before the sandbox, which may not allow
// them; the directory after it, so that it is entered with the guest's rights,
// and the program is looked up with them, too.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "macos_brief.h"
#include "macos_files.h"
#include "macos_members.h"
#include "macos_sandbox.h"
#include "macos_try.h"

#define READ_SIZE 65536u

// A pipe takes so little at once.
static bool tell(uint32_t stage, int os_error, const char *text) {
    vj_brief_failed record;
    vj_brief_fail(&record, stage, os_error, text);
    return write(VJ_BRIEF_FD_FAILED, &record, sizeof record) == (ssize_t)sizeof record;
}

// Tell the host, and end.
static _Noreturn void fail(uint32_t stage, int os_error, const char *text) {
    _exit(tell(stage, os_error, text) ? 125 : 126);
}

static char *read_all(uint64_t *size) {
    char *bytes = NULL;
    size_t capacity = 0;
    *size = 0;
    for (;;) {
        if (capacity - *size < READ_SIZE) {
            capacity = capacity ? capacity * 2 : 4 * READ_SIZE;
            if (capacity > 2 * (size_t)VJ_BRIEF_MAX)
                fail(VJ_STAGE_REQUEST, 0, "a brief of more than 16 MiB");
            char *larger = realloc(bytes, capacity);
            if (!larger) fail(VJ_STAGE_REQUEST, ENOMEM, "no memory for the brief");
            bytes = larger;
        }
        ssize_t got = read(VJ_BRIEF_FD, bytes + *size, READ_SIZE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(VJ_STAGE_REQUEST, errno, "reading the brief");
        if (!got) return bytes;
        *size += (uint64_t)got;
    }
}

static void limit(int resource, uint64_t most) {
    if (!most) return;
    struct rlimit both = {.rlim_cur = most, .rlim_max = most};
    if (setrlimit(resource, &both)) fail(VJ_STAGE_LIMITS, errno, "setting a limit");
}

static void set_limits(const vj_brief_limits *limits) {
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none))
        fail(VJ_STAGE_LIMITS, errno, "switching cores off");
    limit(RLIMIT_FSIZE, limits->file_size);
    limit(RLIMIT_CPU, limits->cpu_seconds);
    // The last one: the kernel counts descriptors that are open already.
    limit(RLIMIT_NOFILE, limits->open_files);
}

// By its marker the host finds whoever is in the jail when it ends. Were it not to be
// looked up, or any name, nobody would be found, or too many.
static void check_marker(const char *marker) {
    char other[VJ_MARKER_SIZE];
    uint8_t random[16];
    arc4random_buf(random, sizeof random);
    vj_marker_write(random, other);
    int kind = VJ_SANDBOX_FILTER_GLOBAL_NAME | SANDBOX_CHECK_NO_REPORT;
    if (sandbox_check(getpid(), "mach-lookup", kind, marker) != 0)
        fail(VJ_STAGE_SANDBOX, 0,
             "the jail's marker cannot be looked up: its end could not be seen to");
    if (sandbox_check(getpid(), "mach-lookup", kind, other) != 1)
        fail(VJ_STAGE_SANDBOX, 0, "names that are not granted can be looked up");
}

static void check_canary(const char *path) {
    char act[PATH_MAX + 2];
    int size = snprintf(act, sizeof act, "r %s", path);
    int32_t why = size > 0 && (size_t)size < sizeof act ? vj_try(act) : ENAMETOOLONG;
    if (!why) fail(VJ_STAGE_CANARIES, 0, "a file that is not granted was opened");
    // Another error would say nothing about the sandbox.
    if (why != EPERM) fail(VJ_STAGE_CANARIES, why, "the canary was not refused");
}

static void enter_sandbox(const vj_brief_view *brief) {
    char *why = NULL;
    int result = sandbox_init_with_parameters(brief->profile, 0, brief->parameters, &why);
    if (result) fail(VJ_STAGE_SANDBOX, 0, why ? why : "the profile was not taken");
    if (why) sandbox_free_error(why);
    // Not concluded from the answer: asked, and tried.
    if (sandbox_check(getpid(), NULL, VJ_SANDBOX_FILTER_NONE) != 1)
        fail(VJ_STAGE_SANDBOX, 0, "the profile was taken and no sandbox is there");
    check_marker(brief->marker);
    if (brief->canary[0]) check_canary(brief->canary);
}

// ---- what it becomes -------------------------------------------------------

static const char *variable(const vj_brief_view *brief, const char *name) {
    size_t length = strlen(name);
    for (const char **at = brief->environment; *at; at++) {
        if (!strncmp(*at, name, length) && (*at)[length] == '=') return *at + length + 1;
    }
    return NULL;
}

static void enter_directory(const vj_brief_view *brief) {
    if (!chdir(brief->directory)) return;
    int why = errno;
    const char *home = variable(brief, "HOME");
    if (!(brief->header.flags & VJ_BRIEF_HOME) || ((!home || chdir(home)) && chdir("/")))
        fail(VJ_STAGE_DIRECTORY, why, "entering the directory");
}

static void execute(const char *path, const vj_brief_view *brief) {
    execve(path, (char *const *)brief->arguments, (char *const *)brief->environment);
}

// As execvp, but in the PATH of the program: by the guest's rights, since it is in its
// sandbox. What is there and cannot be executed is what the host hears of, else that
// nothing is.
static int search(const vj_brief_view *brief) {
    const char *name = brief->arguments[0];
    const char *folders = variable(brief, "PATH");
    int why = ENOENT;
    for (const char *at = folders; at && *at;) {
        size_t length = strcspn(at, ":");
        char path[PATH_MAX];
        int size = length ? snprintf(path, sizeof path, "%.*s/%s", (int)length, at, name)
                          : snprintf(path, sizeof path, "%s", name);
        if (size > 0 && (size_t)size < sizeof path) {
            execute(path, brief);
            // A folder that the guest cannot look into says EPERM for every name.
            struct stat about;
            int refused = errno;
            bool is_there = !stat(path, &about);
            if (why == ENOENT && is_there) why = refused;
        }
        at += length;
        if (*at) at++;
    }
    return why;
}

// Each act twice: one that fails here for another reason would be taken for a denial.
static vj_tried *try_outside(const vj_brief_view *brief) {
    vj_tried *tried = calloc(brief->header.arguments, sizeof *tried);
    if (!tried) fail(VJ_STAGE_CANARIES, ENOMEM, "no memory for the canaries");
    for (uint32_t i = 0; i < brief->header.arguments; i++)
        tried[i].before = vj_try(brief->arguments[i]);
    return tried;
}

static _Noreturn void try_within(const vj_brief_view *brief, vj_tried *tried) {
    uint32_t count = brief->header.arguments;
    for (uint32_t i = 0; i < count; i++) tried[i].within = vj_try(brief->arguments[i]);
    if (!tell(VJ_STAGE_NONE, 0, "")) _exit(126);
    // The host hears that the start is over from the end of this pipe.
    close(VJ_BRIEF_FD_FAILED);
    const char *at = (const char *)tried;
    for (size_t left = count * sizeof *tried; left;) {
        ssize_t wrote = write(STDOUT_FILENO, at, left);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) _exit(126);
        at += wrote;
        left -= (size_t)wrote;
    }
    _exit(0);
}

// The exit code is 0 or an errno.
static _Noreturn void operate(const vj_brief_view *brief) {
    if (!tell(VJ_STAGE_NONE, 0, "")) _exit(126);
    close(VJ_BRIEF_FD_FAILED);
    _exit(
        vj_file_operation(brief->header.file, brief->arguments[0], brief->header.limit));
}

int main(void) {
    // From here on, executing the program tells the host that all went well.
    if (fcntl(VJ_BRIEF_FD_FAILED, F_SETFD, FD_CLOEXEC)) _exit(126);
    uint64_t size = 0;
    char *block = read_all(&size);
    close(VJ_BRIEF_FD);
    vj_brief_view brief;
    vj_error error;
    if (vj_brief_read(block, size, &brief, &error) != VJ_OK)
        fail(VJ_STAGE_REQUEST, 0, error.text);
    uint32_t flags = brief.header.flags;
    // A second sandbox cannot be entered: the first would go on alone.
    if (sandbox_check(getpid(), NULL, VJ_SANDBOX_FILTER_NONE) != 0)
        fail(VJ_STAGE_NESTED, 0,
             "this process is in a sandbox already, and a second one "
             "cannot be entered");
    if (flags & VJ_BRIEF_TERMINAL && ioctl(0, TIOCSCTTY, 0))
        fail(VJ_STAGE_TERMINAL, errno, "taking the terminal");
    set_limits(&brief.header.limits);
    vj_tried *tried = flags & VJ_BRIEF_TRY ? try_outside(&brief) : NULL;
    enter_sandbox(&brief);
    // A host that was killed before this process could be told by its sandbox ends it so;
    // from here on the watcher finds it.
    if (getppid() != brief.header.host) fail(VJ_STAGE_HOST, ESRCH, "the host has ended");
    if (tried) try_within(&brief, tried);
    if (flags & VJ_BRIEF_FILE) operate(&brief);
    enter_directory(&brief);
    if (!tell(VJ_STAGE_NONE, 0, "")) _exit(126);
    int why = 0;
    if (flags & VJ_BRIEF_SEARCH) {
        why = search(&brief);
    } else {
        execute(brief.arguments[0], &brief);
        why = errno;
    }
    fail(VJ_STAGE_EXECUTE, why, "executing the program");
}
