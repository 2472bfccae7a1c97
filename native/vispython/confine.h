// What a worker is not to do besides what the policy says: options of the runtime.
#ifndef VISPYTHON_CONFINE_H
#define VISPYTHON_CONFINE_H

#include "worker.h"

// Set once, before any code of the guest runs; all false until then.
typedef struct {
    bool refuses_processes; // starting processes
    bool refuses_ctypes;    // importing _ctypes
    bool refuses_native;    // machine code from places that the guest can write
} vis_confinement;

extern vis_confinement vis_confined;

// Have the kernel refuse that this process starts another one, now and for good; prove
// it, and have the module behind subprocess say why. `answers` gets the errno of an
// execve and of a clone that were tried. False with an exception set.
bool vis_refuse_processes(int answers[2]);

// Wrap what the interpreter has built in, before it starts.
void vis_wrap_inittab(void *table);

#endif
