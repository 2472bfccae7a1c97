// Jobs of the table.

#include "windows_win32.h"

enum {
    BREAKAWAY = JOB_OBJECT_LIMIT_BREAKAWAY_OK | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK,
    CPU_HARD_CAP = 0x1 | 0x4, // JOB_OBJECT_CPU_RATE_CONTROL_ENABLE, ..._HARD_CAP
    // How long a message of a job may be late: Windows does not promise to deliver them.
    RECHECK_MS = 20,
};

// JOBOBJECT_CPU_RATE_CONTROL_INFORMATION, as far as it is for a hard cap.
typedef struct {
    DWORD flags;
    DWORD rate;
} cpu_rate;

uint32_t vj_win32_job_create(const vj_windows_os *os, vj_windows_security security,
                             vj_windows_handle *job) {
    (void)os;
    HANDLE made = CreateJobObjectW(&security->attributes, NULL);
    *job = vj_win32_out(made);
    return made ? 0 : vj_win32_error();
}

uint32_t vj_win32_job_watch(const vj_windows_os *os, vj_windows_handle job,
                            vj_windows_handle *port) {
    (void)os;
    *port = NULL;
    HANDLE made = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
    if (!made) return vj_win32_error();
    JOBOBJECT_ASSOCIATE_COMPLETION_PORT link = {job, made};
    if (!SetInformationJobObject(vj_win32_handle(job),
                                 JobObjectAssociateCompletionPortInformation, &link,
                                 sizeof link)) {
        uint32_t code = vj_win32_error();
        if (!CloseHandle(made)) *port = vj_win32_out(made);
        return code;
    }
    *port = vj_win32_out(made);
    return 0;
}

uint32_t vj_win32_job_set_limits(const vj_windows_os *os, vj_windows_handle job,
                                 const vj_windows_job_limits *limits) {
    (void)os;
    HANDLE of = vj_win32_handle(job);
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION extended = {0};
    DWORD flags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    if (limits->active_processes) flags |= JOB_OBJECT_LIMIT_ACTIVE_PROCESS;
    if (limits->process_memory) flags |= JOB_OBJECT_LIMIT_PROCESS_MEMORY;
    if (limits->job_memory) flags |= JOB_OBJECT_LIMIT_JOB_MEMORY;
    extended.BasicLimitInformation.LimitFlags = flags;
    extended.BasicLimitInformation.ActiveProcessLimit = limits->active_processes;
    extended.ProcessMemoryLimit = limits->process_memory;
    extended.JobMemoryLimit = limits->job_memory;
    if (!SetInformationJobObject(of, JobObjectExtendedLimitInformation, &extended,
                                 sizeof extended))
        return vj_win32_error();
    if (limits->cpu_rate) {
        cpu_rate rate = {CPU_HARD_CAP, limits->cpu_rate};
        if (!SetInformationJobObject(of, JobObjectCpuRateControlInformation, &rate,
                                     sizeof rate))
            return vj_win32_error();
    }
    if (limits->ui) {
        JOBOBJECT_BASIC_UI_RESTRICTIONS ui = {limits->ui};
        if (!SetInformationJobObject(of, JobObjectBasicUIRestrictions, &ui, sizeof ui))
            return vj_win32_error();
    }
    return 0;
}

uint32_t vj_win32_job_read_limits(const vj_windows_os *os, vj_windows_handle job,
                                  vj_windows_job_readback *readback) {
    (void)os;
    HANDLE of = vj_win32_handle(job);
    *readback = (vj_windows_job_readback){0};
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION extended = {0};
    if (!QueryInformationJobObject(of, JobObjectExtendedLimitInformation, &extended,
                                   sizeof extended, NULL))
        return vj_win32_error();
    DWORD flags = extended.BasicLimitInformation.LimitFlags;
    vj_windows_job_readback read = {0};
    if (flags & JOB_OBJECT_LIMIT_ACTIVE_PROCESS)
        read.limits.active_processes = extended.BasicLimitInformation.ActiveProcessLimit;
    if (flags & JOB_OBJECT_LIMIT_PROCESS_MEMORY)
        read.limits.process_memory = extended.ProcessMemoryLimit;
    if (flags & JOB_OBJECT_LIMIT_JOB_MEMORY)
        read.limits.job_memory = extended.JobMemoryLimit;
    read.kill_on_close = (flags & JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE) != 0;
    read.breakaway = (flags & BREAKAWAY) != 0;
    const DWORD known = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | BREAKAWAY |
                        JOB_OBJECT_LIMIT_ACTIVE_PROCESS |
                        JOB_OBJECT_LIMIT_PROCESS_MEMORY | JOB_OBJECT_LIMIT_JOB_MEMORY;
    read.other = (flags & ~known) != 0;
    cpu_rate rate = {0, 0};
    if (!QueryInformationJobObject(of, JobObjectCpuRateControlInformation, &rate,
                                   sizeof rate, NULL))
        return vj_win32_error();
    if (rate.flags == CPU_HARD_CAP) read.limits.cpu_rate = rate.rate;
    else if (rate.flags) read.other = true;
    JOBOBJECT_BASIC_UI_RESTRICTIONS ui = {0};
    if (!QueryInformationJobObject(of, JobObjectBasicUIRestrictions, &ui, sizeof ui,
                                   NULL))
        return vj_win32_error();
    read.limits.ui = ui.UIRestrictionsClass;
    *readback = read;
    return 0;
}

uint32_t vj_win32_job_terminate(const vj_windows_os *os, vj_windows_handle job,
                                uint32_t exit_code) {
    (void)os;
    return TerminateJobObject(vj_win32_handle(job), exit_code) ? 0 : vj_win32_error();
}

static uint32_t accounting(HANDLE job, JOBOBJECT_BASIC_ACCOUNTING_INFORMATION *answer) {
    return QueryInformationJobObject(job, JobObjectBasicAccountingInformation, answer,
                                     sizeof *answer, NULL)
               ? 0
               : vj_win32_error();
}

uint32_t vj_win32_job_wait_empty(const vj_windows_os *os, vj_windows_handle job,
                                 vj_windows_handle port, uint32_t timeout_ms) {
    uint64_t end = vj_win32_now_ms(os) + timeout_ms;
    for (;;) {
        JOBOBJECT_BASIC_ACCOUNTING_INFORMATION now = {0};
        uint32_t code = accounting(vj_win32_handle(job), &now);
        if (code || !now.ActiveProcesses) return code;
        uint64_t at = vj_win32_now_ms(os);
        if (at >= end) return VJ_WINDOWS_ERROR_TIMEOUT;
        // Any message is a reason to look again.
        DWORD message = 0;
        ULONG_PTR key = 0;
        LPOVERLAPPED detail = NULL;
        DWORD left = end - at < RECHECK_MS ? (DWORD)(end - at) : RECHECK_MS;
        if (!GetQueuedCompletionStatus(vj_win32_handle(port), &message, &key, &detail,
                                       left) &&
            GetLastError() != WAIT_TIMEOUT)
            return vj_win32_error();
    }
}

uint32_t vj_win32_job_usage(const vj_windows_os *os, vj_windows_handle job,
                            vj_windows_job_usage *usage) {
    (void)os;
    *usage = (vj_windows_job_usage){0};
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION now = {0};
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION extended = {0};
    uint32_t code = accounting(vj_win32_handle(job), &now);
    if (code) return code;
    if (!QueryInformationJobObject(vj_win32_handle(job),
                                   JobObjectExtendedLimitInformation, &extended,
                                   sizeof extended, NULL))
        return vj_win32_error();
    // Times of jobs count units of 100 ns.
    usage->user_ns = (uint64_t)now.TotalUserTime.QuadPart * 100;
    usage->kernel_ns = (uint64_t)now.TotalKernelTime.QuadPart * 100;
    usage->peak_process_memory = extended.PeakProcessMemoryUsed;
    usage->peak_job_memory = extended.PeakJobMemoryUsed;
    usage->processes = now.TotalProcesses;
    usage->active = now.ActiveProcesses;
    return 0;
}

uint32_t vj_win32_process_in_job(const vj_windows_os *os, vj_windows_handle process,
                                 vj_windows_handle job, bool *inside) {
    (void)os;
    BOOL answer = FALSE;
    *inside = false;
    if (!IsProcessInJob(vj_win32_handle(process), vj_win32_handle(job), &answer))
        return vj_win32_error();
    *inside = answer != FALSE;
    return 0;
}
