// Acts that a jail may forbid, each tried once; see macos_acts.c.
#ifndef VJ_MACOS_ACTS_H
#define VJ_MACOS_ACTS_H

// Try the acts that lines of the standard input name, and answer each with a line.
int try_acts(void);

#endif
