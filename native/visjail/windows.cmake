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

if(NOT WIN32)
  return()
endif()

add_compile_definitions(UNICODE _UNICODE)
if(MSVC)
  # Level 4 also says that C99 and C11 are not C89: aggregates that are not constant (4204), or
  # that hold addresses of variables (4221). An assignment in a condition (4706) is how C reads calls.
  # The C run time's own opinion of its functions is off.
  add_compile_options(/W4 /WX /utf-8 /wd4204 /wd4221 /wd4706 /guard:cf)
  add_compile_definitions(_CRT_SECURE_NO_WARNINGS)
  add_link_options(/guard:cf /DYNAMICBASE /HIGHENTROPYVA /NXCOMPAT)
else()
  add_compile_options(${VIS_WARNINGS} -municode)
  add_link_options(-municode)
endif()

add_executable(visjail-desktop ${VISJAIL_DESKTOP_SOURCES})
target_link_libraries(visjail-desktop PRIVATE advapi32)

if(VIS_LIBRARY_ONLY)
  add_library(visjail SHARED ${VISJAIL_WINDOWS_SOURCES} visjail.def)
  target_link_libraries(visjail PRIVATE ${VISJAIL_WINDOWS_LIBRARIES})
  set_target_properties(visjail PROPERTIES PREFIX "")

  # The programs of the probes: one act for each run, the table, and a host of the library.
  set(tests ${CMAKE_SOURCE_DIR}/tests/native/windows)
  file(GLOB guest ${tests}/guest*.c)
  file(GLOB table ${tests}/table*.c)
  file(GLOB probe ${tests}/probe*.c)
  add_executable(windows_guest ${guest})
  target_link_libraries(windows_guest PRIVATE advapi32 ws2_32)
  add_executable(windows_table ${table} ${VISJAIL_WINDOWS_SOURCES})
  target_include_directories(windows_table PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(windows_table PRIVATE ${VISJAIL_WINDOWS_LIBRARIES})
  add_executable(windows_probe ${probe})
  target_include_directories(windows_probe PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(windows_probe PRIVATE visjail advapi32 ws2_32)
  # The table again, each of whose calls can be let fail. For those who ask for it.
  set(faulty ${VISJAIL_WINDOWS_SOURCES})
  set(whole ${VISJAIL_WINDOWS_SOURCES})
  list(FILTER faulty INCLUDE REGEX "^windows_os")
  list(FILTER whole EXCLUDE REGEX "^windows_os")
  add_library(windows_faulty OBJECT EXCLUDE_FROM_ALL ${faulty})
  target_include_directories(windows_faulty PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(windows_faulty PRIVATE
    $<IF:$<C_COMPILER_ID:MSVC>,/FI,-include> ${tests}/faulty_calls.h)
  add_executable(windows_faults EXCLUDE_FROM_ALL ${tests}/faults.c ${whole})
  target_include_directories(windows_faults PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(windows_faults PRIVATE windows_faulty ${VISJAIL_WINDOWS_LIBRARIES})
  # The guard of consoles, for the Python that is staged in the probes. Its headers are CPython's.
  find_package(Python 3.11 COMPONENTS Interpreter Development.Module)
  if(Python_FOUND)
    python_add_library(_visconsole MODULE ../vispython/windows_console_guard.c)
    target_compile_options(_visconsole PRIVATE $<$<C_COMPILER_ID:MSVC>:/W3>)
  endif()
  return()
endif()

# ---- the same behind cffi, which reads the public header without its preprocessor lines
file(READ windows_jail.h header)
string(REGEX REPLACE "(^|\n)#[^\n]*" "\\1" header "${header}")
set(VISJAIL_CDEF ${CMAKE_CURRENT_BINARY_DIR}/windows_jail.cdef.h)
set(VISJAIL_CSRC ${CMAKE_CURRENT_BINARY_DIR}/windows_jail.csrc.c)
set(VISJAIL_FFI ${CMAKE_CURRENT_BINARY_DIR}/_visjail.c)
file(CONFIGURE OUTPUT ${VISJAIL_CDEF} CONTENT "${header}" @ONLY)
file(CONFIGURE OUTPUT ${VISJAIL_CSRC} CONTENT "#include \"windows_jail.h\"\n" @ONLY)
add_custom_command(
  OUTPUT ${VISJAIL_FFI}
  COMMAND ${Python_EXECUTABLE} -m cffi.gen_src read-sources visruntime._visjail
          ${VISJAIL_CDEF} ${VISJAIL_CSRC} ${VISJAIL_FFI}
  DEPENDS windows_jail.h
  VERBATIM)
# What cffi writes is to its own standard.
set_source_files_properties(${VISJAIL_FFI} PROPERTIES COMPILE_OPTIONS "$<$<C_COMPILER_ID:MSVC>:/W0;/WX->")
python_add_library(_visjail MODULE USE_SABI 3.11 WITH_SOABI ${VISJAIL_FFI} ${VISJAIL_WINDOWS_SOURCES})
target_include_directories(_visjail PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(_visjail PRIVATE ${VISJAIL_WINDOWS_LIBRARIES})
install(TARGETS _visjail LIBRARY DESTINATION visruntime)
install(TARGETS visjail-desktop RUNTIME DESTINATION visruntime)
