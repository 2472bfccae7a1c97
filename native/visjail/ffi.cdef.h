/* What _native/ may call on Linux and macOS: ffi_linux.cdef.h or ffi_macos.cdef.h comes
   behind it. The compiler checks it against the headers. */

typedef int... vj_status;
#define VJ_OK          ...
#define VJ_REFUSED     ...
#define VJ_SYSTEM      ...
#define VJ_CLOSED      ...
#define VJ_NO_MEMORY   ...
#define VJ_INTERRUPTED ...
#define VJ_TIMED_OUT   ...

typedef struct {
    uint32_t stage;
    int32_t os_error;
    int32_t index;
    char text[256];
} vj_error;
const char *vj_stage_name(uint32_t stage);

/* ---- policy ---- */
typedef int... vj_right;
#define VJ_PLAN_GUEST_AT           ...
#define VJ_RULE_PRIVATE            ...
#define VJ_RULE_GRANT              ...
#define VJ_RULE_HELD               ...
#define VJ_EXTRA_FREE              ...
#define VJ_EXTRA_CACHE             ...
#define VJ_OBJECT_ABSENT           ...
#define VJ_OBJECT_DIRECTORY        ...
#define VJ_OBJECT_FILE             ...
#define VJ_OBJECT_LINK             ...
#define VJ_PLAN_PRIVATE_NETWORK    ...
#define VJ_PLAN_BROKER_SOCKETS     ...
#define VJ_PLAN_PORTS              ...
#define VJ_PLAN_BROKER_NAMES       ...
#define VJ_BACKEND_NAMESPACES      ...
#define VJ_BACKEND_BUBBLEWRAP      ...
#define VJ_BACKEND_LANDLOCK        ...
#define VJ_OPERATION_DIRECTORY     ...
#define VJ_OPERATION_SYMLINK       ...
#define VJ_OPERATION_FILE          ...
#define VJ_OPERATION_COPY          ...
#define VJ_OPERATION_SCRATCH       ...
#define VJ_OPERATION_SCRATCH_PLACE ...
#define VJ_OPERATION_DEVICES       ...
#define VJ_OPERATION_PROC          ...
#define VJ_OPERATION_TRY           ...
#define VJ_OPERATION_SOCKET        ...
#define VJ_OPERATION_INBOUND       ...
#define VJ_OPERATION_HOST_PORT     ...
#define VJ_OPERATION_NAME          ...

typedef struct {
    const char *path;
    uint32_t kind;
    uint32_t flags;
} vj_rule;
typedef struct {
    const char *path;
    uint32_t object;
    uint32_t owner;
    uint32_t group;
    uint64_t device;
    uint64_t inode;
    ...;
} vj_fact;
typedef struct {
    uint32_t kind;
    uint32_t mode;
    const char *path;
    const char *source;
} vj_extra;
typedef struct {
    uint64_t open_files;
    uint64_t processes;
    uint64_t file_size;
    uint64_t data;
    uint64_t cpu_seconds;
} vj_process_limits;
typedef struct {
    uint64_t memory_bytes;
    uint64_t watch_bytes;
    uint64_t shared_memory_pages;
    uint32_t groups;
    uint32_t counters;
    ...;
} vj_tree_limits;
typedef struct {
    uint32_t flags;
    uint32_t guest_id;
    const char *hostname;
    uint64_t scratch_size;
    vj_process_limits limits;
    vj_tree_limits tree;
    uint32_t host_root;
    uint32_t backend;
} vj_plan_settings;

bool vj_policy_decide(const vj_rule *rules, size_t count, vj_right right,
                      const char *path, int32_t *deciding);

/* ---- jails and runs ---- */
#define VJ_SPAWN_TERMINAL      ...
#define VJ_SPAWN_SEARCH        ...
#define VJ_SPAWN_FILE          ...
#define VJ_SPAWN_CWD_FALLBACK  ...
#define VJ_SPAWN_QUIET         ...
#define VJ_FILE_READ           ...
#define VJ_FILE_WRITE          ...
#define VJ_FILE_STAT           ...
#define VJ_FILE_LIST           ...
#define VJ_FILE_MAKE_DIRECTORY ...
#define VJ_FILE_REMOVE         ...
#define VJ_FILE_REALPATH       ...
#define VJ_FILE_PROCESSES      ...
#define VJ_READY_SHARED_MEMORY ...
#define VJ_STAGE_EXECUTE       ...
#define VJ_STAGE_DIRECTORY     ...

typedef struct vj_jail vj_jail;
typedef struct vj_run vj_run;
typedef struct vj_capture vj_capture;
typedef struct {
    int32_t pid;
    uint32_t landlock_abi;
    uint32_t guest_id;
    uint32_t identity;
    uint32_t answer_count;
    uint32_t flags;
    int32_t answers[...];
    uint32_t port_count;
    int32_t ports[...];
} vj_jail_info;
typedef struct {
    int32_t members[...];
    int32_t counters[...];
    uint32_t count;
    uint32_t counter_count;
} vj_groups;

typedef struct {
    const char *bubblewrap;
    uint32_t follows_links;
    uint32_t disables_userns;
    vj_groups groups;
} vj_jail_options;

typedef struct {
    const char *strings;
    uint64_t strings_size;
    uint32_t argument_count;
    uint32_t environment_count;
    uint32_t flags;
    uint32_t file;
    uint64_t timeout_ns;
    uint64_t limit;
    uint32_t descriptor_count;
    const int32_t *descriptors;
    const int32_t *numbers;
} vj_spawn;
typedef struct {
    int32_t status;
    uint32_t stop;
    uint32_t killed;
    uint32_t failed_stage;
    int32_t failed_errno;
    uint64_t program_us;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t resident_kib;
    uint64_t watched;
    ...;
} vj_exit;

vj_status vj_run_wait(vj_run *run, int64_t timeout_ns, vj_exit *result, vj_error *error);
vj_status vj_run_signal(vj_run *run, int32_t signal_number);
vj_status vj_run_kill(vj_run *run);
vj_status vj_run_suspend(vj_run *run, bool suspended, vj_error *error);
int vj_run_descriptor(vj_run *run);
#define VJ_REFUSALS_MAX    ...
#define VJ_REFUSAL_CREATE  ...
#define VJ_REFUSAL_MOVE    ...
#define VJ_REFUSAL_BIND    ...
#define VJ_REFUSAL_CONNECT ...
#define VJ_REFUSAL_SOCKETS ...
typedef struct {
    uint32_t kind;
    int32_t error;
    uint32_t cut;
    uint32_t length;
    char text[...];
    ...;
} vj_refusal;
uint32_t vj_run_refusals(vj_run *run, vj_refusal *refusals, uint32_t capacity,
                         uint32_t *dropped);
void vj_run_free(vj_run *run);

vj_capture *vj_capture_new(int descriptor, uint64_t limit);
void vj_capture_free(vj_capture *capture);
uint64_t vj_capture_total(const vj_capture *capture);
uint64_t vj_capture_size(const vj_capture *capture);
const char *vj_capture_bytes(vj_capture *capture);
int64_t vj_write_quietly(int descriptor, const void *data, uint64_t size);
int64_t vj_run_read(vj_run *run, int descriptor, void *data, uint64_t size);
int64_t vj_run_write(vj_run *run, int descriptor, const void *data, uint64_t size);
int64_t vj_run_pending(vj_run *run, int descriptor);
void vj_run_let_go(vj_run *run, int descriptor);
uint32_t vj_run_call(vj_run *run);
void vj_run_called(vj_run *run, uint32_t number);
int32_t vj_run_resize(vj_run *run, int descriptor, uint16_t rows, uint16_t columns);
vj_status vj_run_communicate(vj_run *run, const char *input, uint64_t input_size,
                             uint64_t *input_offset, int *input_descriptor,
                             vj_capture *output, vj_capture *errors, int64_t timeout_ns,
                             vj_exit *result, vj_error *error);

vj_status vj_terminal_read(int descriptor, int wakeup, int64_t timeout_ns, char *data,
                           uint64_t capacity, uint64_t *size, vj_error *error);

#define VJ_SEARCH_SET_ID       ...
#define VJ_SEARCH_LINKS        ...
#define VJ_SEARCH_CAPABILITIES ...
#define VJ_SEARCH_DEVICES      ...
#define VJ_SEARCH_NO_INSTALLED ...
typedef struct {
    uint64_t device;
    uint64_t inode;
} vj_file_id;
typedef struct {
    ...;
} vj_link;
typedef struct vj_tree vj_tree;
vj_tree *vj_tree_new(const vj_rule *rules, size_t count);
void vj_tree_delete(vj_tree *tree);
typedef struct {
    const char *directory;
    uint64_t most_entries;
    uint64_t most_findings;
    uint64_t most_secrets;
    uint64_t most_key_bytes;
    const char *secrets;
    uint64_t secrets_size;
    uint64_t most_links;
    const struct vj_tree *rules;
    const vj_file_id *wanted;
    uint64_t wanted_count;
    uint32_t first_folder;
    int files;
} vj_search_request;
typedef struct {
    char *findings;
    uint64_t size;
    vj_link *links;
    uint64_t link_count;
} vj_search_result;
vj_status vj_search(const vj_search_request *request, vj_search_result *result,
                    vj_error *error);
typedef struct {
    vj_file_id conflict;
    uint64_t others;
    uint64_t copies;
} vj_links_verdict;
void vj_links_judge(vj_link *links, uint64_t count, const vj_file_id *left_out,
                    uint64_t left_out_count, uint8_t *kept, vj_links_verdict *verdict);
typedef struct {
    uint64_t entries;
    uint64_t matches;
    uint64_t work;
} vj_expand_budget;
typedef struct {
    const char *directory;
    uint64_t fixed;
    const char *patterns;
    uint64_t patterns_size;
    uint64_t most_matches;
} vj_expand_request;
vj_status vj_expand(const vj_expand_request *request, vj_expand_budget *budget,
                    char **matches, uint64_t *size, vj_error *error);
bool vj_pattern_fits(const char *part, const char *name);
#define VJ_PATTERN_PARTS_MAX ...
void vj_free(void *memory);

#define VJ_SECRET_FOLDER    ...
#define VJ_SECRET_FILE      ...
#define VJ_SECRET_KEY_BYTES ...
typedef struct {
    int32_t entry;
    uint32_t length;
    bool by_content;
} vj_secret_found;
vj_secret_found vj_secret_find(const char *table, size_t size, const char *path,
                               size_t after, int what);
bool vj_secret_is_key(const char *bytes, size_t size);

/* ---- macOS ---- */
#define VJ_MACOS_PROFILE_VERSION ...
#define VJ_MACOS_NETWORK_OPEN    ...
#define VJ_MACOS_SYSTEM          ...
#define VJ_MACOS_IGNORES_CASE    ...
#define VJ_MACOS_PYTHON          ...
#define VJ_MACOS_NODE            ...
#define VJ_MACOS_GIT             ...
typedef struct {
    uint32_t size;
    uint32_t version;
    uint32_t flags;
    uint32_t programs;
    const char *own;
    const char *terminal;
    const char *const *sockets;
    const char *const *services;
    const uint16_t *host_ports;
    uint32_t socket_count;
    uint32_t service_count;
    uint32_t host_port_count;
    ...;
} vj_macos_settings;
typedef struct {
    char *text;
    char *parameters;
    uint64_t text_size;
    uint64_t parameters_size;
    ...;
} vj_macos_profile;
vj_status vj_macos_profile_build(const vj_macos_settings *settings, const vj_rule *rules,
                                 uint64_t rule_count, vj_macos_profile *profile,
                                 vj_error *error);
void vj_macos_profile_free(vj_macos_profile *profile);
const char *vj_macos_service_refused(const char *name);
vj_status vj_macos_path(const char *path, char *resolved, uint64_t capacity,
                        vj_error *error);
