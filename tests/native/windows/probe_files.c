// What a guest may do to files: its own, staged ones, and those of others.

#include <aclapi.h>
#include <sddl.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "probe.h"

static void wide_of(const char *text, wchar_t wide[PROBE_TEXT]) {
    CHECK(MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, PROBE_TEXT) > 0);
}

// Owner, DACL and label as text, to be freed with LocalFree.
static wchar_t *descriptor_of(const char *path) {
    wchar_t wide[PROBE_TEXT];
    PSECURITY_DESCRIPTOR descriptor = NULL;
    LPWSTR text = NULL;
    const SECURITY_INFORMATION parts = OWNER_SECURITY_INFORMATION |
                                       DACL_SECURITY_INFORMATION |
                                       LABEL_SECURITY_INFORMATION;
    wide_of(path, wide);
    DONE(GetNamedSecurityInfoW(wide, SE_FILE_OBJECT, parts, NULL, NULL, NULL, NULL,
                               &descriptor));
    CHECK(ConvertSecurityDescriptorToStringSecurityDescriptorW(
        descriptor, SDDL_REVISION_1, parts, &text, NULL));
    LocalFree(descriptor);
    return text;
}

// Private copies: later changes of the source do not show, and the source stays as it
// was.
static void copies(const probe_host *probe) {
    vj_windows_error error = probe_error();
    char *source = probe_format("%s\\source", probe->folder);
    char *file = probe_format("%s\\file.txt", source);
    wchar_t wide[PROBE_TEXT];
    wide_of(source, wide);
    CHECK(CreateDirectoryW(wide, NULL) || GetLastError() == ERROR_ALREADY_EXISTS);
    probe_write_file(file, "first");
    wchar_t *before = descriptor_of(source);
    vj_windows_context_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = probe_text(probe->folder)};
    vj_windows_id context = 0;
    probe_held(vj_windows_create(&options, &context, &info, &error), &error, "create");
    vj_windows_source sources[] = {{probe_text(source), probe_text("data")},
                                   {probe_text(probe->guest), probe_text("guest.exe")}};
    vj_windows_stage_request request = {.size = sizeof request,
                                        .version = VJ_WINDOWS_VERSION,
                                        .sources = sources,
                                        .source_count = 2};
    vj_windows_stage_info staged = {.size = sizeof staged, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_stage(context, &request, &staged, &error), &error, "stage");
    CHECK(staged.files == 2 && staged.directories >= 1);
    probe_write_file(file, "second");
    CHECK(probe_exists(probe_format("%s\\app\\data\\file.txt", info.root)));
    HANDLE copy = NULL;
    char bytes[16] = "";
    DWORD count = 0;
    wide_of(probe_format("%s\\app\\data\\file.txt", info.root), wide);
    copy = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(copy != INVALID_HANDLE_VALUE);
    CHECK(ReadFile(copy, bytes, sizeof bytes - 1, &count, NULL) &&
          !strcmp(bytes, "first"));
    BY_HANDLE_FILE_INFORMATION links;
    CHECK(GetFileInformationByHandle(copy, &links) && links.nNumberOfLinks == 1);
    CloseHandle(copy);
    // Names that Windows would understand as another's, and sources that are not there.
    static const char *const names[] = {"a:stream", "con",    "nul.txt", "..\\up",
                                        "dot.",     "space ", "a?",      "C:\\b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        vj_windows_source wrong = {probe_text(file), probe_text(names[i])};
        request.sources = &wrong;
        request.source_count = 1;
        EQUAL(vj_windows_stage(context, &request, &staged, &error), VJ_WINDOWS_REFUSED);
    }
    probe_held(vj_windows_close(context, &error), &error, "close");
    wchar_t *after = descriptor_of(source);
    CHECK(!wcscmp(before, after));
    LocalFree(before);
    LocalFree(after);
}

static vj_windows_id fresh(const char *parent, vj_windows_context_info *info,
                           vj_windows_status *status) {
    vj_windows_error error = probe_error();
    vj_windows_id context = 0;
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = probe_text(parent)};
    *info =
        (vj_windows_context_info){.size = sizeof *info, .version = VJ_WINDOWS_VERSION};
    *status = vj_windows_create(&options, &context, info, &error);
    return context;
}

static vj_windows_status stage_one(vj_windows_id context, const char *source) {
    vj_windows_error error = probe_error();
    vj_windows_source one = {probe_text(source), probe_text("staged")};
    vj_windows_stage_request request = {.size = sizeof request,
                                        .version = VJ_WINDOWS_VERSION,
                                        .sources = &one,
                                        .source_count = 1};
    vj_windows_stage_info staged = {.size = sizeof staged, .version = VJ_WINDOWS_VERSION};
    return vj_windows_stage(context, &request, &staged, &error);
}

// REPARSE_DATA_BUFFER of a mount point (ntifs.h), which is what a junction is.
typedef struct {
    DWORD tag;
    WORD length;
    WORD reserved;
    WORD substitute_offset;
    WORD substitute_length;
    WORD print_offset;
    WORD print_length;
    WCHAR names[64];
} mount_point;

static void make_junction(const char *path) {
    static const WCHAR target[] = L"\\??\\C:\\Windows";
    wchar_t wide[PROBE_TEXT];
    DWORD count = 0;
    WORD size = (WORD)(wcslen(target) * sizeof *target);
    mount_point point = {.tag = IO_REPARSE_TAG_MOUNT_POINT,
                         .substitute_length = size,
                         .print_offset = (WORD)(size + sizeof *target)};
    memcpy(point.names, target, size);
    // Both names with their NULs, behind four numbers.
    point.length = (WORD)(8 + size + 2 * sizeof *target);
    wide_of(path, wide);
    CHECK(CreateDirectoryW(wide, NULL));
    HANDLE folder =
        CreateFileW(wide, GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                    FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    CHECK(folder != INVALID_HANDLE_VALUE);
    CHECK(DeviceIoControl(folder, 0x900A4 /* FSCTL_SET_REPARSE_POINT */, &point,
                          8u + point.length, NULL, 0, &count, NULL));
    CloseHandle(folder);
}

// What is no source by its name, and a file that somebody else may write to at that
// moment.
static void odd_sources(const probe_host *probe) {
    static const char *const never[] = {"\\\\localhost\\c$\\Windows\\win.ini",
                                        "\\\\?\\C:\\Windows\\win.ini", "\\\\.\\NUL",
                                        "C:relative", "NUL"};
    vj_windows_context_info info;
    vj_windows_status status = VJ_WINDOWS_OK;
    vj_windows_error error = probe_error();
    char *file = probe_format("%s\\written.txt", probe->folder);
    wchar_t wide[PROBE_TEXT];
    probe_write_file(file, "text");
    vj_windows_id context = fresh(probe->folder, &info, &status);
    DONE(status);
    wide_of(file, wide);
    HANDLE writer = CreateFileW(wide, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                NULL, OPEN_EXISTING, 0, NULL);
    CHECK(writer != INVALID_HANDLE_VALUE);
    CHECK(stage_one(context, file) != VJ_WINDOWS_OK);
    CloseHandle(writer);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        EQUAL(stage_one(context, never[i]), VJ_WINDOWS_REFUSED);
    // The control: the same file, when nobody writes to it.
    DONE(stage_one(context, file));
    probe_held(vj_windows_close(context, &error), &error, "close");
}

// A folder `linked` that somebody has put a link into, and one that is `plain`.
static void linked_sources(const probe_host *probe) {
    vj_windows_context_info info;
    vj_windows_status status = VJ_WINDOWS_OK;
    vj_windows_error error = probe_error();
    vj_windows_id context = fresh(probe->folder, &info, &status);
    DONE(status);
    // A file server of another kind may show a link only when it is opened.
    status = stage_one(context, probe_format("%s\\linked", probe->folder));
    CHECK(status == VJ_WINDOWS_REFUSED || status == VJ_WINDOWS_CHANGED);
    DONE(stage_one(context, probe_format("%s\\plain", probe->folder)));
    probe_held(vj_windows_close(context, &error), &error, "close");
}

// Junctions and symbolic links, themselves and below a folder.
static void sources(const probe_host *probe) {
    vj_windows_context_info info;
    vj_windows_status status = VJ_WINDOWS_OK;
    char *folder = probe_format("%s\\sources", probe->folder);
    char *file = probe_format("%s\\file.txt", folder);
    char *junction = probe_format("%s\\junction", folder);
    char *link = probe_format("%s\\link.txt", folder);
    wchar_t wide[PROBE_TEXT];
    wchar_t target[PROBE_TEXT];
    wide_of(folder, wide);
    CHECK(CreateDirectoryW(wide, NULL));
    probe_write_file(file, "text");
    vj_windows_id context = fresh(probe->folder, &info, &status);
    DONE(status);
    make_junction(junction);
    EQUAL(stage_one(context, junction), VJ_WINDOWS_REFUSED);
    EQUAL(stage_one(context, folder), VJ_WINDOWS_REFUSED);
    wide_of(junction, wide);
    CHECK(RemoveDirectoryW(wide));
    wide_of(link, wide);
    wide_of(file, target);
    CHECK(CreateSymbolicLinkW(wide, target, 2 /* also without the privilege */));
    EQUAL(stage_one(context, link), VJ_WINDOWS_REFUSED);
    CHECK(DeleteFileW(wide));
    // The control: without them the folder is a source.
    DONE(stage_one(context, folder));
    vj_windows_error error = probe_error();
    probe_held(vj_windows_close(context, &error), &error, "close");
}

// A socket whose path fills its address to the last byte, and a parent that leaves no
// room.
static void socket_bound(const probe_host *probe) {
    enum { ADDRESS = 108 }; // sockaddr_un, with the NUL
    vj_windows_context_info info;
    vj_windows_status status = VJ_WINDOWS_OK;
    probe_jail *jail = probe_open(probe);
    size_t before = strlen(jail->info.root) + strlen("\\work\\");
    CHECK(before + 2 < ADDRESS);
    char name[ADDRESS] = "";
    memset(name, 's', ADDRESS - 1 - before);
    char *path = probe_format(probe_format("%s\\work\\%%s", jail->info.root), name);
    PROBE_ALLOWED(jail, "talk-local", path);
    probe_close(jail);
    wchar_t wide[PROBE_TEXT];
    char *parent = probe_format(probe_format("%s\\%%s", probe->folder), name);
    wide_of(parent, wide);
    CHECK(CreateDirectoryW(wide, NULL));
    CHECK(!fresh(parent, &info, &status));
    EQUAL(status, VJ_WINDOWS_REFUSED);
}

static void own_files(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    char *work = probe_format("%s\\work", jail->info.root);
    char *file = probe_format("%s\\kept.txt", work);
    PROBE_ALLOWED(jail, "write", file);
    PROBE_ALLOWED(jail, "read", file);
    CHECK(probe_said(jail, "guest"));
    PROBE_ALLOWED(jail, "make-folder", probe_format("%s\\below", work));
    PROBE_ALLOWED(jail, "remove-folder", probe_format("%s\\below", work));
    PROBE_ALLOWED(jail, "write", probe_format("%s\\temp\\a", jail->info.root));
    PROBE_ALLOWED(jail, "delete", probe_format("%s\\temp\\a", jail->info.root));
    char root[PROBE_TEXT];
    strcpy(root, jail->info.root);
    probe_close(jail);
    // What it wrote stays; everything else is gone.
    CHECK(probe_exists(probe_format("%s\\work\\kept.txt", root)));
    CHECK(!probe_exists(probe_format("%s\\app", root)));
    CHECK(!probe_exists(probe_format("%s\\temp", root)));
}

static void staged_files(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    char *app = probe_format("%s\\app", jail->info.root);
    char *work = probe_format("%s\\work", jail->info.root);
    static const char *const acts[] = {"append",     "overwrite", "truncate",   "stream",
                                       "attributes", "extended",  "acl",        "owner",
                                       "label",      "delete",    "take-delete"};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        EQUAL(probe_inside(jail, PROBE_WORD(acts[i], jail->guest)), ERROR_ACCESS_DENIED);
    char *other = probe_format("%s\\other", app);
    EQUAL(probe_inside(jail, PROBE_WORD("create", other)), ERROR_ACCESS_DENIED);
    EQUAL(probe_inside(jail, PROBE_WORD("make-folder", other)), ERROR_ACCESS_DENIED);
    EQUAL(probe_inside(jail, PROBE_WORD("rename", jail->guest, other)),
          ERROR_ACCESS_DENIED);
    EQUAL(
        probe_inside(jail, PROBE_WORD("link", jail->guest, probe_format("%s\\l", work))),
        ERROR_ACCESS_DENIED);
    PROBE_ALLOWED(jail, "write", probe_format("%s\\replacement", work));
    EQUAL(probe_inside(jail, PROBE_WORD("rename", probe_format("%s\\replacement", work),
                                        jail->guest)),
          ERROR_ACCESS_DENIED);
    // The folders in which it may write are not its own to take away, or to open to
    // others.
    static const char *const of_folders[] = {"take-delete", "acl", "owner", "label"};
    for (size_t i = 0; i < sizeof of_folders / sizeof *of_folders; i++) {
        EQUAL(probe_inside(jail, PROBE_WORD(of_folders[i], work)), ERROR_ACCESS_DENIED);
        EQUAL(probe_inside(jail, PROBE_WORD(of_folders[i], app)), ERROR_ACCESS_DENIED);
    }
    probe_close(jail);
}

static void other_files(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    probe_jail *sibling = probe_open(probe);
    char *secret = probe_format("%s\\secret.txt", probe->folder);
    char *siblings = probe_format("%s\\work\\secret.txt", sibling->info.root);
    char profile[PROBE_TEXT];
    wchar_t wide[PROBE_TEXT];
    probe_write_file(secret, "secret");
    probe_write_file(siblings, "secret");
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "read", secret);
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "overwrite", secret);
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "read", siblings);
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "list", "C:");
    CHECK(GetEnvironmentVariableW(L"USERPROFILE", wide, PROBE_TEXT) != 0);
    CHECK(WideCharToMultiByte(CP_UTF8, 0, wide, -1, profile, PROBE_TEXT, NULL, NULL) > 0);
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "list", profile);
    CHECK(GetTempPathW(PROBE_TEXT, wide) != 0);
    wide[wcslen(wide) - 1] = 0;
    CHECK(WideCharToMultiByte(CP_UTF8, 0, wide, -1, profile, PROBE_TEXT, NULL, NULL) > 0);
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "list", profile);
    probe_close(sibling);
    probe_close(jail);
}

typedef HRESULT(WINAPI *folder_path)(PCWSTR, PWSTR *);

// The private folder of the package, and that it goes with the context.
static void package_folder(const probe_host *probe) {
    HMODULE library = LoadLibraryExW(L"userenv.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    folder_path call =
        (folder_path)(void (*)(void))GetProcAddress(library, "GetAppContainerFolderPath");
    CHECK(call != NULL);
    probe_jail *jail = probe_open(probe);
    wchar_t sid[PROBE_TEXT];
    PWSTR path = NULL;
    char folder[PROBE_TEXT];
    wide_of(jail->info.package_sid, sid);
    CHECK(SUCCEEDED(call(sid, &path)));
    CHECK(WideCharToMultiByte(CP_UTF8, 0, path, -1, folder, PROBE_TEXT, NULL, NULL) > 0);
    CHECK(probe_exists(folder));
    PROBE_ALLOWED(jail, "write", probe_format("%s\\data.txt", folder));
    probe_close(jail);
    CHECK(!probe_exists(folder));
}

static void registry(const probe_host *probe) {
    static const wchar_t name[] = L"Software\\visjail-probe";
    HKEY key = NULL;
    DONE((uint32_t)RegCreateKeyExW(HKEY_CURRENT_USER, name, 0, NULL, REG_OPTION_VOLATILE,
                                   KEY_ALL_ACCESS, NULL, &key, NULL));
    DONE((uint32_t)RegSetValueExW(key, L"secret", 0, REG_SZ, (const BYTE *)L"1", 4));
    RegCloseKey(key);
    probe_jail *jail = probe_open(probe);
    PROBE_ALLOWED(jail, "read-key", "HKLM",
                  "SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\SideBySide");
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "read-key", "HKCU",
                 "Software\\visjail-probe");
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "write-key", "HKCU",
                 "Software\\visjail-probe");
    EQUAL(probe_inside(jail, PROBE_WORD("write-key", "HKLM", "SOFTWARE\\Microsoft")),
          ERROR_ACCESS_DENIED);
    probe_close(jail);
    DONE((uint32_t)RegDeleteKeyW(HKEY_CURRENT_USER, name));
}

// Descriptors of what is not the jail's, before and after, with a run between them.
static void descriptors(const probe_host *probe) {
    char *paths[] = {probe_format("%s", probe->folder), probe_format("%s", probe->guest),
                     probe_format("%s", probe->system)};
    wchar_t *before[3];
    for (size_t i = 0; i < 3; i++) before[i] = descriptor_of(paths[i]);
    probe_jail *jail = probe_open(probe);
    wchar_t *app = descriptor_of(probe_format("%s\\app", jail->info.root));
    wchar_t sid[PROBE_TEXT];
    wide_of(jail->info.package_sid, sid);
    CHECK(wcsstr(app, L"D:P") && wcsstr(app, sid));
    // Nobody that is not named: neither everybody nor the users nor all packages.
    CHECK(!wcsstr(app, L";WD)") && !wcsstr(app, L";BU)") && !wcsstr(app, L";AC)"));
    CHECK(!wcsstr(app, L"S-1-15-2-2)"));
    LocalFree(app);
    PROBE_ALLOWED(jail, "echo");
    probe_close(jail);
    for (size_t i = 0; i < 3; i++) {
        wchar_t *after = descriptor_of(paths[i]);
        CHECK(!wcscmp(before[i], after));
        LocalFree(before[i]);
        LocalFree(after);
    }
}

// A name beside the program of the host does not become its library.
static void libraries(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    char *planted = probe_format("%s\\work\\version.dll", jail->info.root);
    probe_write_file(planted, "no library");
    PROBE_ALLOWED(jail, "load", "version.dll");
    CHECK(!strstr(jail->output, "\\work\\"));
    probe_close(jail);
}

const probe_entry probe_files[] = {
    {"copies", copies},
    {"sources", sources},
    {"odd-sources", odd_sources},
    {"linked-sources", linked_sources},
    {"socket-bound", socket_bound},
    {"own-files", own_files},
    {"staged-files", staged_files},
    {"other-files", other_files},
    {"package-folder", package_folder},
    {"registry", registry},
    {"descriptors", descriptors},
    {"libraries", libraries},
    {NULL, NULL},
};
