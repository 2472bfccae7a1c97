// The table of tests: pipes, consoles and threads of the host. See fake_windows_os.h.

#include "fake_windows_os.h"

#include <stdlib.h>
#include <string.h>

// ---- pipes

static fake_pipe *pipe_named(const uint16_t *name) {
    for (size_t i = 0; i < fake->pipe_count; i++) {
        if (!memcmp(fake->pipes[i]->name, name, sizeof fake->pipes[i]->name)) {
            return fake->pipes[i];
        }
    }
    return NULL;
}

static void copy_name(const uint16_t *name, uint16_t to[64]) {
    memset(to, 0, 64 * sizeof *to);
    for (size_t i = 0; name[i]; i++) to[i] = name[i];
}

static uint32_t pipe_create(const vj_windows_os *os, const uint16_t *name,
                            vj_windows_direction direction, vj_windows_security security,
                            vj_windows_handle *server) {
    (void)os;
    FAKE_CALL();
    uint16_t whole[64];
    fake_must_be_secure(security);
    copy_name(name, whole);
    if (fake->squat || pipe_named(whole)) {
        return fake_leave(VJ_WINDOWS_ERROR_ACCESS_DENIED);
    }
    fake_pipe *made = calloc(1, sizeof *made);
    if (!made || fake->pipe_count == sizeof fake->pipes / sizeof *fake->pipes) {
        fake_die("out of pipes");
    }
    memcpy(made->name, whole, sizeof whole);
    made->to_guest = direction == VJ_WINDOWS_PIPE_TO_GUEST;
    if (made->to_guest) made->writers = 1;
    else made->readers = 1;
    fake->pipes[fake->pipe_count++] = made;
    fake_object *object = fake_new(FAKE_SERVER);
    object->pipe = made;
    *server = (vj_windows_handle)(void *)object;
    return fake_leave(0);
}

static uint32_t pipe_connect(const vj_windows_os *os, const uint16_t *name,
                             vj_windows_direction direction, bool inheritable,
                             vj_windows_security security, vj_windows_handle *client) {
    (void)os;
    (void)inheritable;
    FAKE_CALL();
    uint16_t whole[64];
    fake_must_be_secure(security);
    copy_name(name, whole);
    fake_pipe *made = pipe_named(whole);
    if (!made) return fake_leave(VJ_WINDOWS_ERROR_FILE_NOT_FOUND);
    if (made->connected) return fake_leave(VJ_WINDOWS_ERROR_PIPE_BUSY);
    if (made->to_guest != (direction == VJ_WINDOWS_PIPE_TO_GUEST)) {
        return fake_leave(VJ_WINDOWS_ERROR_ACCESS_DENIED);
    }
    made->connected = true;
    if (made->to_guest) made->readers++;
    else made->writers++;
    fake_object *object = fake_new(FAKE_CLIENT);
    object->pipe = made;
    *client = (vj_windows_handle)(void *)object;
    return fake_leave(0);
}

void fake_close_pipe_end(fake_object *object) {
    bool writes = object->pipe->to_guest == (object->kind == FAKE_SERVER);
    if (writes) object->pipe->writers--;
    else object->pipe->readers--;
}

static uint32_t event_create(const vj_windows_os *os, vj_windows_security security,
                             vj_windows_handle *event) {
    (void)os;
    FAKE_CALL();
    fake_must_be_secure(security);
    *event = (vj_windows_handle)(void *)fake_new(FAKE_EVENT);
    return fake_leave(0);
}

uint32_t fake_take(fake_pipe *from, uint8_t *bytes, uint32_t size) {
    uint32_t count = size < from->used ? size : (uint32_t)from->used;
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = from->bytes[(from->at + i) % FAKE_PIPE_SIZE];
    }
    from->at = (from->at + count) % FAKE_PIPE_SIZE;
    from->used -= count;
    return count;
}

uint32_t fake_put(fake_pipe *to, const uint8_t *bytes, uint32_t size) {
    uint32_t room = (uint32_t)(FAKE_PIPE_SIZE - to->used);
    uint32_t count = size < room ? size : room;
    for (uint32_t i = 0; i < count; i++) {
        to->bytes[(to->at + to->used + i) % FAKE_PIPE_SIZE] = bytes[i];
    }
    to->used += count;
    return count;
}

// One operation, with the lock held: 0 and `*count`, or how it ended.
static uint32_t move(fake_object *object, bool reads, uint8_t *bytes, uint32_t size,
                     uint32_t timeout_ms, uint32_t *count) {
    fake_pipe *own = object->pipe;
    uint64_t until = fake_now() + timeout_ms;
    uint64_t canceled = object->canceled;
    for (;;) {
        if (reads && own->used) {
            *count = fake_take(own, bytes, size);
            return 0;
        }
        if (reads && !own->writers) return VJ_WINDOWS_ERROR_BROKEN_PIPE;
        if (!reads && !own->readers) return VJ_WINDOWS_ERROR_NO_DATA;
        if (!reads && own->used < FAKE_PIPE_SIZE) {
            *count = fake_put(own, bytes, size);
            return 0;
        }
        if (object->canceled != canceled) return VJ_WINDOWS_ERROR_OPERATION_ABORTED;
        uint64_t now = fake_now();
        if (now >= until) return VJ_WINDOWS_ERROR_TIMEOUT;
        fake_wait((uint32_t)(until - now));
    }
}

static uint32_t use_pipe(vj_windows_handle pipe, vj_windows_handle event, bool reads,
                         void *bytes, uint32_t size, uint32_t timeout_ms,
                         uint32_t *count) {
    fake_object *object = fake_of(pipe, FAKE_SERVER);
    fake_object *signal = fake_of(event, FAKE_EVENT);
    *count = 0;
    if (signal->inside) fake_die("an event that two operations use");
    object->inside++;
    signal->inside++;
    uint32_t code = move(object, reads, bytes, size, timeout_ms, count);
    object->inside--;
    signal->inside--;
    fake_changed();
    return code;
}

static uint32_t pipe_read(const vj_windows_os *os, vj_windows_handle pipe,
                          vj_windows_handle event, void *bytes, uint32_t size,
                          uint32_t timeout_ms, uint32_t *count) {
    (void)os;
    FAKE_CALL();
    return fake_leave(use_pipe(pipe, event, true, bytes, size, timeout_ms, count));
}

static uint32_t pipe_write(const vj_windows_os *os, vj_windows_handle pipe,
                           vj_windows_handle event, const void *bytes, uint32_t size,
                           uint32_t timeout_ms, uint32_t *count) {
    (void)os;
    FAKE_CALL();
    // `move` does not write to what it is given here.
    return fake_leave(
        use_pipe(pipe, event, false, (void *)(uintptr_t)bytes, size, timeout_ms, count));
}

static uint32_t pipe_cancel(const vj_windows_os *os, vj_windows_handle pipe) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_of(pipe, FAKE_SERVER);
    // What has not begun is not canceled.
    if (object->inside) object->canceled++;
    fake_changed();
    return fake_leave(0);
}

size_t fake_client_write(vj_windows_handle client, const void *bytes, size_t size) {
    pthread_mutex_lock(&fake->lock);
    fake_pipe *to = fake_of(client, FAKE_CLIENT)->pipe;
    size_t count = to->readers ? fake_put(to, bytes, (uint32_t)size) : 0;
    fake_changed();
    pthread_mutex_unlock(&fake->lock);
    return count;
}

size_t fake_client_read(vj_windows_handle client, void *bytes, size_t size) {
    pthread_mutex_lock(&fake->lock);
    size_t count = fake_take(fake_of(client, FAKE_CLIENT)->pipe, bytes, (uint32_t)size);
    fake_changed();
    pthread_mutex_unlock(&fake->lock);
    return count;
}

// ---- desktops and consoles

static uint32_t desktop_open(const vj_windows_os *os, const uint16_t *name,
                             const uint16_t *sddl, vj_windows_security security,
                             vj_windows_desktop *desktop) {
    (void)os;
    FAKE_CALL();
    fake_must_be_secure(security);
    if (!name[0]) fake_die("a desktop without a name");
    fake_object *object = fake_new(FAKE_DESKTOP);
    fake_utf8(sddl, object->text, sizeof object->text);
    *desktop = (vj_windows_desktop)(void *)object;
    return fake_leave(0);
}

static uint32_t desktop_close(const vj_windows_os *os, vj_windows_desktop desktop) {
    (void)os;
    FAKE_CALL();
    fake_of(desktop, FAKE_DESKTOP)->closed = true;
    return fake_leave(0);
}

static uint32_t console_create(const vj_windows_os *os, uint16_t columns, uint16_t rows,
                               vj_windows_handle input, vj_windows_handle output,
                               vj_windows_console *console) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_new(FAKE_CONSOLE);
    object->input = fake_of(input, FAKE_CLIENT)->pipe;
    object->output = fake_of(output, FAKE_CLIENT)->pipe;
    object->input->readers++;
    object->output->writers++;
    fake->columns = columns;
    fake->rows = rows;
    *console = (vj_windows_console)(void *)object;
    return fake_leave(0);
}

static uint32_t console_resize(const vj_windows_os *os, vj_windows_console console,
                               uint16_t columns, uint16_t rows) {
    (void)os;
    FAKE_CALL();
    const fake_object *object = fake_of(console, FAKE_CONSOLE);
    if (object->closing) fake_die("a console that is resized while it is closed");
    fake->columns = columns;
    fake->rows = rows;
    return fake_leave(0);
}

static bool has_clients(const fake_object *console) {
    for (const fake_program *program = fake->programs; program; program = program->next) {
        if (program->console == console && !program->ended) return true;
    }
    return false;
}

// Its clients are told to go, it paints once more, and all of that must be read.
static void console_close(const vj_windows_os *os, vj_windows_console console) {
    (void)os;
    (void)fake_enter("console_close");
    fake_object *object = fake_of(console, FAKE_CONSOLE);
    if (object->closing) fake_die("a console that is closed twice");
    object->closing = true;
    fake_changed();
    bool quick = fake->lies & FAKE_QUICK_CONSOLE;
    for (uint32_t left = FAKE_FINAL_FRAME; left && object->output->readers && !quick;) {
        uint8_t frame[512] = {'~'};
        left -=
            fake_put(object->output, frame, left < sizeof frame ? left : sizeof frame);
        fake_changed();
        if (object->output->used == FAKE_PIPE_SIZE) fake_wait(1000);
    }
    while (!quick &&
           (has_clients(object) || (object->output->used && object->output->readers))) {
        fake_wait(1000);
    }
    object->output->writers--;
    object->input->readers--;
    object->closed = true;
    fake_changed();
    pthread_mutex_unlock(&fake->lock);
}

// ---- threads of the host

static void *run_thread(void *argument) {
    fake_object *object = argument;
    object->function(object->argument);
    pthread_mutex_lock(&fake->lock);
    object->done = true;
    fake_changed();
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

static uint32_t thread_start(const vj_windows_os *os, vj_windows_thread function,
                             void *argument, vj_windows_security security,
                             vj_windows_handle *thread) {
    (void)os;
    FAKE_CALL();
    fake_must_be_secure(security);
    fake_object *object = fake_new(FAKE_THREAD);
    object->function = function;
    object->argument = argument;
    if (pthread_create(&object->thread, NULL, run_thread, object)) fake_die("thread");
    *thread = (vj_windows_handle)(void *)object;
    return fake_leave(0);
}

static uint32_t thread_wait(const vj_windows_os *os, vj_windows_handle thread,
                            uint32_t timeout_ms) {
    (void)os;
    FAKE_CALL();
    fake_object *object = fake_of(thread, FAKE_THREAD);
    uint64_t until = fake_now() + timeout_ms;
    while (!object->done && fake_now() < until) fake_wait((uint32_t)(until - fake_now()));
    return fake_leave(object->done ? 0 : VJ_WINDOWS_ERROR_TIMEOUT);
}

void fake_fill_streams(vj_windows_os *os) {
    os->desktop_open = desktop_open;
    os->desktop_close = desktop_close;
    os->pipe_create = pipe_create;
    os->pipe_connect = pipe_connect;
    os->event_create = event_create;
    os->pipe_read = pipe_read;
    os->pipe_write = pipe_write;
    os->pipe_cancel = pipe_cancel;
    os->console_create = console_create;
    os->console_resize = console_resize;
    os->console_close = console_close;
    os->thread_start = thread_start;
    os->thread_wait = thread_wait;
}
