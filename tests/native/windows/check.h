// What the test programs of Windows check with: the first thing that does not hold ends
// the program, and is said.
#ifndef WINDOWS_CHECK_H
#define WINDOWS_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <windows.h>

static inline void check_held(bool held, const char *file, int line, const char *text) {
    if (held) return;
    printf("%s:%d: %s\n", file, line, text);
    fflush(stdout);
    ExitProcess(1);
}

static inline void check_equal(uint32_t actual, uint32_t expected, const char *file,
                               int line, const char *text) {
    if (actual == expected) return;
    printf("%s:%d: %s is %lu and not %lu\n", file, line, text, (unsigned long)actual,
           (unsigned long)expected);
    fflush(stdout);
    ExitProcess(1);
}

#define CHECK(condition) check_held((condition), __FILE__, __LINE__, #condition)
#define EQUAL(actual, expected)                                                          \
    check_equal((actual), (expected), __FILE__, __LINE__, #actual)
#define DONE(call) EQUAL((call), 0)

#endif
