// Which names the creation broker makes for guests: the names of a plan that are held,
// and the folders that its wall covers.
//
// A folder is known by its descriptor. Where it is is read once, after it was opened:
// the folders above a held name are mount points of this jail and cannot be moved, those
// that a guest makes behind the wall are moved by the broker alone, which does one thing
// at a time. So between the question and the act nothing moves. (Only in a free folder
// that was moved here do guests make and move what they like, and no name is held there.)
//
// A name is held twice. By its path, since the folder that stood above it when the jail
// opened may be gone: the host, or a guest of another jail on the same folder, removes
// it, and what is made in its place is another object. And from that folder on, since the
// host may move it. No broker moves a folder to or from a place above a held name, so
// jails that hold the same names cannot use each other to bring one there.

#include "linux_broker_names.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/mman.h>

typedef struct {
    int folder; // that exists and would hold names, or what leads to them
    uint64_t device;
    uint64_t inode;
} held_folder;

#define NO_FOLDER UINT32_MAX

typedef struct {
    const char *path;
    size_t length;
    // That would hold it, or the last one on the way that exists. NO_FOLDER: it existed
    // when the jail opened, and what is mounted over it moves with it.
    uint32_t folder;
    const char *rest; // from there to the name
    size_t rest_length;
} held_name;

// Where the rules of Landlock stand: the nearest one above a folder decides.
typedef struct {
    const char *path;
    size_t length;
    uint64_t device;
    uint64_t inode;
    int is_walled;
    int is_free;
} ruled_place;

static held_folder folders[VJ_NAMES_MAX];
static uint32_t folder_count;
static held_name names[VJ_NAMES_MAX + VJ_KEPT_MAX];
static uint32_t name_count;
static ruled_place *places;
static uint32_t place_count;

static long identify(int folder, const char *path, uint64_t *device, uint64_t *inode) {
    struct statx status = {0};
    int flags = AT_SYMLINK_NOFOLLOW | (path[0] ? 0 : AT_EMPTY_PATH);
    long result = sys(SYS_statx, folder, path, flags, STATX_TYPE | STATX_INO, &status);
    *device = (uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor;
    *inode = status.stx_ino;
    return result;
}

// The number of the folder, each being held once.
static long remember_folder(const char *path) {
    long opened =
        sys(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (opened < 0) return opened;
    held_folder *folder = &folders[folder_count];
    folder->folder = (int)opened;
    long result = identify(folder->folder, "", &folder->device, &folder->inode);
    if (result < 0) return result;
    for (uint32_t i = 0; i < folder_count; i++) {
        if (folders[i].device != folder->device || folders[i].inode != folder->inode)
            continue;
        sys(SYS_close, opened);
        return i;
    }
    return folder_count++;
}

static long remember_names(const vj_plan *plan) {
    const vj_operation *operations = vj_plan_operations(plan);
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        if (operations[i].kind != VJ_OPERATION_NAME) continue;
        if (name_count == sizeof names / sizeof *names) return -E2BIG;
        const char *above = vj_plan_string(plan, operations[i].source);
        held_name *name = &names[name_count++];
        name->path = vj_plan_string(plan, operations[i].path);
        name->length = strlen(name->path);
        name->folder = NO_FOLDER;
        if (!above[0]) continue;
        if (name->length <= strlen(above) + 1) return -EINVAL;
        if (folder_count == VJ_NAMES_MAX) return -E2BIG;
        long folder = remember_folder(above);
        if (folder < 0) return folder;
        name->folder = (uint32_t)folder;
        name->rest = name->path + strlen(above) + 1;
        name->rest_length = strlen(name->rest);
    }
    return 0;
}

static long remember_places(const vj_plan *plan) {
    const vj_access_rule *rules = vj_plan_access(plan);
    long address = vj_call(SYS_mmap, 0, (long)((plan->access_count + 1) * sizeof *places),
                           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address < 0 && address > -4096) return address;
    places = (ruled_place *)address;
    for (uint32_t i = 0; i < plan->access_count; i++) {
        ruled_place *place = &places[place_count];
        place->path = vj_plan_string(plan, rules[i].path);
        place->length = strlen(place->path);
        place->is_walled = rules[i].access == VJ_ACCESS_WALLED;
        place->is_free = rules[i].access == VJ_ACCESS_WRITE;
        // One that went away has no rule, and its folder is walled like what is above.
        if (identify(AT_FDCWD, place->path, &place->device, &place->inode) == 0) {
            place_count++;
        }
    }
    return 0;
}

long vj_broker_names_prepare(const vj_setup *setup) {
    long result = remember_names(setup->plan);
    return result < 0 ? result : remember_places(setup->plan);
}

// Whether a folder was removed: the kernel says so behind the path that it had
// (proc_pid_fd(5)), where a folder that is there may have a name that ends in the same
// way.
static int is_gone(const vj_place *place) {
    static const char mark[] = " (deleted)";
    size_t end = sizeof mark - 1;
    if (place->length < end || memcmp(place->path + place->length - end, mark, end) != 0)
        return 0;
    uint64_t device[2] = {0};
    uint64_t inode[2] = {0};
    return identify(place->folder, "", &device[0], &inode[0]) < 0 ||
           identify(AT_FDCWD, place->path, &device[1], &inode[1]) < 0 ||
           device[0] != device[1] || inode[0] != inode[1];
}

long vj_place_look_up(vj_place *place) {
    char link[64];
    vj_text text = {.data = link, .capacity = sizeof link};
    vj_text_string(&text, "/proc/self/fd/");
    vj_text_number(&text, (uint64_t)place->folder, 10);
    long size = sys(SYS_readlinkat, AT_FDCWD, link, place->path, sizeof place->path - 1);
    if (size < 0) return size;
    if (size == (long)sizeof place->path - 1) return -ENAMETOOLONG;
    place->path[size] = 0;
    place->length = (size_t)size;
    if (place->path[0] != '/') return -ENOENT;
    return is_gone(place) ? -ESTALE : 0;
}

static int is_beneath(const char *path, size_t length, const char *above,
                      size_t above_length) {
    if (above_length == 1) return 1;
    return length >= above_length && (path[above_length] == '/' || !path[above_length]) &&
           !memcmp(path, above, above_length);
}

int vj_place_is_walled(const vj_place *place) {
    const ruled_place *nearest = 0;
    for (uint32_t i = 0; i < place_count; i++) {
        const ruled_place *at = &places[i];
        if (nearest && at->length < nearest->length) continue;
        if (!is_beneath(place->path, place->length, at->path, at->length)) continue;
        // The path of a free folder that was moved may be another folder's by now.
        uint64_t device = 0;
        uint64_t inode = 0;
        if (!at->is_walled && (identify(AT_FDCWD, at->path, &device, &inode) < 0 ||
                               device != at->device || inode != at->inode)) {
            continue;
        }
        nearest = at;
    }
    return nearest && nearest->is_walled;
}

int vj_place_is_in_free(const vj_place *place) {
    static char path[VJ_PATH_MAX];
    size_t length = place->length;
    memcpy(path, place->path, length + 1);
    for (;;) {
        uint64_t device = 0;
        uint64_t inode = 0;
        // What cannot be told is the guest's own business, which the wall judges.
        if (identify(AT_FDCWD, path, &device, &inode) < 0) return 1;
        for (uint32_t i = 0; i < place_count; i++) {
            if (places[i].is_free && places[i].device == device &&
                places[i].inode == inode) {
                return 1;
            }
        }
        if (length <= 1) return 0;
        while (length > 1 && path[length - 1] != '/') length--;
        path[length > 1 ? --length : length] = 0;
    }
}

// What `way` is beside the held name `held`; `found` where that is the name.
static vj_name compare(const char *held, size_t held_length, const char *way,
                       size_t length, vj_name found) {
    size_t shared = length < held_length ? length : held_length;
    if (memcmp(way, held, shared) != 0) return VJ_NAME_OTHER;
    if (length >= held_length) {
        return length == held_length || way[shared] == '/' ? found : VJ_NAME_OTHER;
    }
    return held[shared] == '/' ? VJ_NAME_ABOVE : VJ_NAME_OTHER;
}

// The way from a folder at `above`, of `above_length` bytes, to `name` in the folder at
// `path`, in `way`; its length. 0: it does not lie there.
static size_t way_from(const char *above, size_t above_length, const char *path,
                       size_t path_length, const char *name, size_t length,
                       char way[2 * VJ_PATH_MAX]) {
    if (!is_beneath(path, path_length, above, above_length)) return 0;
    size_t start = 0;
    if (path_length > above_length) {
        size_t skip = above_length == 1 ? 1 : above_length + 1;
        start = path_length - skip;
        memcpy(way, path + skip, start);
        way[start++] = '/';
    }
    memcpy(way + start, name, length);
    way[start + length] = 0;
    return start + length;
}

// Whether the policy grants writing in a folder below the kept name, and `place` is in
// there: the nearest rule decides, and that is not the name's.
static int is_granted_inside(const held_name *name, const vj_place *place) {
    for (uint32_t i = 0; i < place_count; i++) {
        const ruled_place *at = &places[i];
        if (at->length > name->length && (at->is_walled || at->is_free) &&
            is_beneath(at->path, at->length, name->path, name->length) &&
            is_beneath(place->path, place->length, at->path, at->length)) {
            return 1;
        }
    }
    return 0;
}

static vj_name name_by_path(const vj_place *place, const char *name, size_t length,
                            char way[2 * VJ_PATH_MAX]) {
    vj_name found = VJ_NAME_OTHER;
    // Both paths begin with a slash.
    size_t size = way_from("/", 1, place->path, place->length, name, length, way);
    for (uint32_t i = 0; i < name_count; i++) {
        vj_name verdict = names[i].folder == NO_FOLDER ? VJ_NAME_KEPT : VJ_NAME_HELD;
        vj_name one = compare(names[i].path + 1, names[i].length - 1, way, size, verdict);
        if (one == VJ_NAME_KEPT && is_granted_inside(&names[i], place)) continue;
        if (one > found) found = one;
    }
    return found;
}

// From a folder that was there when the jail opened, wherever it is by now.
static vj_name name_by_folder(uint32_t folder, const vj_place *place, uint64_t device,
                              uint64_t inode, const char *name, size_t length,
                              char way[2 * VJ_PATH_MAX]) {
    static vj_place above;
    size_t size = 0;
    if (device == folders[folder].device && inode == folders[folder].inode) {
        size = way_from("/", 1, "/", 1, name, length, way);
    } else {
        above.folder = folders[folder].folder;
        long result = vj_place_look_up(&above);
        if (result == -ESTALE) return VJ_NAME_OTHER; // it holds nothing any more
        if (result < 0) return VJ_NAME_HELD;         // what cannot be told is the worst
        size = way_from(above.path, above.length, place->path, place->length, name,
                        length, way);
    }
    vj_name found = VJ_NAME_OTHER;
    for (uint32_t i = 0; size && i < name_count; i++) {
        if (names[i].folder != folder) continue;
        vj_name one =
            compare(names[i].rest, names[i].rest_length, way, size, VJ_NAME_HELD);
        if (one > found) found = one;
    }
    return found;
}

vj_name vj_place_name(const vj_place *place, const char *name, size_t length) {
    static char way[2 * VJ_PATH_MAX];
    uint64_t device = 0;
    uint64_t inode = 0;
    if (length >= VJ_PATH_MAX || identify(place->folder, "", &device, &inode) < 0)
        return VJ_NAME_HELD;
    vj_name found = name_by_path(place, name, length, way);
    for (uint32_t folder = 0; folder < folder_count && found != VJ_NAME_HELD; folder++) {
        vj_name one = name_by_folder(folder, place, device, inode, name, length, way);
        if (one > found) found = one;
    }
    return found;
}
