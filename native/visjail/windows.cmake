# visjail.dll and visjail-desktop.exe. Read by CMake on Windows, and by scripts/cross_build.py, which
# builds the same lists elsewhere: each is one set() of file names.

set(VISJAIL_WINDOWS_SOURCES
  windows_os.c windows_os_security.c windows_os_files.c windows_os_jobs.c
  windows_os_streams.c windows_os_processes.c windows_os_desktop.c)
set(VISJAIL_WINDOWS_LIBRARIES advapi32 bcrypt)
# Beside the library, which starts it.
set(VISJAIL_DESKTOP_SOURCES windows_desktop_helper.c)
