// vispython.exe: starts an unmodified CPython of Windows as a guest worker.
//
//   vispython --core _VISCORE.pyd --name PYTHON --library PYTHON3XX.dll
//             --expect VERSION -- ARGUMENTS...
//   vispython --version
//
// VISJAIL_CHANNEL in its environment is INPUT:OUTPUT, the numbers of two pipes that it
// has inherited; no program after it sees that variable. Core and library are absolute
// paths, and what they need is looked for beside them, for the core beside the library
// too, and in the folder of Windows: neither in the working directory nor along PATH. It
// refuses a library whose Py_GetVersion differs from what the host found. --name becomes
// sys.executable.
//
// It ends with 120 for wrong arguments and 121 when the interpreter cannot be started,
// after one line on stderr that says why: as on Linux (loader.c).
#include "windows_boot.h"

#include <windows.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define SEARCH           (LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_SYSTEM32)
#define CHANNEL_VARIABLE L"VISJAIL_CHANNEL"
#define STABLE_ABI       L"python3.dll"

typedef struct {
    vis_windows_boot boot;
    const wchar_t *core;
    wchar_t *name;
    const wchar_t *library;
    const wchar_t *expected_version;
    int rest; // index of the "--" before the arguments for python
} options;

static int refuse(int code, const char *step, const char *reason) {
    fprintf(stderr, "vispython: %s: %s\n", step, reason);
    return code;
}

static int refuse_system(const char *step) {
    char reason[64];
    snprintf(reason, sizeof reason, "error %lu", (unsigned long)GetLastError());
    return refuse(121, step, reason);
}

// A drive and a folder, or a server's: LoadLibraryExW takes no other path as it is.
static bool is_absolute(const wchar_t *path) {
    bool slashes = path[0] == L'\\' && path[1] == L'\\';
    bool drive = path[0] && path[1] == L':' && (path[2] == L'\\' || path[2] == L'/');
    return slashes || drive;
}

static bool parse(int count, wchar_t **words, options *chosen) {
    int i = 1;
    for (; i + 1 < count && wcscmp(words[i], L"--") != 0; i += 2) {
        wchar_t *value = words[i + 1];
        if (wcscmp(words[i], L"--core") == 0) chosen->core = value;
        else if (wcscmp(words[i], L"--name") == 0) chosen->name = value;
        else if (wcscmp(words[i], L"--library") == 0) chosen->library = value;
        else if (wcscmp(words[i], L"--expect") == 0) chosen->expected_version = value;
        else return false;
    }
    chosen->rest = i;
    return i < count && wcscmp(words[i], L"--") == 0 && chosen->name && chosen->core &&
           is_absolute(chosen->core) && chosen->library && is_absolute(chosen->library) &&
           chosen->expected_version;
}

static bool parse_pipes(vis_windows_boot *boot) {
    wchar_t text[64], *end = NULL;
    DWORD length = GetEnvironmentVariableW(CHANNEL_VARIABLE, text, 64);
    if (length == 0 || length >= 64) return false;
    // Out of the environment of this run-time library, and of Windows.
    _wputenv(CHANNEL_VARIABLE L"=");
    unsigned long long input = wcstoull(text, &end, 10);
    if (*end != L':') return false;
    unsigned long long output = wcstoull(end + 1, &end, 10);
    boot->input = (void *)(uintptr_t)input;
    boot->output = (void *)(uintptr_t)output;
    return *end == 0 && input && output;
}

static bool is_version(const char *found, const wchar_t *expected) {
    while (*found && *expected == (wchar_t)(unsigned char)*found) {
        found++;
        expected++;
    }
    return !*found && !*expected;
}

// The core asks for the stable ABI of whatever Python it is in: python3.dll, which lies
// beside the library, and not beside the core. Once it is loaded its name alone finds it.
// Where there is none, the load of a core that asks for it says so.
static void load_stable_abi(const wchar_t *library) {
    const wchar_t *name = library;
    for (const wchar_t *at = library; *at; at++)
        if (*at == L'\\' || *at == L'/') name = at + 1;
    size_t folder = (size_t)(name - library);
    wchar_t *path = malloc((folder + sizeof STABLE_ABI / sizeof *path) * sizeof *path);
    if (!path) return;
    memcpy(path, library, folder * sizeof *path);
    memcpy(path + folder, STABLE_ABI, sizeof STABLE_ABI);
    (void)LoadLibraryExW(path, NULL, SEARCH);
    free(path);
}

static int run(options *chosen, int count, wchar_t **words) {
    // Nothing that is loaded later is looked for in the working directory either.
    if (!SetDefaultDllDirectories(LOAD_LIBRARY_SEARCH_DEFAULT_DIRS))
        return refuse_system("the search for libraries cannot be narrowed");
    HMODULE library = LoadLibraryExW(chosen->library, NULL, SEARCH);
    if (!library) return refuse_system("cannot load the library of Python");
    void (*get_version)(void) = (void (*)(void))GetProcAddress(library, "Py_GetVersion");
    void (*call)(void) = (void (*)(void))GetProcAddress(library, "Py_Main");
    if (!get_version || !call)
        return refuse(121, "the library of Python",
                      "exports no Py_GetVersion or Py_Main");
    const char *version = ((const char *(*)(void))get_version)();
    if (!is_version(version, chosen->expected_version))
        return refuse(121, "the library has another version than python", version);
    // Its objects begin otherwise than those of the stable ABI, which the core is
    // compiled for. As on Linux (boot.c), but before the core: it would find no library.
    if (strstr(version, "free-threading"))
        return refuse(121, "the library of Python",
                      "this is a free-threaded build of CPython; use one with the GIL");

    load_stable_abi(chosen->library);
    HMODULE core = LoadLibraryExW(chosen->core, NULL, SEARCH);
    if (!core) return refuse_system("cannot load the core");
    void (*install)(void) = (void (*)(void))GetProcAddress(core, "viscore_install");
    if (!install) return refuse(121, "the core", "exports no viscore_install");
    chosen->boot.library = library;
    const char *failure =
        ((const char *(*)(const vis_windows_boot *))install)(&chosen->boot);
    if (failure) return refuse(121, "cannot install the audit hook", failure);
    return ((int (*)(int, wchar_t **))call)(count, words);
}

// NOLINTNEXTLINE(misc-use-internal-linkage): the start of the C run time calls it
int wmain(int count, wchar_t **words);

int wmain(int count, wchar_t **words) {
    options chosen = {0};
    if (count == 2 && wcscmp(words[1], L"--version") == 0)
        return puts("vispython " VIS_VERSION) < 0;
    if (!parse(count, words, &chosen))
        return refuse(120, "usage",
                      "vispython --core CORE --name PYTHON --library LIBRARY "
                      "--expect VERSION -- ARGUMENTS...  (core and library absolute)");
    if (!parse_pipes(&chosen.boot))
        return refuse(120, "usage", "VISJAIL_CHANNEL is INPUT:OUTPUT, two pipes");
    // Python's argument vector: its name, then what follows "--".
    words[chosen.rest] = chosen.name;
    return run(&chosen, count - chosen.rest, words + chosen.rest);
}
