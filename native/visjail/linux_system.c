// The parts of visjail-init that a libc would bring. See linux_system.h.

#include "linux_system.h"

#include <elf.h>
#include <errno.h>
#include <linux/sched.h>
#include <linux/time_types.h>
#include <signal.h>
#include <sys/mman.h>

// Plain loops, kept from the optimisation that would make a loop in memcpy call
// memcpy. (Clang has none such in a freestanding file.)
#if defined(__GNUC__) && !defined(__clang__)
#define PLAIN_LOOP __attribute__((optimize("no-tree-loop-distribute-patterns")))
#else
#define PLAIN_LOOP
#endif

PLAIN_LOOP void *memcpy(void *restrict destination, const void *restrict source,
                        size_t size) {
    unsigned char *to = destination;
    const unsigned char *from = source;
    for (size_t i = 0; i < size; i++) to[i] = from[i];
    return destination;
}

PLAIN_LOOP void *memmove(void *destination, const void *source, size_t size) {
    unsigned char *to = destination;
    const unsigned char *from = source;
    if (to < from) {
        for (size_t i = 0; i < size; i++) to[i] = from[i];
    } else {
        for (size_t i = size; i > 0; i--) to[i - 1] = from[i - 1];
    }
    return destination;
}

PLAIN_LOOP void *memset(void *destination, int value, size_t size) {
    unsigned char *to = destination;
    for (size_t i = 0; i < size; i++) to[i] = (unsigned char)value;
    return destination;
}

int memcmp(const void *left, const void *right, size_t size) {
    const unsigned char *a = left;
    const unsigned char *b = right;
    for (size_t i = 0; i < size; i++) {
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    }
    return 0;
}

PLAIN_LOOP size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}

// The file's own headers, where the linker put them.
extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));

#if defined(__x86_64__)
#define RELOCATION_OF_ITSELF R_X86_64_RELATIVE
#else
#define RELOCATION_OF_ITSELF R_AARCH64_RELATIVE
#endif

static void relocate(char *base, const Elf64_Dyn *entry) {
    const Elf64_Rela *table = NULL;
    size_t size = 0;
    for (; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_RELA)
            table = (const Elf64_Rela *)(uintptr_t)(base + entry->d_un.d_ptr);
        if (entry->d_tag == DT_RELASZ) size = entry->d_un.d_val;
    }
    if (!table) return;
    for (size_t i = 0; i < size / sizeof *table; i++) {
        if (ELF64_R_TYPE(table[i].r_info) != RELOCATION_OF_ITSELF) vj_exit_process(127);
        uintptr_t *pointer = (uintptr_t *)(uintptr_t)(base + table[i].r_offset);
        *pointer = (uintptr_t)(base + table[i].r_addend);
    }
}

// Pages of 16 and 64 KiB exist, and mprotect rounds the end up to one: what is behind has
// to stay writable. In front there is nothing, since this part is the first of what is
// mapped writable.
static void protect(uintptr_t from, uintptr_t size, uintptr_t page) {
    uintptr_t end = (from + size) & ~(page - 1);
    from &= ~(page - 1);
    if (end > from && sys(SYS_mprotect, from, end - from, PROT_READ) < 0)
        vj_exit_process(127);
}

// The kernel's list behind the environment (getauxval(3)).
static uintptr_t page_size(const long *stack) {
    const long *at = stack + 1 + stack[0] + 1; // behind the arguments and their end
    while (*at) at++;
    for (at++; at[0] != AT_NULL; at += 2) {
        if (at[0] == AT_PAGESZ) return (uintptr_t)at[1];
    }
    vj_exit_process(127);
}

// Do what a loader would: the program lies at a random address, and its tables of
// pointers were linked for address 0. They are read-only afterwards. No table may be used
// before. A program that was linked for fixed addresses has neither part.
static void load_itself(const long *stack) {
    char *base = (char *)(uintptr_t)&__ehdr_start;
    const Elf64_Phdr *part = (const Elf64_Phdr *)(uintptr_t)(base + __ehdr_start.e_phoff);
    const Elf64_Phdr *end = part + __ehdr_start.e_phnum;
    for (const Elf64_Phdr *p = part; p < end; p++)
        if (p->p_type == PT_DYNAMIC)
            relocate(base, (const Elf64_Dyn *)(uintptr_t)(base + p->p_vaddr));
    if (__ehdr_start.e_type != ET_DYN) return;
    for (const Elf64_Phdr *p = part; p < end; p++)
        if (p->p_type == PT_GNU_RELRO)
            protect((uintptr_t)(base + p->p_vaddr), p->p_memsz, page_size(stack));
}

// The kernel enters with the arguments on the stack.
__attribute__((used)) _Noreturn static void enter(long *stack) {
    load_itself(stack);
    vj_exit_process(vj_main((int)stack[0], (char **)(stack + 1)));
}

#if defined(__x86_64__)
__asm__(".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call enter\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n"
        ".type _start, %function\n"
        "_start:\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    mov x0, sp\n"
        "    bl enter\n");
#endif

long vj_spawn_shared(int (*function)(void *), void *argument, void *stack_top) {
    long flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
#if defined(__x86_64__)
    // The child finds the function and its argument in registers that the
    // call preserves; it never returns into this frame.
    long result;
    register void *r12 __asm__("r12") = (void *)function;
    register void *r13 __asm__("r13") = argument;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n"
                     "    test %%rax, %%rax\n"
                     "    jnz 1f\n"
                     "    xor %%ebp, %%ebp\n"
                     "    mov %%r13, %%rdi\n"
                     "    call *%%r12\n"
                     "    mov %%eax, %%edi\n"
                     "    mov %[leave], %%eax\n"
                     "    syscall\n"
                     "    hlt\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(stack_top), "d"(0), "r"(r10),
                       "r"(r8), "r"(r12), "r"(r13), [leave] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone;
    register long x0 __asm__("x0") = flags;
    register void *x1 __asm__("x1") = stack_top;
    register long x2 __asm__("x2") = 0;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    register void *x19 __asm__("x19") = (void *)function;
    register void *x20 __asm__("x20") = argument;
    __asm__ volatile("svc #0\n"
                     "    cbnz x0, 1f\n"
                     "    mov x29, #0\n"
                     "    mov x0, x20\n"
                     "    blr x19\n"
                     "    mov x8, %[leave]\n"
                     "    svc #0\n"
                     "    brk #0\n"
                     "1:\n"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x19),
                       "r"(x20), [leave] "i"(SYS_exit_group)
                     : "memory");
    return x0;
#endif
}

uint64_t vj_clock(void) {
    struct __kernel_timespec time = {0};
    sys(SYS_clock_gettime, 1 /* CLOCK_MONOTONIC */, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}
