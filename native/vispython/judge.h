// What the audit hook thinks of one event; each function gets the event's arguments.
//
// They return 0 to let it go on, or -1 with an exception set. A path is refused only
// where the policy does not grant it and the kernel, asked in the same moment, refuses it
// too: what the kernel would allow (a link, a folder that leads to a grant) always goes
// on.
#ifndef VISPYTHON_JUDGE_H
#define VISPYTHON_JUDGE_H

#include "worker.h"

int vis_judge_open(const char *event, PyObject *arguments);
int vis_judge_list(const char *event, PyObject *arguments);
int vis_judge_change(const char *event, PyObject *arguments);
int vis_judge_import(const char *event, PyObject *arguments);
int vis_judge_dlopen(const char *event, PyObject *arguments);
int vis_judge_start(const char *event, PyObject *arguments);

#endif
