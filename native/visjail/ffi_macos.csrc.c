// The seam to Python on macOS, beside ffi.csrc.c.
#include "macos_process.h"
