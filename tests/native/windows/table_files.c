// Files, directories, descriptors, and what there is.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "table.h"
#include "windows_core.h"

static void features(table_test *test) {
    vj_windows_features features;
    DONE(test->os->features(test->os, &features));
    printf("missing %lx\n", (unsigned long)features.missing);
    printf("build %lu\n", (unsigned long)features.build);
    CHECK(features.build != 0);
}

static void random_bytes(table_test *test) {
    uint8_t first[32] = {0};
    uint8_t second[32] = {0};
    DONE(test->os->random(test->os, first, sizeof first));
    DONE(test->os->random(test->os, second, sizeof second));
    CHECK(memcmp(first, second, sizeof first) != 0);
}

static void this_process(table_test *test) {
    uint32_t pid = 0;
    uint64_t created = 0;
    uint64_t again = 0;
    DONE(test->os->self(test->os, &pid, &created));
    DONE(test->os->owner_created(test->os, pid, &again));
    CHECK(created && created == again);
    EQUAL(test->os->owner_created(test->os, 0x7FFFFFFC, &again),
          VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    CHECK(again == 0);
    // One that has ended is none any more, though its object is still there.
    wchar_t command[MAX_PATH + 16];
    _snwprintf(command, MAX_PATH + 16, L"\"%ls\" exit 0", test->guest);
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child = {0};
    CHECK(CreateProcessW(test->guest, command, NULL, NULL, FALSE, CREATE_SUSPENDED, NULL,
                         NULL, &start, &child));
    DONE(test->os->owner_created(test->os, child.dwProcessId, &again));
    ResumeThread(child.hThread);
    EQUAL(WaitForSingleObject(child.hProcess, 20000), WAIT_OBJECT_0);
    EQUAL(test->os->owner_created(test->os, child.dwProcessId, &again),
          VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    CloseHandle(child.hThread);
    CloseHandle(child.hProcess);
}

static vj_windows_handle file_with(table_test *test, const wchar_t *name,
                                   const char *text) {
    wchar_t path[MAX_PATH];
    vj_windows_handle file = NULL;
    table_path(test, name, path);
    DONE(test->os->file_create(test->os, path, test->open, &file));
    DONE(test->os->file_write(test->os, file, text, (uint32_t)strlen(text)));
    return file;
}

static void create_files(table_test *test) {
    wchar_t path[MAX_PATH];
    vj_windows_handle file = file_with(test, L"new", "content");
    vj_windows_handle second = NULL;
    table_path(test, L"new", path);
    EQUAL(test->os->file_create(test->os, path, test->open, &second),
          VJ_WINDOWS_ERROR_ALREADY_EXISTS);
    CHECK(!second);
    DONE(test->os->handle_close(test->os, file));
    DONE(test->os->open(test->os, NULL, path, VJ_WINDOWS_OPEN_PIN, &file));
    char bytes[16] = "";
    uint32_t count = 0;
    DONE(test->os->file_read(test->os, file, bytes, sizeof bytes, &count));
    CHECK(count == 7 && !memcmp(bytes, "content", 7));
    DONE(test->os->file_read(test->os, file, bytes, sizeof bytes, &count));
    EQUAL(count, 0);
    bool equal = false;
    DONE(test->os->security_equal(test->os, file, test->open, &equal));
    printf("equal %d\n", equal);
    DONE(test->os->handle_close(test->os, file));
    table_path(test, L"folder", path);
    DONE(test->os->directory_create(test->os, path, test->open));
    EQUAL(test->os->directory_create(test->os, path, test->open),
          VJ_WINDOWS_ERROR_ALREADY_EXISTS);
    EQUAL(test->os->file_create(test->os, path, test->open, &file),
          VJ_WINDOWS_ERROR_ALREADY_EXISTS);
}

// While it is pinned: neither writing, nor another name, nor its end.
static void pin(table_test *test) {
    wchar_t path[MAX_PATH];
    wchar_t other[MAX_PATH];
    vj_windows_handle pinned = NULL;
    DONE(test->os->handle_close(test->os, file_with(test, L"pinned", "1")));
    table_path(test, L"pinned", path);
    table_path(test, L"renamed", other);
    DONE(test->os->open(test->os, NULL, path, VJ_WINDOWS_OPEN_PIN, &pinned));
    CHECK(CreateFileW(path, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                      OPEN_EXISTING, 0, NULL) == INVALID_HANDLE_VALUE);
    EQUAL(GetLastError(), VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    CHECK(!MoveFileW(path, other));
    EQUAL(GetLastError(), VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    CHECK(!DeleteFileW(path));
    EQUAL(GetLastError(), VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    vj_windows_handle alone = NULL;
    EQUAL(test->os->open(test->os, NULL, path, VJ_WINDOWS_OPEN_ALONE, &alone),
          VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    DONE(test->os->handle_close(test->os, pinned));
    // The control: without the pin it can be renamed.
    CHECK(MoveFileW(path, other));
    DONE(test->os->open(test->os, NULL, other, VJ_WINDOWS_OPEN_ALONE, &alone));
    char byte = 0;
    uint32_t count = 0;
    DONE(test->os->file_read(test->os, alone, &byte, 1, &count));
    CHECK(count == 1 && byte == '1');
    DONE(test->os->handle_close(test->os, alone));
}

static void identity(table_test *test) {
    wchar_t path[MAX_PATH];
    wchar_t linked[MAX_PATH];
    vj_windows_handle file = NULL;
    vj_windows_file information;
    vj_windows_file again;
    DONE(test->os->handle_close(test->os, file_with(test, L"one", "12345")));
    table_path(test, L"one", path);
    table_path(test, L"two", linked);
    DONE(test->os->open(test->os, NULL, path, VJ_WINDOWS_OPEN_PIN, &file));
    DONE(test->os->file_information(test->os, file, &information));
    CHECK(information.kind == VJ_WINDOWS_KIND_FILE && information.links == 1);
    CHECK(information.size == 5 && information.written);
    uint16_t final[VJ_WINDOWS_PATH_MAX / 8];
    DONE(test->os->final_path(test->os, file, final, VJ_WINDOWS_PATH_MAX / 8));
    CHECK(!_wcsicmp(final, path));
    EQUAL(test->os->final_path(test->os, file, final, 4),
          VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER);
    DONE(test->os->handle_close(test->os, file));
    CHECK(CreateHardLinkW(linked, path, NULL));
    DONE(test->os->open(test->os, NULL, linked, VJ_WINDOWS_OPEN_PIN, &file));
    DONE(test->os->file_information(test->os, file, &again));
    CHECK(again.links == 2 && again.volume == information.volume);
    CHECK(!memcmp(again.id, information.id, sizeof again.id));
    DONE(test->os->handle_close(test->os, file));
    HANDLE nothing = CreateFileW(L"NUL", GENERIC_READ, 7, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(nothing != INVALID_HANDLE_VALUE);
    DONE(test->os->file_information(test->os, vj_win32_out(nothing), &again));
    EQUAL(again.kind, VJ_WINDOWS_KIND_OTHER);
    CloseHandle(nothing);
}

static void list(table_test *test) {
    wchar_t path[MAX_PATH];
    vj_windows_handle folder = NULL;
    vj_windows_listing listing = NULL;
    vj_windows_entry entry;
    table_path(test, L"listed", path);
    DONE(test->os->directory_create(test->os, path, test->open));
    for (int i = 0; i < 300; i++) {
        wchar_t name[64];
        _snwprintf(name, 64, L"listed\\file-with-a-longer-name-%03d", i);
        DONE(test->os->handle_close(test->os, file_with(test, name, "")));
    }
    table_path(test, L"listed\\below", path);
    DONE(test->os->directory_create(test->os, path, test->open));
    table_path(test, L"listed", path);
    DONE(test->os->open(test->os, NULL, path, VJ_WINDOWS_OPEN_HOLD, &folder));
    DONE(test->os->listing_open(test->os, folder, &listing));
    int files = 0;
    int folders = 0;
    uint32_t code = 0;
    while (!(code = test->os->listing_next(test->os, listing, &entry))) {
        files += entry.kind == VJ_WINDOWS_KIND_FILE;
        folders += entry.kind == VJ_WINDOWS_KIND_DIRECTORY;
        // Whatever the folder is called meanwhile, an entry is found from its handle.
        if (files != 7) continue;
        vj_windows_handle below = NULL;
        DONE(test->os->open(test->os, folder, entry.name, VJ_WINDOWS_OPEN_PIN, &below));
        DONE(test->os->handle_close(test->os, below));
    }
    EQUAL(code, VJ_WINDOWS_ERROR_NO_MORE_FILES);
    CHECK(files == 300 && folders == 1);
    test->os->listing_close(test->os, listing);
    vj_windows_handle none = NULL;
    EQUAL(test->os->open(test->os, folder, L"absent", VJ_WINDOWS_OPEN_PIN, &none),
          VJ_WINDOWS_ERROR_FILE_NOT_FOUND);
    EQUAL(test->os->open(test->os, folder, L"..\\listed", VJ_WINDOWS_OPEN_PIN, &none),
          VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    CHECK(!none);
    DONE(test->os->handle_close(test->os, folder));
}

static void remove_things(table_test *test) {
    const vj_windows_os *os = test->os;
    wchar_t path[MAX_PATH];
    wchar_t below[MAX_PATH];
    vj_windows_handle folder = NULL;
    table_path(test, L"removed", path);
    table_path(test, L"removed\\file", below);
    DONE(os->remove(os, NULL, path));
    DONE(os->directory_create(os, path, test->open));
    DONE(os->handle_close(os, file_with(test, L"removed\\file", "1")));
    EQUAL(os->remove(os, NULL, path), VJ_WINDOWS_ERROR_DIRECTORY_NOT_EMPTY);
    DONE(os->remove(os, NULL, below));
    CHECK(GetFileAttributesW(below) == INVALID_FILE_ATTRIBUTES);
    // From an open directory, by one name.
    DONE(os->handle_close(os, file_with(test, L"removed\\file", "1")));
    DONE(os->open(os, NULL, path, VJ_WINDOWS_OPEN_HOLD, &folder));
    EQUAL(os->remove(os, folder, L"..\\removed"), VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    EQUAL(os->remove(os, folder, L""), VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    DONE(os->remove(os, folder, L"absent"));
    DONE(os->remove(os, folder, L"file"));
    CHECK(GetFileAttributesW(below) == INVALID_FILE_ATTRIBUTES);
    // Nobody renames it meanwhile.
    table_path(test, L"renamed-away", below);
    CHECK(!MoveFileW(path, below));
    EQUAL(GetLastError(), VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    DONE(os->handle_close(os, folder));
    DONE(os->remove(os, NULL, path));
    CHECK(GetFileAttributesW(path) == INVALID_FILE_ATTRIBUTES);
}

// Not under wine, where a read-only file is one of the mode 444, and its attributes are
// not to be written.
static void remove_read_only(table_test *test) {
    wchar_t path[MAX_PATH];
    DONE(test->os->handle_close(test->os, file_with(test, L"read-only", "1")));
    table_path(test, L"read-only", path);
    CHECK(SetFileAttributesW(path, FILE_ATTRIBUTE_READONLY));
    CHECK(!DeleteFileW(path)); // the control
    EQUAL(GetLastError(), VJ_WINDOWS_ERROR_ACCESS_DENIED);
    DONE(test->os->remove(test->os, NULL, path));
    CHECK(GetFileAttributesW(path) == INVALID_FILE_ATTRIBUTES);
}

static void remove_tree(table_test *test) {
    const vj_windows_os *os = test->os;
    wchar_t path[MAX_PATH];
    vj_windows_handle folder = NULL;
    table_path(test, L"tree", path);
    DONE(os->directory_create(os, path, test->open));
    wcscpy(path, test->folder);
    DONE(os->open(os, NULL, path, VJ_WINDOWS_OPEN_HOLD, &folder));
    wchar_t name[MAX_PATH] = L"tree";
    for (int i = 0; i < 5; i++) {
        wcscat(name, L"\\deeper");
        table_path(test, name, path);
        DONE(os->directory_create(os, path, test->open));
        for (int j = 0; j < 40; j++) {
            wchar_t file[MAX_PATH];
            _snwprintf(file, MAX_PATH, L"%ls\\file %d", name, j);
            DONE(os->handle_close(os, file_with(test, file, "1")));
        }
    }
    DONE(vj_windows_remove_tree(os, folder, L"tree", test->open, NULL));
    table_path(test, L"tree", path);
    CHECK(GetFileAttributesW(path) == INVALID_FILE_ATTRIBUTES);
    DONE(vj_windows_remove_tree(os, folder, L"tree", test->open, NULL));
    DONE(os->handle_close(os, folder));
}

static void set_rights(const wchar_t *path, const wchar_t *sddl) {
    PSECURITY_DESCRIPTOR rights = NULL;
    CHECK(ConvertStringSecurityDescriptorToSecurityDescriptorW(sddl, SDDL_REVISION_1,
                                                               &rights, NULL));
    CHECK(SetFileSecurityW(path, DACL_SECURITY_INFORMATION, rights));
    LocalFree(rights);
}

static uint32_t open_code(const wchar_t *path, DWORD access) {
    HANDLE file =
        CreateFileW(path, access, 7, NULL, OPEN_EXISTING,
                    FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (file == INVALID_HANDLE_VALUE) return vj_win32_error();
    CloseHandle(file);
    return 0;
}

// A folder and a file that give nobody any right, as a guest can make them; its owner may
// still write a DACL, if nothing else is asked for.
static void reclaim(table_test *test) {
    static const wchar_t nobody[] = L"D:P";
    const vj_windows_os *os = test->os;
    wchar_t path[MAX_PATH];
    wchar_t file[MAX_PATH];
    vj_windows_handle outer = NULL;
    vj_windows_handle folder = NULL;
    table_path(test, L"closed", path);
    table_path(test, L"closed\\file", file);
    DONE(os->directory_create(os, path, test->open));
    DONE(os->handle_close(os, file_with(test, L"closed\\file", "1")));
    DONE(os->open(os, NULL, test->folder, VJ_WINDOWS_OPEN_HOLD, &outer));
    // The controls: everything works before, and nothing of it after that.
    DONE(open_code(file, DELETE));
    DONE(open_code(path, FILE_LIST_DIRECTORY));
    set_rights(file, nobody);
    set_rights(path, nobody);
    EQUAL(open_code(file, FILE_READ_DATA), VJ_WINDOWS_ERROR_ACCESS_DENIED);
    EQUAL(open_code(path, FILE_LIST_DIRECTORY), VJ_WINDOWS_ERROR_ACCESS_DENIED);
    // With SYNCHRONIZE, which CreateFile adds, even this is too much.
    EQUAL(open_code(path, WRITE_DAC), VJ_WINDOWS_ERROR_ACCESS_DENIED);
    EQUAL(os->open(os, outer, L"closed", VJ_WINDOWS_OPEN_HOLD, &folder),
          VJ_WINDOWS_ERROR_ACCESS_DENIED);
    EQUAL(os->remove(os, outer, L"closed"), VJ_WINDOWS_ERROR_DIRECTORY_NOT_EMPTY);
    EQUAL(os->reclaim(os, outer, L"closed\\file", test->open),
          VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    DONE(os->reclaim(os, outer, L"closed", test->open));
    DONE(os->open(os, outer, L"closed", VJ_WINDOWS_OPEN_HOLD, &folder));
    // Never a file: the folder around it is enough.
    CHECK(os->reclaim(os, folder, L"file", test->open) != 0);
    EQUAL(open_code(file, FILE_READ_DATA), VJ_WINDOWS_ERROR_ACCESS_DENIED);
    DONE(os->reclaim(os, folder, L"", test->open));
    DONE(os->remove(os, folder, L"file"));
    DONE(os->handle_close(os, folder));
    set_rights(path, nobody);
    DONE(vj_windows_remove_tree(os, outer, L"closed", test->open, NULL));
    CHECK(GetFileAttributesW(path) == INVALID_FILE_ATTRIBUTES);
    DONE(os->handle_close(os, outer));
}

const table_entry table_files[] = {
    {"features", features},
    {"random", random_bytes},
    {"this-process", this_process},
    {"create", create_files},
    {"pin", pin},
    {"identity", identity},
    {"list", list},
    {"remove", remove_things},
    {"remove-read-only", remove_read_only},
    {"remove-tree", remove_tree},
    {"reclaim", reclaim},
    {NULL, NULL},
};
