// What the audit hook has refused; see denial.h.
//
// Notes are plain bytes in one table of the process: sub-interpreters may have locks of
// their own and share no objects.
#include "denial.h"

#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_BYTES = 32, RIGHT_BYTES = 24, RULE_BYTES = 64, FILE_BYTES = 512 };
// A message quotes the path twice.
enum { MESSAGE_BYTES = 2 * PATH_MAX + 512 };

typedef struct {
    char event[EVENT_BYTES];
    char right[RIGHT_BYTES];
    char rule[RULE_BYTES];
    char file[FILE_BYTES];
    char path[PATH_MAX];
    int line;
    int number; // errno, 0 where the kernel was not asked
} note;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static note *notes[VIS_MAX_DENIALS];
static size_t note_count;
static uint64_t dropped;
static char *library;

bool vis_denials_set_library(const char *folder) {
    library = strdup(folder);
    return library != NULL;
}

// Copy what fits, and never a part of a character.
static void copy_text(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (length >= size) {
        length = size - 1;
        while (length && ((unsigned char)from[length] & 0xC0) == 0x80) length--;
    }
    memcpy(to, from, length);
    to[length] = 0;
}

// ---- which line it was -------------------------------------------------------

// Whether a frame of that file is the library's: frozen, or below its folder.
static bool is_library(const char *file) {
    if (!strncmp(file, "<frozen", 7)) return true;
    size_t length = library ? strlen(library) : 0;
    return length && !strncmp(file, library, length) && file[length] == '/';
}

static void read_file_name(PyFrameObject *frame, char *file, size_t size) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *name = PyObject_GetAttrString((PyObject *)code, "co_filename");
    PyObject *bytes =
        name ? PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape") : NULL;
    const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
    copy_text(file, size, text ? text : "");
    PyErr_Clear();
    Py_XDECREF(bytes);
    Py_XDECREF(name);
    Py_DECREF(code);
}

// Whether a frame is the worker's own: what it does there, the host has asked for.
static bool is_runtime(PyFrameObject *frame) {
    PyObject *globals = PyObject_GetAttrString((PyObject *)frame, "f_globals");
    PyObject *package = globals && PyDict_Check(globals)
                            ? PyDict_GetItemString(globals, "__package__")
                            : NULL;
    bool own = package && PyUnicode_Check(package) &&
               PyUnicode_CompareWithASCIIString(package, VIS_GUEST_PACKAGE) == 0;
    Py_XDECREF(globals);
    PyErr_Clear();
    return own;
}

// The innermost line that is not the library's, or the innermost of all; nothing where
// the worker itself acted.
static void find_line(note *made) {
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF((PyObject *)frame);
    bool first = true;
    while (frame) {
        if (is_runtime(frame)) {
            made->file[0] = 0;
            made->line = 0;
            Py_DECREF(frame);
            break;
        }
        char file[FILE_BYTES];
        read_file_name(frame, file, sizeof file);
        bool is_guest = !is_library(file);
        if (first || is_guest) {
            memcpy(made->file, file, sizeof file);
            made->line = PyFrame_GetLineNumber(frame);
        }
        first = false;
        PyObject *back =
            is_guest ? NULL : PyObject_GetAttrString((PyObject *)frame, "f_back");
        Py_DECREF(frame);
        if (back == Py_None) Py_CLEAR(back);
        frame = (PyFrameObject *)back;
    }
    PyErr_Clear();
}

// ---- notes -------------------------------------------------------------------

// Count one that there is no room for; false where there is.
static bool drop_if_full(void) {
    pthread_mutex_lock(&lock);
    bool full = note_count == VIS_MAX_DENIALS;
    if (full) dropped++;
    pthread_mutex_unlock(&lock);
    return full;
}

void vis_note_refusal(const char *event, const char *right, const char *rule,
                      const char *path, int number) {
    if (drop_if_full()) return;
    note *made = calloc(1, sizeof *made);
    if (made) {
        copy_text(made->event, sizeof made->event, event);
        copy_text(made->right, sizeof made->right, right);
        copy_text(made->rule, sizeof made->rule, rule);
        copy_text(made->path, sizeof made->path, path ? path : "");
        made->number = number;
        find_line(made);
        vis_denial said = {made->event, made->right, made->rule,  made->path,
                           made->file,  made->line,  made->number};
        if (vis_tell_denial(&said)) {
            free(made);
            return;
        }
    }
    pthread_mutex_lock(&lock);
    if (made && note_count < VIS_MAX_DENIALS) {
        notes[note_count++] = made;
        made = NULL;
    } else {
        dropped++;
    }
    pthread_mutex_unlock(&lock);
    free(made);
}

static PyObject *describe(const note *one) {
    PyObject *path = PyUnicode_DecodeFSDefault(one->path);
    PyObject *file =
        PyUnicode_Decode(one->file, (Py_ssize_t)strlen(one->file), "utf-8", "replace");
    PyObject *made = NULL;
    if (path && file)
        made = Py_BuildValue("(sssOiOi)", one->event, one->right, one->rule, path,
                             one->number, file, one->line);
    Py_XDECREF(path);
    Py_XDECREF(file);
    return made;
}

// Give what was noted since the last call and not told at once, and how many there was no
// room for.
PyObject *vis_denials(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    note *taken[VIS_MAX_DENIALS];
    pthread_mutex_lock(&lock);
    size_t count = note_count;
    uint64_t lost = dropped;
    memcpy(taken, notes, count * sizeof *notes);
    note_count = 0;
    dropped = 0;
    pthread_mutex_unlock(&lock);

    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < count; i++) {
        PyObject *one = list ? describe(taken[i]) : NULL;
        if (list && (!one || PyList_Append(list, one) != 0)) Py_CLEAR(list);
        Py_XDECREF(one);
        free(taken[i]);
    }
    return list ? Py_BuildValue("(NK)", list, (unsigned long long)lost) : NULL;
}

// ---- exceptions --------------------------------------------------------------

// Pickled as the PermissionError that it is called, so that it crosses to a process that
// has no such class.
static PyObject *reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *number = PyObject_GetAttrString(self, "errno");
    PyObject *text = number ? PyObject_GetAttrString(self, "strerror") : NULL;
    PyObject *path = text ? PyObject_GetAttrString(self, "filename") : NULL;
    PyObject *made = NULL;
    if (path) made = Py_BuildValue("(O(OOO))", PyExc_PermissionError, number, text, path);
    Py_XDECREF(number);
    Py_XDECREF(text);
    Py_XDECREF(path);
    return made;
}

static PyMethodDef denied_methods[] = {
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot denied_slots[] = {
    {Py_tp_doc, (void *)"The policy does not grant this, and the kernel has refused it."},
    {Py_tp_methods, denied_methods},
    {0, NULL},
};

// Guests that try a file and go on when it is missing must go on here, too; so the class
// is both, under the name of the one that explains.
static PyType_Spec denied_spec = {
    .name = "builtins.PermissionError",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = denied_slots,
};

// The class for an error that says that nothing is there; one for each interpreter.
static PyObject *denied_and_missing(void) {
    static const char key[] = "visruntime.denied";
    PyObject *kept = PyInterpreterState_GetDict(PyInterpreterState_Get());
    if (!kept) return Py_NewRef(PyExc_PermissionError); // it is ending
    PyObject *found = PyDict_GetItemString(kept, key);
    if (found) return Py_NewRef(found);
    PyObject *bases = PyTuple_Pack(2, PyExc_PermissionError, PyExc_FileNotFoundError);
    if (!bases) return NULL;
    found = PyType_FromSpecWithBases(&denied_spec, bases);
    Py_DECREF(bases);
    if (found && PyDict_SetItemString(kept, key, found) != 0) Py_CLEAR(found);
    return found;
}

static int raise_os_error(PyObject *kind, int number, PyObject *text, PyObject *path) {
    PyObject *error =
        text ? PyObject_CallFunction(kind, "iOO", number, text, path) : NULL;
    if (error) PyErr_SetObject(kind, error);
    Py_XDECREF(error);
    Py_XDECREF(text);
    return -1;
}

// ---- what is said --------------------------------------------------------------

// Append `path` as a word for a shell.
static void append_word(char *text, size_t size, const char *path) {
    size_t at = strlen(text);
    bool plain = !path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789@%_+=:,./-")];
    if (!plain && at + 1 < size) text[at++] = '\'';
    for (; *path && at + 6 < size; path++) {
        if (*path == '\'') {
            memcpy(text + at, "'\\''", 4);
            at += 4;
        } else {
            text[at++] = *path;
        }
    }
    if (!plain && at + 1 < size) text[at++] = '\'';
    text[at] = 0;
}

static void append(char *text, size_t size, const char *more) {
    size_t at = strlen(text);
    copy_text(text + at, size - at, more);
}

// What would allow it, after "; ": as in the host's own advice (_policy/grants.py).
static void append_advice(char *text, size_t size, vj_right right, const char *path,
                          const vj_rule *rule, const char *name) {
    if (!vis_rules_grantable(path)) {
        append(text, size, "; nothing there can be granted");
        return;
    }
    bool is_secret = rule && !strcmp(name, "secrets");
    bool denies = rule && rule->kind != VJ_RULE_READ && rule->kind != VJ_RULE_WRITE;
    if (!is_secret && denies &&
        (rule->kind == VJ_RULE_DENY_EXEC || !strcmp(rule->path, path))) {
        append(text, size, "; only removing that rule allows it");
        return;
    }
    append(text, size,
           is_secret                 ? "; add --reveal "
           : right == VJ_RIGHT_WRITE ? "; add --write "
                                     : "; add --read ");
    append_word(text, size, path);
}

int vis_refuse_path(const char *event, vj_right right, PyObject *given, const char *path,
                    int number) {
    const char *name = NULL;
    const vj_rule *rule = vis_rules_deciding(right, path, &name);
    const char *what = right == VJ_RIGHT_WRITE ? "write" : "read";
    char *text = malloc(MESSAGE_BYTES);
    if (!text) {
        PyErr_NoMemory();
        return -1;
    }
    text[0] = 0;
    append(text, MESSAGE_BYTES, what);
    append(text, MESSAGE_BYTES, " of ");
    append_word(text, MESSAGE_BYTES, path);
    append(text, MESSAGE_BYTES, " is not granted (rule: ");
    append(text, MESSAGE_BYTES, name ? name : "none");
    append_advice(text, MESSAGE_BYTES, right, path, rule, name ? name : "");
    append(text, MESSAGE_BYTES, ")");
    vis_note_refusal(event, what, name ? name : "", path, number);
    PyObject *kind =
        number == ENOENT ? denied_and_missing() : Py_NewRef(PyExc_PermissionError);
    PyObject *message = PyUnicode_DecodeFSDefault(text);
    free(text);
    if (!kind) {
        Py_XDECREF(message);
        return -1;
    }
    raise_os_error(kind, number, message, given);
    Py_DECREF(kind);
    return -1;
}

int vis_refuse_option(const char *event, const char *right, const char *rule,
                      PyObject *kind, const char *path, const char *message) {
    vis_note_refusal(event, right, rule, path, kind == PyExc_PermissionError ? EPERM : 0);
    if (kind != PyExc_PermissionError) {
        PyErr_Format(kind, "%s (rule: %s)", message, rule);
        return -1;
    }
    PyObject *shown = path ? PyUnicode_DecodeFSDefault(path) : Py_NewRef(Py_None);
    if (!shown) return -1;
    PyObject *text = PyUnicode_FromFormat("%s (rule: %s)", message, rule);
    raise_os_error(kind, EPERM, text, shown);
    Py_DECREF(shown);
    return -1;
}
