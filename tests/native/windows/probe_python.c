// A CPython that is staged like any other program, and one script in it.

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "probe.h"

enum {
    SCRIPT_MS = 120000,
};

// VIS_PROBE_PYTHON names a folder with python.exe and script.py. The script may write
// into the working directory, which stays.
static void script(const probe_host *probe, bool console) {
    wchar_t wide[PROBE_TEXT];
    char python[PROBE_TEXT];
    vj_windows_error error = probe_error();
    vj_windows_context_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_id context = 0;
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = probe_text(probe->folder)};
    CHECK(GetEnvironmentVariableW(L"VIS_PROBE_PYTHON", wide, PROBE_TEXT) != 0);
    CHECK(WideCharToMultiByte(CP_UTF8, 0, wide, -1, python, PROBE_TEXT, NULL, NULL) > 0);
    probe_held(vj_windows_create(&options, &context, &info, &error), &error, "create");
    vj_windows_source source = {probe_text(python), probe_text("python")};
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
    char *program = probe_format("%s\\app\\python\\python.exe", info.root);
    char *file = probe_format("%s\\app\\python\\script.py", info.root);
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

const probe_entry probe_python[] = {
    {"python", python},
    {"python-console", python_console},
    {NULL, NULL},
};
