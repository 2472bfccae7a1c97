// Acts that a jail may forbid, each tried once and answered by its errno.
//
// One line of input is one act: a word and up to two operands, separated by tabs. One
// line of output answers it: 0, or the errno. An act leaves as little as it can: what it
// opens it closes, and what it makes stays for the caller to look at.
//
// Plain POSIX, so that the acts themselves are tried on every system.

#include "macos_acts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_SIZE 8192

static int closed(int file) {
    if (file < 0) return errno;
    close(file);
    return 0;
}

static int answer(int result) {
    return result ? errno : 0;
}

static int act_read(const char *path, const char *unused) {
    (void)unused;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char byte = 0;
    if (file >= 0 && read(file, &byte, 1) < 0 && errno != EISDIR) {
        int why = errno;
        close(file);
        return why;
    }
    return closed(file);
}

static int act_look(const char *path, const char *unused) {
    (void)unused;
    struct stat about;
    return answer(stat(path, &about));
}

static int act_write(const char *path, const char *unused) {
    (void)unused;
    return closed(open(path, O_WRONLY | O_CLOEXEC));
}

static int act_create(const char *path, const char *unused) {
    (void)unused;
    return closed(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

static int act_folder(const char *path, const char *unused) {
    (void)unused;
    return answer(mkdir(path, 0700));
}

static int act_remove(const char *path, const char *unused) {
    (void)unused;
    return answer(unlink(path));
}

// And back, so that the next act finds what it is about.
static int act_move(const char *path, const char *to) {
    int why = answer(rename(path, to));
    return why ? why : answer(rename(to, path));
}

static int act_link(const char *path, const char *to) {
    return answer(link(path, to));
}

static int act_mode(const char *path, const char *mode) {
    return answer(chmod(path, (mode_t)strtoul(mode, NULL, 8)));
}

// The program itself must answer 0: an exec that fails is told by the pipe.
static int act_execute(const char *path, const char *unused) {
    (void)unused;
    int ends[2];
    if (pipe(ends)) return errno;
    pid_t child = fork();
    if (child < 0) return errno;
    if (!child) {
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        execl(path, path, (char *)NULL);
        int why = errno;
        ssize_t wrote = write(ends[1], &why, sizeof why);
        _exit(wrote == (ssize_t)sizeof why ? 1 : 2);
    }
    close(ends[1]);
    int why = 0;
    ssize_t got = read(ends[0], &why, sizeof why);
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return got == (ssize_t)sizeof why ? why : 0;
}

static bool fill(struct sockaddr_un *address, const char *path) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path) return false;
    memcpy(address->sun_path, path, strlen(path) + 1);
    return true;
}

static int with_unix(const char *path, bool binds) {
    struct sockaddr_un address;
    if (!fill(&address, path)) return ENAMETOOLONG;
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    if (stream < 0) return errno;
    const struct sockaddr *where = (const struct sockaddr *)(const void *)&address;
    int result = binds ? bind(stream, where, sizeof address)
                       : connect(stream, where, sizeof address);
    int why = answer(result);
    close(stream);
    return why;
}

static int act_connect_unix(const char *path, const char *unused) {
    (void)unused;
    return with_unix(path, false);
}

static int act_bind_unix(const char *path, const char *unused) {
    (void)unused;
    return with_unix(path, true);
}

static int with_port(const char *host, const char *port, int kind, bool binds) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) return EINVAL;
    int stream = socket(AF_INET, kind, 0);
    if (stream < 0) return errno;
    const struct sockaddr *where = (const struct sockaddr *)(const void *)&address;
    int result = binds ? bind(stream, where, sizeof address)
                       : connect(stream, where, sizeof address);
    int why = answer(result);
    close(stream);
    return why;
}

static int act_connect_tcp(const char *host, const char *port) {
    return with_port(host, port, SOCK_STREAM, false);
}

static int act_connect_udp(const char *host, const char *port) {
    return with_port(host, port, SOCK_DGRAM, false);
}

static int act_bind_tcp(const char *host, const char *port) {
    return with_port(host, port, SOCK_STREAM, true);
}

static int act_signal(const char *process, const char *unused) {
    (void)unused;
    return answer(kill((pid_t)strtol(process, NULL, 10), 0));
}

static int act_memory(const char *name, const char *unused) {
    (void)unused;
    int memory = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (memory < 0) return errno;
    close(memory);
    shm_unlink(name);
    return 0;
}

static const struct {
    const char *word;
    int (*act)(const char *, const char *);
} acts[] = {
    {"read", act_read},
    {"look", act_look},
    {"write", act_write},
    {"create", act_create},
    {"folder", act_folder},
    {"remove", act_remove},
    {"move", act_move},
    {"link", act_link},
    {"mode", act_mode},
    {"execute", act_execute},
    {"connect-unix", act_connect_unix},
    {"bind-unix", act_bind_unix},
    {"connect-tcp", act_connect_tcp},
    {"connect-udp", act_connect_udp},
    {"bind-tcp", act_bind_tcp},
    {"signal", act_signal},
    {"memory", act_memory},
};

int try_acts(void) {
    char line[LINE_SIZE];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *first = strchr(line, '\t');
        if (!first) return 2;
        *first++ = 0;
        char *second = strchr(first, '\t');
        if (second) *second++ = 0;
        int result = -1;
        for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
            if (!strcmp(acts[i].word, line))
                result = acts[i].act(first, second ? second : "");
        }
        if (result < 0) return 2;
        printf("%d\n", result);
        fflush(stdout);
    }
    return 0;
}
