// Processes, as macOS lists them; see darwin.h.
#ifndef VJ_TEST_LIBPROC_H
#define VJ_TEST_LIBPROC_H

#include <stdint.h>

#define PROC_PIDTBSDINFO 3

struct proc_bsdinfo {
    uint32_t pbi_status;
    uint32_t pbi_ppid;
    uint32_t pbi_uid;
    uint64_t pbi_start_tvsec;
    uint64_t pbi_start_tvusec;
};

int proc_listallpids(void *buffer, int size);
int proc_pidinfo(int process, int kind, uint64_t argument, void *buffer, int size);

#endif
