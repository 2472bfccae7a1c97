// What the loader hands to the core. The loader knows nothing of Python's headers.
#ifndef VISPYTHON_BOOT_H
#define VISPYTHON_BOOT_H

typedef struct {
    int channel; // stream socket to the host
    int control; // packet socket for the control thread
    char mode;   // 'L' libpython was loaded, 'P' the core was preloaded into python
} vis_boot;

// Install the audit hook and the `_viscore` module into a CPython that has not started.
// Returns NULL, or a sentence that says what failed.
__attribute__((visibility("default"))) const char *viscore_install(const vis_boot *boot);

#endif
