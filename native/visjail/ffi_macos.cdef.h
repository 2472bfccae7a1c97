/* What _native/ may call on macOS, behind ffi.cdef.h. */

#define VJ_MACOS_SPAWN_VERSION ...
#define VJ_MACOS_STRING_MAX    ...
#define VJ_BRIEF_TERMINAL      ...
#define VJ_BRIEF_SEARCH        ...
#define VJ_BRIEF_HOME          ...
#define VJ_BRIEF_TRY           ...
#define VJ_BRIEF_FILE          ...
#define VJ_MARKER_SIZE         ...
#define VJ_IDENTITY_CALLER     ...

typedef struct {
    uint64_t open_files;
    uint64_t file_size;
    uint64_t cpu_seconds;
} vj_brief_limits;
typedef struct {
    uint32_t size;
    uint32_t version;
    uint32_t flags;
    uint32_t argument_count;
    uint32_t environment_count;
    int32_t descriptors[...];
    const char *helper;
    const char *watcher;
    const vj_macos_profile *profile;
    const char *marker;
    const char *const *arguments;
    const char *const *environment;
    const char *directory;
    const char *canary;
    vj_brief_limits limits;
    uint64_t timeout_ns;
    uint32_t file;
    uint64_t limit;
    ...;
} vj_macos_spawn;

bool vj_macos_is_sandboxed(void);
const char *vj_macos_image(uint32_t number);
void vj_macos_marker(char marker[]);
vj_status vj_macos_real_path(const char *path, char *resolved, vj_error *error);
vj_status vj_macos_ignores_case(const char *path, bool *ignores, vj_error *error);
vj_status vj_macos_terminal(uint16_t rows, uint16_t columns, int32_t *master,
                            int32_t *slave, vj_error *error);
vj_status vj_macos_run_start(const vj_macos_spawn *spawn, vj_run **run, int32_t *pid,
                             vj_error *error);
void vj_macos_run_close(vj_run *run);
