// Processor time on Linux; see clock.h.
#include "clock.h"

#include <time.h>

long long vis_thread_time(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
}
