// Telling the host of a refusal while the run goes on.
#ifndef VISPYTHON_TELL_H
#define VISPYTHON_TELL_H

#include "worker.h"

// One refusal; all texts end with a zero and may hold any other bytes.
typedef struct {
    const char *event, *right, *rule, *path, *file;
    int line;
    int number; // errno, 0 where the kernel was not asked
} vis_denial;

// Send it, with the lock of the interpreter held, which is let go of meanwhile. False
// where the host takes none now: between two runs, in a child, and after so many in one
// run.
bool vis_tell_denial(const vis_denial *said);

#endif
