// Runs the probes that its command line names; see probe.h.

#include "probe.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static void to_utf8(const wchar_t *from, char to[PROBE_TEXT]) {
    CHECK(WideCharToMultiByte(CP_UTF8, 0, from, -1, to, PROBE_TEXT, NULL, NULL) > 0);
}

static void to_wide(const char *from, wchar_t to[PROBE_TEXT]) {
    CHECK(MultiByteToWideChar(CP_UTF8, 0, from, -1, to, PROBE_TEXT) > 0);
}

vj_windows_error probe_error(void) {
    return (vj_windows_error){.size = sizeof(vj_windows_error),
                              .version = VJ_WINDOWS_VERSION};
}

vj_windows_text probe_text(const char *text) {
    return (vj_windows_text){text, strlen(text)};
}

char *probe_format(const char *format, const char *text) {
    size_t size = strlen(format) + strlen(text) + 1;
    char *made = calloc(1, size);
    CHECK(made != NULL);
    snprintf(made, size, format, text);
    return made;
}

void probe_write_file(const char *path, const char *text) {
    wchar_t wide[PROBE_TEXT];
    DWORD count = 0;
    to_wide(path, wide);
    HANDLE file = CreateFileW(wide, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(WriteFile(file, text, (DWORD)strlen(text), &count, NULL));
    CloseHandle(file);
}

bool probe_exists(const char *path) {
    wchar_t wide[PROBE_TEXT];
    to_wide(path, wide);
    return GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES;
}

void probe_held(vj_windows_status status, const vj_windows_error *error,
                const char *what) {
    if (status == VJ_WINDOWS_OK) return;
    printf("%s: status %d at %s (%lu): %s\n", what, (int)status, error->step,
           (unsigned long)error->os_error, error->text);
    fflush(stdout);
    ExitProcess(1);
}

probe_jail *probe_open(const probe_host *probe) {
    probe_jail *jail = calloc(1, sizeof *jail);
    vj_windows_error error = probe_error();
    CHECK(jail != NULL);
    jail->probe = probe;
    jail->info.size = sizeof jail->info;
    jail->info.version = VJ_WINDOWS_VERSION;
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = probe_text(probe->folder)};
    probe_held(vj_windows_create(&options, &jail->context, &jail->info, &error), &error,
               "create");
    vj_windows_source source = {probe_text(probe->guest),
                                probe_text("windows_guest.exe")};
    vj_windows_stage_request request = {.size = sizeof request,
                                        .version = VJ_WINDOWS_VERSION,
                                        .sources = &source,
                                        .source_count = 1};
    vj_windows_stage_info staged = {.size = sizeof staged, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_stage(jail->context, &request, &staged, &error), &error,
               "stage");
    CHECK(staged.files == 1);
    probe_held(vj_windows_seal(jail->context, &error), &error, "seal");
    snprintf(jail->guest, sizeof jail->guest, "%s\\app\\windows_guest.exe",
             jail->info.root);
    return jail;
}

void probe_close(probe_jail *jail) {
    vj_windows_error error = probe_error();
    probe_held(vj_windows_close(jail->context, &error), &error, "close");
    free(jail);
}

static size_t append(char *to, size_t at, size_t room, const char *text) {
    size_t size = strlen(text) + 1;
    CHECK(at + size <= room);
    memcpy(to + at, text, size);
    return at + size;
}

vj_windows_spawn_info probe_spawn(probe_jail *jail, const char *const words[PROBE_WORDS],
                                  const vj_windows_spawn_request *change) {
    char arguments[4 * PROBE_TEXT];
    char environment[8 * PROBE_TEXT];
    char entry[2 * PROBE_TEXT];
    vj_windows_spawn_request request = {0};
    vj_windows_error error = probe_error();
    if (change) request = *change;
    size_t size = append(arguments, 0, sizeof arguments, "windows_guest");
    request.argument_count = 1;
    for (int i = 0; i < PROBE_WORDS && words[i]; i++, request.argument_count++)
        size = append(arguments, size, sizeof arguments, words[i]);
    request.arguments = (vj_windows_text){arguments, size};
    const char *const below[] = {"USERPROFILE=%s\\work", "APPDATA=%s\\work"};
    size = 0;
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        snprintf(entry, sizeof entry, below[i], jail->info.root);
        size = append(environment, size, sizeof environment, entry);
    }
    snprintf(entry, sizeof entry, "SystemRoot=%s", jail->probe->system);
    size = append(environment, size, sizeof environment, entry);
    request.environment = (vj_windows_text){environment, size};
    request.environment_count = sizeof below / sizeof *below + 1;
    request.size = sizeof request;
    request.version = VJ_WINDOWS_VERSION;
    if (!request.application.bytes) request.application = probe_text(jail->guest);
    vj_windows_spawn_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_spawn(jail->context, &request, &info, &error), &error, "spawn");
    CHECK(info.process && !strcmp(info.package_sid, jail->info.package_sid));
    CHECK(info.capability_count == 1 && info.integrity == 0x1000);
    return info;
}

uint32_t probe_inside(probe_jail *jail, const char *const words[PROBE_WORDS]) {
    vj_windows_spawn_request quiet = {.flags = VJ_WINDOWS_SPAWN_NO_INPUT};
    vj_windows_spawn_info info = probe_spawn(jail, words, &quiet);
    vj_windows_error error = probe_error();
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    uint64_t length = 0;
    uint64_t count = 1;
    while (count && length + 1 < sizeof jail->output) {
        probe_held(vj_windows_read(info.output, jail->output + length,
                                   sizeof jail->output - 1 - length, PROBE_MS, &count,
                                   &error),
                   &error, "read");
        length += count;
    }
    jail->output[length] = 0;
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    probe_held(vj_windows_release(info.process, &error), &error, "release");
    return end.exit_code;
}

uint32_t probe_outside(const probe_host *probe, const char *const words[PROBE_WORDS]) {
    wchar_t command[4 * PROBE_TEXT];
    wchar_t word[PROBE_TEXT];
    int length = _snwprintf(command, PROBE_TEXT, L"\"%ls\"", probe->wide_guest);
    for (int i = 0; i < PROBE_WORDS && words[i]; i++) {
        to_wide(words[i], word);
        // No word of a probe has a quote in it, or ends with a backslash.
        int more = _snwprintf(command + length, (size_t)(4 * PROBE_TEXT - length),
                              L" \"%ls\"", word);
        CHECK(more > 0);
        length += more;
    }
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child = {0};
    CHECK(CreateProcessW(probe->wide_guest, command, NULL, NULL, FALSE, CREATE_NO_WINDOW,
                         NULL, NULL, &start, &child));
    EQUAL(WaitForSingleObject(child.hProcess, PROBE_MS), WAIT_OBJECT_0);
    DWORD code = 1;
    CHECK(GetExitCodeProcess(child.hProcess, &code));
    CloseHandle(child.hThread);
    CloseHandle(child.hProcess);
    return code;
}

bool probe_said(const probe_jail *jail, const char *line) {
    size_t size = strlen(line);
    for (const char *at = jail->output; *at;) {
        const char *end = strchr(at, '\n');
        size_t length = end ? (size_t)(end - at) : strlen(at);
        if (length && at[length - 1] == '\r') length--;
        if (length == size && !memcmp(at, line, size)) return true;
        if (!end) break;
        at = end + 1;
    }
    return false;
}

static const probe_entry *entry_named(const char *name) {
    const probe_entry *const tables[] = {probe_starts,  probe_files,  probe_streams,
                                         probe_machine, probe_python, probe_ends};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const probe_entry *entry = tables[i]; entry->name; entry++)
            if (!strcmp(entry->name, name)) return entry;
    return NULL;
}

static void prepare(probe_host *probe, const wchar_t *folder) {
    wchar_t system[PROBE_TEXT];
    to_utf8(folder, probe->folder);
    wcscpy(probe->wide_folder, folder);
    CHECK(GetModuleFileNameW(NULL, probe->wide_guest, PROBE_TEXT - 32) != 0);
    wchar_t *slash = wcsrchr(probe->wide_guest, L'\\');
    CHECK(slash != NULL);
    wcscpy(slash, L"\\windows_guest.exe");
    to_utf8(probe->wide_guest, probe->guest);
    CHECK(GetSystemWindowsDirectoryW(system, PROBE_TEXT) != 0);
    to_utf8(system, probe->system);
}

// NOLINTNEXTLINE(misc-use-internal-linkage): the start of the C run time calls it
int wmain(int count, wchar_t **words);

int wmain(int count, wchar_t **words) {
    static probe_host host;
    CHECK(count > 2 && wcslen(words[1]) < PROBE_TEXT);
    prepare(&host, words[1]);
    for (int i = 2; i < count; i++) {
        char name[PROBE_TEXT];
        to_utf8(words[i], name);
        const probe_entry *entry = entry_named(name);
        CHECK(entry != NULL);
        entry->run(&host);
        printf("ok %s\n", name);
        fflush(stdout);
    }
    return 0;
}
