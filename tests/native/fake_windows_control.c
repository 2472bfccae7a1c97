// The table of tests: what a test does with it. See fake_windows_os.h.

#include "fake_windows_os.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static vj_windows_os table;

const vj_windows_os *vj_windows_os_table(void) {
    return &table;
}

void fake_begin(const char *directory) {
    fake = calloc(1, sizeof *fake);
    if (!fake || !realpath(directory, fake->root)) fake_die("no directory");
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    fake->random = 0x9e3779b97f4a7c15u;
    fake_fill_machine(&table);
    fake_fill_files(&table);
    fake_fill_streams(&table);
    fake_fill_guests(&table);
}

static void join_guests(void) {
    pthread_mutex_lock(&fake->lock);
    for (fake_program *program = fake->programs; program; program = program->next) {
        if (!program->ended) program->killed = true;
    }
    fake_changed();
    for (fake_program *program = fake->programs; program; program = program->next) {
        if (!program->started || program->joined) continue;
        program->joined = true;
        pthread_mutex_unlock(&fake->lock);
        pthread_join(program->thread, NULL);
        pthread_mutex_lock(&fake->lock);
    }
    pthread_mutex_unlock(&fake->lock);
}

void fake_end(void) {
    join_guests();
    while (fake->objects) {
        fake_object *object = fake->objects;
        fake->objects = object->next;
        if (object->kind == FAKE_THREAD) pthread_join(object->thread, NULL);
        if (object->kind == FAKE_FILE && !object->closed) close(object->file);
        if (object->kind == FAKE_LISTING && !object->closed) closedir(object->directory);
        free(object);
    }
    while (fake->programs) {
        fake_program *program = fake->programs;
        fake->programs = program->next;
        free(program);
    }
    for (size_t i = 0; i < fake->pipe_count; i++) free(fake->pipes[i]);
    fake_forget_descriptors();
    free(fake->log);
    pthread_mutex_destroy(&fake->lock);
    pthread_cond_destroy(&fake->changed);
    free(fake);
    fake = NULL;
}

void fake_lie(uint32_t lies) {
    pthread_mutex_lock(&fake->lock);
    fake->lies = lies;
    pthread_mutex_unlock(&fake->lock);
}

void fake_lack(uint32_t missing) {
    fake->missing = missing;
}

void fake_delay(const char *name, uint32_t milliseconds) {
    pthread_mutex_lock(&fake->lock);
    fake->delay_name = name;
    fake->delay_ms = milliseconds;
    pthread_mutex_unlock(&fake->lock);
}

void fake_fail(uint64_t number, uint32_t code) {
    pthread_mutex_lock(&fake->lock);
    fake->fail_number = number;
    fake->fail_code = code;
    pthread_mutex_unlock(&fake->lock);
}

void fake_fail_named(const char *name, uint32_t code) {
    pthread_mutex_lock(&fake->lock);
    fake->fail_name = name;
    fake->fail_code = code;
    pthread_mutex_unlock(&fake->lock);
}

void fake_fail_from(uint64_t number, uint32_t code) {
    pthread_mutex_lock(&fake->lock);
    fake->fail_from = number;
    fake->fail_code = code;
    pthread_mutex_unlock(&fake->lock);
}

uint64_t fake_calls(void) {
    pthread_mutex_lock(&fake->lock);
    uint64_t calls = fake->calls;
    pthread_mutex_unlock(&fake->lock);
    return calls;
}

void fake_forget(void) {
    pthread_mutex_lock(&fake->lock);
    fake->calls = 0;
    pthread_mutex_unlock(&fake->lock);
}

const char *fake_call(uint64_t number) {
    return number && number <= fake->calls ? fake->log[number - 1] : "none";
}

uint64_t fake_count(const char *name) {
    uint64_t count = 0;
    pthread_mutex_lock(&fake->lock);
    for (uint64_t i = 0; i < fake->calls; i++) count += !strcmp(fake->log[i], name);
    pthread_mutex_unlock(&fake->lock);
    return count;
}

unsigned fake_running(void) {
    unsigned count = 0;
    pthread_mutex_lock(&fake->lock);
    for (const fake_program *program = fake->programs; program; program = program->next) {
        count += program->started && !program->ended;
    }
    pthread_mutex_unlock(&fake->lock);
    return count;
}

unsigned fake_left(bool tell) {
    static const char *const names[FAKE_KINDS] = {
        "",           "file",    "descriptor", "listing",
        "job",        "port",    "event",      "server",
        "client",     "thread",  "process",    "thread of a process",
        "attributes", "console", "desktop"};
    unsigned count = 0;
    pthread_mutex_lock(&fake->lock);
    for (const fake_object *object = fake->objects; object; object = object->next) {
        if (object->closed) continue;
        if (tell) fprintf(stderr, "left: %s %s\n", names[object->kind], object->text);
        count++;
    }
    for (const fake_program *program = fake->programs; program; program = program->next) {
        if (program->ended) continue;
        if (tell) fprintf(stderr, "left: program %s\n", program->script);
        count++;
    }
    for (size_t i = 0; i < 64; i++) {
        if (!fake->profiles[i][0]) continue;
        if (tell) fprintf(stderr, "left: profile %s\n", fake->profiles[i]);
        count++;
    }
    pthread_mutex_unlock(&fake->lock);
    return count;
}

bool fake_ran(void) {
    return fake->ran;
}

const fake_launch *fake_last_launch(void) {
    return &fake->launch;
}

void fake_console_size(uint16_t *columns, uint16_t *rows) {
    *columns = fake->columns;
    *rows = fake->rows;
}

void fake_squat(bool squat) {
    fake->squat = squat;
}

void fake_owner(uint32_t pid, uint64_t created) {
    fake->other_pid = pid;
    fake->other_created = created;
}
