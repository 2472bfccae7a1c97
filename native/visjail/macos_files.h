// File operations that the host asks for, done by visjail-macos-init in the sandbox of
// the jail, with the rights of any program in it.
#ifndef VJ_MACOS_FILES_H
#define VJ_MACOS_FILES_H

#include <stdint.h>

// Do one (vj_file of run.h), on descriptors 0 and 1. Returns 0 or an errno.
int vj_file_operation(uint32_t file, const char *path, uint64_t limit);

#endif
