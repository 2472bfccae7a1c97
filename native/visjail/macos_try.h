// Acts that a jail forbids, tried by visjail-macos-init on itself: before it enters the
// sandbox, where each must succeed, and in it.
//
// An act is a letter and its operands, with a space between two:
//
//   r PATH, w PATH   open for reading, for writing
//   o PATH           look at it
//   c PATH           make a file, which is removed again
//   l PATH NEW       make a second name, n PATH NEW a clone; both are removed again
//   i PATH           set its set-uid bit, which is cleared again
//   q OPERATION PATH asked of the kernel, not tried: executing, and changes of folders
//   u PATH           connect to the AF_UNIX socket
//   t PORT, d PORT   connect to the port of 127.0.0.1 by TCP, by UDP
//   b                bind a TCP port
//   k PROCESS        send it no signal, p PROCESS ask about it
//   s NAME           make shared memory, which is removed again
//   g NAME           look a Mach service up: asked of the kernel, not tried
#ifndef VJ_MACOS_TRY_H
#define VJ_MACOS_TRY_H

#include <stdint.h>

typedef struct {
    int32_t before; // errno outside of the sandbox; 0: it succeeded
    int32_t within;
} vj_tried;

// Try one. Returns 0 or its errno; EINVAL for what is no act.
int32_t vj_try(const char *act);

#endif
