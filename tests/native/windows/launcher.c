// python.exe for the wine lane: the wheels that carry CPython's library have no program.

#include <windows.h>

typedef int (*python_main)(int, wchar_t **);

// NOLINTNEXTLINE(misc-use-internal-linkage): the start of the C run time calls it
int wmain(int count, wchar_t **words);

int wmain(int count, wchar_t **words) {
    HMODULE library =
        LoadLibraryExW(L"python311.dll", NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    python_main call =
        library ? (python_main)(void (*)(void))GetProcAddress(library, "Py_Main") : NULL;
    return call ? call(count, words) : 110;
}
