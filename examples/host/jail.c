// A policy in C: rules, what stands at their paths, and what the jail has of its own.
//
// libvisjail makes a plan of these (policy.h) and opens a jail from it (visjail.h). Each
// fact is what was seen here; visjail-init compares it with what it mounts.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

#define MOST          64
#define SCRATCH_BYTES (64u << 20)
#define PROGRAM_NS    (10u * 1000000000ull)
// Numbers that systems give to no account, for the guest of a root caller.
#define FIRST_GUEST 0x70000000u
#define GUESTS      0x0ffdffffu

typedef struct {
    vj_rule rules[MOST];
    vj_fact facts[MOST];
    vj_extra extras[MOST];
    char texts[MOST][VJ_PATH_MAX]; // folders above a path, and where links lead
    size_t rule_count, fact_count, extra_count, text_count;
    bool full;
} policy;

static const char *keep(policy *making, const char *text, size_t size) {
    if (making->text_count == MOST || size >= sizeof making->texts[0]) {
        making->full = true;
        return "/";
    }
    char *kept = making->texts[making->text_count++];
    memcpy(kept, text, size);
    kept[size] = 0;
    return kept;
}

static void add_fact(policy *making, const char *path) {
    for (size_t i = 0; i < making->fact_count; i++)
        if (strcmp(making->facts[i].path, path) == 0) return;
    if (making->fact_count == MOST) {
        making->full = true;
        return;
    }
    struct stat seen;
    vj_fact *fact = &making->facts[making->fact_count++];
    *fact = (vj_fact){.path = path, .object = VJ_OBJECT_ABSENT};
    if (lstat(path, &seen) != 0) return;
    fact->object = S_ISDIR(seen.st_mode) ? VJ_OBJECT_DIRECTORY : VJ_OBJECT_FILE;
    fact->owner = seen.st_uid;
    fact->group = seen.st_gid;
    fact->device = (uint64_t)major(seen.st_dev) << 32 | minor(seen.st_dev);
    fact->inode = seen.st_ino;
}

static void add_rule(policy *making, uint32_t kind, const char *path, uint32_t flags) {
    if (making->rule_count == MOST) {
        making->full = true;
        return;
    }
    making->rules[making->rule_count++] =
        (vj_rule){.path = path, .kind = kind, .flags = flags};
    add_fact(making, "/");
    for (const char *slash = path + 1; (slash = strchr(slash, '/')); slash++)
        add_fact(making, keep(making, path, (size_t)(slash - path)));
    add_fact(making, path);
}

static void add_extra(policy *making, uint32_t kind, const char *path, const char *source,
                      uint32_t mode) {
    if (making->extra_count == MOST) {
        making->full = true;
        return;
    }
    making->extras[making->extra_count++] =
        (vj_extra){.kind = kind, .mode = mode, .path = path, .source = source};
}

// /bin, /lib and the like: links into /usr on most systems, folders on others.
static void add_system(policy *making) {
    static const char *const names[] = {"/bin", "/sbin", "/lib", "/lib64"};
    add_rule(making, VJ_RULE_READ, "/usr", 0);
    if (access("/etc/ld.so.cache", R_OK) == 0)
        add_rule(making, VJ_RULE_READ, "/etc/ld.so.cache", 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char target[VJ_PATH_MAX];
        ssize_t size = readlink(names[i], target, sizeof target - 1);
        if (size > 0) {
            const char *kept = keep(making, target, (size_t)size);
            add_extra(making, VJ_OPERATION_SYMLINK, names[i], kept, 0);
        } else if (access(names[i], X_OK) == 0) {
            add_rule(making, VJ_RULE_READ, names[i], 0);
        }
    }
}

static void add_own_places(policy *making) {
    add_rule(making, VJ_RULE_WRITE, "/tmp", VJ_RULE_PRIVATE);
    add_rule(making, VJ_RULE_READ, "/proc", VJ_RULE_PRIVATE);
    add_rule(making, VJ_RULE_READ, "/dev", VJ_RULE_PRIVATE);
    add_extra(making, VJ_OPERATION_DEVICES, "/dev", "", 0);
    add_extra(making, VJ_OPERATION_PROC, "/proc", "", 0);
    add_extra(making, VJ_OPERATION_SCRATCH, "/tmp", "", 0);
    add_extra(making, VJ_OPERATION_SCRATCH_PLACE, "/tmp", "", 01777);
}

// 0 for a caller that is not root, whose guests have the caller's own number.
static bool choose_guest(uint32_t *guest_id) {
    *guest_id = 0;
    if (geteuid() != 0) return true;
    if (getrandom(guest_id, sizeof *guest_id, 0) != sizeof *guest_id) return false;
    *guest_id = FIRST_GUEST + *guest_id % GUESTS;
    return true;
}

vj_jail *open_jail(const char *init_path, const char *const *granted) {
    policy *making = calloc(1, sizeof *making);
    vj_plan_settings settings = {
        .flags = VJ_PLAN_PRIVATE_NETWORK,
        .hostname = "example",
        .scratch_size = SCRATCH_BYTES,
        .limits = {.open_files = 1024, .processes = 64},
        .backend = VJ_BACKEND_NAMESPACES,
    };
    if (!making || !choose_guest(&settings.guest_id)) {
        free(making);
        complain("policy", strerror(errno));
        return NULL;
    }
    add_system(making);
    add_own_places(making);
    for (; *granted; granted++) add_rule(making, VJ_RULE_READ, *granted, VJ_RULE_GRANT);
    vj_error error = {0};
    vj_jail *jail = NULL;
    void *plan = NULL;
    size_t size = 0;
    vj_status status = VJ_REFUSED;
    if (making->full) {
        complain("policy", "it has too many parts");
    } else {
        status = vj_policy_compile(&settings, making->rules, making->rule_count,
                                   making->facts, making->fact_count, making->extras,
                                   making->extra_count, &plan, &size, &error);
        vj_jail_info info;
        vj_jail_options options = {.bubblewrap = ""};
        if (status == VJ_OK)
            status = vj_jail_open(init_path, &options, plan, size, &jail, &info, &error);
        if (status != VJ_OK) complain_error(&error);
    }
    vj_plan_free(plan);
    free(making);
    return status == VJ_OK ? jail : NULL;
}

vj_run *start(vj_jail *jail, char *const *arguments, const int32_t *descriptors,
              uint32_t descriptor_count, uint64_t timeout_ns) {
    static const char *const environment[] = {"PATH=/usr/bin:/bin", "HOME=/tmp",
                                              "LANG=C.UTF-8"};
    static const int32_t numbers[] = {0, 1, 2, 3, 4};
    buffer strings = {0};
    vj_spawn spawn = {
        .flags = strchr(arguments[0], '/') ? 0 : VJ_SPAWN_SEARCH,
        .environment_count = sizeof environment / sizeof *environment,
        .timeout_ns = timeout_ns,
        .descriptor_count = descriptor_count,
        .descriptors = descriptors,
        .numbers = numbers,
    };
    put(&strings, "/tmp", sizeof "/tmp"); // where it starts
    for (; arguments[spawn.argument_count]; spawn.argument_count++) {
        const char *word = arguments[spawn.argument_count];
        put(&strings, word, strlen(word) + 1);
    }
    for (uint32_t i = 0; i < spawn.environment_count; i++)
        put(&strings, environment[i], strlen(environment[i]) + 1);
    spawn.strings = strings.data;
    spawn.strings_size = strings.size;
    vj_run *run = NULL;
    int32_t pid = 0;
    vj_error error = {0};
    if (strings.failed) complain("start", strerror(ENOMEM));
    else if (vj_run_start(jail, &spawn, &run, &pid, &error) != VJ_OK)
        complain_error(&error);
    free(strings.data);
    return run;
}

static int exit_code(const vj_exit *ended) {
    if (ended->stop == VJ_STOP_TIMEOUT) return TIMED_OUT;
    return WIFSIGNALED(ended->status) ? 128 + WTERMSIG(ended->status)
                                      : WEXITSTATUS(ended->status);
}

static int follow(vj_run *run, vj_capture *output, vj_capture *errors) {
    vj_exit ended = {0};
    vj_error error = {0};
    uint64_t offset = 0;
    int no_input = -1;
    vj_status status;
    do {
        status = vj_run_communicate(run, "", 0, &offset, &no_input, output, errors, -1,
                                    &ended, &error);
    } while (status == VJ_INTERRUPTED);
    if (status != VJ_OK) return complain_error(&error);
    show(stdout, vj_capture_bytes(output), vj_capture_size(output));
    show(stderr, vj_capture_bytes(errors), vj_capture_size(errors));
    int code = exit_code(&ended);
    fprintf(stderr, "host: exit code %d%s, %llu of %llu bytes of output\n", code,
            code == TIMED_OUT ? " (time limit)" : "",
            (unsigned long long)vj_capture_size(output),
            (unsigned long long)vj_capture_total(output));
    return code;
}

int run_program(vj_jail *jail, char *const *arguments) {
    int output[2] = {-1, -1}, errors[2] = {-1, -1};
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || pipe2(output, O_CLOEXEC) || pipe2(errors, O_CLOEXEC))
        return complain("streams", strerror(errno)); // this process is about to end
    const int32_t descriptors[] = {nothing, output[1], errors[1]};
    vj_run *run = start(jail, arguments, descriptors, 3, PROGRAM_NS);
    // The guest has them now; while we hold them too, the streams would not end.
    close(nothing);
    close(output[1]);
    close(errors[1]);
    vj_capture *said = vj_capture_new(output[0], OUTPUT_LIMIT);
    vj_capture *wrong = vj_capture_new(errors[0], OUTPUT_LIMIT);
    int code = REFUSED;
    if (run && said && wrong) code = follow(run, said, wrong);
    vj_run_free(run);
    vj_capture_free(said);
    vj_capture_free(wrong);
    return code;
}
