# _visjail of macOS, with its helper and its watcher. scripts/build_macos.py builds the same lists
# without CMake: each is one set() of file names.

set(VISJAIL_MACOS_SOURCES
  error.c policy.c policy_tree.c links.c secret_names.c pattern.c
  macos_base.c macos_path.c macos_profile.c macos_brief.c macos_members.c
  macos_end.c macos_process.c macos_seatbelt.c macos_spelling.c macos_status.c
  posix_capture.c posix_expand.c posix_search.c posix_stream.c posix_terminal.c)
set(VISJAIL_MACOS_HELPER_SOURCES
  macos_init.c macos_files.c macos_try.c macos_brief.c macos_members.c error.c)
set(VISJAIL_MACOS_WATCHER_SOURCES macos_watch.c macos_end.c macos_members.c error.c)

set_source_files_properties(
  ${VISJAIL_MACOS_SOURCES} macos_files.c macos_init.c macos_try.c macos_watch.c
  PROPERTIES COMPILE_OPTIONS "${VIS_WARNINGS}")
add_executable(visjail-macos-init ${VISJAIL_MACOS_HELPER_SOURCES})
add_executable(visjail-macos-watch ${VISJAIL_MACOS_WATCHER_SOURCES})
install(TARGETS visjail-macos-init visjail-macos-watch RUNTIME DESTINATION visruntime/bin)

if(VIS_LIBRARY_ONLY)
  add_library(visjail SHARED ${VISJAIL_MACOS_SOURCES})
  set_target_properties(visjail PROPERTIES C_VISIBILITY_PRESET default)
  return()
endif()

include(ffi.cmake)
visjail_ffi(ffi_macos.cdef.h ffi_macos.csrc.c)
python_add_library(_visjail MODULE USE_SABI 3.11 WITH_SOABI ${VISJAIL_FFI} ${VISJAIL_MACOS_SOURCES})
target_include_directories(_visjail PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
install(TARGETS _visjail LIBRARY DESTINATION visruntime)
