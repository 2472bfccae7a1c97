// The table of tests: its calls, its objects, its machine. See fake_windows_os.h.

#include "fake_windows_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "windows_identity.h"
#include "windows_text.h"

fake_machine *fake;

void fake_die(const char *what) {
    fprintf(stderr, "fake Windows: %s\n", what);
    abort();
}

// ---- calls

uint32_t fake_enter(const char *name) {
    pthread_mutex_lock(&fake->lock);
    if (fake->calls == fake->log_room) {
        fake->log_room = fake->log_room ? fake->log_room * 2 : 4096;
        fake->log = realloc(fake->log, fake->log_room * sizeof *fake->log);
        if (!fake->log) fake_die("out of memory");
    }
    fake->log[fake->calls++] = name;
    if (fake->act && fake->act_number == fake->calls) fake->act();
    if (fake->delay_name && !strcmp(fake->delay_name, name)) {
        uint64_t until = fake_now() + fake->delay_ms;
        while (fake_now() < until) fake_wait((uint32_t)(until - fake_now()));
    }
    if (fake->fail_number && fake->calls == fake->fail_number) return fake->fail_code;
    if (fake->fail_from && fake->calls >= fake->fail_from &&
        strcmp(name, "handle_close") != 0) {
        return fake->fail_code;
    }
    if (fake->fail_name && !strcmp(fake->fail_name, name)) return fake->fail_code;
    return 0;
}

void fake_wait(uint32_t milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_clockwait(&fake->changed, &fake->lock, CLOCK_MONOTONIC, &until);
}

void fake_changed(void) {
    pthread_cond_broadcast(&fake->changed);
}

uint64_t fake_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void fake_utf8(const uint16_t *text, char *to, size_t room) {
    size_t length = 0, written = 0;
    while (text[length]) length++;
    if (vj_windows_utf8(text, length, to, room, &written) != VJ_WINDOWS_FINE) {
        fake_die("a text that is no UTF-16");
    }
}

void fake_utf16(const char *text, uint16_t *to, size_t room) {
    size_t written = 0;
    if (vj_windows_utf16(text, strlen(text), to, room, &written) != VJ_WINDOWS_FINE) {
        fake_die("a text that is no UTF-8");
    }
}

// ---- objects

fake_object *fake_new(fake_kind kind) {
    fake_object *object = calloc(1, sizeof *object);
    if (!object) fake_die("out of memory");
    object->kind = kind;
    object->file = -1;
    object->next = fake->objects;
    fake->objects = object;
    return object;
}

fake_object *fake_of(const void *handle, fake_kind kind) {
    fake_object *object = (fake_object *)handle;
    if (!object) fake_die("a handle that is NULL");
    if (object->closed) fake_die("a handle that was closed");
    if (object->kind != kind) fake_die("a handle of another kind");
    return object;
}

void fake_must_be_secure(vj_windows_security security) {
    // Point 31: nothing is made with the default descriptor of the host's token.
    const fake_object *object = fake_of(security, FAKE_SECURITY);
    if (!strstr(object->text, "D:P")) fake_die("a descriptor that is not protected");
}

static uint32_t handle_close(const vj_windows_os *os, vj_windows_handle handle) {
    (void)os;
    FAKE_CALL();
    fake_object *object = (fake_object *)(void *)handle;
    if (!object || object->closed) fake_die("a handle that is closed twice");
    if (object->inside) fake_die("a handle that is closed while a call uses it");
    object->closed = true;
    switch (object->kind) {
    case FAKE_FILE: close(object->file); break;
    case FAKE_JOB: fake_kill_job(object, 1); break; // KILL_ON_JOB_CLOSE
    case FAKE_SERVER:
    case FAKE_CLIENT: fake_close_pipe_end(object); break;
    case FAKE_PROCESS:
    case FAKE_PROCESS_THREAD:
    case FAKE_PORT:
    case FAKE_EVENT:
    case FAKE_THREAD: break;
    default: fake_die("not closed by CloseHandle");
    }
    fake_changed();
    return fake_leave(0);
}

static uint32_t security_open(const vj_windows_os *os, const uint16_t *sddl,
                              vj_windows_security *security) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_new(FAKE_SECURITY);
    fake_utf8(sddl, object->text, sizeof object->text);
    *security = (vj_windows_security)(void *)object;
    return fake_leave(0);
}

static uint32_t security_close(const vj_windows_os *os, vj_windows_security security) {
    (void)os;
    FAKE_CALL();
    fake_of(security, FAKE_SECURITY)->closed = true;
    return fake_leave(0);
}

// ---- the machine

static uint32_t features(const vj_windows_os *os, vj_windows_features *answer) {
    (void)os;
    FAKE_CALL();
    *answer = (vj_windows_features){.missing = fake->missing,
                                    .build = 26100,
                                    .ui_limits = 0xff,
                                    .host_in_job = fake->lies & FAKE_IN_JOB};
    return fake_leave(0);
}

static uint64_t now_ms(const vj_windows_os *os) {
    (void)os;
    return fake_now();
}

static uint32_t random_bytes(void *bytes, uint32_t size) {
    uint8_t *at = bytes;
    for (uint32_t i = 0; i < size; i++) {
        if (fake->lies & FAKE_SAME_RANDOM) {
            at[i] = 0x5a;
            continue;
        }
        fake->random ^= fake->random << 13;
        fake->random ^= fake->random >> 7;
        fake->random ^= fake->random << 17;
        at[i] = (uint8_t)(fake->random >> 32);
    }
    return 0;
}

static uint32_t fake_random(const vj_windows_os *os, void *bytes, uint32_t size) {
    (void)os;
    FAKE_CALL();
    return fake_leave(random_bytes(bytes, size));
}

static uint32_t user_sid(const vj_windows_os *os, uint16_t *text, uint32_t capacity) {
    (void)os;
    FAKE_CALL();
    fake_utf16(FAKE_USER, text, capacity);
    return fake_leave(0);
}

static uint32_t system_root(const vj_windows_os *os, uint16_t *path, uint32_t capacity) {
    (void)os;
    FAKE_CALL();
    fake_utf16("C:\\Windows", path, capacity);
    return fake_leave(0);
}

static uint32_t self(const vj_windows_os *os, uint32_t *pid, uint64_t *created) {
    (void)os;
    FAKE_CALL();
    *pid = FAKE_PID;
    *created = FAKE_CREATED;
    return fake_leave(0);
}

static uint32_t owner_created(const vj_windows_os *os, uint32_t pid, uint64_t *created) {
    (void)os;
    FAKE_CALL();
    *created = 0;
    if (pid != fake->other_pid) return fake_leave(VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    *created = fake->other_created;
    return fake_leave(0);
}

static uint32_t profile_create(const vj_windows_os *os, const uint16_t *name,
                               uint16_t *sid, uint32_t capacity) {
    (void)os;
    FAKE_CALL();
    char text[128], number[VJ_WINDOWS_SID_SIZE];
    fake_utf8(name, text, sizeof text);
    size_t place = 0;
    while (fake->profiles[place][0] && strcmp(fake->profiles[place], text) != 0) place++;
    if (fake->profiles[place][0]) return fake_leave(VJ_WINDOWS_ERROR_ALREADY_EXISTS);
    snprintf(fake->profiles[place], sizeof fake->profiles[place], "%s", text);
    vj_windows_package_sid(fake->lies & FAKE_OTHER_PROFILE ? "another" : text, number);
    fake_utf16(number, sid, capacity);
    return fake_leave(0);
}

static uint32_t profile_delete(const vj_windows_os *os, const uint16_t *name) {
    (void)os;
    FAKE_CALL();
    char text[128];
    fake_utf8(name, text, sizeof text);
    for (size_t i = 0; i < 63; i++) {
        if (!strcmp(fake->profiles[i], text)) {
            memmove(fake->profiles[i], fake->profiles[i + 1],
                    (63 - i) * sizeof fake->profiles[0]);
        }
    }
    return fake_leave(0);
}

void fake_fill_machine(vj_windows_os *os) {
    os->features = features;
    os->now_ms = now_ms;
    os->random = fake_random;
    os->user_sid = user_sid;
    os->system_root = system_root;
    os->self = self;
    os->owner_created = owner_created;
    os->handle_close = handle_close;
    os->security_open = security_open;
    os->security_close = security_close;
    os->profile_create = profile_create;
    os->profile_delete = profile_delete;
}

bool fake_has_profile(const char *name) {
    for (size_t i = 0; i < 64; i++) {
        if (!strcmp(fake->profiles[i], name)) return true;
    }
    return false;
}
