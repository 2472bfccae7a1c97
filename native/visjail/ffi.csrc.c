// The seam to Python: cffi compiles these headers against ffi.cdef.h.
#include "error.h"
#include "macos_profile.h"
#include "message.h"
#include "pattern.h"
#include "policy.h"
#include "policy_tree.h"
#include "secret_names.h"
#include "visjail.h"
