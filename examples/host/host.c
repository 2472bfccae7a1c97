// The command: open a jail, and run a program or a Python expression in it.
//
//   host ARCHIVE run PROGRAM [ARGUMENT...]
//   host ARCHIVE eval EXPRESSION
//
// ARCHIVE is the folder of an unpacked platform archive. Nothing here is Python, and none
// is looked for: the worker is the archive's own.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

void show(FILE *stream, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char one = (unsigned char)text[i];
        bool plain = (one >= ' ' && one < 0x7f) || one == '\n' || one == '\t';
        putc(plain ? one : '?', stream);
    }
}

int complain(const char *what, const char *why) {
    fprintf(stderr, "host: %s: %s\n", what, why);
    return REFUSED;
}

int complain_error(const vj_error *error) {
    char why[sizeof error->text + 64];
    snprintf(why, sizeof why, "%s%s%s", error->text, error->text[0] ? ": " : "",
             strerror(error->os_error));
    return complain(vj_stage_name(error->stage), why);
}

int main(int argc, char **argv) {
    bool runs = argc >= 4 && strcmp(argv[2], "run") == 0;
    bool evaluates = argc == 4 && strcmp(argv[2], "eval") == 0;
    if (!runs && !evaluates)
        return complain("usage", "host ARCHIVE run PROGRAM [ARGUMENT...] | "
                                 "host ARCHIVE eval EXPRESSION");
    // Without links, since the jail has the same paths. The archive's Python may be one,
    // to where it is installed.
    char root[PATH_MAX], python[PATH_MAX], path[PATH_MAX + 32];
    if (!realpath(argv[1], root)) return complain(argv[1], strerror(errno));
    snprintf(path, sizeof path, "%s/python", root);
    if (!realpath(path, python)) return complain(path, strerror(errno));
    snprintf(path, sizeof path, "%s/bin/visjail-init", root);

    vj_jail *jail = open_jail(path, (const char *const[]){root, python, NULL});
    if (!jail) return REFUSED;
    int code = runs ? run_program(jail, argv + 3) : evaluate(jail, root, argv[3]);
    vj_jail_free(jail); // and ends whatever is left in it
    return code;
}
