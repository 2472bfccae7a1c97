// What Linux lets a reader of a pipe do beyond POSIX.

#include <fcntl.h>

#include "posix_process.h"

// Of the 64 MiB that the pipes of an ordinary user may hold before new ones get smaller
// (pipe(7), pipe-user-pages-soft), so that 128 floods at once leave the others what they
// have.
#define WIDE (1 << 19)

bool vj_stream_widen(int descriptor) {
    return fcntl(descriptor, F_SETPIPE_SZ, WIDE) >= WIDE;
}
