// Canaries that have a file of their own; see linux_canary.c.
#ifndef VJ_LINUX_CANARY_H
#define VJ_LINUX_CANARY_H

#include "linux_init.h"

// Try to make a file, folder, link, FIFO, socket or second name at `path`. 0 if one way
// led there, else the negative errno; anything but EACCES and EROFS says that the
// kernel refused for another reason than the wall, and ESTALE that the folder above it
// was exchanged. A positive errno: it was made, and this kept it from being taken away.
long vj_canary_make(const char *path);
// The same with a file and a folder only, for where each call takes its time.
long vj_canary_make_simply(const char *path);
// The same with a folder, of a name that nobody knows, in an open folder.
long vj_canary_make_directory_in(int folder);

typedef struct {
    char text[32];
} vj_canary_name;

// One that no guest can have made before, to keep the next jail from opening.
long vj_canary_name_choose(vj_canary_name *name);

#endif
