// Processor time on Windows; see clock.h.
#include "clock.h"

#include <windows.h>

// Of a FILETIME.
#define UNIT_NS 100

static long long as_ns(const FILETIME *time) {
    ULARGE_INTEGER units = {.LowPart = time->dwLowDateTime,
                            .HighPart = time->dwHighDateTime};
    return (long long)units.QuadPart * UNIT_NS;
}

long long vis_thread_time(void) {
    FILETIME created, ended, kernel = {0}, user = {0};
    GetThreadTimes(GetCurrentThread(), &created, &ended, &kernel, &user);
    return as_ns(&kernel) + as_ns(&user);
}
