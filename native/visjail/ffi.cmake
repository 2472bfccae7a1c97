# What cffi makes of the declarations: those of every system, and those of this one behind them.
# Sets VISJAIL_FFI to the C file. Sources beside ffi.csrc.c may follow.
function(visjail_ffi own)
  set(declared ${CMAKE_CURRENT_BINARY_DIR}/_visjail.cdef.h)
  set(includes ${CMAKE_CURRENT_BINARY_DIR}/_visjail.csrc.c)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/_visjail.c)
  add_custom_command(
    OUTPUT ${made}
    COMMAND ${CMAKE_COMMAND} -E cat ffi.cdef.h ${own} > ${declared}
    COMMAND ${CMAKE_COMMAND} -E cat ffi.csrc.c ${ARGN} > ${includes}
    COMMAND ${Python_EXECUTABLE} -m cffi.gen_src read-sources visruntime._visjail
            ${declared} ${includes} ${made}
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    DEPENDS ffi.cdef.h ${own} ffi.csrc.c ${ARGN}
    VERBATIM)
  set(VISJAIL_FFI ${made} PARENT_SCOPE)
endfunction()
