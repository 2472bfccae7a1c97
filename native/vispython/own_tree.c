// See own_tree.h.
#include "own_tree.h"

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// The one file that fits `pattern` below `root`, as `found`; false: none, or several.
static bool only(const char *root, const char *pattern, char found[PATH_MAX]) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", root, pattern);
    if (length < 0 || length >= (int)sizeof path) return false;
    glob_t files = {0};
    bool one = glob(path, GLOB_NOSORT, NULL, &files) == 0 && files.gl_pathc == 1;
    if (one) {
        length = snprintf(found, PATH_MAX, "%s", files.gl_pathv[0]);
        one = length > 0 && length < PATH_MAX;
    }
    globfree(&files);
    return one;
}

const char *vis_find_own_tree(vis_own_tree *tree) {
    char root[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", root, sizeof root - 1);
    if (length <= 0) return "/proc/self/exe cannot be read";
    root[length] = 0;
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(root, '/');
        if (slash) *slash = 0;
    }
    // glob(3) would not take them as they are.
    if (strpbrk(root, "*?[\\")) return "the name of its folder holds one of *?[\\";
    if (!only(root, "lib/_viscore.abi3.so", tree->core) ||
        !only(root, "python/bin/python3.[0-9]*[0-9]", tree->name) ||
        !only(root, "python/lib/libpython3.[0-9]*.so.1.0", tree->library))
        return "there is no whole one; name the Python";
    return NULL;
}
