// The table of tests: jobs, and programs that are threads. See fake_windows_os.h.

#include "fake_windows_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "windows_identity.h"
#include "windows_text.h"

// ---- programs

static bool is_over(const fake_program *program) {
    const fake_object *console = program->console;
    return program->killed || (console && console->closing);
}

static void drop_ends(fake_program *program) {
    for (int i = 0; i < 3; i++) {
        if (!program->standard[i]) continue;
        if (i) program->standard[i]->writers--;
        else program->standard[i]->readers--;
        program->standard[i] = NULL;
    }
    if (program->beside[0]) program->beside[0]->readers--;
    if (program->beside[1]) program->beside[1]->writers--;
    program->beside[0] = program->beside[1] = NULL;
}

void fake_end_program(fake_program *program, uint32_t exit_code) {
    if (program->ended) return;
    if (!program->killed) program->exit_code = exit_code;
    program->ended = true;
    drop_ends(program);
    fake_changed();
}

static fake_pipe *output_of(fake_program *program) {
    return program->console ? program->console->output : program->standard[1];
}

static fake_pipe *input_of(fake_program *program) {
    return program->console ? program->console->input : program->standard[0];
}

// As a blocking WriteFile of the guest. False: it is over, or nobody reads.
static bool guest_writes_to(fake_pipe *to, const fake_program *program,
                            const uint8_t *bytes, size_t size) {
    while (size && to && to->readers && !is_over(program)) {
        uint32_t count = fake_put(to, bytes, (uint32_t)size);
        bytes += count;
        size -= count;
        fake_changed();
        if (size) fake_wait(1000);
    }
    return !size;
}

static bool guest_writes(fake_program *program, const uint8_t *bytes, size_t size) {
    return guest_writes_to(output_of(program), program, bytes, size);
}

static void guest_copies(const fake_program *program, fake_pipe *from, fake_pipe *to) {
    uint8_t bytes[4096];
    while (from && !is_over(program)) {
        uint32_t count = fake_take(from, bytes, sizeof bytes);
        fake_changed();
        if (count && !guest_writes_to(to, program, bytes, count)) return;
        if (count) continue;
        if (!from->writers) return;
        fake_wait(1000);
    }
}

static void guest_floods(fake_program *program, uint64_t size) {
    uint8_t bytes[4096];
    for (uint64_t at = 0; at < size;) {
        size_t count = size - at < sizeof bytes ? (size_t)(size - at) : sizeof bytes;
        for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)((at + i) % 251);
        if (!guest_writes(program, bytes, count)) return;
        at += count;
    }
    guest_writes(program, (const uint8_t *)"PASS", 4);
}

static void guest_hangs(const fake_program *program) {
    while (!is_over(program)) fake_wait(1000);
}

static fake_program *add_program(const fake_program *like, const char *script) {
    fake_program *program = calloc(1, sizeof *program);
    if (!program) fake_die("out of memory");
    *program = *like;
    program->started = program->joined = program->killed = program->ended = false;
    program->exit_code = 0;
    snprintf(program->script, sizeof program->script, "%s", script);
    for (int i = 0; i < 3; i++) {
        if (!program->standard[i]) continue;
        if (i) program->standard[i]->writers++;
        else program->standard[i]->readers++;
    }
    if (program->beside[0]) program->beside[0]->readers++;
    if (program->beside[1]) program->beside[1]->writers++;
    program->next = fake->programs;
    fake->programs = program;
    if (program->job) program->job->ever++;
    return program;
}

static void *guest(void *argument);

static void start(fake_program *program) {
    fake->ran = true;
    program->started = true;
    if (pthread_create(&program->thread, NULL, guest, program)) fake_die("thread");
}

// The script is the last word of the command line and its number.
static void *guest(void *argument) {
    fake_program *program = argument;
    uint64_t number = 0;
    char word[32] = "";
    pthread_mutex_lock(&fake->lock);
    char *at = strchr(program->script, ' ');
    if (at) {
        snprintf(word, sizeof word, "%s", at + 1);
        char *space = strchr(word, ' ');
        if (space) {
            *space = 0;
            number = strtoull(space + 1, NULL, 10);
        }
    }
    if (!strcmp(word, "echo")) {
        guest_copies(program, input_of(program), output_of(program));
    } else if (!strcmp(word, "relay")) {
        guest_copies(program, program->beside[0], program->beside[1]);
    }
    if (!strcmp(word, "flood")) guest_floods(program, number);
    else if (!strcmp(word, "hang")) guest_hangs(program);
    else if (!strcmp(word, "parent") && !is_over(program)) {
        start(add_program(program, "guest hang"));
    }
    // The process is gone before its thread is, as everywhere.
    fake_end_program(program, strcmp(word, "flood") ? (uint32_t)number : 0);
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

static void kill_program(fake_program *program, uint32_t exit_code) {
    if (program->ended || program->killed) return;
    program->killed = true;
    program->exit_code = exit_code;
    if (!program->started) fake_end_program(program, exit_code);
}

void fake_kill_job(fake_object *job, uint32_t exit_code) {
    job->killed = true;
    for (fake_program *program = fake->programs; program; program = program->next) {
        if (program->job == job) kill_program(program, exit_code);
    }
    fake_changed();
}

// ---- jobs

static uint32_t job_create(const vj_windows_os *os, vj_windows_security security,
                           vj_windows_handle *job) {
    (void)os;
    FAKE_CALL();
    fake_must_be_secure(security);
    *job = (vj_windows_handle)(void *)fake_new(FAKE_JOB);
    return fake_leave(0);
}

static uint32_t job_watch(const vj_windows_os *os, vj_windows_handle job,
                          vj_windows_handle *port) {
    (void)os;
    FAKE_CALL();
    fake_of(job, FAKE_JOB);
    *port = (vj_windows_handle)(void *)fake_new(FAKE_PORT);
    return fake_leave(0);
}

static uint32_t job_set_limits(const vj_windows_os *os, vj_windows_handle job,
                               const vj_windows_job_limits *limits) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_of(job, FAKE_JOB);
    object->limits = *limits;
    object->limits.process_memory &= ~4095ull; // as Windows: whole pages
    object->limits.job_memory &= ~4095ull;
    object->limited = true;
    return fake_leave(0);
}

static uint32_t job_read_limits(const vj_windows_os *os, vj_windows_handle job,
                                vj_windows_job_readback *readback) {
    (void)os;
    FAKE_CALL();
    const fake_object *object = fake_of(job, FAKE_JOB);
    *readback = (vj_windows_job_readback){
        .limits = object->limits,
        .kill_on_close = object->limited && !(fake->lies & FAKE_OUTLIVES),
        .breakaway = fake->lies & FAKE_BREAKAWAY,
        .other = fake->lies & FAKE_OTHER_FLAG,
    };
    if (fake->lies & FAKE_OTHER_LIMITS) readback->limits.process_memory++;
    return fake_leave(0);
}

static uint32_t job_terminate(const vj_windows_os *os, vj_windows_handle job,
                              uint32_t exit_code) {
    (void)os;
    FAKE_CALL();
    fake_kill_job(fake_of(job, FAKE_JOB), exit_code);
    return fake_leave(0);
}

static uint32_t active(const fake_object *job) {
    uint32_t count = 0;
    for (const fake_program *program = fake->programs; program; program = program->next) {
        count += program->job == job && !program->ended;
    }
    return count;
}

static uint32_t job_wait_empty(const vj_windows_os *os, vj_windows_handle job,
                               vj_windows_handle port, uint32_t timeout_ms) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_of(job, FAKE_JOB);
    fake_object *watch = fake_of(port, FAKE_PORT);
    uint64_t until = fake_now() + timeout_ms;
    uint32_t code = 0;
    object->inside++;
    watch->inside++;
    while (active(object) && !code) {
        uint64_t now = fake_now();
        if (now >= until) code = VJ_WINDOWS_ERROR_TIMEOUT;
        else fake_wait((uint32_t)(until - now));
    }
    object->inside--;
    watch->inside--;
    return fake_leave(code);
}

static uint32_t job_usage(const vj_windows_os *os, vj_windows_handle job,
                          vj_windows_job_usage *usage) {
    (void)os;
    FAKE_CALL();
    const fake_object *object = fake_of(job, FAKE_JOB);
    *usage = (vj_windows_job_usage){
        .processes = object->ever, .active = active(object), .user_ns = 1000};
    return fake_leave(0);
}

// ---- processes

static uint32_t attributes_open(const vj_windows_os *os, uint32_t count,
                                vj_windows_attributes *attributes) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_new(FAKE_ATTRIBUTES);
    object->wanted = count;
    *attributes = (vj_windows_attributes)(void *)object;
    return fake_leave(0);
}

static void copy_sid(uint16_t to[VJ_WINDOWS_SID_MAX], const uint16_t *from) {
    size_t i = 0;
    for (; from[i]; i++) to[i] = from[i];
    to[i] = 0;
}

static uint32_t attributes_add(const vj_windows_os *os, vj_windows_attributes attributes,
                               const vj_windows_attribute *attribute) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_of(attributes, FAKE_ATTRIBUTES);
    object->added++;
    object->kinds |= 1u << attribute->kind;
    switch (attribute->kind) {
    case VJ_WINDOWS_ATTRIBUTE_CAPABILITIES:
        copy_sid(object->package, attribute->package);
        object->capability_count = attribute->capability_count;
        for (uint32_t i = 0; i < attribute->capability_count && i < 4; i++) {
            copy_sid(object->capabilities[i], attribute->capabilities[i]);
        }
        break;
    case VJ_WINDOWS_ATTRIBUTE_JOB:
        object->job = fake_of(attribute->handles[0], FAKE_JOB);
        break;
    case VJ_WINDOWS_ATTRIBUTE_CONSOLE:
        object->console = fake_of(attribute->console, FAKE_CONSOLE);
        break;
    case VJ_WINDOWS_ATTRIBUTE_HANDLES:
        object->handle_count = attribute->handle_count;
        for (uint32_t i = 0; i < attribute->handle_count && i < 8; i++) {
            object->handles[i] = fake_of(attribute->handles[i], FAKE_CLIENT);
        }
        break;
    case VJ_WINDOWS_ATTRIBUTE_LPAC:
    case VJ_WINDOWS_ATTRIBUTE_NO_CHILDREN:
    case VJ_WINDOWS_ATTRIBUTE_END: break;
    }
    return fake_leave(0);
}

static uint32_t attributes_close(const vj_windows_os *os,
                                 vj_windows_attributes attributes) {
    (void)os;
    FAKE_CALL();
    fake_of(attributes, FAKE_ATTRIBUTES)->closed = true;
    return fake_leave(0);
}

static void copy_units(uint16_t *to, size_t room, const uint16_t *from) {
    size_t i = 0;
    for (; from[i] && i + 1 < room; i++) to[i] = from[i];
    to[i] = 0;
}

static void note_launch(const vj_windows_launch *launch, const fake_object *list) {
    fake_launch *own = &fake->launch;
    memset(own, 0, sizeof *own);
    copy_units(own->application, 256, launch->application);
    copy_units(own->command_line, 1024, launch->command_line);
    copy_units(own->directory, 256, launch->directory);
    const uint16_t *block = launch->environment;
    for (size_t i = 0; i + 1 < 4096; i++) {
        own->environment[i] = block[i];
        own->environment_units = i + 1;
        if (i && !block[i] && !block[i - 1]) break;
    }
    own->attributes = list->kinds;
    own->capability_count = list->capability_count;
    own->handle_count = list->handle_count;
    copy_sid(own->package, list->package);
    memcpy(own->capabilities, list->capabilities, sizeof own->capabilities);
    own->distinct = true;
    for (uint32_t i = 0; i < 3; i++) {
        if (launch->standard[i]) own->has_standard = true;
        for (uint32_t j = 0; j < i; j++) {
            if (launch->standard[i] && launch->standard[i] == launch->standard[j]) {
                own->distinct = false;
            }
        }
        if (i < list->handle_count &&
            (const void *)launch->standard[i] != (const void *)list->handles[i]) {
            own->distinct = false;
        }
    }
    for (uint32_t i = 3; i < list->handle_count && i < 5; i++) {
        own->beside[i - 3] = (vj_windows_handle)(void *)list->handles[i];
        for (uint32_t j = 0; j < i; j++) {
            if (list->handles[i] == list->handles[j]) own->distinct = false;
        }
    }
    own->has_desktop = launch->desktop != NULL;
    fake_utf16(fake_of(launch->desktop, FAKE_DESKTOP)->text, own->desktop_sddl, 1024);
}

static uint32_t process_create(const vj_windows_os *os, const vj_windows_launch *launch,
                               vj_windows_started *started) {
    (void)os;
    FAKE_CALL();
    fake_object *list = fake_of(launch->attributes, FAKE_ATTRIBUTES);
    fake_must_be_secure(launch->process);
    fake_must_be_secure(launch->thread);
    if (list->added != list->wanted) {
        return fake_leave(VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    }
    if (!launch->directory || !launch->environment || !launch->application) {
        fake_die("a launch that leaves something to Windows");
    }
    note_launch(launch, list);
    fake_program like = {.job = list->job, .console = list->console};
    for (int i = 0; i < 3; i++) {
        if (launch->standard[i]) {
            like.standard[i] = fake_of(launch->standard[i], FAKE_CLIENT)->pipe;
        }
    }
    for (uint32_t i = 3; i < list->handle_count && i < 5; i++) {
        like.beside[i - 3] = list->handles[i]->pipe;
    }
    like.container = list->kinds & 1u << VJ_WINDOWS_ATTRIBUTE_CAPABILITIES;
    like.less_privileged = list->kinds & 1u << VJ_WINDOWS_ATTRIBUTE_LPAC;
    copy_sid(like.package, list->package);
    copy_sid(like.capability, list->capabilities[0]);
    char script[256];
    fake_utf8(fake->launch.command_line, script, sizeof script);
    fake_program *program = add_program(&like, script);
    fake_object *process = fake_new(FAKE_PROCESS);
    fake_object *thread = fake_new(FAKE_PROCESS_THREAD);
    process->program = thread->program = program;
    *started = (vj_windows_started){(vj_windows_handle)(void *)process,
                                    (vj_windows_handle)(void *)thread, 77};
    return fake_leave(0);
}

static uint32_t process_in_job(const vj_windows_os *os, vj_windows_handle process,
                               vj_windows_handle job, bool *inside) {
    (void)os;
    FAKE_CALL();
    *inside = fake_of(process, FAKE_PROCESS)->program->job == fake_of(job, FAKE_JOB) &&
              !(fake->lies & FAKE_NOT_IN_JOB);
    return fake_leave(0);
}

static uint32_t process_token(const vj_windows_os *os, vj_windows_handle process,
                              vj_windows_token *token) {
    (void)os;
    FAKE_CALL();
    const fake_program *program = fake_of(process, FAKE_PROCESS)->program;
    uint32_t lies = fake->lies;
    memset(token, 0, sizeof *token);
    token->app_container = program->container && !(lies & FAKE_NO_CONTAINER);
    token->less_privileged =
        program->less_privileged && !(lies & FAKE_NOT_LESS_PRIVILEGED);
    token->integrity = lies & FAKE_MEDIUM ? 0x2000 : 0x1000;
    copy_sid(token->package, program->package);
    if (lies & FAKE_OTHER_PACKAGE) token->package[9]++;
    copy_sid(token->capabilities[0], program->capability);
    if (lies & FAKE_OTHER_CAPABILITY) token->capabilities[0][12]++;
    token->capability_count = lies & FAKE_NO_CAPABILITY       ? 0
                              : lies & FAKE_MORE_CAPABILITIES ? 2
                                                              : 1;
    return fake_leave(0);
}

static uint32_t process_created(const vj_windows_os *os, vj_windows_handle process,
                                uint64_t *created) {
    (void)os;
    FAKE_CALL();
    fake_of(process, FAKE_PROCESS);
    *created = FAKE_CREATED + 1;
    return fake_leave(0);
}

static uint32_t thread_resume(const vj_windows_os *os, vj_windows_handle thread,
                              uint32_t *before) {
    (void)os;
    FAKE_CALL();
    fake_program *program = fake_of(thread, FAKE_PROCESS_THREAD)->program;
    *before = fake->lies & FAKE_RESUMED_BEFORE ? 2 : 1;
    if (program->started) fake_die("a process that is resumed twice");
    if (*before == 1 && !program->ended) start(program);
    return fake_leave(0);
}

static uint32_t process_wait(const vj_windows_os *os, vj_windows_handle process,
                             uint32_t timeout_ms) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_of(process, FAKE_PROCESS);
    uint64_t until = fake_now() + timeout_ms;
    object->inside++;
    while (!object->program->ended && fake_now() < until) {
        fake_wait((uint32_t)(until - fake_now()));
    }
    object->inside--;
    return fake_leave(object->program->ended ? 0 : VJ_WINDOWS_ERROR_TIMEOUT);
}

static uint32_t process_exit_code(const vj_windows_os *os, vj_windows_handle process,
                                  uint32_t *exit_code) {
    (void)os;
    FAKE_CALL();
    const fake_program *program = fake_of(process, FAKE_PROCESS)->program;
    *exit_code = program->ended ? program->exit_code : 259; // STILL_ACTIVE
    return fake_leave(0);
}

static uint32_t process_terminate(const vj_windows_os *os, vj_windows_handle process,
                                  uint32_t exit_code) {
    (void)os;
    FAKE_CALL();
    kill_program(fake_of(process, FAKE_PROCESS)->program, exit_code);
    fake_changed();
    return fake_leave(0);
}

void fake_fill_guests(vj_windows_os *os) {
    os->job_create = job_create;
    os->job_watch = job_watch;
    os->job_set_limits = job_set_limits;
    os->job_read_limits = job_read_limits;
    os->job_terminate = job_terminate;
    os->job_wait_empty = job_wait_empty;
    os->job_usage = job_usage;
    os->attributes_open = attributes_open;
    os->attributes_add = attributes_add;
    os->attributes_close = attributes_close;
    os->process_create = process_create;
    os->process_in_job = process_in_job;
    os->process_token = process_token;
    os->process_created = process_created;
    os->thread_resume = thread_resume;
    os->process_wait = process_wait;
    os->process_exit_code = process_exit_code;
    os->process_terminate = process_terminate;
}
