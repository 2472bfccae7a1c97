// The table of this machine is the real one.
//
// A file of its own: a program of the tests can be made of all the other objects, and
// another table.

#include "windows_win32.h"

const vj_windows_os *vj_windows_os_table(void) {
    return vj_win32_table();
}
