// visjail-macos-init: enters the sandbox and becomes the program.
//
// A process of its own, and single-threaded, because a sandbox is entered by the whole
// process, and nothing safe can be done between fork and exec of a host with threads.
// What it is told comes by a descriptor; it looks at no variable and no file.
//
// The order matters: limits and the terminal before the sandbox, which may not allow
// them; the directory after it, so that it is entered with the guest's rights.

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "macos_brief.h"
#include "macos_members.h"
#include "macos_sandbox.h"

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

static void enter_sandbox(const vj_brief_view *brief) {
    char *why = NULL;
    int result = sandbox_init_with_parameters(brief->profile, 0, brief->parameters, &why);
    if (result) fail(VJ_STAGE_SANDBOX, 0, why ? why : "the profile was not taken");
    if (why) sandbox_free_error(why);
    // Not concluded from the answer: asked, and tried.
    if (sandbox_check(getpid(), NULL, VJ_SANDBOX_FILTER_NONE) != 1)
        fail(VJ_STAGE_SANDBOX, 0, "the profile was taken and no sandbox is there");
    check_marker(brief->marker);
    if (!brief->canary[0]) return;
    int canary = open(brief->canary, O_RDONLY | O_CLOEXEC);
    if (canary >= 0) fail(VJ_STAGE_CANARIES, 0, "a file that is not granted was opened");
    // Another error would say nothing about the sandbox.
    if (errno != EPERM) fail(VJ_STAGE_CANARIES, errno, "the canary was not refused");
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
    // A second sandbox cannot be entered: the first would go on alone.
    if (sandbox_check(getpid(), NULL, VJ_SANDBOX_FILTER_NONE) != 0)
        fail(VJ_STAGE_NESTED, 0,
             "this process is in a sandbox already, and a second one "
             "cannot be entered");
    if (brief.header.flags & VJ_BRIEF_TERMINAL && ioctl(0, TIOCSCTTY, 0))
        fail(VJ_STAGE_TERMINAL, errno, "taking the terminal");
    set_limits(&brief.header.limits);
    enter_sandbox(&brief);
    // A host that was killed before this process could be told by its sandbox ends it so;
    // from here on the watcher finds it.
    if (getppid() != brief.header.host) fail(VJ_STAGE_HOST, ESRCH, "the host has ended");
    if (chdir(brief.directory)) fail(VJ_STAGE_DIRECTORY, errno, "entering the directory");
    if (!tell(VJ_STAGE_NONE, 0, "")) _exit(126);
    execve(brief.arguments[0], (char *const *)brief.arguments,
           (char *const *)brief.environment);
    fail(VJ_STAGE_EXECUTE, errno, "executing the program");
}
