// Processor time; one file for each system (linux_clock.c, windows_clock.c).
#ifndef VISPYTHON_CLOCK_H
#define VISPYTHON_CLOCK_H

// Nanoseconds of processor time that the calling thread has used. Windows counts it in
// ticks, of about 16 ms.
long long vis_thread_time(void);

#endif
