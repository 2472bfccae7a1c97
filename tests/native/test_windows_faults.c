// Every call of Windows fails once: after each failure nothing is left, or the context is
// poisoned and closing it again cleans up (W66, W52).
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
// The whole life of a context runs again and again; the first call fails, then the
// second, and so on to the last; then all calls from the second on, from the third on,
// and so on. Handles, descriptors, listings, profiles, desktops, consoles, threads,
// programs and files are counted after each. A last round lets every call of one name
// fail for the whole of one step (create, stage, spawn, release, close), and closes the
// context once when that is over.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_case.h"

#define MOST_CALLS 2000u

// What a life of a context came to.
typedef struct {
    bool failed;
    unsigned steps; // that it got through
} life;

static bool is_told(vj_windows_status status) {
    // A failed call of Windows, or what it made the library see.
    return status == VJ_WINDOWS_SYSTEM || status == VJ_WINDOWS_MISMATCH ||
           status == VJ_WINDOWS_CHANGED || status == VJ_WINDOWS_TIMED_OUT ||
           status == VJ_WINDOWS_POISONED || status == VJ_WINDOWS_ENDED;
}

static vj_windows_context_state state_of(vj_windows_id context) {
    vj_windows_context_state state = VJ_WINDOWS_CONTEXT_CLOSING;
    check_status(vj_windows_state_of(context, &state, case_error()), VJ_WINDOWS_OK,
                 "state");
    return state;
}

// One step: true if it did what it should.
static bool step(life *life, vj_windows_status status, const char *what) {
    if (status == VJ_WINDOWS_OK) {
        life->steps++;
        return true;
    }
    check(is_told(status), what);
    life->failed = true;
    return false;
}

// A failed step leaves the state and what there was, or a poisoned context.
static void check_left(vj_windows_id context, vj_windows_context_state wanted,
                       unsigned objects, unsigned files, const char *what) {
    vj_windows_context_state state = state_of(context);
    if (state == VJ_WINDOWS_CONTEXT_POISONED) return;
    check(state == wanted, what);
    if (fake_left(false) != objects) fake_left(true);
    check(fake_left(false) == objects, what);
    check(case_files() == files, what);
}

static bool stages(life *life, vj_windows_id context, const char *source,
                   const char *destination) {
    unsigned objects = fake_left(false), files = case_files();
    if (step(life, stage(context, source, destination), "stage")) return true;
    check_left(context, VJ_WINDOWS_CONTEXT_OPEN, objects, files, "a stage that failed");
    return false;
}

static bool runs(life *life, vj_windows_id context, const char *script, uint32_t flags) {
    unsigned objects = fake_left(false), files = case_files();
    vj_windows_spawn_info info;
    vj_windows_exit result = {.size = sizeof result, .version = VJ_WINDOWS_VERSION};
    if (!step(life, spawn(context, script, flags, &info), "spawn")) {
        check_left(context, VJ_WINDOWS_CONTEXT_SEALED, objects, files,
                   "a start that failed");
        return false;
    }
    char bytes[64];
    uint64_t count = 0;
    vj_windows_status status =
        vj_windows_read(info.output, bytes, sizeof bytes, LONG, &count, case_error());
    if (!step(life, status, "read")) return false;
    status = vj_windows_close_stream(info.output, case_error());
    if (!step(life, status, "close a stream")) return false;
    status = vj_windows_wait(info.process, LONG, &result, case_error());
    if (!step(life, status, "wait")) return false;
    status = vj_windows_release(info.process, case_error());
    return step(life, status, "release");
}

static bool leaves_running(life *life, vj_windows_id context, uint32_t flags) {
    vj_windows_spawn_info info;
    unsigned objects = fake_left(false), files = case_files();
    if (step(life, spawn(context, "hang", flags, &info), "spawn")) return true;
    check_left(context, VJ_WINDOWS_CONTEXT_SEALED, objects, files, "a start that failed");
    return false;
}

static bool works(life *life, vj_windows_id context) {
    return stages(life, context, "C:\\sources\\lib", "Lib") &&
           stages(life, context, "C:\\sources\\guest.exe", "bin/guest.exe") &&
           step(life, vj_windows_seal(context, case_error()), "seal") &&
           runs(life, context, "flood 10", 0) &&
           runs(life, context, "flood 10", VJ_WINDOWS_SPAWN_CONSOLE) &&
           leaves_running(life, context, VJ_WINDOWS_SPAWN_CONSOLE) &&
           leaves_running(life, context,
                          VJ_WINDOWS_SPAWN_NO_INPUT | VJ_WINDOWS_SPAWN_CHANNEL);
}

static life live(void) {
    life life = {false, 0};
    vj_windows_id context = 0;
    if (!step(&life, create(&context, NULL, VJ_WINDOWS_REMOVE_WORK), "create")) {
        if (!context) {
            if (fake_left(false)) fake_left(true);
            check(!fake_left(false) && !case_files(), "a context that was not made");
            return life;
        }
        check(state_of(context) == VJ_WINDOWS_CONTEXT_POISONED, "or is poisoned");
    } else {
        works(&life, context);
    }
    vj_windows_status status = vj_windows_close(context, case_error());
    if (!step(&life, status, "close")) {
        check(state_of(context) == VJ_WINDOWS_CONTEXT_POISONED, "a close that failed");
        check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK,
                     "closes in the second try");
    }
    check(!case_files(), "no file is left");
    return life;
}

static void every_call_fails_once(void) {
    unsigned failed = 0, swallowed = 0, longest = 0;
    uint64_t number = 1;
    for (; number < MOST_CALLS; number++) {
        case_begin();
        fake_fail(number, FAKE_INJECTED);
        life life = live();
        bool over = fake_calls() < number;
        if (life.failed) failed++;
        else if (!over) swallowed++;
        if (life.steps > longest) longest = life.steps;
        case_end();
        if (over) break;
    }
    check(number < MOST_CALLS, "a life has an end");
    check(longest == 17, "and is whole where nothing fails");
    printf("        %u calls failed, %u of them without harm\n", failed + swallowed,
           swallowed);
    // Cancels that are repeated, and kills that come a second time, do no harm.
    check(failed > 200 && swallowed < 30, "nearly every failure is told");
}

// From some call on nothing works any more, the way back included. Then it does again,
// and one close is enough.
static void everything_fails_from_some_call_on(void) {
    unsigned poisoned = 0;
    for (uint64_t number = 2; number < MOST_CALLS; number++) {
        case_begin();
        life life = {false, 0};
        vj_windows_id context = 0;
        fake_fail_from(number, FAKE_INJECTED);
        if (step(&life, create(&context, NULL, VJ_WINDOWS_REMOVE_WORK), "create")) {
            works(&life, context);
        }
        if (context && step(&life, vj_windows_close(context, case_error()), "close")) {
            context = 0;
        }
        bool over = fake_calls() < number;
        fake_fail_from(0, 0);
        if (context) {
            check(state_of(context) == VJ_WINDOWS_CONTEXT_POISONED, "it is poisoned");
            check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, "close");
            poisoned++;
        }
        check(!case_files(), "no file is left");
        case_end();
        if (over) break;
    }
    check(poisoned > 180, "the way back has failed");
}

// A call that goes on failing while the context is closed.
static void what_goes_on_failing_poisons(void) {
    static const char *const names[] = {
        "handle_close",  "security_close", "profile_delete", "desktop_close",
        "remove_path",   "open_file",      "listing_open",   "listing_next",
        "job_terminate", "job_wait_empty", "thread_start",   "thread_wait",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        case_begin();
        life life = {false, 0};
        vj_windows_id context = 0;
        check_status(create(&context, NULL, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                     "create");
        check(works(&life, context), "all works");
        fake_fail_named(names[i], FAKE_INJECTED);
        for (int attempt = 0; attempt < 2; attempt++) {
            vj_windows_error *error = case_error();
            check_status(vj_windows_close(context, error), VJ_WINDOWS_SYSTEM, names[i]);
            check(error->os_error == FAKE_INJECTED && error->step[0], "says what failed");
            check(state_of(context) == VJ_WINDOWS_CONTEXT_POISONED,
                  "and stays to be closed");
        }
        fake_fail_named(NULL, 0);
        check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, names[i]);
        check(!case_files(), "no file is left");
        case_end();
    }
}

// ---- every call, as long as one step of a life lasts

typedef enum { CREATE, STAGE, SPAWN, END, CLOSE, STEPS } faulty_step;

static bool takes_step(faulty_step which, vj_windows_id *context, vj_windows_id *process,
                       life *life) {
    vj_windows_spawn_info info = {.size = 0};
    switch (which) {
    case CREATE:
        return step(life, create(context, NULL, VJ_WINDOWS_REMOVE_WORK), "create");
    case STAGE: return stages(life, *context, "C:\\sources\\lib", "Lib");
    case SPAWN: {
        vj_windows_status status =
            spawn(*context, "flood 100000", VJ_WINDOWS_SPAWN_CONSOLE, &info);
        *process = info.process;
        return step(life, status, "spawn");
    }
    case END: return step(life, vj_windows_release(*process, case_error()), "release");
    case CLOSE: return step(life, vj_windows_close(*context, case_error()), "close");
    case STEPS: break;
    }
    return false;
}

// The calls that a whole life has made, each once.
static size_t all_names(const char *names[64]) {
    size_t count = 0;
    case_begin();
    check(!live().failed, "a life");
    for (uint64_t number = 1; number <= fake_calls(); number++) {
        size_t i = 0;
        while (i < count && strcmp(names[i], fake_call(number)) != 0) i++;
        if (i == count) names[count++] = fake_call(number);
        check(count < 64, "so many calls");
    }
    case_end();
    return count;
}

// Whatever fails, and as long as a step lasts: the step tells, and one close cleans up.
static void each_step_with_each_call_failing(void) {
    const char *names[64];
    size_t count = all_names(names);
    unsigned told = 0;
    check(count > 40, "nearly the whole table");
    for (faulty_step which = CREATE; which < STEPS; which++) {
        for (size_t i = 0; i < count; i++) {
            case_begin();
            life life = {false, 0};
            vj_windows_id context = 0, process = 0;
            for (faulty_step before = CREATE; before < which; before++) {
                check(takes_step(before, &context, &process, &life), "before");
                if (before == STAGE) {
                    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_OK,
                                 "seal");
                }
            }
            fake_fail_named(names[i], FAKE_INJECTED);
            if (!takes_step(which, &context, &process, &life)) told++;
            else if (which == CLOSE) context = 0;
            fake_fail_named(NULL, 0);
            if (context) {
                check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK,
                             names[i]);
            }
            check(!case_files(), names[i]);
            case_end();
        }
    }
    printf("        %u steps told of a call that went on failing\n", told);
    check(told > 50, "failures are told");
}

// An attempt whose way back fails, too, can be found again.
static void what_cannot_be_taken_back_is_not_lost(void) {
    static const char *const names[] = {"handle_close", "security_close", "remove_path"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        case_begin();
        vj_windows_id context = 0;
        fake_lie(FAKE_OTHER_PROFILE);
        fake_fail_named(names[i], FAKE_INJECTED);
        check_status(create(&context, NULL, 0), VJ_WINDOWS_MISMATCH, "create");
        check(context && state_of(context) == VJ_WINDOWS_CONTEXT_POISONED, names[i]);
        fake_fail_named(NULL, 0);
        check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, names[i]);
        check(!case_files(), "no file is left");
        case_end();
    }
    // A process that was not let run, and cannot be ended.
    case_begin();
    vj_windows_spawn_info info;
    vj_windows_id context = sealed_context(VJ_WINDOWS_REMOVE_WORK);
    fake_lie(FAKE_NOT_IN_JOB);
    fake_fail_named("process_terminate", FAKE_INJECTED);
    check_status(spawn(context, "hang", 0, &info), VJ_WINDOWS_MISMATCH, "spawn");
    check(state_of(context) == VJ_WINDOWS_CONTEXT_POISONED && !fake_ran(), "poisons");
    fake_fail_named(NULL, 0);
    check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, "close");
    case_end();
}

int main(void) {
    every_call_fails_once();
    everything_fails_from_some_call_on();
    what_goes_on_failing_poisons();
    each_step_with_each_call_failing();
    what_cannot_be_taken_back_is_not_lost();
    return 0;
}
