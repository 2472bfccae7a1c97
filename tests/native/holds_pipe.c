// A guest that holds the kernel's lock of its stdout pipe, as well as it can.
//
//   holds_pipe SPINNERS SECONDS [grow]
//
// A thread of the lowest priority that it gets changes the protection of an area of
// memory, on the processor that SPINNERS busy processes keep, and so has the lock of that
// area most of the time. The first thread writes from pages of it that are not there yet:
// it waits for that lock, within the pipe's, with something to read in the pipe. All end
// by themselves after SECONDS. With `grow` it takes twice the memory, instead of writing,
// once the other lock is held.

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096ul
#define FULL (64ul << 20) // takes some milliseconds to protect
#define ALL  (16ul << 30) // the rest is never there

static char *area;
static atomic_int *started;

static void keep_to_last_processor(void) {
    cpu_set_t all, last;
    sched_getaffinity(0, sizeof all, &all);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &all)) continue;
        CPU_ZERO(&last);
        CPU_SET(i, &last);
    }
    sched_setaffinity(0, sizeof last, &last);
}

static void *protect(void *nothing) {
    const struct sched_param none = {0};
    keep_to_last_processor();
    mprotect(area, ALL, PROT_READ);
    if (sched_setscheduler(0, SCHED_IDLE, &none) < 0) _exit(1);
    atomic_store(started, 1);
    for (int i = 0;; i++) mprotect(area, ALL, PROT_READ | (i % 2 ? 0 : PROT_WRITE));
    return nothing;
}

int main(int count, char **arguments) {
    unsigned seconds = count > 2 ? (unsigned)atoi(arguments[2]) : 1;
    int spinners = count > 2 ? atoi(arguments[1]) : 1;
    int flags = MAP_ANONYMOUS | MAP_NORESERVE;
    alarm(seconds);
    started = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | flags, -1, 0);
    area = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, -1, 0);
    if (started == MAP_FAILED || area == MAP_FAILED) return 1;
    for (int i = 0; i < spinners; i++) {
        if (fork()) continue;
        close(STDOUT_FILENO);
        alarm(seconds);
        keep_to_last_processor();
        while (!atomic_load(started)) usleep(1000);
        for (;;) continue;
    }
    if (count > 3 && !fork()) {
        alarm(seconds);
        while (!atomic_load(started)) usleep(1000);
        usleep(500000);
        for (size_t at = 0; at < FULL; at += PAGE) area[at] = 1;
        for (;;) pause();
    }
    for (size_t at = 0; at < FULL; at += PAGE) area[at] = 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, protect, NULL)) return 1;
    while (count > 3) pause();
    for (size_t at = FULL;; at += PAGE) {
        static char here[2 * PAGE] = {1};
        const struct iovec parts[2] = {{here, sizeof here}, {area + at, PAGE}};
        if (writev(STDOUT_FILENO, parts, 2) < 0) return 1;
    }
}
