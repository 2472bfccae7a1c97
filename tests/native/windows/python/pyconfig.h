// What CPython's headers have to know of its build for Windows on x86_64, for the mingw
// compiler.
//
// The headers themselves are the same on every system; this one is made where CPython is,
// and only for a module of the tests. The sizes are those of the LLP64 model.
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#define MS_WIN32
#define MS_WIN64
#define MS_WINDOWS
#define NT_THREADS
#define Py_ENABLE_SHARED                1
#define HAVE_DECLSPEC_DLL               1
#define PLATFORM                        "win32"
#define SIZEOF_VOID_P                   8
#define SIZEOF_SIZE_T                   8
#define SIZEOF_TIME_T                   8
#define SIZEOF_OFF_T                    4
#define SIZEOF_FPOS_T                   8
#define SIZEOF_HKEY                     8
#define SIZEOF_SHORT                    2
#define SIZEOF_INT                      4
#define SIZEOF_LONG                     4
#define SIZEOF_LONG_LONG                8
#define SIZEOF_FLOAT                    4
#define SIZEOF_DOUBLE                   8
#define SIZEOF_WCHAR_T                  2
#define SIZEOF__BOOL                    1
#define ALIGNOF_SIZE_T                  8
#define ALIGNOF_LONG                    4
#define HAVE_LONG_LONG                  1
#define HAVE_WCHAR_H                    1
#define HAVE_STDDEF_H                   1
#define HAVE_STDINT_H                   1
#define HAVE_SYS_TYPES_H                1
#define HAVE_SYS_STAT_H                 1
#define HAVE_ERRNO_H                    1
#define HAVE_PROTOTYPES                 1
#define DOUBLE_IS_LITTLE_ENDIAN_IEEE754 1

#endif
