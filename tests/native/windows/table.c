// Runs the tests that its command line names; see table.h.

#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

void table_path(const table_test *test, const wchar_t *name, wchar_t path[MAX_PATH]) {
    _snwprintf(path, MAX_PATH, L"%ls\\%ls", test->folder, name);
}

static void prepare(table_test *test) {
    uint16_t user[VJ_WINDOWS_SID_MAX];
    test->os = vj_windows_os_table();
    DONE(test->os->user_sid(test->os, user, VJ_WINDOWS_SID_MAX));
    _snwprintf(test->sddl, sizeof test->sddl / sizeof *test->sddl,
               L"O:%lsD:P(A;;FA;;;SY)(A;;FA;;;%ls)", user, user);
    DONE(test->os->security_open(test->os, test->sddl, &test->open));
    CHECK(GetModuleFileNameW(NULL, test->guest, MAX_PATH) != 0);
    wchar_t *slash = wcsrchr(test->guest, L'\\');
    CHECK(slash != NULL);
    wcscpy(slash, L"\\windows_guest.exe");
    DONE(test->os->system_root(test->os, test->system, MAX_PATH));
}

static const table_entry *entry_named(const wchar_t *name) {
    const table_entry *const tables[] = {table_files, table_processes, table_streams};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const table_entry *entry = tables[i]; entry->name; entry++) {
            wchar_t wide[64];
            _snwprintf(wide, 64, L"%hs", entry->name);
            if (!wcscmp(wide, name)) return entry;
        }
    return NULL;
}

// NOLINTNEXTLINE(misc-use-internal-linkage): the start of the C run time calls it
int wmain(int count, wchar_t **words);

// Every argument behind the folder is a test; "features" says what this system lacks.
int wmain(int count, wchar_t **words) {
    table_test test = {0};
    CHECK(count > 2);
    prepare(&test);
    wcscpy(test.folder, words[1]);
    for (int i = 2; i < count; i++) {
        const table_entry *entry = entry_named(words[i]);
        CHECK(entry != NULL);
        entry->run(&test);
        printf("ok %s\n", entry->name);
        fflush(stdout);
    }
    DONE(test.os->security_close(test.os, test.open));
    return 0;
}
