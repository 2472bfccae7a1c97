// The Python of the platform archive that a program lies in.
#ifndef VISPYTHON_OWN_TREE_H
#define VISPYTHON_OWN_TREE_H

#include <limits.h>

typedef struct {
    char core[PATH_MAX]; // ROOT/lib/_viscore.abi3.so
    char name[PATH_MAX]; // ROOT/python/bin/python3.X; the interpreter's home follows from
                         // it
    char library[PATH_MAX]; // ROOT/python/lib/libpython3.X.so.1.0
} vis_own_tree;

// Fill in the parts of the archive whose ROOT/bin/ this program is in, wherever it was
// unpacked. Returns NULL, or why there is none.
const char *vis_find_own_tree(vis_own_tree *tree);

#endif
