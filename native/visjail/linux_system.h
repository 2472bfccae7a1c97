// System calls for visjail-init, without a libc.
//
// visjail-init is static and is shipped inside wheels, so it carries no libc
// objects at all: it calls the kernel directly. Every function here returns
// what the kernel returns: a value, or a negative errno.
#ifndef VJ_LINUX_SYSTEM_H
#define VJ_LINUX_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

#include "linux_newer.h"

static inline long vj_call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#else
#error "visjail-init knows x86_64 and aarch64"
#endif
}

// The number of arguments is the caller's business; missing ones are zero.
#define VJ_CALL_1(n)          vj_call(n, 0, 0, 0, 0, 0, 0)
#define VJ_CALL_2(n, a)       vj_call(n, (long)(a), 0, 0, 0, 0, 0)
#define VJ_CALL_3(n, a, b)    vj_call(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define VJ_CALL_4(n, a, b, c) vj_call(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define VJ_CALL_5(n, a, b, c, d)                                                         \
    vj_call(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define VJ_CALL_6(n, a, b, c, d, e)                                                      \
    vj_call(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define VJ_CALL_PICK(_1, _2, _3, _4, _5, _6, name, ...) name
#define sys(...)                                                                         \
    VJ_CALL_PICK(__VA_ARGS__, VJ_CALL_6, VJ_CALL_5, VJ_CALL_4, VJ_CALL_3, VJ_CALL_2,     \
                 VJ_CALL_1, )                                                            \
    (__VA_ARGS__)

// Run `function(argument)` in a child that shares this process's memory and
// stops it until the child has called execve or exited (vfork semantics, on a
// stack of its own, so that nothing here is overwritten). Returns the child's
// pid or a negative errno. `stack_top` is 16-byte aligned.
long vj_spawn_shared(int (*function)(void *), void *argument, void *stack_top);

// Where visjail-init starts.
int vj_main(int argument_count, char **arguments);

// The few C library functions that compilers call on their own.
void *memcpy(void *destination, const void *source, size_t size);
void *memmove(void *destination, const void *source, size_t size);
void *memset(void *destination, int value, size_t size);
int memcmp(const void *left, const void *right, size_t size);
size_t strlen(const char *text);

// What getdents64 writes (getdents(2)); types as readdir(3) has them.
typedef struct {
    unsigned long d_ino;
    unsigned long d_off;
    unsigned short d_reclen;
    unsigned char d_type;
    char d_name[];
} vj_directory_entry;

enum { VJ_ENTRY_DIRECTORY = 4, VJ_ENTRY_REGULAR = 8 };

// Text assembled in a fixed buffer. Too long is remembered, never written past.
typedef struct {
    char *data;
    size_t capacity;
    size_t length;
    int overflow;
} vj_text;

// CLOCK_MONOTONIC in nanoseconds.
uint64_t vj_clock(void);

void vj_text_string(vj_text *text, const char *string);
void vj_text_number(vj_text *text, uint64_t number, unsigned base);

_Noreturn static inline void vj_exit_process(int code) {
    for (;;) sys(SYS_exit_group, code);
}

static inline void vj_close_slot(const int *descriptor) {
    if (*descriptor >= 0) sys(SYS_close, *descriptor);
}
#define VJ_AUTO_FD __attribute__((cleanup(vj_close_slot))) int

#endif
