// What the loader hands to the core on Windows. The loader knows nothing of Python's
// headers; see boot.h for Linux.
#ifndef VISPYTHON_WINDOWS_BOOT_H
#define VISPYTHON_WINDOWS_BOOT_H

typedef struct {
    void *library; // the loaded python3XX.dll
    void *input;   // pipe of which the worker reads what the host says
    void *output;  // pipe into which it answers
} vis_windows_boot;

// Install the audit hook and the `_viscore` module into a CPython that has not started.
// Returns NULL, or a sentence that says what failed.
__declspec(dllexport) const char *viscore_install(const vis_windows_boot *boot);

#endif
