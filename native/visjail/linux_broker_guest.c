// What a trapped call means: the memory, descriptors and folders of the guest.
//
// Everything is read once. What was read is a copy, or a descriptor of the object
// itself, so that nothing the guest changes afterwards reaches what is done.

#include "linux_broker.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL // Linux 6.9
#endif

#define PAGE 4096u

static long read_part(uint32_t thread, uint64_t address, void *to, size_t size) {
    struct iovec here = {.iov_base = to, .iov_len = size};
    struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
    return vj_call(SYS_process_vm_readv, (long)thread, (long)&here, 1, (long)&there, 1,
                   0);
}

long vj_guest_read(uint32_t thread, uint64_t address, void *to, size_t size) {
    if (!size) return 0;
    long copied = read_part(thread, address, to, size);
    if (copied < 0) return copied;
    return (size_t)copied == size ? 0 : -EFAULT;
}

long vj_guest_string(uint32_t thread, uint64_t address, char *to, size_t capacity) {
    size_t length = 0;
    while (length < capacity) {
        size_t part = PAGE - (address & (PAGE - 1));
        if (part > capacity - length) part = capacity - length;
        long copied = read_part(thread, address, to + length, part);
        if (copied <= 0) return copied < 0 ? copied : -EFAULT;
        for (long i = 0; i < copied; i++, length++) {
            if (!to[length]) return (long)length;
        }
        address += (uint64_t)copied;
    }
    return -ENAMETOOLONG;
}

static long open_entry(uint32_t thread, const char *entry, int number, int flags) {
    char path[48];
    vj_text text = {.data = path, .capacity = sizeof path};
    vj_text_string(&text, "/proc/");
    vj_text_number(&text, thread, 10);
    vj_text_string(&text, entry);
    if (number >= 0) vj_text_number(&text, (uint64_t)number, 10);
    return sys(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
}

// A number in /proc/PID/status, behind `label` with its newline and tab.
static long status_number(uint32_t thread, const char *label, int base) {
    VJ_AUTO_FD file = (int)open_entry(thread, "/status", -1, O_RDONLY);
    if (file < 0) return file;
    char status[1024];
    long size = sys(SYS_read, file, status, sizeof status);
    long length = (long)strlen(label);
    for (long at = 0; at + length < size; at++) {
        if (memcmp(status + at, label, (size_t)length) != 0) continue;
        long number = 0;
        for (at += length; at < size && status[at] >= '0' && status[at] <= '9'; at++) {
            number = number * base + (status[at] - '0');
        }
        return number;
    }
    return -ESRCH;
}

long vj_guest_status(uint32_t thread, const char *label) {
    return status_number(thread, label, 10);
}

static long guest_umask(uint32_t thread) {
    return status_number(thread, "\nUmask:\t", 8);
}

long vj_guest_take_umask(uint32_t thread) {
    long mask = guest_umask(thread);
    if (mask < 0) return mask;
    sys(SYS_umask, mask);
    return 0;
}

// A thread has no pidfd before Linux 6.9; its process has the same descriptors,
// unless it unshared them on purpose.
static long open_process(uint32_t thread) {
    long process = sys(SYS_pidfd_open, thread, PIDFD_THREAD);
    if (process != -EINVAL) return process;
    long number = status_number(thread, "\nTgid:\t", 10);
    return number < 0 ? number : sys(SYS_pidfd_open, number, 0);
}

long vj_guest_descriptor(uint32_t thread, int number) {
    VJ_AUTO_FD process = (int)open_process(thread);
    if (process < 0) return process;
    return sys(SYS_pidfd_getfd, process, number, 0);
}

long vj_guest_directory(uint32_t thread, int directory) {
    if (directory == AT_FDCWD) return open_entry(thread, "/cwd", -1, O_PATH);
    if (directory < 0) return -EBADF;
    long opened = open_entry(thread, "/fd/", directory, O_PATH);
    return opened == -ENOENT ? -EBADF : opened;
}
