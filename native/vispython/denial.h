// What the audit hook has refused: the exception for the guest, and the note for the
// host.
#ifndef VISPYTHON_DENIAL_H
#define VISPYTHON_DENIAL_H

#include "rules.h"
#include "worker.h"

// Refuse an opening, or a change of a name, that the kernel has just refused with
// `number` and the policy does not allow. `given` is the path as the guest wrote it,
// `path` its normal form. Sets an exception that is a PermissionError, and a
// FileNotFoundError too where the kernel said so. Returns -1, for the hook to return.
int vis_refuse_path(const char *event, vj_right right, PyObject *given, const char *path,
                    int number);

// Refuse what the runtime's options forbid; `rule` names the option, `path` may be NULL.
int vis_refuse_option(const char *event, const char *right, const char *rule,
                      PyObject *kind, const char *path, const char *message);

// Note a refusal, before its exception is set: it looks for the line that is to blame.
// `number` is the errno, 0 where the kernel was not asked.
void vis_note_refusal(const char *event, const char *right, const char *rule,
                      const char *path, int number);

// Frames of files below `folder` are the library's; a refusal is reported for the line
// that is not.
bool vis_denials_set_library(const char *folder);

// The package of the worker's own modules, as the bootstrap names it.
#define VIS_GUEST_PACKAGE "_visguest"

// How many refusals are kept until they are fetched.
#define VIS_MAX_DENIALS 100

#endif
