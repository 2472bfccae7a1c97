// What threads do to one context, and what other programs do to sources.
//
// sources: native/visjail/identifiers.c native/visjail/streams.c
// sources: native/visjail/posix_monitor.c native/visjail/windows_core.c
// sources: native/visjail/windows_context.c native/visjail/windows_close.c
// sources: native/visjail/windows_stage.c native/visjail/windows_spawn.c
// sources: native/visjail/windows_process.c native/visjail/windows_console.c
// sources: native/visjail/windows_streams.c native/visjail/windows_remove.c
// sources: native/visjail/windows_marker.c native/visjail/windows_stale.c
// sources: native/visjail/windows_text.c native/visjail/windows_command.c
// sources: native/visjail/windows_names.c native/visjail/windows_identity.c
// sources: native/visjail/sha256.c tests/native/windows_case.c
// sources: tests/native/fake_windows_os.c tests/native/fake_windows_files.c
// sources: tests/native/fake_windows_streams.c
// sources: tests/native/fake_windows_guests.c tests/native/fake_windows_control.c
// sanitizers: address thread
//
// W68: eight threads start, wait, kill, read, write, resize, release and close at once;
// each gets one of the documented answers, and nothing is left. W45: programs whose
// output nobody takes, and that take no input, are closed in time: running, reaped, with
// their consumer gone, and several contexts at once. W16: a source that is swapped while
// it is copied is an error or a whole copy, and never something from elsewhere.
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "windows_case.h"

// ---- everything at once

#define THREADS 8
#define TURNS   60
#define SLOTS   4

typedef struct {
    vj_windows_id context;
    _Atomic(vj_windows_id) processes[SLOTS];
    _Atomic(vj_windows_id) inputs[SLOTS];
    _Atomic(vj_windows_id) outputs[SLOTS];
    _Atomic bool closed;
} scene;

typedef struct {
    scene *scene;
    uint64_t random;
    bool closes;
} actor;

static uint32_t draw(actor *actor, uint32_t below) {
    actor->random ^= actor->random << 13;
    actor->random ^= actor->random >> 7;
    actor->random ^= actor->random << 17;
    return (uint32_t)(actor->random >> 32) % below;
}

// What each call may answer, as bits.
#define MAY(status) (1u << (status))
#define MAY_ALWAYS  (MAY(VJ_WINDOWS_OK) | MAY(VJ_WINDOWS_STALE))

static void expect(vj_windows_status status, uint32_t allowed, const char *what) {
    if (MAY(status) & allowed) return;
    fprintf(stderr, "%s: status %d\n", what, (int)status);
    abort();
}

static void act(actor *actor) {
    static const char *const scripts[] = {"exit 3", "hang", "echo", "flood 200000"};
    scene *scene = actor->scene;
    uint32_t slot = draw(actor, SLOTS);
    vj_windows_id process = atomic_load(&scene->processes[slot]);
    vj_windows_id input = atomic_load(&scene->inputs[slot]);
    vj_windows_id output = atomic_load(&scene->outputs[slot]);
    vj_windows_spawn_info info;
    vj_windows_exit result = {.size = sizeof result, .version = VJ_WINDOWS_VERSION};
    char bytes[4096] = {0};
    uint64_t count = 0;
    switch (draw(actor, 9)) {
    case 0:
    case 1:
        expect(spawn(scene->context, scripts[draw(actor, 4)],
                     draw(actor, 2) ? VJ_WINDOWS_SPAWN_CONSOLE : 0, &info),
               MAY_ALWAYS | MAY(VJ_WINDOWS_CLOSING), "spawn");
        atomic_store(&scene->processes[slot], info.process);
        atomic_store(&scene->inputs[slot], info.input);
        atomic_store(&scene->outputs[slot], info.output);
        break;
    case 2:
        expect(vj_windows_wait(process, 5, &result, case_error()),
               MAY_ALWAYS | MAY(VJ_WINDOWS_TIMED_OUT), "wait");
        break;
    case 3:
        expect(vj_windows_kill(process, case_error()), MAY_ALWAYS, "kill");
        expect(vj_windows_wait(process, LONG, &result, case_error()), MAY_ALWAYS, "wait");
        break;
    case 4:
        expect(vj_windows_read(output, bytes, sizeof bytes, 5, &count, case_error()),
               MAY_ALWAYS | MAY(VJ_WINDOWS_TIMED_OUT), "read");
        break;
    case 5:
        expect(vj_windows_write(input, bytes, sizeof bytes, 5, &count, case_error()),
               MAY_ALWAYS | MAY(VJ_WINDOWS_TIMED_OUT) | MAY(VJ_WINDOWS_ENDED), "write");
        break;
    case 6:
        expect(vj_windows_resize(process, 100, 40, case_error()),
               MAY_ALWAYS | MAY(VJ_WINDOWS_ENDED) | MAY(VJ_WINDOWS_REFUSED), "resize");
        break;
    case 7:
        expect(vj_windows_close_stream(draw(actor, 2) ? input : output, case_error()),
               MAY_ALWAYS, "close a stream");
        break;
    default: expect(vj_windows_release(process, case_error()), MAY_ALWAYS, "release");
    }
}

static void *plays(void *argument) {
    actor *own = argument;
    for (int turn = 0; turn < TURNS && !atomic_load(&own->scene->closed); turn++) {
        if (own->closes && turn == TURNS / 2) {
            expect(vj_windows_close(own->scene->context, case_error()), MAY_ALWAYS,
                   "close");
            atomic_store(&own->scene->closed, true);
        }
        act(own);
    }
    return NULL;
}

static void threads_get_documented_answers(void) {
    for (uint64_t round = 0; round < 6; round++) {
        case_begin();
        scene scene = {.context = sealed_context(VJ_WINDOWS_REMOVE_WORK)};
        // The table dies if a console is resized while it is closed.
        fake_delay("console_resize", 3);
        actor actors[THREADS];
        pthread_t threads[THREADS];
        for (uint64_t i = 0; i < THREADS; i++) {
            actors[i] =
                (actor){&scene, 0x9e3779b97f4a7c15u * (1 + round * THREADS + i), i < 2};
            pthread_create(&threads[i], NULL, plays, &actors[i]);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        expect(vj_windows_close(scene.context, case_error()), MAY(VJ_WINDOWS_STALE),
               "twice");
        check(!case_files() && !fake_running(), "nothing is left");
        case_end();
    }
}

// ---- back-pressure

#define CHILDREN 4
#define RECEIVED (128u << 10)
#define INPUT    (16u << 20)

typedef struct {
    vj_windows_id input;
    const char *bytes;
    _Atomic bool done;
    uint64_t count;
    vj_windows_status status;
} feeder;

static void *feeds(void *argument) {
    feeder *own = argument;
    own->status = vj_windows_write(own->input, own->bytes, INPUT, VJ_WINDOWS_FOREVER,
                                   &own->count, case_error());
    atomic_store(&own->done, true);
    return NULL;
}

typedef enum way { ACTIVE, REAPED, CONSUMER_CLOSED } way;

static void receive(vj_windows_id output, uint64_t most) {
    static _Thread_local char bytes[32768];
    for (uint64_t total = 0; total < most;) {
        uint64_t count = 0;
        check_status(
            vj_windows_read(output, bytes, sizeof bytes, LONG, &count, case_error()),
            VJ_WINDOWS_OK, "read");
        check(count > 0, "output before its end");
        total += count;
    }
}

// Four children, as they are; then the close of their context, in 20 seconds.
static void *presses(void *argument) {
    const way how = *(const way *)argument;
    char *bytes = calloc(1, INPUT);
    vj_windows_id context = sealed_context(VJ_WINDOWS_REMOVE_WORK);
    feeder feeders[CHILDREN];
    pthread_t threads[CHILDREN];
    vj_windows_spawn_info info[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        uint32_t flags = i % 2 ? VJ_WINDOWS_SPAWN_CONSOLE : 0;
        const char *script = how == REAPED ? "flood 40000" : "flood 100000000";
        check_status(spawn(context, script, flags, &info[i]), VJ_WINDOWS_OK, "spawn");
        if (how != REAPED) receive(info[i].output, RECEIVED);
        feeders[i] = (feeder){.input = info[i].input, .bytes = bytes};
        if (how == REAPED) {
            vj_windows_exit result = {.size = sizeof result, .version = 1};
            check_status(vj_windows_wait(info[i].process, LONG, &result, case_error()),
                         VJ_WINDOWS_OK, "wait");
        } else {
            pthread_create(&threads[i], NULL, feeds, &feeders[i]);
        }
        if (how == CONSUMER_CLOSED) {
            check_status(vj_windows_close_stream(info[i].output, case_error()),
                         VJ_WINDOWS_OK, "the consumer closes");
        }
    }
    if (how == ACTIVE) {
        struct timespec moment = {.tv_nsec = 100000000};
        nanosleep(&moment, NULL);
        for (int i = 0; i < CHILDREN; i++) {
            check(!atomic_load(&feeders[i].done), "nobody takes the input");
        }
    }
    uint64_t before = fake_now();
    check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, "close");
    check(fake_now() - before < 20000, "in time");
    for (int i = 0; i < CHILDREN && how != REAPED; i++) {
        pthread_join(threads[i], NULL);
        check(feeders[i].status == VJ_WINDOWS_STALE ||
                  feeders[i].status == VJ_WINDOWS_ENDED,
              "who writes hears of it");
        check(feeders[i].count < INPUT, "with less than all");
    }
    free(bytes);
    return NULL;
}

static void pressure_does_not_hold_a_close(void) {
    static way ways[] = {ACTIVE, REAPED, CONSUMER_CLOSED};
    for (size_t i = 0; i < 3; i++) {
        case_begin();
        presses(&ways[i]);
        case_end();
    }
    // Four contexts at once.
    pthread_t threads[4];
    case_begin();
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, presses, &ways[i % 3]);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    check(!fake_running() && !case_files(), "nothing is left");
    case_end();
}

// ---- finite terminals beside others that are closed (W44)

typedef struct {
    vj_windows_id context;
    vj_windows_id output;
    vj_windows_id process;
    char last[4];
} terminal;

static void *watches(void *argument) {
    terminal *own = argument;
    vj_windows_exit result = {.size = sizeof result, .version = VJ_WINDOWS_VERSION};
    static _Thread_local char bytes[65536];
    // Up to its marker, which stands before what the console paints at its end.
    for (uint64_t total = 0; total < 30004;) {
        uint64_t count = 0;
        uint64_t left = 30004 - total;
        check_status(
            vj_windows_read(own->output, bytes, left, LONG, &count, case_error()),
            VJ_WINDOWS_OK, "read");
        total += count;
        for (uint64_t i = 0; i < count; i++) {
            memmove(own->last, own->last + 1, 3);
            own->last[3] = bytes[i];
        }
    }
    check_status(vj_windows_wait(own->process, LONG, &result, case_error()),
                 VJ_WINDOWS_OK, "wait");
    return NULL;
}

static void *opens_and_closes(void *argument) {
    (void)argument;
    for (int i = 0; i < 4; i++) {
        vj_windows_spawn_info info;
        vj_windows_id context = sealed_context(VJ_WINDOWS_REMOVE_WORK);
        check_status(spawn(context, "flood 1000000", VJ_WINDOWS_SPAWN_CONSOLE, &info),
                     VJ_WINDOWS_OK, "spawn");
        check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, "close");
    }
    return NULL;
}

static void terminals_keep_their_last_words(void) {
    terminal terminals[8] = {0};
    pthread_t threads[9];
    case_begin();
    pthread_create(&threads[8], NULL, opens_and_closes, NULL);
    for (int i = 0; i < 8; i++) {
        vj_windows_spawn_info info;
        terminals[i].context = sealed_context(VJ_WINDOWS_REMOVE_WORK);
        check_status(
            spawn(terminals[i].context, "flood 30000", VJ_WINDOWS_SPAWN_CONSOLE, &info),
            VJ_WINDOWS_OK, "spawn");
        terminals[i].output = info.output;
        terminals[i].process = info.process;
        pthread_create(&threads[i], NULL, watches, &terminals[i]);
    }
    for (int i = 0; i < 9; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++) {
        check(!memcmp(terminals[i].last, "PASS", 4), "the marker of each");
        check_status(vj_windows_close(terminals[i].context, case_error()), VJ_WINDOWS_OK,
                     "close");
    }
    case_end();
}

// ---- sources that change

typedef struct {
    _Atomic bool stop;
    uint64_t turns;
} swapper;

static void *swaps(void *argument) {
    swapper *own = argument;
    while (!atomic_load(&own->stop)) {
        // A file becomes a link to what is outside of the sources, and back.
        rename(case_path("sources/lib/one.py"), case_path("sources/lib/kept"));
        (void)!symlink(case_path("secret"), case_path("sources/lib/one.py"));
        unlink(case_path("sources/lib/one.py"));
        rename(case_path("sources/lib/kept"), case_path("sources/lib/one.py"));
        // So does a directory.
        rename(case_path("sources/lib/deep"), case_path("deep-kept"));
        (void)!symlink(case_path("outside"), case_path("sources/lib/deep"));
        unlink(case_path("sources/lib/deep"));
        rename(case_path("deep-kept"), case_path("sources/lib/deep"));
        own->turns++;
    }
    return NULL;
}

static void look_for_secret(const char *root) {
    static const char *const places[] = {"one.py", "kept", "deep/two.py"};
    for (size_t i = 0; i < 3; i++) {
        char path[256], text[64];
        snprintf(path, sizeof path, "jails/%s/app/Lib/%s", root, places[i]);
        check(!strstr(case_read(path, text, sizeof text), "SECRET"),
              "nothing from outside");
    }
}

static void a_swap_brings_nothing_in(void) {
    case_begin();
    case_write("secret", "SECRET");
    mkdir(case_path("outside"), 0700);
    case_write("outside/two.py", "SECRET");
    swapper swapper = {0};
    pthread_t thread;
    unsigned whole = 0, refused = 0;
    // Without it, all is copied; with it, whatever it meets.
    // On a busy machine the other thread may begin late.
    for (int turn = 0; turn < 60 || (!refused && turn < 5000); turn++) {
        vj_windows_id context = 0;
        vj_windows_context_info info;
        if (turn == 1) pthread_create(&thread, NULL, swaps, &swapper);
        check_status(create(&context, &info, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                     "create");
        unsigned before = case_files();
        vj_windows_status status = stage(context, "C:\\sources\\lib", "Lib");
        if (status == VJ_WINDOWS_OK) {
            whole++;
            look_for_secret(strrchr(info.root, '\\') + 1);
        } else {
            expect(status,
                   MAY(VJ_WINDOWS_CHANGED) | MAY(VJ_WINDOWS_REFUSED) |
                       MAY(VJ_WINDOWS_SYSTEM),
                   "a swap");
            check(case_files() == before, "and nothing is half there");
            refused++;
        }
        check(turn || whole, "a source that rests is copied");
        check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, "close");
    }
    atomic_store(&swapper.stop, true);
    pthread_join(thread, NULL);
    check(refused > 0 && swapper.turns > 0, "the race was run");
    case_end();
}

int main(void) {
    threads_get_documented_answers();
    pressure_does_not_hold_a_close();
    terminals_keep_their_last_words();
    a_swap_brings_nothing_in();
    return 0;
}
