# visjail.dll and visjail-desktop.exe. Read by CMake on Windows, and by scripts/cross_build.py, which
# builds the same lists elsewhere: each is one set() of file names.

set(VISJAIL_WINDOWS_SOURCES
  windows_context.c windows_core.c windows_stage.c windows_spawn.c windows_process.c
  windows_streams.c windows_console.c windows_close.c windows_remove.c windows_marker.c
  windows_stale.c windows_command.c windows_identity.c windows_names.c windows_text.c
  windows_monitor.c identifiers.c streams.c sha256.c
  windows_os_machine.c windows_os_table.c windows_os.c windows_os_security.c windows_os_files.c
  windows_os_jobs.c windows_os_streams.c windows_os_processes.c windows_os_desktop.c)
set(VISJAIL_WINDOWS_LIBRARIES advapi32 bcrypt)
# Beside the library, which starts it.
set(VISJAIL_DESKTOP_SOURCES windows_desktop_helper.c)
