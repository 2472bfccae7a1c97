// Openings and changes of names: what the policy and the kernel say of a path.
#include "denial.h"
#include "judge.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the path of an event ------------------------------------------------------

// A path as the kernel would get it. `bytes` owns what `text` points into.
typedef struct {
    PyObject *bytes;
    const char *text;
} kernel_path;

// Whether `given` is a path: 1, 0 if it is something else (a descriptor, None) or one
// that cannot reach the kernel, -1 with an exception if it has no bytes.
static int encode(PyObject *given, kernel_path *path) {
    if (PyUnicode_Check(given)) {
        path->bytes = PyUnicode_EncodeFSDefault(given);
        if (!path->bytes) return -1;
    } else if (PyBytes_Check(given)) {
        path->bytes = Py_NewRef(given);
    } else {
        return 0;
    }
    path->text = PyBytes_AsString(path->bytes);
    // An embedded NUL is refused by Python itself.
    return path->text && path->text[0] &&
                   strlen(path->text) == (size_t)PyBytes_Size(path->bytes)
               ? 1
               : 0;
}

static bool is_refusal(int number) {
    return number == ENOENT || number == EACCES || number == EPERM || number == EROFS;
}

// ---- asking the kernel -----------------------------------------------------------

// What it says to a change of names in the folder of `path`; 0 where it may allow it.
// Landlock is not asked by faccessat, so what only Landlock refuses is left to the call.
static int ask_folder(const char *path) {
    char folder[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof folder) return 0;
    memcpy(folder, path, length + 1);
    while (length > 1 && folder[length - 1] == '/') length--;
    while (length && folder[length - 1] != '/') length--;
    if (length == 0) memcpy(folder, ".", 2);
    else folder[length] = 0;
    return faccessat(AT_FDCWD, folder, W_OK | X_OK, 0) == 0 ? 0 : errno;
}

static bool exists(const char *path) {
    struct stat status;
    return fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

// What it says to an opening, without making or emptying a file; 0 where it may allow it.
static int ask_open(const char *path, int flags) {
    int handle = open(path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW));
    if (handle < 0 && (errno != ENOENT || !(flags & O_CREAT))) return errno;
    // A link that leads nowhere: the file would be made at its other end.
    if (handle < 0) return exists(path) ? 0 : ask_folder(path);
    struct stat status;
    int failed = fstat(handle, &status);
    close(handle);
    // Opening a FIFO, a terminal or a device may have effects; and O_EXCL is about names.
    // O_PATH opens no file, and asks for no right to one.
    if (failed || (flags & O_PATH) ||
        !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) ||
        ((flags & O_CREAT) && (flags & O_EXCL)))
        return 0;
    handle = open(path, (flags & (O_ACCMODE | O_NOFOLLOW | O_DIRECTORY)) | O_CLOEXEC |
                            O_NONBLOCK | O_NOCTTY);
    if (handle < 0) return errno;
    close(handle);
    return 0;
}

// ---- events ------------------------------------------------------------------------

// Whether the calling code speaks of an opener: it opens something else than the name.
static bool may_have_opener(void) {
    PyFrameObject *frame = PyEval_GetFrame();
    if (!frame) return true;
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool found = false;
    static const char *const places[] = {"co_consts", "co_names", "co_varnames"};
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        PyObject *values = PyObject_GetAttrString((PyObject *)code, places[i]);
        PyObject *text = values ? PyObject_Str(values) : NULL;
        PyObject *word = text ? PyUnicode_FromString("opener") : NULL;
        found = !word || PyUnicode_Contains(text, word) != 0;
        Py_XDECREF(word);
        Py_XDECREF(text);
        Py_XDECREF(values);
    }
    PyErr_Clear();
    Py_DECREF(code);
    return found;
}

// ("open", path, mode, flags). The mode is None for os.open, whose dir_fd is not told: a
// relative path may then start anywhere.
int vis_judge_open(const char *event, PyObject *arguments) {
    if (!vis_rules_known() || PyTuple_Size(arguments) < 3) return 0;
    PyObject *given = PyTuple_GetItem(arguments, 0);
    PyObject *mode = PyTuple_GetItem(arguments, 1);
    kernel_path path = {0};
    int kind = encode(given, &path);
    if (kind <= 0 || (path.text[0] != '/' && mode == Py_None)) {
        Py_XDECREF(path.bytes);
        return kind < 0 ? -1 : 0;
    }
    long flags = PyLong_AsLong(PyTuple_GetItem(arguments, 2));
    if (flags == -1 && PyErr_Occurred()) PyErr_Clear();
    bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    vj_right right = writes ? VJ_RIGHT_WRITE : VJ_RIGHT_READ;
    char normal[PATH_MAX];
    int answer = 0;
    if (vis_normal_path(path.text, normal, sizeof normal) &&
        !vis_rules_allow(right, normal)) {
        int number = ask_open(path.text, (int)flags);
        // Of a file that may not be read either, that is what to say.
        if (writes && !vis_rules_allow(VJ_RIGHT_READ, normal) && !(flags & O_CREAT) &&
            (flags & O_ACCMODE) != O_WRONLY)
            right = VJ_RIGHT_READ;
        if (is_refusal(number) && (mode == Py_None || !may_have_opener()))
            answer = vis_refuse_path(event, right, given, normal, number);
    }
    Py_DECREF(path.bytes);
    return answer;
}

// ("os.listdir" or "os.scandir", path).
int vis_judge_list(const char *event, PyObject *arguments) {
    if (!vis_rules_known() || PyTuple_Size(arguments) < 1) return 0;
    PyObject *given = PyTuple_GetItem(arguments, 0);
    kernel_path path = {0};
    int kind = encode(given, &path);
    char normal[PATH_MAX];
    int answer = kind < 0 ? -1 : 0;
    if (kind > 0 && vis_normal_path(path.text, normal, sizeof normal) &&
        !vis_rules_allow(VJ_RIGHT_READ, normal)) {
        int number = ask_open(path.text, O_RDONLY | O_DIRECTORY);
        if (is_refusal(number))
            answer = vis_refuse_path(event, VJ_RIGHT_READ, given, normal, number);
    }
    Py_XDECREF(path.bytes);
    return answer;
}

// An event about one name that is made or goes away: ("os.mkdir", path, ..., dir_fd).
// Moves and links between two names are left to the kernel, whose answer (EXDEV before
// EROFS) programs rely on.
typedef struct {
    const char *event;
    int folder; // which argument is dir_fd
    bool makes;
} change;

static const change changes[] = {
    {"os.mkdir", 2, true},
    {"os.remove", 1, false},
    {"os.rmdir", 1, false},
    {"os.symlink", 2, true}, // (src, dst, dir_fd): the second is the new name
};

static int judge_one_change(const change *made, PyObject *arguments) {
    bool is_link = strcmp(made->event, "os.symlink") == 0;
    if (PyTuple_Size(arguments) <= made->folder) return 0;
    long folder = PyLong_AsLong(PyTuple_GetItem(arguments, made->folder));
    if (folder != -1 || PyErr_Occurred()) {
        PyErr_Clear();
        return 0; // it starts at a descriptor, of which only the kernel knows the place
    }
    PyObject *given = PyTuple_GetItem(arguments, is_link ? 1 : 0);
    kernel_path path = {0};
    int kind = encode(given, &path);
    char normal[PATH_MAX];
    int answer = kind < 0 ? -1 : 0;
    // A name that is there cannot be made, one that is not cannot go: the kernel says so.
    if (kind > 0 && vis_normal_path(path.text, normal, sizeof normal) &&
        !vis_rules_allow(VJ_RIGHT_WRITE, normal) && exists(path.text) != made->makes) {
        int number = ask_folder(path.text);
        if (is_refusal(number))
            answer = vis_refuse_path(made->event, VJ_RIGHT_WRITE, given, normal, number);
    }
    Py_XDECREF(path.bytes);
    return answer;
}

int vis_judge_change(const char *event, PyObject *arguments) {
    if (!vis_rules_known()) return 0;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        if (strcmp(event, changes[i].event) == 0)
            return judge_one_change(&changes[i], arguments);
    }
    return 0;
}
