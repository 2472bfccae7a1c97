// vispython: starts an unmodified CPython as a guest worker.
//
//   vispython --channel FD --control FD --core _VISCORE.so --name PYTHON [--harden]
//             (--library LIBPYTHON --expect VERSION | --executable PYTHON) --
//             ARGUMENTS...
//   vispython --archive --channel FD --control FD -- ARGUMENTS...
//   vispython --version
//
// The second form is for the copy in a platform archive: it starts the Python of that
// archive, found from where this program itself lies, whatever folder it was unpacked to.
// With --library (mode L) it loads libpython itself; it refuses one whose Py_GetVersion
// differs from what the host found. With --executable (mode P) it starts a python that
// contains its own interpreter, with the core preloaded. --name is the path that becomes
// sys.executable, so that a venv is found. The loader links no libpython.
//
// It ends with 120 for wrong arguments and 121 when the interpreter cannot be started,
// after one line on stderr that says why.
#include "boot.h"
#include "own_tree.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef struct {
    vis_boot boot;
    const char *core;
    const char *name;
    const char *library;
    const char *expected_version;
    const char *executable;
    bool harden;
    int rest; // index of the first argument for python
} options;

static int refuse(int code, const char *step, const char *reason) {
    fprintf(stderr, "vispython: %s: %s\n", step, reason ? reason : "failed");
    return code;
}

static bool parse_descriptor(const char *text, int *descriptor) {
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < 3 || number > 1000000) return false;
    *descriptor = (int)number;
    return true;
}

static bool parse(int argc, char **argv, options *chosen) {
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--harden") == 0) {
            chosen->harden = true;
            continue;
        }
        if (i + 1 >= argc) return false;
        const char *key = argv[i++], *value = argv[i];
        bool known = true;
        if (strcmp(key, "--channel") == 0)
            known = parse_descriptor(value, &chosen->boot.channel);
        else if (strcmp(key, "--control") == 0)
            known = parse_descriptor(value, &chosen->boot.control);
        else if (strcmp(key, "--core") == 0) chosen->core = value;
        else if (strcmp(key, "--name") == 0) chosen->name = value;
        else if (strcmp(key, "--library") == 0) chosen->library = value;
        else if (strcmp(key, "--expect") == 0) chosen->expected_version = value;
        else if (strcmp(key, "--executable") == 0) chosen->executable = value;
        else known = false;
        if (!known) return false;
    }
    chosen->rest = i + 1;
    bool one_way = (chosen->library && chosen->expected_version)
                       ? !chosen->executable
                       : chosen->executable != NULL;
    return i < argc && chosen->core && chosen->name && one_way &&
           chosen->boot.channel >= 3 && chosen->boot.control >= 3;
}

#define LOOK_UP(pointer, handle, symbol)                                                 \
    do {                                                                                 \
        void *found = dlsym(handle, symbol);                                             \
        memcpy((void *)&(pointer), (const void *)&found, sizeof found);                  \
    } while (0)

static int run_library(options *chosen, int argc, char **argv) {
    // Extension modules expect the interpreter's symbols to be global.
    void *library = dlopen(chosen->library, RTLD_NOW | RTLD_GLOBAL);
    if (!library) return refuse(121, "cannot load libpython", dlerror());
    const char *(*get_version)(void);
    int (*main_function)(int, char **);
    LOOK_UP(get_version, library, "Py_GetVersion");
    LOOK_UP(main_function, library, "Py_BytesMain");
    if (!get_version || !main_function)
        return refuse(121, chosen->library, "exports no Py_GetVersion or Py_BytesMain");
    if (chosen->expected_version && strcmp(get_version(), chosen->expected_version) != 0)
        return refuse(121, "libpython has another version than python", get_version());

    void *core = dlopen(chosen->core, RTLD_NOW | RTLD_GLOBAL);
    if (!core) return refuse(121, "cannot load the core", dlerror());
    const char *(*install)(const vis_boot *);
    LOOK_UP(install, core, "viscore_install");
    if (!install) return refuse(121, chosen->core, "exports no viscore_install");
    chosen->boot.mode = 'L';
    const char *failure = install(&chosen->boot);
    if (failure) return refuse(121, "cannot install the audit hook", failure);
    return main_function(argc, argv);
}

static int run_executable(const options *chosen, char **argv) {
    char descriptors[64], *preload = NULL;
    const char *before = getenv("LD_PRELOAD");
    snprintf(descriptors, sizeof descriptors, "%d:%d", chosen->boot.channel,
             chosen->boot.control);
    int size =
        asprintf(&preload, before && *before ? "%s:%s" : "%s", chosen->core, before);
    if (size < 0 || setenv("VISPYTHON_BOOT", descriptors, 1) ||
        setenv("LD_PRELOAD", preload, 1))
        return refuse(121, "cannot prepare the environment", "out of memory");
    execv(chosen->executable, argv);
    perror("vispython: cannot start python");
    return 121;
}

static int run_archive(int argc, char **argv) {
    options chosen = {.boot = {.channel = -1, .control = -1}};
    vis_own_tree own = {0};
    if (argc < 7 || strcmp(argv[2], "--channel") != 0 ||
        !parse_descriptor(argv[3], &chosen.boot.channel) ||
        strcmp(argv[4], "--control") != 0 ||
        !parse_descriptor(argv[5], &chosen.boot.control) || strcmp(argv[6], "--") != 0)
        return refuse(120, "usage",
                      "vispython --archive --channel FD --control FD -- ARGUMENTS...");
    const char *failure = vis_find_own_tree(&own);
    if (failure) return refuse(121, "the archive that this lies in", failure);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return refuse(121, "no_new_privs", "the kernel refused it");
    chosen.core = own.core;
    chosen.library = own.library;
    char *name = strdup(own.name);
    if (!name) return refuse(121, "cannot start", "out of memory");
    argv[6] = name;
    return run_library(&chosen, argc - 6, argv + 6);
}

int main(int argc, char **argv) {
    options chosen = {.boot = {.channel = -1, .control = -1}};
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return puts("vispython " VIS_VERSION) < 0;
    if (argc > 1 && strcmp(argv[1], "--archive") == 0) return run_archive(argc, argv);
    if (!parse(argc, argv, &chosen))
        return refuse(120, "usage",
                      "vispython --channel FD --control FD --core CORE --name PYTHON "
                      "[--harden] (--library LIB --expect VERSION | --executable PYTHON) "
                      "-- ARGUMENTS...");
    if (chosen.harden && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return refuse(121, "no_new_privs", "the kernel refused it");
    // Python's argument vector: its name, then what follows "--".
    char **arguments = argv + chosen.rest - 1;
    char *name = strdup(chosen.name);
    if (!name) return refuse(121, "cannot start", "out of memory");
    arguments[0] = name;
    if (chosen.executable) return run_executable(&chosen, arguments);
    return run_library(&chosen, argc - chosen.rest + 1, arguments);
}
