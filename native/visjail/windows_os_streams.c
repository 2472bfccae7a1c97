// Pipes and pseudo consoles of the table.

#include <stdlib.h>

#include "windows_win32.h"

enum {
    PIPE_BYTES = 64 * 1024,
    // Of a single write that does not wait; the smaller ones are tried when a larger one
    // finds no room.
    PIECE_MOST = PIPE_BYTES,
    PIECE_LEAST = 4096,
    // Of a single read: Windows locks the whole buffer of one that is in flight.
    READ_MOST = 1 << 20,
    CANCEL_AGAIN_MS = 20,
};

uint32_t vj_win32_pipe_create(const vj_windows_os *os, const uint16_t *name,
                              vj_windows_direction direction,
                              vj_windows_security security, vj_windows_handle *server) {
    (void)os;
    *server = NULL;
    DWORD access = direction == VJ_WINDOWS_PIPE_TO_GUEST ? PIPE_ACCESS_OUTBOUND
                                                         : PIPE_ACCESS_INBOUND;
    HANDLE made = CreateNamedPipeW(
        name, access | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
        PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS, 1,
        PIPE_BYTES, PIPE_BYTES, 0, &security->attributes);
    if (made == INVALID_HANDLE_VALUE) return vj_win32_error();
    *server = vj_win32_out(made);
    return 0;
}

uint32_t vj_win32_pipe_connect(const vj_windows_os *os, const uint16_t *name,
                               vj_windows_direction direction, bool inheritable,
                               vj_windows_security security, vj_windows_handle *client) {
    (void)os;
    *client = NULL;
    SECURITY_ATTRIBUTES attributes = security->attributes;
    attributes.bInheritHandle = inheritable;
    DWORD access = direction == VJ_WINDOWS_PIPE_TO_GUEST ? GENERIC_READ : GENERIC_WRITE;
    // Whoever might own the other end learns nothing of this process.
    HANDLE made = CreateFileW(name, access, 0, &attributes, OPEN_EXISTING,
                              SECURITY_SQOS_PRESENT | SECURITY_ANONYMOUS, NULL);
    if (made == INVALID_HANDLE_VALUE) return vj_win32_error();
    *client = vj_win32_out(made);
    return 0;
}

static uint32_t of_pipe(uint32_t code) {
    switch (code) {
    case ERROR_PIPE_NOT_CONNECTED:
    case ERROR_NO_DATA:
    case ERROR_HANDLE_EOF: return VJ_WINDOWS_ERROR_BROKEN_PIPE;
    default: return code;
    }
}

// Wait for an operation in flight. Its buffer is the kernel's until this returns.
static uint32_t finish(HANDLE pipe, OVERLAPPED *operation, uint32_t timeout_ms,
                       uint32_t *count) {
    DWORD waited = WaitForSingleObject(operation->hEvent, timeout_ms);
    // The operation may end while it is canceled: then it has moved what it has moved.
    // Nobody else would cancel it, should the first attempt fail.
    for (DWORD again = waited; again != WAIT_OBJECT_0 && again != WAIT_FAILED;) {
        CancelIoEx(pipe, operation);
        again = WaitForSingleObject(operation->hEvent, CANCEL_AGAIN_MS);
    }
    DWORD done = 0;
    BOOL ended = GetOverlappedResult(pipe, operation, &done, TRUE);
    uint32_t code = ended ? 0 : of_pipe(vj_win32_error());
    *count = done;
    if (ended && done) return 0;
    if (code == VJ_WINDOWS_ERROR_OPERATION_ABORTED && done) return 0;
    if (code == VJ_WINDOWS_ERROR_OPERATION_ABORTED && waited == WAIT_TIMEOUT)
        return VJ_WINDOWS_ERROR_TIMEOUT;
    return code;
}

static uint32_t begin(HANDLE event, OVERLAPPED *operation) {
    *operation = (OVERLAPPED){.hEvent = event};
    return ResetEvent(event) ? 0 : vj_win32_error();
}

uint32_t vj_win32_pipe_read(const vj_windows_os *os, vj_windows_handle pipe,
                            vj_windows_handle event, void *bytes, uint32_t size,
                            uint32_t timeout_ms, uint32_t *count) {
    uint64_t end = vj_win32_now_ms(os) + timeout_ms;
    *count = 0;
    for (;;) {
        OVERLAPPED operation;
        uint32_t code = begin(vj_win32_handle(event), &operation);
        if (code) return code;
        if (!ReadFile(vj_win32_handle(pipe), bytes, size < READ_MOST ? size : READ_MOST,
                      NULL, &operation)) {
            code = vj_win32_error();
            if (code != ERROR_IO_PENDING) return of_pipe(code);
        }
        uint64_t now = vj_win32_now_ms(os);
        uint32_t left = now < end ? (uint32_t)(end - now) : 0;
        code = finish(vj_win32_handle(pipe), &operation, left, count);
        // A guest may write nothing at all into its pipe, and that is no end.
        if (code || *count) return code;
        if (vj_win32_now_ms(os) >= end) return VJ_WINDOWS_ERROR_TIMEOUT;
    }
}

static uint32_t write_once(HANDLE pipe, HANDLE event, const void *bytes, uint32_t size,
                           uint32_t timeout_ms, uint32_t *count) {
    OVERLAPPED operation;
    *count = 0;
    uint32_t code = begin(event, &operation);
    if (code) return code;
    if (!WriteFile(pipe, bytes, size, NULL, &operation)) {
        code = vj_win32_error();
        if (code != ERROR_IO_PENDING) return of_pipe(code);
    }
    return finish(pipe, &operation, timeout_ms, count);
}

static uint32_t set_waiting(HANDLE pipe, bool waits) {
    DWORD mode = PIPE_READMODE_BYTE | (waits ? PIPE_WAIT : PIPE_NOWAIT);
    return SetNamedPipeHandleState(pipe, &mode, NULL, NULL) ? 0
                                                            : of_pipe(vj_win32_error());
}

// A write that waits may have been read in part when it is canceled, and nothing says how
// much of it: the file system of named pipes counts only what is whole. So no write of
// more than one byte ever waits. In the mode PIPE_NOWAIT it takes what there is room for,
// and says how much (documentation: WriteFile). Where there is no room one byte waits for
// it: that is read, or it is not.
uint32_t vj_win32_pipe_write(const vj_windows_os *os, vj_windows_handle pipe,
                             vj_windows_handle event, const void *bytes, uint32_t size,
                             uint32_t timeout_ms, uint32_t *count) {
    (void)os;
    HANDLE to = vj_win32_handle(pipe);
    HANDLE signal = vj_win32_handle(event);
    uint32_t piece = size < PIECE_MOST ? size : PIECE_MOST;
    *count = 0;
    uint32_t code = set_waiting(to, false);
    while (!code && !*count && piece) {
        code = write_once(to, signal, bytes, piece, INFINITE, count);
        piece = piece > PIECE_LEAST ? piece / 2 : 0;
    }
    if (code || *count) return code;
    code = set_waiting(to, true);
    return code ? code : write_once(to, signal, bytes, 1, timeout_ms, count);
}

uint32_t vj_win32_pipe_cancel(const vj_windows_os *os, vj_windows_handle pipe) {
    (void)os;
    if (CancelIoEx(vj_win32_handle(pipe), NULL)) return 0;
    uint32_t code = vj_win32_error();
    return code == VJ_WINDOWS_ERROR_NOT_FOUND ? 0 : code;
}

// ---- pseudo consoles (Windows 10 1809; consoleapi.h)

typedef HRESULT(WINAPI *create_console)(COORD, HANDLE, HANDLE, DWORD, void **);
typedef HRESULT(WINAPI *resize_console)(void *, COORD);

static bool size_of(uint16_t columns, uint16_t rows, COORD *size) {
    if (!columns || !rows || columns > INT16_MAX || rows > INT16_MAX) return false;
    *size = (COORD){(SHORT)columns, (SHORT)rows};
    return true;
}

uint32_t vj_win32_console_create(const vj_windows_os *os, uint16_t columns, uint16_t rows,
                                 vj_windows_handle input, vj_windows_handle output,
                                 vj_windows_console *console) {
    (void)os;
    *console = NULL;
    create_console call = (create_console)(void (*)(void))vj_win32_late(
        L"kernel32.dll", "CreatePseudoConsole");
    FARPROC end = vj_win32_late(L"kernel32.dll", "ClosePseudoConsole");
    COORD size;
    if (!call || !end) return VJ_WINDOWS_ERROR_NOT_SUPPORTED;
    if (!size_of(columns, rows, &size)) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    vj_windows_console made = calloc(1, sizeof *made);
    if (!made) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    made->close = (void(WINAPI *)(void *))(void (*)(void))end;
    uint32_t code = vj_win32_of_result(
        call(size, vj_win32_handle(input), vj_win32_handle(output), 0, &made->console));
    if (code) free(made);
    else *console = made;
    return code;
}

uint32_t vj_win32_console_resize(const vj_windows_os *os, vj_windows_console console,
                                 uint16_t columns, uint16_t rows) {
    (void)os;
    resize_console call = (resize_console)(void (*)(void))vj_win32_late(
        L"kernel32.dll", "ResizePseudoConsole");
    COORD size;
    if (!call) return VJ_WINDOWS_ERROR_NOT_SUPPORTED;
    if (!size_of(columns, rows, &size)) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    return vj_win32_of_result(call(console->console, size));
}

void vj_win32_console_close(const vj_windows_os *os, vj_windows_console console) {
    (void)os;
    console->close(console->console);
    free(console);
}
