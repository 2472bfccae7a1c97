// Trying forbidden acts; see macos_try.h. What an act makes it removes, in and outside.

#include "macos_try.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libproc.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/clonefile.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "macos_profile.h"
#include "macos_sandbox.h"

#define QUIET (O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

static int32_t answer(int result) {
    return result < 0 ? errno : 0;
}

// Of what was only opened to see whether that is allowed.
static int32_t closed(int descriptor) {
    if (descriptor < 0) return errno;
    close(descriptor);
    return 0;
}

static int32_t removed(int32_t result, const char *path) {
    if (!result) unlink(path);
    return result;
}

// The first operand, ended where the second one begins, which is returned, or NULL.
static const char *split(const char *operands, char first[VJ_MACOS_STRING_MAX + 1]) {
    const char *space = strchr(operands, ' ');
    size_t length = space ? (size_t)(space - operands) : 0;
    if (!space || length > VJ_MACOS_STRING_MAX) return NULL;
    memcpy(first, operands, length);
    first[length] = 0;
    return space + 1;
}

static int32_t two_paths(char letter, const char *operands) {
    char path[VJ_MACOS_STRING_MAX + 1];
    const char *new = split(operands, path);
    if (!new) return EINVAL;
    return removed(answer(letter == 'l' ? link(path, new) : clonefile(path, new, 0)),
                   new);
}

static int32_t set_id(const char *path) {
    int32_t result = answer(chmod(path, 04600));
    if (!result) chmod(path, 0600);
    return result;
}

static int32_t connect_path(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path) return ENAMETOOLONG;
    memcpy(address.sun_path, path, length + 1);
    int end = socket(AF_UNIX, SOCK_STREAM, 0);
    if (end < 0) return errno;
    int32_t result =
        answer(connect(end, (const struct sockaddr *)&address, sizeof address));
    close(end);
    return result;
}

static int32_t use_port(char letter, const char *port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int end = socket(AF_INET, letter == 'd' ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (end < 0) return errno;
    const struct sockaddr *at = (const struct sockaddr *)&address;
    int result =
        letter == 'b' ? bind(end, at, sizeof address) : connect(end, at, sizeof address);
    int32_t why = answer(result);
    close(end);
    return why;
}

static int32_t ask_about(const char *process) {
    struct proc_bsdinfo about;
    int size = proc_pidinfo((int)strtol(process, NULL, 10), PROC_PIDTBSDINFO, 1, &about,
                            sizeof about);
    return size == (int)sizeof about ? 0 : errno;
}

static int32_t share_memory(const char *name) {
    int memory = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (memory < 0) return errno;
    close(memory);
    shm_unlink(name);
    return 0;
}

static int32_t ask_kernel(const char *operation, int kind, const char *what) {
    // 1 is a denial; anything else but 0 says that the kernel does not know the question.
    int said = sandbox_check(getpid(), operation, kind | SANDBOX_CHECK_NO_REPORT, what);
    if (said == 1) return EPERM;
    return said ? EINVAL : 0;
}

static int32_t ask_about_path(const char *operands) {
    char operation[VJ_MACOS_STRING_MAX + 1];
    const char *path = split(operands, operation);
    return path ? ask_kernel(operation, VJ_SANDBOX_FILTER_PATH, path) : EINVAL;
}

int32_t vj_try(const char *act) {
    const char *operand = act[0] && act[1] == ' ' ? act + 2 : "";
    switch (act[0]) {
    case 'r': return closed(open(operand, O_RDONLY | QUIET));
    case 'w': return closed(open(operand, O_WRONLY | QUIET));
    case 'o': {
        struct stat about;
        return answer(lstat(operand, &about));
    }
    case 'c':
        return removed(closed(open(operand, O_WRONLY | O_CREAT | O_EXCL | QUIET, 0600)),
                       operand);
    case 'l':
    case 'n': return two_paths(act[0], operand);
    case 'i': return set_id(operand);
    case 'q': return ask_about_path(operand);
    case 'u': return connect_path(operand);
    case 't':
    case 'd':
    case 'b': return use_port(act[0], operand);
    case 'k': return answer(kill((pid_t)strtol(operand, NULL, 10), 0));
    case 'p': return ask_about(operand);
    case 's': return share_memory(operand);
    case 'g': return ask_kernel("mach-lookup", VJ_SANDBOX_FILTER_GLOBAL_NAME, operand);
    default: return EINVAL;
    }
}
