// The operations of a plan as arguments of bubblewrap (bwrap), which then executes
// visjail-init as pid 1 of what it has made.
//
// For hosts whose AppArmor lets only the distribution's bwrap make user namespaces, and
// as a second executor of the same plan. bwrap binds by path, so visjail-init compares
// each place with the plan, by device and inode, before anything runs in the jail
// (linux_prepared.c). The arguments go by descriptor: the list of processes does not
// show the policy, and no limit of execve applies.

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "posix_process.h"

// bwrap gives up at 9,000 words, those of its command line included.
#define WORDS_MAX 8900
// Descriptors beside those of visjail-init: the program, the arguments, files.
#define FD_PROGRAM   VJ_FD_FIRST_FREE
#define FD_ARGUMENTS (VJ_FD_FIRST_FREE + 1)
#define FD_FILES     (VJ_FD_FIRST_FREE + 2)
#define FILES_MAX    200
#define FIXED_COUNT  10 // of which the first three are 0 to 2
// Where they wait, above every number that is given to bwrap.
#define PARKING (FD_FILES + FILES_MAX)

#define MASK_SIZE    1048576u
#define FILE_MOST    65536
#define PIN_MODE     0755 // as visjail-init makes the folders that lead somewhere
#define OTHERS_WRITE 022u
#define MASK_IN_PROC "/dev/null" // on a mount without devices: EACCES for everyone

typedef struct {
    char *data;
    size_t size;
    size_t capacity;
    uint32_t words;
    int files[FILES_MAX];
    uint32_t file_count;
    int result; // the first errno
} arguments;

static void add(arguments *list, const char *word) {
    size_t length = strlen(word) + 1;
    if (list->size + length > list->capacity) {
        size_t wanted = (list->size + length) * 2;
        char *larger = realloc(list->data, wanted);
        if (!larger) {
            list->result = ENOMEM;
            return;
        }
        list->data = larger;
        list->capacity = wanted;
    }
    memcpy(list->data + list->size, word, length);
    list->size += length;
    list->words++;
}

static void add_all(arguments *list, const char *const *words) {
    for (; *words; words++) add(list, *words);
}

static void add_number(arguments *list, const char *format, unsigned long long number) {
    char text[32];
    snprintf(text, sizeof text, format, number);
    add(list, text);
}

static void add_bind(arguments *list, bool read_only, const char *source,
                     const char *path) {
    add(list, read_only ? "--ro-bind" : "--bind");
    add(list, source);
    add(list, path);
}

static void add_tmpfs(arguments *list, unsigned mode, uint64_t size, const char *path) {
    add(list, "--perms");
    add_number(list, "%llo", mode);
    if (size) {
        add(list, "--size");
        add_number(list, "%llu", size);
    }
    add(list, "--tmpfs");
    add(list, path);
}

// ---- files -----------------------------------------------------------------

// A file of the jail's own: bwrap copies it from a descriptor.
static void add_file(arguments *list, const char *mode, const char *option,
                     const char *path, const char *text, size_t size) {
    if (list->file_count == FILES_MAX) {
        list->result = EMFILE;
        return;
    }
    int memory = vj_sealed_memory("visjail-file", text, size);
    int parked = memory < 0 ? -1 : fcntl(memory, F_DUPFD_CLOEXEC, PARKING);
    if (parked < 0) list->result = errno;
    if (memory >= 0) close(memory);
    if (parked < 0) return;
    lseek(parked, 0, SEEK_SET);
    add(list, "--perms");
    add(list, mode);
    add(list, option);
    add_number(list, "%llu", FD_FILES + list->file_count);
    add(list, path);
    list->files[list->file_count++] = parked;
}

static void add_copy(arguments *list, const char *path, const char *source) {
    char *text = malloc(FILE_MOST);
    int file = open(source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    struct stat status = {0};
    bool is_public = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_mode & S_IROTH;
    ssize_t size = text && is_public ? read(file, text, FILE_MOST) : -1;
    if (size < 0) list->result = file >= 0 && !is_public ? EACCES : errno;
    else if (size == FILE_MOST) list->result = EFBIG;
    else add_file(list, "0644", "--file", path, text, (size_t)size);
    if (file >= 0) close(file);
    free(text);
}

// ---- operations ------------------------------------------------------------

// What guests may not write or see of a private /proc, as far as a caller without
// rights could: bwrap itself leaves it as the kernel makes it.
static void add_proc(arguments *list, const char *path) {
    static const char *const read_only[] = {"sys", "irq",      "bus",
                                            "fs",  "pressure", "sysrq-trigger"};
    static const char *const covered[] = {"sys/fs/binfmt_misc", "fs/nfsd"};
    static const char *const masked[] = {"kcore", "keys", "timer_list"};
    char place[VJ_PATH_MAX];
    char source[64];
    add(list, "--proc");
    add(list, path);
    for (size_t i = 0; i < sizeof read_only / sizeof *read_only; i++) {
        snprintf(source, sizeof source, "/proc/%s", read_only[i]);
        snprintf(place, sizeof place, "%s/%s", path, read_only[i]);
        if (access(source, F_OK) == 0) add_bind(list, true, source, place);
    }
    // What is mounted there on the host came along.
    for (size_t i = 0; i < sizeof covered / sizeof *covered; i++) {
        snprintf(source, sizeof source, "/proc/%s", covered[i]);
        snprintf(place, sizeof place, "%s/%s", path, covered[i]);
        if (access(source, F_OK) != 0) continue;
        add_tmpfs(list, 0555, MASK_SIZE, place);
        add(list, "--remount-ro");
        add(list, place);
    }
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
        snprintf(source, sizeof source, "/proc/%s", masked[i]);
        snprintf(place, sizeof place, "%s/%s", path, masked[i]);
        if (access(source, F_OK) == 0) add_bind(list, true, MASK_IN_PROC, place);
    }
    add(list, "--remount-ro");
    add(list, path);
}

// Whether a pin is the second mount of a whole place, by which visjail-init hides the
// others. Here each is a tmpfs of its own and stays in sight.
static bool pins_a_place(const vj_plan *plan, const vj_operation *pin) {
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        const vj_operation *operation = &vj_plan_operations(plan)[i];
        if (operation->kind == VJ_OPERATION_SCRATCH_PLACE &&
            !strcmp(vj_plan_string(plan, operation->path),
                    vj_plan_string(plan, pin->path))) {
            return true;
        }
    }
    return false;
}

// bwrap cannot bind what it has made, so each private place is a tmpfs of its own, as
// is each folder in one that is pinned, and equal shares keep the sum what the policy
// says. 0: not bounded.
static uint64_t share_of_scratch(const vj_plan *plan) {
    uint64_t size = 0;
    uint64_t places = 0;
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        const vj_operation *operation = &vj_plan_operations(plan)[i];
        if (operation->kind == VJ_OPERATION_SCRATCH) size = operation->size;
        places += operation->kind == VJ_OPERATION_SCRATCH_PLACE ||
                  (operation->kind == VJ_OPERATION_PIN && !pins_a_place(plan, operation));
    }
    if (!size || !places) return 0;
    return size > places ? size / places : 1;
}

static void add_operation(arguments *list, const vj_plan *plan,
                          const vj_operation *operation) {
    const char *path = vj_plan_string(plan, operation->path);
    const char *source = vj_plan_string(plan, operation->source);
    switch ((vj_operation_kind)operation->kind) {
    case VJ_OPERATION_ROOT:
        if (*source) add_bind(list, true, source, path);
        break;
    case VJ_OPERATION_DIRECTORY:
        add(list, "--dir");
        add(list, path);
        break;
    case VJ_OPERATION_SYMLINK:
        add(list, "--symlink");
        add(list, source);
        add(list, path);
        break;
    case VJ_OPERATION_FILE:
        add_file(list, "0644", "--file", path, source, strlen(source));
        break;
    case VJ_OPERATION_COPY: add_copy(list, path, source); break;
    case VJ_OPERATION_BIND:
        add_bind(list, operation->flags & VJ_BIND_READ_ONLY, source, path);
        break;
    case VJ_OPERATION_MASK_DIRECTORY:
        add_tmpfs(list, operation->mode, MASK_SIZE, path);
        break;
    case VJ_OPERATION_MASK_FILE:
        add_file(list, "0000", "--ro-bind-data", path, "", 0);
        break;
    case VJ_OPERATION_SCRATCH: break;
    case VJ_OPERATION_SCRATCH_PLACE:
        add_tmpfs(list, operation->mode, share_of_scratch(plan), path);
        break;
    case VJ_OPERATION_PIN:
        if (pins_a_place(plan, operation)) break;
        add_tmpfs(list, PIN_MODE, share_of_scratch(plan), path);
        break;
    case VJ_OPERATION_DEVICES:
        add(list, "--dev");
        add(list, path);
        break;
    case VJ_OPERATION_PROC: add_proc(list, path); break;
    case VJ_OPERATION_SEAL:
        add(list, "--remount-ro");
        add(list, path);
        break;
    case VJ_OPERATION_TRY:
    case VJ_OPERATION_SOCKET: // these four are refused before: there is no helper
    case VJ_OPERATION_INBOUND:
    case VJ_OPERATION_HOST_PORT:
    case VJ_OPERATION_NAME:
    case VJ_OPERATION_END: break;
    }
}

static void add_base(arguments *list, const vj_bubblewrap *start) {
    static const char *const base[] = {"--unshare-user",
                                       "--unshare-pid",
                                       "--unshare-ipc",
                                       "--unshare-uts",
                                       "--unshare-cgroup",
                                       "--cap-drop",
                                       "ALL",
                                       "--as-pid-1",
                                       "--clearenv",
                                       NULL};
    add_all(list, base);
    if (start->options->disables_userns) add(list, "--disable-userns");
    if (start->plan->flags & VJ_PLAN_PRIVATE_NETWORK) add(list, "--unshare-net");
    add(list, "--hostname");
    add(list, vj_plan_string(start->plan, start->plan->hostname));
}

// ---- what bwrap cannot be trusted with --------------------------------------

// Whether the mount point lies on the host's files: not on a tmpfs of the jail.
static bool is_on_host(const vj_plan *plan, const vj_operation *operation) {
    bool host_root = *vj_plan_string(plan, vj_plan_operations(plan)->source);
    switch ((vj_operation_kind)operation->kind) {
    case VJ_OPERATION_BIND:
    case VJ_OPERATION_SCRATCH_PLACE: return !(operation->flags & VJ_BIND_MAKE_POINT);
    case VJ_OPERATION_MASK_DIRECTORY:
    case VJ_OPERATION_MASK_FILE: return operation->inode != 0;
    case VJ_OPERATION_DEVICES:
    case VJ_OPERATION_PROC: return host_root;
    default: return false;
    }
}

// Whether only root can put a link anywhere on the way to `path`.
static bool is_roots_way(const char *path) {
    char folder[VJ_PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof folder) return false;
    memcpy(folder, path, length + 1);
    for (size_t i = length; i > 0; i--) {
        if (folder[i - 1] != '/') continue;
        folder[i > 1 ? i - 1 : 1] = 0;
        struct stat status;
        if (lstat(folder, &status) < 0 || !S_ISDIR(status.st_mode) ||
            status.st_uid != 0 || (status.st_mode & OTHERS_WRITE)) {
            return false;
        }
    }
    return true;
}

static vj_status refuse(uint32_t index, const char *text, vj_error *error) {
    vj_status status = vj_fail(error, VJ_REFUSED, VJ_STAGE_BUBBLEWRAP, 0, text);
    error->index = (int32_t)index;
    return status;
}

static vj_status check(const vj_bubblewrap *start, vj_error *error) {
    const vj_operation *operations = vj_plan_operations(start->plan);
    for (uint32_t i = 0; i < start->plan->operation_count; i++) {
        bool is_mount = operations[i].kind == VJ_OPERATION_BIND ||
                        operations[i].kind == VJ_OPERATION_SCRATCH_PLACE ||
                        operations[i].kind == VJ_OPERATION_PIN;
        if (is_mount && (operations[i].flags & VJ_BIND_NO_EXEC)) {
            return refuse(i, "bubblewrap cannot take execution away", error);
        }
        if (!start->options->follows_links || !is_on_host(start->plan, &operations[i])) {
            continue;
        }
        if (!is_roots_way(vj_plan_string(start->plan, operations[i].path))) {
            return refuse(
                i,
                "this bubblewrap follows links at its mount points, and a guest "
                "could put one there",
                error);
        }
    }
    return VJ_OK;
}

// bwrap covers whatever has the name. What the policy denied must still have it.
vj_status vj_bubblewrap_recheck(const vj_plan *plan, vj_error *error) {
    const vj_operation *operations = vj_plan_operations(plan);
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        if ((operations[i].kind != VJ_OPERATION_MASK_DIRECTORY &&
             operations[i].kind != VJ_OPERATION_MASK_FILE) ||
            !operations[i].inode) {
            continue;
        }
        struct stat status;
        if (lstat(vj_plan_string(plan, operations[i].path), &status) == 0) {
            uint64_t device = (uint64_t)major(status.st_dev) << 32 | minor(status.st_dev);
            if (device == operations[i].device && status.st_ino == operations[i].inode) {
                continue;
            }
        }
        vj_fail(error, VJ_SYSTEM, VJ_STAGE_SOURCE_CHANGED, ESTALE,
                vj_stage_name(VJ_STAGE_SOURCE_CHANGED));
        error->index = (int32_t)i;
        return VJ_SYSTEM;
    }
    return VJ_OK;
}

// ---- start -----------------------------------------------------------------

static int park(int descriptor) {
    return fcntl(descriptor, F_DUPFD_CLOEXEC, PARKING);
}

static int launch(const vj_bubblewrap *start, const arguments *list, pid_t *pid) {
    int descriptors[FIXED_COUNT + VJ_GROUP_FILES_MAX + FILES_MAX];
    int numbers[FIXED_COUNT + VJ_GROUP_FILES_MAX + FILES_MAX];
    int program = open(start->init_path, O_RDONLY | O_CLOEXEC);
    int words = vj_sealed_memory("visjail-arguments", list->data, list->size);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int fixed[FIXED_COUNT][2] = {
        {nothing, 0},
        {start->errors, 1},
        {start->errors, 2},
        {start->control, VJ_FD_CONTROL},
        {start->host, VJ_FD_HOST},
        {start->memory, VJ_FD_PLAN},
        {start->calls, VJ_FD_CALLS},
        {start->status, VJ_FD_STATUS},
        {program, FD_PROGRAM},
        {words, FD_ARGUMENTS},
    };
    int result = 0;
    uint32_t count = 0;
    for (; count < FIXED_COUNT; count++) {
        descriptors[count] = fixed[count][0];
        numbers[count] = fixed[count][1];
    }
    // bwrap hands on what it does not know; visjail-init joins the cgroups.
    count += vj_groups_place(start->groups, descriptors + count, numbers + count);
    for (uint32_t i = 0; i < count; i++) {
        descriptors[i] = park(descriptors[i]);
        if (descriptors[i] < 0 && !result) result = errno;
    }
    uint32_t parked = count;
    for (uint32_t i = 0; i < list->file_count; i++, count++) {
        descriptors[count] = list->files[i];
        numbers[count] = (int)(FD_FILES + i);
    }
    char list_number[16];
    char program_path[32];
    snprintf(list_number, sizeof list_number, "%d", FD_ARGUMENTS);
    snprintf(program_path, sizeof program_path, "/proc/self/fd/%d", FD_PROGRAM);
    char *command[] = {"bwrap", "--args", list_number, "--", program_path, NULL};
    if (!result && lseek(words, 0, SEEK_SET) < 0) result = errno;
    const vj_launch how = {
        .program = start->options->bubblewrap,
        .arguments = command,
        .descriptors = descriptors,
        .numbers = numbers,
        .count = count,
        .session = true, // the terminal's signals would end bwrap
    };
    if (!result) result = vj_launch_start(&how, pid);
    for (uint32_t i = 0; i < parked; i++) {
        if (descriptors[i] >= 0) close(descriptors[i]);
    }
    if (program >= 0) close(program);
    if (words >= 0) close(words);
    if (nothing >= 0) close(nothing);
    return result;
}

vj_status vj_bubblewrap_start(const vj_bubblewrap *start, pid_t *pid, vj_error *error) {
    vj_status status = check(start, error);
    if (status != VJ_OK) return status;
    arguments list = {0};
    add_base(&list, start);
    for (uint32_t i = 0; !list.result && i < start->plan->operation_count; i++) {
        add_operation(&list, start->plan, &vj_plan_operations(start->plan)[i]);
    }
    if (list.words > WORDS_MAX || list.file_count == FILES_MAX) {
        status = vj_fail(error, VJ_REFUSED, VJ_STAGE_BUBBLEWRAP, 0,
                         "the policy needs more mounts than bubblewrap takes");
        list.result = 0;
    }
    int result = list.result;
    if (status == VJ_OK && !result) result = launch(start, &list, pid);
    if (result) {
        status =
            vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, result, start->options->bubblewrap);
    }
    for (uint32_t i = 0; i < list.file_count; i++) close(list.files[i]);
    free(list.data);
    return status;
}
