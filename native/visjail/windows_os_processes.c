// Attribute lists and processes of the table.

#include <stdlib.h>
#include <string.h>

#include "windows_private_desktop.h"
#include "windows_win32.h"

// A list, and all that its attributes point to: it has to live until the process is made.
struct vj_windows_attribute_list {
    LPPROC_THREAD_ATTRIBUTE_LIST list;
    uint32_t wanted;
    uint32_t held;  // that UpdateProcThreadAttribute took
    uint32_t kinds; // bits of vj_windows_attribute_kind
    SECURITY_CAPABILITIES capabilities;
    SID_AND_ATTRIBUTES *granted;
    HANDLE *handles;
    HANDLE job;
    DWORD all_packages;
    DWORD children;
};

enum {
    OPT_OUT = 1,    // PROCESS_CREATION_ALL_APPLICATION_PACKAGES_OPT_OUT
    RESTRICTED = 1, // PROCESS_CREATION_CHILD_PROCESS_RESTRICTED
    // Without these no process is a jail's.
    JAIL = 1 << VJ_WINDOWS_ATTRIBUTE_CAPABILITIES | 1 << VJ_WINDOWS_ATTRIBUTE_LPAC |
        1 << VJ_WINDOWS_ATTRIBUTE_JOB,
};

uint32_t vj_win32_attributes_open(const vj_windows_os *os, uint32_t count,
                                  vj_windows_attributes *attributes) {
    (void)os;
    *attributes = NULL;
    SIZE_T size = 0;
    InitializeProcThreadAttributeList(NULL, count, 0, &size);
    if (!size) return vj_win32_error();
    vj_windows_attributes made = calloc(1, sizeof *made);
    LPPROC_THREAD_ATTRIBUTE_LIST list = calloc(1, size);
    uint32_t code = 0;
    if (!made || !list) code = VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    else if (!InitializeProcThreadAttributeList(list, count, 0, &size))
        code = vj_win32_error();
    if (code) {
        free(list);
        free(made);
        return code;
    }
    made->list = list;
    made->wanted = count;
    *attributes = made;
    return 0;
}

static uint32_t keep_capabilities(vj_windows_attributes attributes,
                                  const vj_windows_attribute *attribute) {
    SECURITY_CAPABILITIES *all = &attributes->capabilities;
    attributes->granted =
        calloc(attribute->capability_count + 1, sizeof *attributes->granted);
    if (!attributes->granted) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    all->Capabilities = attributes->granted;
    if (!ConvertStringSidToSidW(attribute->package, &all->AppContainerSid))
        return vj_win32_error();
    for (uint32_t i = 0; i < attribute->capability_count; i++) {
        if (!ConvertStringSidToSidW(attribute->capabilities[i],
                                    &attributes->granted[i].Sid))
            return vj_win32_error();
        attributes->granted[i].Attributes = SE_GROUP_ENABLED;
        all->CapabilityCount = i + 1;
    }
    return 0;
}

static uint32_t keep_handles(vj_windows_attributes attributes,
                             const vj_windows_attribute *attribute) {
    if (!attribute->handle_count) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    attributes->handles = calloc(attribute->handle_count, sizeof *attributes->handles);
    if (!attributes->handles) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    for (uint32_t i = 0; i < attribute->handle_count; i++)
        attributes->handles[i] = vj_win32_handle(attribute->handles[i]);
    return 0;
}

static uint32_t update(vj_windows_attributes attributes, DWORD_PTR which, void *value,
                       SIZE_T size) {
    return UpdateProcThreadAttribute(attributes->list, 0, which, value, size, NULL, NULL)
               ? 0
               : vj_win32_error();
}

static uint32_t add(vj_windows_attributes attributes,
                    const vj_windows_attribute *attribute) {
    uint32_t code = 0;
    switch (attribute->kind) {
    case VJ_WINDOWS_ATTRIBUTE_CAPABILITIES:
        code = keep_capabilities(attributes, attribute);
        if (code) return code;
        return update(attributes, VJ_ATTRIBUTE_SECURITY_CAPABILITIES,
                      &attributes->capabilities, sizeof attributes->capabilities);
    case VJ_WINDOWS_ATTRIBUTE_LPAC:
        attributes->all_packages = OPT_OUT;
        return update(attributes, VJ_ATTRIBUTE_ALL_APPLICATION_PACKAGES_POLICY,
                      &attributes->all_packages, sizeof attributes->all_packages);
    case VJ_WINDOWS_ATTRIBUTE_JOB:
        if (attribute->handle_count != 1) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
        attributes->job = vj_win32_handle(attribute->handles[0]);
        return update(attributes, VJ_ATTRIBUTE_JOB_LIST, &attributes->job,
                      sizeof attributes->job);
    case VJ_WINDOWS_ATTRIBUTE_HANDLES:
        code = keep_handles(attributes, attribute);
        if (code) return code;
        return update(attributes, VJ_ATTRIBUTE_HANDLE_LIST, attributes->handles,
                      attribute->handle_count * sizeof *attributes->handles);
    case VJ_WINDOWS_ATTRIBUTE_CONSOLE:
        // The value is the console itself and no pointer to it.
        return update(attributes, VJ_ATTRIBUTE_PSEUDOCONSOLE, attribute->console->console,
                      sizeof(void *));
    case VJ_WINDOWS_ATTRIBUTE_NO_CHILDREN:
        attributes->children = RESTRICTED;
        return update(attributes, VJ_ATTRIBUTE_CHILD_PROCESS_POLICY,
                      &attributes->children, sizeof attributes->children);
    case VJ_WINDOWS_ATTRIBUTE_END: break;
    }
    return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
}

uint32_t vj_win32_attributes_add(const vj_windows_os *os,
                                 vj_windows_attributes attributes,
                                 const vj_windows_attribute *attribute) {
    (void)os;
    if (attribute->kind >= VJ_WINDOWS_ATTRIBUTE_END ||
        attributes->kinds & 1u << attribute->kind ||
        attributes->held == attributes->wanted)
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    uint32_t code = add(attributes, attribute);
    if (code) return code;
    attributes->kinds |= 1u << attribute->kind;
    attributes->held++;
    return 0;
}

uint32_t vj_win32_attributes_close(const vj_windows_os *os,
                                   vj_windows_attributes attributes) {
    (void)os;
    DeleteProcThreadAttributeList(attributes->list);
    for (DWORD i = 0; i < attributes->capabilities.CapabilityCount; i++)
        LocalFree(attributes->granted[i].Sid);
    if (attributes->capabilities.AppContainerSid)
        LocalFree(attributes->capabilities.AppContainerSid);
    free(attributes->granted);
    free(attributes->handles);
    free(attributes->list);
    free(attributes);
    return 0;
}

static uint32_t give(HANDLE handle, HANDLE process, ACCESS_MASK rights) {
    HANDLE given = NULL;
    return DuplicateHandle(GetCurrentProcess(), handle, process, &given, rights, TRUE, 0)
               ? 0
               : vj_win32_error();
}

// A process that connects to a station and a desktop first looks for inheritable handles
// of such among its own, before any name (Microsoft: "Process Connection to a Window
// Station", "Thread Connection to a Desktop"). By name a guest would ask for all rights
// to the station, and would not get them. With copies, its list of inherited handles
// stays that of its standard streams.
uint32_t vj_win32_desktop_give(vj_windows_desktop desktop, HANDLE process) {
    uint32_t code = give(desktop->station, process, WINSTA_READATTRIBUTES);
    return code ? code
                : give(desktop->desktop, process,
                       DESKTOP_READOBJECTS | DESKTOP_WRITEOBJECTS);
}

uint32_t vj_win32_process_start(const vj_windows_launch *launch,
                                vj_windows_started *started) {
    *started = (vj_windows_started){0};
    // Empty and not NULL: with NULL it would be told the name of the host's own.
    wchar_t no_desktop[] = L"";
    HANDLE input = vj_win32_handle(launch->standard[0]);
    HANDLE output = vj_win32_handle(launch->standard[1]);
    HANDLE errors = vj_win32_handle(launch->standard[2]);
    bool inherits = input || output || errors;
    STARTUPINFOEXW start = {.StartupInfo = {.cb = sizeof start,
                                            .lpDesktop = no_desktop,
                                            .dwFlags = STARTF_USESTDHANDLES,
                                            .hStdInput = input,
                                            .hStdOutput = output,
                                            .hStdError = errors},
                            .lpAttributeList = launch->attributes->list};
    DWORD flags =
        CREATE_SUSPENDED | EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT;
    // A console program would get a new console of the host's session.
    if (inherits) flags |= CREATE_NO_WINDOW;
    SECURITY_ATTRIBUTES process = launch->process->attributes;
    SECURITY_ATTRIBUTES thread = launch->thread->attributes;
    PROCESS_INFORMATION made = {0};
    if (!CreateProcessW(launch->application, launch->command_line, &process, &thread,
                        inherits, flags, (void *)launch->environment, launch->directory,
                        &start.StartupInfo, &made))
        return vj_win32_error();
    *started = (vj_windows_started){vj_win32_out(made.hProcess),
                                    vj_win32_out(made.hThread), made.dwProcessId};
    return launch->desktop ? vj_win32_desktop_give(launch->desktop, made.hProcess) : 0;
}

uint32_t vj_win32_process_create(const vj_windows_os *os, const vj_windows_launch *launch,
                                 vj_windows_started *started) {
    (void)os;
    const struct vj_windows_attribute_list *attributes = launch->attributes;
    *started = (vj_windows_started){0};
    // An attribute that was refused and overlooked would be a process without its jail.
    if (attributes->held != attributes->wanted || (attributes->kinds & JAIL) != JAIL)
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    if (!launch->application || !launch->environment || !launch->directory ||
        !launch->desktop || !launch->process || !launch->thread)
        return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    return vj_win32_process_start(launch, started);
}

uint32_t vj_win32_thread_resume(const vj_windows_os *os, vj_windows_handle thread,
                                uint32_t *before) {
    (void)os;
    DWORD count = ResumeThread(vj_win32_handle(thread));
    *before = count == (DWORD)-1 ? 0 : count;
    return count == (DWORD)-1 ? vj_win32_error() : 0;
}

uint32_t vj_win32_process_exit_code(const vj_windows_os *os, vj_windows_handle process,
                                    uint32_t *exit_code) {
    (void)os;
    DWORD code = 0;
    *exit_code = 0;
    // STILL_ACTIVE is a number like any other: only the object says whether it has ended.
    if (WaitForSingleObject(vj_win32_handle(process), 0) != WAIT_OBJECT_0)
        return VJ_WINDOWS_ERROR_TIMEOUT;
    if (!GetExitCodeProcess(vj_win32_handle(process), &code)) return vj_win32_error();
    *exit_code = code;
    return 0;
}

uint32_t vj_win32_process_terminate(const vj_windows_os *os, vj_windows_handle process,
                                    uint32_t exit_code) {
    (void)os;
    if (TerminateProcess(vj_win32_handle(process), exit_code)) return 0;
    uint32_t code = vj_win32_error();
    bool ended = WaitForSingleObject(vj_win32_handle(process), 0) == WAIT_OBJECT_0;
    return ended ? 0 : code;
}
