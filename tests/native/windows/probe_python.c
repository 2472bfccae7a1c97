// A CPython that is staged like any other program, and one script in it.

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "probe.h"

enum {
    SCRIPT_MS = 120000,
};

// A jail, sealed, with the Python in it that VIS_PROBE_PYTHON names: a folder.
static probe_jail *open_python(const probe_host *probe, char folder[PROBE_TEXT]) {
    wchar_t wide[PROBE_TEXT];
    vj_windows_error error = probe_error();
    vj_windows_context_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_id context = 0;
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = probe_text(probe->folder)};
    CHECK(GetEnvironmentVariableW(L"VIS_PROBE_PYTHON", wide, PROBE_TEXT) != 0);
    CHECK(WideCharToMultiByte(CP_UTF8, 0, wide, -1, folder, PROBE_TEXT, NULL, NULL) > 0);
    probe_held(vj_windows_create(&options, &context, &info, &error), &error, "create");
    vj_windows_source source = {probe_text(folder), probe_text("python")};
    vj_windows_stage_request staging = {.size = sizeof staging,
                                        .version = VJ_WINDOWS_VERSION,
                                        .sources = &source,
                                        .source_count = 1};
    vj_windows_stage_info staged = {.size = sizeof staged, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_stage(context, &staging, &staged, &error), &error, "stage");
    probe_held(vj_windows_seal(context, &error), &error, "seal");
    probe_jail *jail = calloc(1, sizeof *jail);
    CHECK(jail != NULL);
    jail->probe = probe;
    jail->context = context;
    jail->info = info;
    return jail;
}

// The folder also has a script.py, which may write into the working directory; that
// stays.
static void script(const probe_host *probe, bool console) {
    char folder[PROBE_TEXT];
    vj_windows_error error = probe_error();
    probe_jail *jail = open_python(probe, folder);
    char *program = probe_format("%s\\app\\python\\python.exe", jail->info.root);
    char *file = probe_format("%s\\app\\python\\script.py", jail->info.root);
    vj_windows_spawn_request request = {.application = probe_text(program),
                                        .flags = console ? VJ_WINDOWS_SPAWN_CONSOLE
                                                         : VJ_WINDOWS_SPAWN_NO_INPUT,
                                        .columns = console ? 80 : 0,
                                        .rows = console ? 25 : 0};
    vj_windows_spawn_info spawned =
        probe_spawn(jail, PROBE_WORD("-I", "-B", file), &request);
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    uint64_t count = 1;
    uint64_t until = GetTickCount64() + SCRIPT_MS;
    // Its output is taken until it ends; a console has none of its own end before it is
    // closed.
    while (vj_windows_wait(spawned.process, 0, &end, &error) == VJ_WINDOWS_TIMED_OUT) {
        CHECK(GetTickCount64() < until);
        vj_windows_status status = vj_windows_read(spawned.output, jail->output,
                                                   PROBE_OUTPUT - 1, 500, &count, &error);
        if (status == VJ_WINDOWS_OK && !console) printf("%.*s", (int)count, jail->output);
    }
    while (!console && count) {
        probe_held(vj_windows_read(spawned.output, jail->output, PROBE_OUTPUT - 1,
                                   PROBE_MS, &count, &error),
                   &error, "read");
        printf("%.*s", (int)count, jail->output);
    }
    EQUAL(end.exit_code, 0);
    probe_close(jail);
}

static void python(const probe_host *probe) {
    script(probe, false);
}

static void python_console(const probe_host *probe) {
    script(probe, true);
}

// ---- a worker, on the channel of its jail

enum {
    WORKER_BYTES = 1 << 20,
    WORKER_WORDS = 16,
};

// A file of the folder that VIS_PROBE_PYTHON names, ended by NUL; `*size` is without it.
static char *worker_file(const char *folder, const char *name, size_t *size) {
    char *path = probe_format("%s\\", folder);
    char *whole = malloc(strlen(path) + strlen(name) + 1);
    char *bytes = malloc(WORKER_BYTES);
    CHECK(whole && bytes);
    strcpy(whole, path);
    strcat(whole, name);
    FILE *file = fopen(whole, "rb");
    CHECK(file != NULL);
    *size = fread(bytes, 1, WORKER_BYTES - 1, file);
    CHECK(feof(file));
    fclose(file);
    bytes[*size] = 0;
    return bytes;
}

static void say(vj_windows_id channel, const void *bytes, size_t size) {
    vj_windows_error error = probe_error();
    uint64_t count = 0;
    probe_held(vj_windows_write(channel, bytes, size, PROBE_MS, &count, &error), &error,
               "write");
    CHECK(count == size);
}

// The settings name a file below the root of this jail, so their last text, and the
// length in the header before them, are put in here: doc/reference/protocol.md.
static void say_settings(vj_windows_id channel, char *frame, size_t size,
                         const char *guard) {
    uint32_t length = 0;
    uint32_t text = (uint32_t)strlen(guard);
    const char tag = 0x0a;
    memcpy(&length, frame + 4, sizeof length);
    length += 1 + (uint32_t)sizeof text + text;
    memcpy(frame + 4, &length, sizeof length);
    say(channel, frame, size);
    say(channel, &tag, 1);
    say(channel, &text, sizeof text);
    say(channel, guard, text);
}

static vj_windows_spawn_info start_worker(const probe_jail *jail, const char *folder) {
    size_t size = 0;
    char *version = worker_file(folder, "version", &size);
    char *load = worker_file(folder, "load", &size);
    const char *root = jail->info.root;
    char *program = probe_format("%s\\app\\python\\worker\\vispython.exe", root);
    const char *const words[WORKER_WORDS] = {
        program,
        "--core",
        probe_format("%s\\app\\python\\worker\\_viscore.pyd", root),
        "--name",
        probe_format("%s\\app\\python\\python.exe", root),
        "--library",
        probe_format("%s\\app\\python\\python311.dll", root),
        "--expect",
        version,
        "--",
        "-I",
        "-S",
        "-B",
        "-Xutf8",
        "-c",
        load};
    char *arguments = malloc(WORKER_BYTES);
    CHECK(arguments != NULL);
    vj_windows_spawn_request request = {.size = sizeof request,
                                        .version = VJ_WINDOWS_VERSION,
                                        .application = probe_text(program),
                                        .flags = VJ_WINDOWS_SPAWN_CHANNEL |
                                                 VJ_WINDOWS_SPAWN_NO_INPUT,
                                        .argument_count = WORKER_WORDS};
    size = 0;
    for (size_t i = 0; i < WORKER_WORDS; i++) {
        size_t length = strlen(words[i]) + 1;
        CHECK(size + length <= WORKER_BYTES);
        memcpy(arguments + size, words[i], length);
        size += length;
    }
    request.arguments = (vj_windows_text){arguments, size};
    vj_windows_error error = probe_error();
    vj_windows_spawn_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_spawn(jail->context, &request, &info, &error), &error, "spawn");
    CHECK(info.to_guest && info.from_guest);
    return info;
}

// The folder also has what to say: `bootstrap`, `settings` but for their last text, and
// the `frames` of a whole conversation. What the worker says goes to `said`.
static void worker(const probe_host *probe) {
    char folder[PROBE_TEXT];
    probe_jail *jail = open_python(probe, folder);
    vj_windows_spawn_info worker = start_worker(jail, folder);
    vj_windows_error error = probe_error();
    size_t size = 0;
    char *bytes = worker_file(folder, "bootstrap", &size);
    say(worker.to_guest, bytes, size);
    bytes = worker_file(folder, "settings", &size);
    say_settings(
        worker.to_guest, bytes, size,
        probe_format("%s\\app\\python\\worker\\_visconsole.pyd", jail->info.root));
    bytes = worker_file(folder, "frames", &size);
    say(worker.to_guest, bytes, size);
    FILE *said = fopen(probe_format("%s\\said", folder), "wb");
    CHECK(said != NULL);
    uint64_t count = 1;
    while (count) {
        probe_held(vj_windows_read(worker.from_guest, jail->output, PROBE_OUTPUT,
                                   SCRIPT_MS, &count, &error),
                   &error, "read");
        CHECK(fwrite(jail->output, 1, (size_t)count, said) == count);
    }
    fclose(said);
    for (count = 1; count;) {
        probe_held(vj_windows_read(worker.output, jail->output, PROBE_OUTPUT - 1,
                                   PROBE_MS, &count, &error),
                   &error, "read");
        printf("%.*s", (int)count, jail->output);
    }
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_wait(worker.process, PROBE_MS, &end, &error), &error, "wait");
    EQUAL(end.exit_code, 0);
    probe_close(jail);
}

const probe_entry probe_python[] = {
    {"worker", worker},
    {"python", python},
    {"python-console", python_console},
    {NULL, NULL},
};
