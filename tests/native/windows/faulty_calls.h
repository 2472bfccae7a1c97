// Calls of Win32 that fail when they are told to, for the program of faults.c.
//
// The compiler reads this before each file of the table (windows_os*.c), so that what is
// tried there is the very code that is shipped. Left out are what cannot fail with an
// object that is there (closing, waiting, freeing), and the answer of an operation in
// flight, which the caller has to have.
#ifndef WINDOWS_FAULTY_CALLS_H
#define WINDOWS_FAULTY_CALLS_H

#include "windows_win32.h"

#include <bcrypt.h>

// Is it for this call to fail? Then the code of GetLastError is set.
bool faulty_call(const char *name);
// What stands for an entry point that is looked up: NtCreateFile, CreatePseudoConsole.
FARPROC faulty_entry(const char *name, FARPROC real);

#define FAULTY(name, failure, call) (faulty_call(name) ? (failure) : (call))
#define FAULTY_FALSE(name, ...)     FAULTY(#name, FALSE, name(__VA_ARGS__))
#define FAULTY_NULL(name, ...)      FAULTY(#name, NULL, name(__VA_ARGS__))
#define FAULTY_ZERO(name, ...)      FAULTY(#name, 0, name(__VA_ARGS__))
#define FAULTY_INVALID(name, ...)   FAULTY(#name, INVALID_HANDLE_VALUE, name(__VA_ARGS__))

// A name in its own expansion is the function itself.
#define AccessCheck(...)     FAULTY_FALSE(AccessCheck, __VA_ARGS__)
#define BCryptGenRandom(...) FAULTY("BCryptGenRandom", -1, BCryptGenRandom(__VA_ARGS__))
#define ConvertSidToStringSidW(...) FAULTY_FALSE(ConvertSidToStringSidW, __VA_ARGS__)
#define ConvertStringSecurityDescriptorToSecurityDescriptorW(...)                        \
    FAULTY_FALSE(ConvertStringSecurityDescriptorToSecurityDescriptorW, __VA_ARGS__)
#define ConvertStringSidToSidW(...) FAULTY_FALSE(ConvertStringSidToSidW, __VA_ARGS__)
#define CreateDirectoryW(...)       FAULTY_FALSE(CreateDirectoryW, __VA_ARGS__)
#define CreateEventW(...)           FAULTY_NULL(CreateEventW, __VA_ARGS__)
#define CreateFileMappingW(...)     FAULTY_NULL(CreateFileMappingW, __VA_ARGS__)
#define CreateFileW(...)            FAULTY_INVALID(CreateFileW, __VA_ARGS__)
#define CreateIoCompletionPort(...) FAULTY_NULL(CreateIoCompletionPort, __VA_ARGS__)
#define CreateJobObjectW(...)       FAULTY_NULL(CreateJobObjectW, __VA_ARGS__)
#define CreateNamedPipeW(...)       FAULTY_INVALID(CreateNamedPipeW, __VA_ARGS__)
#define CreateProcessW(...)         FAULTY_FALSE(CreateProcessW, __VA_ARGS__)
#define CreateThread(...)           FAULTY_NULL(CreateThread, __VA_ARGS__)
#define DuplicateHandle(...)        FAULTY_FALSE(DuplicateHandle, __VA_ARGS__)
#define GetExitCodeProcess(...)     FAULTY_FALSE(GetExitCodeProcess, __VA_ARGS__)
#define GetFileInformationByHandle(...)                                                  \
    FAULTY_FALSE(GetFileInformationByHandle, __VA_ARGS__)
#define GetFileInformationByHandleEx(...)                                                \
    FAULTY_FALSE(GetFileInformationByHandleEx, __VA_ARGS__)
#define GetFinalPathNameByHandleW(...) FAULTY_ZERO(GetFinalPathNameByHandleW, __VA_ARGS__)
#define GetModuleFileNameW(...)        FAULTY_ZERO(GetModuleFileNameW, __VA_ARGS__)
#define GetModuleHandleExW(...)        FAULTY_FALSE(GetModuleHandleExW, __VA_ARGS__)
#define GetProcAddress(library, name)                                                    \
    FAULTY("GetProcAddress", NULL, faulty_entry(name, GetProcAddress(library, name)))
#define GetProcessTimes(...) FAULTY_FALSE(GetProcessTimes, __VA_ARGS__)
#define GetSecurityInfo(...)                                                             \
    FAULTY("GetSecurityInfo", GetLastError(), GetSecurityInfo(__VA_ARGS__))
#define GetSystemDirectoryW(...) FAULTY_ZERO(GetSystemDirectoryW, __VA_ARGS__)
#define GetSystemWindowsDirectoryW(...)                                                  \
    FAULTY_ZERO(GetSystemWindowsDirectoryW, __VA_ARGS__)
#define GetTokenInformation(...) FAULTY_FALSE(GetTokenInformation, __VA_ARGS__)
#define InitializeProcThreadAttributeList(...)                                           \
    FAULTY_FALSE(InitializeProcThreadAttributeList, __VA_ARGS__)
#define IsProcessInJob(...)   FAULTY_FALSE(IsProcessInJob, __VA_ARGS__)
#define LoadLibraryExW(...)   FAULTY_NULL(LoadLibraryExW, __VA_ARGS__)
#define MapViewOfFile(...)    FAULTY_NULL(MapViewOfFile, __VA_ARGS__)
#define OpenProcess(...)      FAULTY_NULL(OpenProcess, __VA_ARGS__)
#define OpenProcessToken(...) FAULTY_FALSE(OpenProcessToken, __VA_ARGS__)
#define QueryInformationJobObject(...)                                                   \
    FAULTY_FALSE(QueryInformationJobObject, __VA_ARGS__)
#define ReadFile(...)     FAULTY_FALSE(ReadFile, __VA_ARGS__)
#define ResetEvent(...)   FAULTY_FALSE(ResetEvent, __VA_ARGS__)
#define ResumeThread(...) FAULTY("ResumeThread", (DWORD) - 1, ResumeThread(__VA_ARGS__))
#define SetFileInformationByHandle(...)                                                  \
    FAULTY_FALSE(SetFileInformationByHandle, __VA_ARGS__)
#define SetInformationJobObject(...) FAULTY_FALSE(SetInformationJobObject, __VA_ARGS__)
#define SetNamedPipeHandleState(...) FAULTY_FALSE(SetNamedPipeHandleState, __VA_ARGS__)
#define TerminateJobObject(...)      FAULTY_FALSE(TerminateJobObject, __VA_ARGS__)
#define TerminateProcess(...)        FAULTY_FALSE(TerminateProcess, __VA_ARGS__)
#define UpdateProcThreadAttribute(...)                                                   \
    FAULTY_FALSE(UpdateProcThreadAttribute, __VA_ARGS__)
#define WriteFile(...) FAULTY_FALSE(WriteFile, __VA_ARGS__)

#endif
