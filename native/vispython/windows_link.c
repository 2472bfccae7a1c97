// The bytes between a worker and its host on Windows: two anonymous pipes. See link.h.
//
// A pipe of Windows has no way to be read with a time limit or until a signal comes, and
// only one pair of them is inherited. So a thread of its own reads all that the host
// says: orders, which it carries out at once whatever the interpreter does, and frames,
// which it keeps until somebody asks. No descriptor comes with them.
#include "link.h"
#include "windows_worker.h"

#include "monitor.h"

#include <stdlib.h>
#include <string.h>

// Of a frame's header, as doc/reference/protocol.md has it.
enum { HEADER_SIZE = 16, HEADER_TYPE = 1, HEADER_LENGTH = 4 };
enum { FRAME_INTERRUPT = 9, FRAME_BYE = 14, INTERRUPT_SIZE = 8 };
// The host is gone, which is no guest's doing: as on Linux.
#define EXIT_HOST_GONE 122
// More than the host ever sends.
#define MAX_PAYLOAD ((uint32_t)1024 * 1024 * 1024)
#define WAIT_MS     60000

static struct {
    HANDLE input, output;
    SRWLOCK sending;
    DWORD failure; // of the last write
    vj_monitor monitor;
    // Below it: frames that have arrived, and nobody has taken.
    uint8_t *bytes;
    size_t used, capacity;
    bool ended, broken_off;
} host;

// ---- the thread that reads ------------------------------------------------------------

static bool read_whole(void *to, size_t size) {
    uint8_t *at = to;
    while (size > 0) {
        DWORD got = 0;
        DWORD most = size > MAX_PAYLOAD ? MAX_PAYLOAD : (DWORD)size;
        // Nothing and no error: somebody wrote nothing.
        if (!ReadFile(host.input, at, most, &got, NULL)) return false;
        at += got;
        size -= got;
    }
    return true;
}

static bool keep(const uint8_t *header, const uint8_t *payload, size_t length) {
    bool kept = true;
    vj_monitor_enter(&host.monitor);
    size_t needed = host.used + HEADER_SIZE + length;
    if (needed > host.capacity) {
        uint8_t *grown = realloc(host.bytes, needed);
        kept = grown != NULL;
        if (kept) {
            host.bytes = grown;
            host.capacity = needed;
        }
    }
    if (kept) {
        memcpy(host.bytes + host.used, header, HEADER_SIZE);
        if (length) memcpy(host.bytes + host.used + HEADER_SIZE, payload, length);
        host.used = needed;
        vj_monitor_wake(&host.monitor);
    }
    vj_monitor_leave(&host.monitor);
    return kept;
}

// Take one frame from the pipe; false at its end, or where it is none.
static bool take_one(bool *farewell) {
    uint8_t header[HEADER_SIZE];
    uint32_t length;
    if (!read_whole(header, sizeof header)) return false;
    memcpy(&length, header + HEADER_LENGTH, sizeof length);
    if (header[HEADER_TYPE] == FRAME_INTERRUPT) {
        uint64_t run;
        if (length != INTERRUPT_SIZE || !read_whole(&run, sizeof run)) return false;
        vis_interrupt_run(run);
        return true;
    }
    uint8_t *payload = length > MAX_PAYLOAD ? NULL : malloc((size_t)length + 1);
    bool kept = payload && read_whole(payload, length) && keep(header, payload, length);
    free(payload);
    *farewell = header[HEADER_TYPE] == FRAME_BYE;
    return kept;
}

static DWORD WINAPI listen_to_host(void *unused) {
    (void)unused;
    bool farewell = false;
    while (take_one(&farewell)) continue;
    // After its farewell it is the main thread that ends this process, in order.
    if (!farewell) TerminateProcess(GetCurrentProcess(), EXIT_HOST_GONE);
    vj_monitor_enter(&host.monitor);
    host.ended = true;
    vj_monitor_wake(&host.monitor);
    vj_monitor_leave(&host.monitor);
    return 0;
}

// ---- what the rest of the worker calls
// --------------------------------------------------

const char *vis_link_open(HANDLE input, HANDLE output) {
    const HANDLE both[2] = {input, output};
    for (size_t i = 0; i < 2; i++) {
        // As for a console or a file, it would not end with the host.
        if (GetFileType(both[i]) != FILE_TYPE_PIPE)
            return "what should be a pipe of the host is none";
        if (!SetHandleInformation(both[i], HANDLE_FLAG_INHERIT, 0))
            return "a pipe of the host could not be kept from children";
    }
    host.input = input;
    host.output = output;
    return NULL;
}

bool vis_link_start(void) {
    HANDLE thread = CreateThread(NULL, 0, listen_to_host, NULL, 0, NULL);
    if (!thread) return false;
    CloseHandle(thread);
    return true;
}

void vis_link_break_off(void) {
    vj_monitor_enter(&host.monitor);
    host.broken_off = true;
    vj_monitor_wake(&host.monitor);
    vj_monitor_leave(&host.monitor);
}

bool vis_link_is_there(void) {
    return host.output != NULL;
}

vis_link_event vis_link_read(void *bytes, size_t size, size_t *got) {
    vis_link_event event = VIS_LINK_END;
    vj_monitor_enter(&host.monitor);
    while (!host.used && !host.ended && !host.broken_off)
        vj_monitor_wait(&host.monitor, WAIT_MS);
    if (host.used) {
        *got = host.used < size ? host.used : size;
        memcpy(bytes, host.bytes, *got);
        host.used -= *got;
        memmove(host.bytes, host.bytes + *got, host.used);
        event = VIS_LINK_BYTES;
    } else if (host.broken_off) {
        host.broken_off = false;
        event = VIS_LINK_BROKEN_OFF;
    }
    // What one large value took is not kept for the small ones after it.
    if (!host.used) {
        free(host.bytes);
        host.bytes = NULL;
        host.capacity = 0;
    }
    vj_monitor_leave(&host.monitor);
    return event;
}

static bool write_whole(const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    while (size > 0) {
        DWORD written = 0;
        DWORD most = size > MAX_PAYLOAD ? MAX_PAYLOAD : (DWORD)size;
        if (!WriteFile(host.output, at, most, &written, NULL)) {
            host.failure = GetLastError();
            return false;
        }
        at += written;
        size -= written;
    }
    return true;
}

bool vis_link_write(const void *first, size_t first_size, const void *second,
                    size_t second_size) {
    return write_whole(first, first_size) && write_whole(second, second_size);
}

void vis_link_set_error(void) {
    PyErr_SetFromWindowsErr((int)host.failure);
}

bool vis_link_take_descriptors(unsigned count) {
    return count == 0;
}

PyObject *vis_descriptors(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyTuple_New(0);
}

void vis_link_lock(void) {
    AcquireSRWLockExclusive(&host.sending);
}

bool vis_link_try_lock(void) {
    return TryAcquireSRWLockExclusive(&host.sending);
}

void vis_link_unlock(void) {
    ReleaseSRWLockExclusive(&host.sending);
}
