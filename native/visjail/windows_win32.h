// What the files of the table share: types of Win32, and small helpers around its errors.
// Included by windows_os*.c and windows_desktop_helper.c alone.
#ifndef VISJAIL_WINDOWS_WIN32_H
#define VISJAIL_WINDOWS_WIN32_H

#ifndef _WIN32_WINNT
#define _WIN32_WINNT 0x0A00
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <aclapi.h>
#include <sddl.h>

#include "windows_os.h"

struct vj_windows_descriptor {
    PSECURITY_DESCRIPTOR descriptor;
    SECURITY_ATTRIBUTES attributes; // not inheritable
};

// With what closes it, found when it was made: the end of a console may not fail.
struct vj_windows_pseudo_console {
    void *console; // HPCON
    void(WINAPI *close)(void *);
};

// Numbers that headers of older compilers lack (winbase.h, winnt.h of the Windows SDK).
enum {
    VJ_ATTRIBUTE_HANDLE_LIST = 0x00020002,
    VJ_ATTRIBUTE_SECURITY_CAPABILITIES = 0x00020009,
    VJ_ATTRIBUTE_JOB_LIST = 0x0002000D,
    VJ_ATTRIBUTE_CHILD_PROCESS_POLICY = 0x0002000E,
    VJ_ATTRIBUTE_ALL_APPLICATION_PACKAGES_POLICY = 0x0002000F,
    VJ_ATTRIBUTE_PSEUDOCONSOLE = 0x00020016,
    VJ_TOKEN_IS_APP_CONTAINER = 29,
    VJ_TOKEN_CAPABILITIES = 30,
    VJ_TOKEN_APP_CONTAINER_SID = 31,
    VJ_TOKEN_IS_LESS_PRIVILEGED = 46,
    VJ_FILE_DISPOSITION_EX = 21, // FileDispositionInfoEx, Windows 10 1607
};

// GetLastError of a call that failed: never 0.
static inline uint32_t vj_win32_error(void) {
    DWORD error = GetLastError();
    return error ? error : ERROR_GEN_FAILURE;
}
uint32_t vj_win32_of_result(HRESULT result);
uint32_t vj_win32_of_status(LONG status);
// An entry point of a library of the system directory, or NULL. The library stays loaded:
// that is what an import would have done. A file that imports what a system does not have
// would not be loaded there at all (points 63 and 67).
FARPROC vj_win32_late(const wchar_t *library, const char *name);
// `path` behind "\\?\"; the caller frees it.
wchar_t *vj_win32_path(const uint16_t *path);
// Copy a text with its NUL; ERROR_INSUFFICIENT_BUFFER if it does not fit.
uint32_t vj_win32_copy(uint16_t *to, uint32_t capacity, const wchar_t *from);
uint32_t vj_win32_sid_text(PSID sid, uint16_t *text, uint32_t capacity);
// Owner, protection and every entry of the DACL, and the label if `expected` has one; its
// generic rights are mapped as the kernel does it when an object is made.
bool vj_win32_same_descriptor(PSECURITY_DESCRIPTOR actual, PSECURITY_DESCRIPTOR expected,
                              const GENERIC_MAPPING *mapping);
// What GetTokenInformation says, to be freed.
uint32_t vj_win32_token(HANDLE token, int which, void **answer);

static inline HANDLE vj_win32_handle(vj_windows_handle handle) {
    return (HANDLE)handle;
}

static inline vj_windows_handle vj_win32_out(HANDLE handle) {
    return (vj_windows_handle)handle;
}

// The table of a real Windows, whatever vj_windows_os_table says.
const vj_windows_os *vj_win32_table(void);

// The calls of the table; what each does is said there.
uint32_t vj_win32_features(const vj_windows_os *os, vj_windows_features *features);
uint64_t vj_win32_now_ms(const vj_windows_os *os);
uint32_t vj_win32_random(const vj_windows_os *os, void *bytes, uint32_t size);
uint32_t vj_win32_user_sid(const vj_windows_os *os, uint16_t *text, uint32_t capacity);
uint32_t vj_win32_system_root(const vj_windows_os *os, uint16_t *path, uint32_t capacity);
uint32_t vj_win32_self(const vj_windows_os *os, uint32_t *pid, uint64_t *created);
uint32_t vj_win32_owner_created(const vj_windows_os *os, uint32_t pid, uint64_t *created);
uint32_t vj_win32_handle_close(const vj_windows_os *os, vj_windows_handle handle);
uint32_t vj_win32_security_open(const vj_windows_os *os, const uint16_t *sddl,
                                vj_windows_security *security);
uint32_t vj_win32_security_close(const vj_windows_os *os, vj_windows_security security);
uint32_t vj_win32_security_equal(const vj_windows_os *os, vj_windows_handle file,
                                 vj_windows_security security, bool *equal);
uint32_t vj_win32_profile_create(const vj_windows_os *os, const uint16_t *name,
                                 uint16_t *sid, uint32_t capacity);
uint32_t vj_win32_profile_delete(const vj_windows_os *os, const uint16_t *name);
uint32_t vj_win32_directory_create(const vj_windows_os *os, const uint16_t *path,
                                   vj_windows_security security);
uint32_t vj_win32_file_create(const vj_windows_os *os, const uint16_t *path,
                              vj_windows_security security, vj_windows_handle *file);
uint32_t vj_win32_open(const vj_windows_os *os, vj_windows_handle parent,
                       const uint16_t *path, vj_windows_open_mode mode,
                       vj_windows_handle *handle);
uint32_t vj_win32_file_information(const vj_windows_os *os, vj_windows_handle handle,
                                   vj_windows_file *file);
uint32_t vj_win32_final_path(const vj_windows_os *os, vj_windows_handle handle,
                             uint16_t *path, uint32_t capacity);
uint32_t vj_win32_file_read(const vj_windows_os *os, vj_windows_handle file, void *bytes,
                            uint32_t size, uint32_t *count);
uint32_t vj_win32_file_write(const vj_windows_os *os, vj_windows_handle file,
                             const void *bytes, uint32_t size);
uint32_t vj_win32_listing_open(const vj_windows_os *os, vj_windows_handle directory,
                               vj_windows_listing *listing);
uint32_t vj_win32_listing_next(const vj_windows_os *os, vj_windows_listing listing,
                               vj_windows_entry *entry);
void vj_win32_listing_close(const vj_windows_os *os, vj_windows_listing listing);
uint32_t vj_win32_remove(const vj_windows_os *os, vj_windows_handle parent,
                         const uint16_t *path);
uint32_t vj_win32_reclaim(const vj_windows_os *os, vj_windows_handle parent,
                          const uint16_t *path, vj_windows_security security);
uint32_t vj_win32_job_create(const vj_windows_os *os, vj_windows_security security,
                             vj_windows_handle *job);
uint32_t vj_win32_job_watch(const vj_windows_os *os, vj_windows_handle job,
                            vj_windows_handle *port);
uint32_t vj_win32_job_set_limits(const vj_windows_os *os, vj_windows_handle job,
                                 const vj_windows_job_limits *limits);
uint32_t vj_win32_job_read_limits(const vj_windows_os *os, vj_windows_handle job,
                                  vj_windows_job_readback *readback);
uint32_t vj_win32_job_terminate(const vj_windows_os *os, vj_windows_handle job,
                                uint32_t exit_code);
uint32_t vj_win32_job_wait_empty(const vj_windows_os *os, vj_windows_handle job,
                                 vj_windows_handle port, uint32_t timeout_ms);
uint32_t vj_win32_job_usage(const vj_windows_os *os, vj_windows_handle job,
                            vj_windows_job_usage *usage);
uint32_t vj_win32_desktop_open(const vj_windows_os *os, const uint16_t *name,
                               const uint16_t *sddl, vj_windows_security security,
                               vj_windows_desktop *desktop);
uint32_t vj_win32_desktop_close(const vj_windows_os *os, vj_windows_desktop desktop);
uint32_t vj_win32_pipe_create(const vj_windows_os *os, const uint16_t *name,
                              vj_windows_direction direction,
                              vj_windows_security security, vj_windows_handle *server);
uint32_t vj_win32_pipe_connect(const vj_windows_os *os, const uint16_t *name,
                               vj_windows_direction direction, bool inheritable,
                               vj_windows_security security, vj_windows_handle *client);
uint32_t vj_win32_event_create(const vj_windows_os *os, vj_windows_security security,
                               vj_windows_handle *event);
uint32_t vj_win32_pipe_read(const vj_windows_os *os, vj_windows_handle pipe,
                            vj_windows_handle event, void *bytes, uint32_t size,
                            uint32_t timeout_ms, uint32_t *count);
uint32_t vj_win32_pipe_write(const vj_windows_os *os, vj_windows_handle pipe,
                             vj_windows_handle event, const void *bytes, uint32_t size,
                             uint32_t timeout_ms, uint32_t *count);
uint32_t vj_win32_pipe_cancel(const vj_windows_os *os, vj_windows_handle pipe);
uint32_t vj_win32_console_create(const vj_windows_os *os, uint16_t columns, uint16_t rows,
                                 vj_windows_handle input, vj_windows_handle output,
                                 vj_windows_console *console);
uint32_t vj_win32_console_resize(const vj_windows_os *os, vj_windows_console console,
                                 uint16_t columns, uint16_t rows);
void vj_win32_console_close(const vj_windows_os *os, vj_windows_console console);
uint32_t vj_win32_thread_start(const vj_windows_os *os, vj_windows_thread function,
                               void *argument, vj_windows_security security,
                               vj_windows_handle *thread);
uint32_t vj_win32_thread_wait(const vj_windows_os *os, vj_windows_handle thread,
                              uint32_t timeout_ms);
uint32_t vj_win32_attributes_open(const vj_windows_os *os, uint32_t count,
                                  vj_windows_attributes *attributes);
uint32_t vj_win32_attributes_add(const vj_windows_os *os,
                                 vj_windows_attributes attributes,
                                 const vj_windows_attribute *attribute);
uint32_t vj_win32_attributes_close(const vj_windows_os *os,
                                   vj_windows_attributes attributes);
uint32_t vj_win32_process_create(const vj_windows_os *os, const vj_windows_launch *launch,
                                 vj_windows_started *started);
uint32_t vj_win32_process_in_job(const vj_windows_os *os, vj_windows_handle process,
                                 vj_windows_handle job, bool *inside);
uint32_t vj_win32_process_token(const vj_windows_os *os, vj_windows_handle process,
                                vj_windows_token *token);
uint32_t vj_win32_process_created(const vj_windows_os *os, vj_windows_handle process,
                                  uint64_t *created);
uint32_t vj_win32_thread_resume(const vj_windows_os *os, vj_windows_handle thread,
                                uint32_t *before);
uint32_t vj_win32_process_wait(const vj_windows_os *os, vj_windows_handle process,
                               uint32_t timeout_ms);
uint32_t vj_win32_process_exit_code(const vj_windows_os *os, vj_windows_handle process,
                                    uint32_t *exit_code);
uint32_t vj_win32_process_terminate(const vj_windows_os *os, vj_windows_handle process,
                                    uint32_t exit_code);

#endif
