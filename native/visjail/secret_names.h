// Names of files that hold secrets. Pure: compares names and bytes, opens nothing.
//
// The list itself is data of the caller (src/visruntime/_policy/secret_names.py): entries
// of a letter and a name, each ended by a NUL. A name with a '/' is compared with the
// name of the folder above too.
//
//   d  a folder: all that is in it
//   n  a file of this name
//   p  a file whose name begins so
//   s  a file whose name ends so, in letters of either case
//   k  the same, if it holds a private key
//   o  an end of a name that 'p' does not count for: templates are no secrets
//   i  a folder of installed code, in which nothing counts
//   l  the same, by the folder above and the beginning of its name
//   t  the same, by its whole path
#ifndef VJ_SECRET_NAMES_H
#define VJ_SECRET_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VJ_SECRET_FOLDER = 1 << 0, // what is asked about can be a folder
    VJ_SECRET_FILE = 1 << 1,   // or a file; both for a link
};

// How much of a file of kind 'k' is looked at, in bytes: certificates can come first.
#define VJ_SECRET_KEY_BYTES 65536u

// Which two bytes names of the list begin and end with: most names need no more.
typedef struct {
    uint8_t begins[65536 / 8];
    uint8_t ends[65536 / 8];
} vj_secret_hints;

void vj_secret_prepare(const char *table, size_t size, vj_secret_hints *hints);
bool vj_secret_worth(const vj_secret_hints *hints, const char *name, size_t length);

typedef struct {
    int32_t entry;   // of the list; -1: none
    uint32_t length; // of the part of the path that matches it
    bool by_content; // only if it holds a private key
} vj_secret_found;

// Compare the last part of absolute `path`, and the one above where the list wants it.
vj_secret_found vj_secret_match(const char *table, size_t size, const char *path,
                                size_t length, int what);

// The first folder on the way to `path` that is a secret, or `path` itself, which is what
// `what` says. Only parts longer than `after` bytes count. None in installed code.
vj_secret_found vj_secret_find(const char *table, size_t size, const char *path,
                               size_t after, int what);

// Whether absolute `path` names a folder of installed code. The folders above are not
// looked at.
bool vj_secret_installed(const char *table, size_t size, const char *path, size_t length);

// Whether the beginning of a file has the header of a private key: PEM, OpenSSH, PGP,
// PuTTY.
bool vj_secret_is_key(const char *bytes, size_t size);

#endif
