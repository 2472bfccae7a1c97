// One jail, many threads: built with ThreadSanitizer by
// tests/jail/test_native_threads.py.
//
//   threads INIT PLAN
//
// Eight threads start and wait for programs in one jail; in each round another thread
// kills a run that is being waited for, and one asks whether the jail lives. At the end
// the jail is closed while runs are under way, and every call must return.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "visjail.h"

#define THREADS 8
#define ROUNDS  15

static vj_jail *jail;

static void check(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

static vj_run *start(const char *script, vj_error *error) {
    char strings[256];
    int size = snprintf(strings, sizeof strings, "/%c/bin/sh%c-c%c%s%cPATH=/usr/bin%c", 0,
                        0, 0, script, 0, 0);
    vj_spawn spawn = {.strings = strings,
                      .strings_size = (uint64_t)size,
                      .argument_count = 3,
                      .environment_count = 1};
    vj_run *run = NULL;
    int32_t pid;
    return vj_run_start(jail, &spawn, &run, &pid, error) == VJ_OK ? run : NULL;
}

static void *killer(void *run) {
    vj_run_signal(run, 0);
    vj_run_kill(run);
    return NULL;
}

static vj_exit wait_for(vj_run *run) {
    vj_exit result = {0};
    vj_error error;
    vj_status status;
    do {
        status = vj_run_wait(run, -1, &result, &error);
    } while (status == VJ_INTERRUPTED);
    check(status == VJ_OK, "a wait failed");
    return result;
}

static void *work(void *argument) {
    int number = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        char script[64];
        vj_error error;
        snprintf(script, sizeof script, "exit %d", number);
        vj_run *run = start(script, &error);
        check(run != NULL, error.text);
        vj_exit result = wait_for(run);
        check(result.status == number << 8 && result.stop == 0, "another run's end");
        vj_run_free(run);

        run = start("sleep 60", &error);
        check(run != NULL, error.text);
        pthread_t other;
        check(!pthread_create(&other, NULL, killer, run), "no thread");
        result = wait_for(run);
        pthread_join(other, NULL);
        check(result.status == 9 && result.stop == 2, "a killed run ended otherwise");
        vj_run_free(run);
        check(vj_jail_alive(jail), "the jail has ended");
    }
    return NULL;
}

static void *until_closed(void *argument) {
    (void)argument;
    for (;;) {
        vj_error error;
        vj_run *run = start("sleep 60", &error);
        if (!run) return NULL;
        vj_exit result = wait_for(run);
        check(result.stop == 3, "a run outlived its jail");
        vj_run_free(run);
    }
}

static void in_threads(void *(*function)(void *), int close_after) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        check(!pthread_create(&threads[i], NULL, function, (void *)(intptr_t)i),
              "no thread");
    }
    if (close_after) {
        usleep(300000);
        vj_jail_close(jail);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(int argument_count, char **arguments) {
    check(argument_count == 3, "usage: threads INIT PLAN");
    static char plan[1 << 20];
    FILE *file = fopen(arguments[2], "rb");
    check(file != NULL, "no plan");
    size_t size = fread(plan, 1, sizeof plan, file);
    fclose(file);
    vj_jail_info info;
    vj_error error;
    const vj_jail_options options = {0};
    vj_status status =
        vj_jail_open(arguments[1], &options, plan, size, &jail, &info, &error);
    check(status == VJ_OK, error.text);
    in_threads(work, 0);
    in_threads(until_closed, 1);
    vj_jail_free(jail);
    printf("%d runs\n", THREADS * ROUNDS * 2);
    return 0;
}
