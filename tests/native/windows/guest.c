// Finds the act and runs it; see guest.h.

#include "guest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

void guest_say(const wchar_t *format, ...) {
    wchar_t text[2048];
    va_list values;
    va_start(values, format);
    int length = _vsnwprintf(text, 2047, format, values);
    va_end(values);
    if (length < 0) length = 2047;
    text[length] = L'\n';
    char bytes[4 * 2048];
    int size = WideCharToMultiByte(CP_UTF8, 0, text, length + 1, bytes, sizeof bytes,
                                   NULL, NULL);
    DWORD written = 0;
    WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), bytes, (DWORD)size, &written, NULL);
}

DWORD guest_error(void) {
    DWORD error = GetLastError();
    return error ? error : GUEST_NOTHING;
}

void guest_path(wchar_t path[MAX_PATH]) {
    if (!GetModuleFileNameW(NULL, path, MAX_PATH)) path[0] = 0;
}

wchar_t *guest_command(const wchar_t *words) {
    wchar_t path[MAX_PATH];
    guest_path(path);
    size_t size = wcslen(path) + wcslen(words) + 4;
    wchar_t *command = calloc(size, sizeof *command);
    if (command) _snwprintf(command, size, L"\"%ls\" %ls", path, words);
    return command;
}

static const guest_entry *entry_named(const wchar_t *name) {
    const guest_entry *const tables[] = {guest_files, guest_processes, guest_system,
                                         guest_network, guest_streams};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const guest_entry *entry = tables[i]; entry->name; entry++)
            if (!wcscmp(entry->name, name)) return entry;
    return NULL;
}

// NOLINTNEXTLINE(misc-use-internal-linkage): the start of the C run time calls it
int wmain(int count, wchar_t **words);

int wmain(int count, wchar_t **words) {
    const guest_entry *entry = count > 1 ? entry_named(words[1]) : NULL;
    guest_words rest = {count - 2, words + 2};
    if (!entry || rest.count < entry->words) return GUEST_WRONG_USAGE;
    DWORD code = entry->act(rest);
    // Exit codes have 32 bits, and `return` of a main function might have fewer.
    ExitProcess(code);
}
