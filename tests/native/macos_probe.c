// The library of macOS, driven from a command line: for the tests that run on a Mac.
//
// profile POLICY: print the profile and its parameters
//
// run POLICY PROGRAM ARGUMENTS: run a program in a jail
//
// terminal POLICY PROGRAM ARGUMENTS: run it on a terminal of 30 to 100
//
// end POLICY PROGRAM ARGUMENTS: start it, wait for a line of it, end the jail
//
// give-up POLICY PROGRAM ARGUMENTS: the same without a descriptor to list processes by,
// as is needed where the calls of macOS are made of Linux
//
// acts: try the acts of the standard input
//
// leave: leave a process behind, in another session
//
// where: say whether this process is in a sandbox
//
// path PATH: print how macOS spells it
//
// POLICY is a file of lines, a word and an operand with a tab between: the kinds of
// rules, and the words of `take_line`.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "macos_acts.h"
#include "macos_seatbelt.h"

#define MOST      4096
#define LINE_SIZE 8192
#define GRACE_NS  200000000u
#define BOUND_NS  10000000000u

typedef struct {
    vj_macos_settings settings;
    vj_rule rules[MOST];
    uint32_t rule_count;
    const char *sockets[MOST];
    const char *services[MOST];
    const char *variables[MOST];
    uint16_t ports[MOST];
    uint32_t variable_count;
    const char *helper;
    const char *watcher;
    const char *directory;
    const char *canary;
    char marker[VJ_MARKER_SIZE];
} policy;

static policy asked;

static int fail(const char *what, const vj_error *error) {
    fprintf(stderr, "%s: %s: %s (%s)\n", what, vj_stage_name(error->stage), error->text,
            error->os_error ? strerror(error->os_error) : "refused");
    return 125;
}

static bool take_rule(const char *word, const char *operand) {
    static const char *const kinds[VJ_RULE_END] = {
        "read", "write", "deny", "deny_read", "deny_write", "deny_exec"};
    for (uint32_t kind = 0; kind < VJ_RULE_END; kind++) {
        if (strcmp(word, kinds[kind]) != 0 || asked.rule_count == MOST) continue;
        asked.rules[asked.rule_count++] = (vj_rule){.path = operand, .kind = kind};
        return true;
    }
    if (strcmp(word, "held") != 0 || asked.rule_count == MOST) return false;
    asked.rules[asked.rule_count++] =
        (vj_rule){.path = operand, .kind = VJ_RULE_DENY_WRITE, .flags = VJ_RULE_HELD};
    return true;
}

static bool take_line(const char *word, const char *operand) {
    vj_macos_settings *to = &asked.settings;
    if (take_rule(word, operand)) return true;
    if (!strcmp(word, "own")) to->own = operand;
    else if (!strcmp(word, "helper")) asked.helper = operand;
    else if (!strcmp(word, "watcher")) asked.watcher = operand;
    else if (!strcmp(word, "directory")) asked.directory = operand;
    else if (!strcmp(word, "canary")) asked.canary = operand;
    else if (!strcmp(word, "variable")) asked.variables[asked.variable_count++] = operand;
    else if (!strcmp(word, "socket")) asked.sockets[to->socket_count++] = operand;
    else if (!strcmp(word, "service")) asked.services[to->service_count++] = operand;
    else if (!strcmp(word, "port"))
        asked.ports[to->host_port_count++] = (uint16_t)strtoul(operand, NULL, 10);
    else if (!strcmp(word, "network")) to->flags |= VJ_MACOS_NETWORK_OPEN;
    else if (!strcmp(word, "system")) to->flags |= VJ_MACOS_SYSTEM;
    else if (!strcmp(word, "ignores-case")) to->flags |= VJ_MACOS_IGNORES_CASE;
    else if (!strcmp(word, "python")) to->programs |= VJ_MACOS_PYTHON;
    else if (!strcmp(word, "node")) to->programs |= VJ_MACOS_NODE;
    else if (!strcmp(word, "git")) to->programs |= VJ_MACOS_GIT;
    else return false;
    return true;
}

static bool read_policy(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    char line[LINE_SIZE];
    bool is_good = true;
    // One name in each list is kept free: for the marker, and for the end.
    for (int lines = 0; is_good && lines < MOST - 1 && fgets(line, sizeof line, file);
         lines++) {
        line[strcspn(line, "\n")] = 0;
        char *operand = strchr(line, '\t');
        if (operand) *operand++ = 0;
        char *kept = strdup(operand ? operand : "");
        is_good = kept && take_line(line, kept);
        if (!is_good) fprintf(stderr, "policy: %s\n", line);
    }
    fclose(file);
    asked.settings.size = sizeof asked.settings;
    asked.settings.version = VJ_MACOS_PROFILE_VERSION;
    asked.settings.sockets = asked.sockets;
    asked.settings.services = asked.services;
    asked.settings.host_ports = asked.ports;
    return is_good;
}

static int print_profile(void) {
    vj_macos_profile profile;
    vj_error error;
    vj_status status = vj_macos_profile_build(&asked.settings, asked.rules,
                                              asked.rule_count, &profile, &error);
    if (status != VJ_OK) return fail("profile", &error);
    fputs(profile.text, stdout);
    const char *at = profile.parameters;
    for (uint32_t i = 0; i < profile.parameter_count; i++) {
        const char *value = at + strlen(at) + 1;
        printf("; %s = %s\n", at, value);
        at = value + strlen(value) + 1;
    }
    vj_macos_profile_free(&profile);
    return 0;
}

static int start(char **arguments, int count, const int descriptors[3], uint32_t flags,
                 vj_macos_run **run) {
    vj_macos_profile profile;
    vj_error error;
    vj_macos_marker(asked.marker);
    asked.services[asked.settings.service_count++] = asked.marker;
    vj_status status = vj_macos_profile_build(&asked.settings, asked.rules,
                                              asked.rule_count, &profile, &error);
    if (status != VJ_OK) return fail("profile", &error);
    vj_macos_spawn spawn = {
        .size = sizeof spawn,
        .version = VJ_MACOS_SPAWN_VERSION,
        .flags = flags,
        .argument_count = (uint32_t)count,
        .environment_count = asked.variable_count,

        .helper = asked.helper,
        .watcher = asked.watcher,
        .profile = &profile,
        .marker = asked.marker,
        .arguments = (const char *const *)arguments,
        .environment = asked.variables,
        .directory = asked.directory ? asked.directory : "/",
        .canary = asked.canary,
        .limits = {.open_files = 64, .file_size = 1u << 20},
    };
    for (int i = 0; i < VJ_BRIEF_DESCRIPTORS; i++)
        spawn.descriptors[i] = i < 3 ? descriptors[i] : -1;
    status = vj_macos_start(&spawn, run, &error);
    vj_macos_profile_free(&profile);
    return status == VJ_OK ? 0 : fail("start", &error);
}

// Wait for the end, give the run back, and return what a shell would.
static int finish(vj_macos_run *running) {
    int result = 0;
    vj_macos_exit ended = {0};
    vj_error error;
    vj_status status = vj_macos_run_wait(running, 60000000000, &ended, &error);
    if (status != VJ_OK) result = fail("wait", &error);
    else if (WIFEXITED(ended.status)) result = WEXITSTATUS(ended.status);
    else result = 128 + WTERMSIG(ended.status);
    vj_macos_run_free(running);
    return result;
}

static int run(char **arguments, int count) {
    static const int own[3] = {0, 1, 2};
    vj_macos_run *running = NULL;
    int result = start(arguments, count, own, 0, &running);
    return result ? result : finish(running);
}

// Pass on what the program writes to its terminal.
static int on_terminal(char **arguments, int count) {
    int32_t master = -1;
    int32_t slave = -1;
    vj_error error;
    if (vj_macos_terminal(30, 100, &master, &slave, &error) != VJ_OK)
        return fail("terminal", &error);
    asked.settings.terminal = ttyname(slave);
    const int ends[3] = {slave, slave, slave};
    vj_macos_run *running = NULL;
    int result = start(arguments, count, ends, VJ_BRIEF_TERMINAL, &running);
    close(slave);
    if (result) return result;
    char bytes[4096];
    // Linux says EIO where macOS says that it is the end.
    for (ssize_t got = read(master, bytes, sizeof bytes); got > 0;
         got = read(master, bytes, sizeof bytes))
        fwrite(bytes, 1, (size_t)got, stdout);
    close(master);
    return finish(running);
}

// Start, pass on one line of the program, and end everything.
static int end(char **arguments, int count, bool gives_up) {
    int ends[2];
    if (pipe(ends)) return 125;
    vj_macos_run *running = NULL;
    const int descriptors[3] = {0, ends[1], 2};
    int result = start(arguments, count, descriptors, 0, &running);
    close(ends[1]);
    if (result) return result;
    FILE *output = fdopen(ends[0], "r");
    char line[LINE_SIZE] = "";
    if (output && fgets(line, sizeof line, output)) fputs(line, stdout);
    if (gives_up) {
        struct rlimit none = {0, 0};
        if (setrlimit(RLIMIT_NOFILE, &none)) return 125;
        vj_macos_run_free(running);
        return 0;
    }
    uint32_t left = 0;
    vj_error error;
    vj_status status = vj_macos_run_end(running, GRACE_NS, BOUND_NS, &left, &error);
    if (status != VJ_OK) result = fail("end", &error);
    printf("left %u\n", left);
    if (output) fclose(output);
    vj_macos_run_free(running);
    return result;
}

// A process that no parent, group or session leads to, and that no SIGTERM ends.
static int leave(void) {
    int ends[2];
    if (pipe(ends)) return 1;
    pid_t child = fork();
    if (!child) {
        setsid();
        pid_t grandchild = fork();
        if (grandchild) _exit(grandchild < 0);
        signal(SIGTERM, SIG_IGN);
        pid_t own = getpid();
        if (write(ends[1], &own, sizeof own) != (ssize_t)sizeof own) _exit(1);
        for (;;) pause();
    }
    pid_t left = 0;
    if (child < 0 || read(ends[0], &left, sizeof left) != (ssize_t)sizeof left) return 1;
    printf("%d\n", left);
    fflush(stdout);
    for (;;) pause();
}

static int print_path(const char *path) {
    char resolved[VJ_MACOS_STRING_MAX + 1];
    vj_error error;
    vj_status status = vj_macos_real_path(path, resolved, &error);
    if (status != VJ_OK) return fail("path", &error);
    puts(resolved);
    return 0;
}

int main(int count, char **arguments) {
    const char *word = count > 1 ? arguments[1] : "";
    if (!strcmp(word, "acts")) return try_acts();
    if (!strcmp(word, "leave")) return leave();
    if (!strcmp(word, "where")) {
        puts(vj_macos_is_sandboxed() ? "in a sandbox" : "in no sandbox");
        return 0;
    }
    if (count == 3 && !strcmp(word, "path")) return print_path(arguments[2]);
    if (count < 3 || !read_policy(arguments[2])) return 2;
    if (!strcmp(word, "profile")) return print_profile();
    if (count > 3 && !strcmp(word, "run")) return run(arguments + 3, count - 3);
    if (count > 3 && !strcmp(word, "terminal"))
        return on_terminal(arguments + 3, count - 3);
    if (count > 3 && !strcmp(word, "end")) return end(arguments + 3, count - 3, false);
    if (count > 3 && !strcmp(word, "give-up")) return end(arguments + 3, count - 3, true);
    return 2;
}
