// Canaries that have a file of their own; see linux_canary.c.
#ifndef VJ_LINUX_CANARY_H
#define VJ_LINUX_CANARY_H

#include "linux_init.h"

// Try to make a file, folder, link, FIFO, socket or second name at `path`. 0 if one way
// led there, else the negative errno; anything but EACCES and EROFS says that the
// kernel refused for another reason than the wall.
long vj_canary_make(const char *path);
// The same with a file and a folder only, for where each call takes its time.
long vj_canary_make_simply(const char *path);

#endif
