// The Landlock layer of visjail-init as it meets an older kernel: the test builds a
// visjail-init with this file in the place of linux_landlock.c, and VJ_LANDLOCK_CAP as
// the ABI of that kernel (0: Landlock is not built in).
//
// The kernel of the model refuses what its ABI does not know, as an older one does, so
// that a right that is asked for too early ends the opening.
#include <linux/landlock.h>

#include "../../native/visjail/linux_init.h"

#include <errno.h>

static long older_call(long number, long a, long b, long c, long d, long e, long f) {
    // Rights of files by ABI; from 4 on ports, from 6 on scopes.
    static const uint64_t known[] = {0, 13, 14, 15, 15, 16, 16, 16};
    if (number != SYS_landlock_create_ruleset) return vj_call(number, a, b, c, d, e, f);
    if (!VJ_LANDLOCK_CAP) return -EOPNOTSUPP;
    if (c == LANDLOCK_CREATE_RULESET_VERSION) {
        long abi = vj_call(number, a, b, c, d, e, f);
        return abi > VJ_LANDLOCK_CAP ? VJ_LANDLOCK_CAP : abi;
    }
    const uint64_t *attributes = (const uint64_t *)a;
    if (attributes[0] >> known[VJ_LANDLOCK_CAP]) return -EINVAL;
    if (VJ_LANDLOCK_CAP < 4 && b > 8) return -E2BIG;
    if (VJ_LANDLOCK_CAP < 6 && b > 16) return -E2BIG;
    return vj_call(number, a, b, c, d, e, f);
}
#define vj_call older_call
#include "../../native/visjail/linux_landlock.c"
