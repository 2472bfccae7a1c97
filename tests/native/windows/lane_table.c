// The table of the wine lane: Win32 as it is there, but for what wine lacks.
//
// Replaced are the AppContainer (its profile, its two attributes, its token), what wine
// does not read back (limits of jobs, descriptors of files and desktops), and the list of
// what is missing that follows. Everything else is the call that the library makes. In no
// file that is shipped: there, the real table refuses to be here.

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "windows_identity.h"
#include "windows_private_desktop.h"
#include "windows_text.h"
#include "windows_win32.h"

enum {
    JOBS_MAX = 64,
    REPLACED = VJ_WINDOWS_NEEDS_APP_CONTAINER | VJ_WINDOWS_NEEDS_LPAC |
        VJ_WINDOWS_NEEDS_CAPABILITIES | VJ_WINDOWS_NEEDS_JOB_READBACK,
};

typedef struct {
    HANDLE job;
    vj_windows_job_limits limits;
} known_job;

static struct {
    SRWLOCK lock;
    known_job jobs[JOBS_MAX];
    uint32_t next;
    vj_windows_token token;
    LONG profiles;
} state = {.lock = SRWLOCK_INIT};

static uint32_t features(const vj_windows_os *os, vj_windows_features *features) {
    uint32_t code = vj_win32_features(os, features);
    features->missing &= ~(uint32_t)REPLACED;
    return code;
}

static uint32_t profile_create(const vj_windows_os *os, const uint16_t *name,
                               uint16_t *sid, uint32_t capacity) {
    char text[128] = "";
    char made[VJ_WINDOWS_SID_SIZE];
    (void)os;
    if (!WideCharToMultiByte(CP_UTF8, 0, name, -1, text, sizeof text, NULL, NULL))
        return vj_win32_error();
    if (vj_windows_package_sid(text, made)) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    if (!MultiByteToWideChar(CP_UTF8, 0, made, -1, sid, (int)capacity))
        return vj_win32_error();
    InterlockedIncrement(&state.profiles);
    return 0;
}

static uint32_t profile_delete(const vj_windows_os *os, const uint16_t *name) {
    (void)os;
    (void)name;
    InterlockedDecrement(&state.profiles);
    return 0;
}

static uint32_t security_equal(const vj_windows_os *os, vj_windows_handle file,
                               vj_windows_security security, bool *equal) {
    uint32_t code = vj_win32_security_equal(os, file, security, equal);
    // The call is made; its answer is wine's mode of a file.
    if (!code) *equal = true;
    return code;
}

static uint32_t attributes_open(const vj_windows_os *os, uint32_t count,
                                vj_windows_attributes *attributes) {
    return vj_win32_attributes_open(os, count - 2, attributes);
}

static uint32_t attributes_add(const vj_windows_os *os, vj_windows_attributes attributes,
                               const vj_windows_attribute *attribute) {
    if (attribute->kind == VJ_WINDOWS_ATTRIBUTE_LPAC) return 0;
    if (attribute->kind != VJ_WINDOWS_ATTRIBUTE_CAPABILITIES)
        return vj_win32_attributes_add(os, attributes, attribute);
    AcquireSRWLockExclusive(&state.lock);
    state.token = (vj_windows_token){.app_container = true,
                                     .less_privileged = true,
                                     .integrity = 0x1000,
                                     .capability_count = attribute->capability_count};
    wcsncpy(state.token.package, attribute->package, VJ_WINDOWS_SID_MAX - 1);
    if (attribute->capability_count)
        wcsncpy(state.token.capabilities[0], attribute->capabilities[0],
                VJ_WINDOWS_SID_MAX - 1);
    ReleaseSRWLockExclusive(&state.lock);
    return 0;
}

static uint32_t process_create(const vj_windows_os *os, const vj_windows_launch *launch,
                               vj_windows_started *started) {
    // What the real call asks beside the two attributes.
    if (!launch->desktop || vj_win32_process_create(os, launch, started) !=
                                VJ_WINDOWS_ERROR_INVALID_PARAMETER)
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    // The handles of a desktop with few rights make wine refuse to end the process; that
    // they can be given is a test of the table.
    vj_windows_launch without_desktop = *launch;
    without_desktop.desktop = NULL;
    return vj_win32_process_start(&without_desktop, started);
}

// The token that was asked for, beside the real one's, which has to be readable.
static uint32_t process_token(const vj_windows_os *os, vj_windows_handle process,
                              vj_windows_token *token) {
    HANDLE real = NULL;
    (void)os;
    *token = (vj_windows_token){0};
    if (!OpenProcessToken(vj_win32_handle(process), TOKEN_QUERY, &real))
        return vj_win32_error();
    CloseHandle(real);
    AcquireSRWLockShared(&state.lock);
    *token = state.token;
    ReleaseSRWLockShared(&state.lock);
    return 0;
}

static uint32_t job_set_limits(const vj_windows_os *os, vj_windows_handle job,
                               const vj_windows_job_limits *limits) {
    vj_windows_job_limits taken = *limits;
    taken.cpu_rate = 0; // ERROR_INVALID_PARAMETER there
    uint32_t code = vj_win32_job_set_limits(os, job, &taken);
    if (code) return code;
    AcquireSRWLockExclusive(&state.lock);
    state.jobs[state.next++ % JOBS_MAX] = (known_job){vj_win32_handle(job), *limits};
    ReleaseSRWLockExclusive(&state.lock);
    return 0;
}

static uint32_t job_read_limits(const vj_windows_os *os, vj_windows_handle job,
                                vj_windows_job_readback *readback) {
    (void)os;
    uint32_t code = VJ_WINDOWS_ERROR_NOT_FOUND;
    *readback = (vj_windows_job_readback){.kill_on_close = true};
    AcquireSRWLockShared(&state.lock);
    // A handle's number may have been another job's before: the last one counts.
    for (uint32_t i = state.next; code && i && i + JOBS_MAX > state.next; i--) {
        const known_job *known = &state.jobs[(i - 1) % JOBS_MAX];
        if (known->job != vj_win32_handle(job)) continue;
        readback->limits = known->limits;
        code = 0;
    }
    ReleaseSRWLockShared(&state.lock);
    return code;
}

static uint32_t desktop_open(const vj_windows_os *os, const uint16_t *name,
                             const uint16_t *sddl, vj_windows_security security,
                             vj_windows_desktop *desktop) {
    (void)os;
    return vj_win32_desktop_request(name, sddl, security, desktop);
}

static BOOL CALLBACK fill(PINIT_ONCE once, PVOID given, PVOID *context) {
    (void)once;
    (void)context;
    vj_windows_os *table = given;
    *table = *vj_win32_table();
    table->features = features;
    table->profile_create = profile_create;
    table->profile_delete = profile_delete;
    table->security_equal = security_equal;
    table->attributes_open = attributes_open;
    table->attributes_add = attributes_add;
    table->process_create = process_create;
    table->process_token = process_token;
    table->job_set_limits = job_set_limits;
    table->job_read_limits = job_read_limits;
    table->desktop_open = desktop_open;
    return TRUE;
}

const vj_windows_os *vj_windows_os_table(void) {
    static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
    static vj_windows_os table;
    InitOnceExecuteOnce(&once, fill, &table, NULL);
    return &table;
}
