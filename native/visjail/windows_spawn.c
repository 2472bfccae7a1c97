// Start a program in a context.
//
// The order is the boundary: a job with its limits, ends of pipes, a list of attributes
// of which each was accepted, a suspended process, and everything read back from that
// process before its only thread is resumed, once. Whatever differs ends it without a
// single instruction of the guest.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_core.h"

// TokenIntegrityLevel of an AppContainer (SECURITY_MANDATORY_LOW_RID).
#define LOW_INTEGRITY  0x1000u
#define ATTRIBUTES_MAX 5u

// A channel's ends come after the standard ones.
#define TO_GUEST   3
#define FROM_GUEST 4
static const char *const pipe_names[VJ_WINDOWS_PIPES] = {
    "standard input", "standard output", "standard error", "channel to the guest",
    "channel from the guest"};

// What a request comes to; freed as a whole.
typedef struct {
    char application[VJ_WINDOWS_PLACE_SIZE];
    char directory[VJ_WINDOWS_PLACE_SIZE];
    uint16_t application_units[VJ_WINDOWS_PLACE_SIZE];
    uint16_t directory_units[VJ_WINDOWS_PLACE_SIZE];
    uint16_t package_sid[VJ_WINDOWS_SID_SIZE];
    uint16_t capability_sid[VJ_WINDOWS_SID_SIZE];
    uint16_t command[VJ_WINDOWS_COMMAND_UNITS_MAX];
    uint16_t environment[VJ_WINDOWS_ENVIRONMENT_UNITS_MAX];
    vj_windows_job_limits limits;
    uint32_t flags;
    uint16_t columns;
    uint16_t rows;
    vj_windows_token token;
    uint32_t pid;
    uint64_t created;
} launch_plan;

static bool has_console(const launch_plan *plan) {
    return plan->flags & VJ_WINDOWS_SPAWN_CONSOLE;
}

static bool has_channel(const launch_plan *plan) {
    return plan->flags & VJ_WINDOWS_SPAWN_CHANNEL;
}

static uint32_t count_pipes(const launch_plan *plan) {
    return has_console(plan) ? 2 : has_channel(plan) ? VJ_WINDOWS_PIPES : 3;
}

// ---- the request

static vj_windows_status to_units(const char *text, uint16_t *to, size_t room,
                                  const char *step, vj_windows_error *error) {
    size_t written = 0;
    vj_windows_fault fault = vj_windows_utf16(text, strlen(text), to, room, &written);
    if (fault != VJ_WINDOWS_FINE) return vj_windows_fail_text(error, step, fault);
    return VJ_WINDOWS_OK;
}

static vj_windows_status plan_path(const vj_windows_text *text, bool program, char *path,
                                   uint16_t *units, const char *step,
                                   vj_windows_error *error) {
    vj_windows_status status =
        vj_windows_take_text(text, path, VJ_WINDOWS_PLACE_SIZE, step, error);
    if (status != VJ_WINDOWS_OK) return status;
    vj_windows_fault fault =
        program ? vj_windows_program_fault(path) : vj_windows_source_fault(path);
    if (fault != VJ_WINDOWS_FINE) return vj_windows_fail_text(error, step, fault);
    for (char *at = path; *at; at++) {
        if (*at == '/') *at = '\\';
    }
    return to_units(path, units, VJ_WINDOWS_PLACE_SIZE, step, error);
}

static bool is_named(const char *entry, const char *name) {
    size_t length = strlen(name);
    const char *equals = strchr(entry, '=');
    return equals && (size_t)(equals - entry) == length &&
           !vj_windows_compare(entry, length, name, length);
}

static bool has_variable(const vj_windows_text *block, const char *name) {
    for (uint64_t at = 0; at < block->size;) {
        const char *entry = block->bytes + at;
        const char *end = memchr(entry, 0, (size_t)(block->size - at));
        if (!end) return false;
        if (is_named(entry, name)) return true;
        at += (uint64_t)(end - entry) + 1;
    }
    return false;
}

// The caller's variables and those that no program can do without. The ends of a channel
// are named by their numbers, which are known once there are pipes: `ends` is NULL
// before.
static vj_windows_status plan_environment(const vj_windows_context *context,
                                          const vj_windows_spawn_request *request,
                                          const vj_windows_handle *ends,
                                          launch_plan *plan, vj_windows_error *error) {
    enum { ADDED = 5, ALWAYS = 4 };
    static const char *const names[ADDED] = {"SystemRoot", "LOCALAPPDATA", "TEMP", "TMP",
                                             "VISJAIL_CHANNEL"};
    char data[VJ_WINDOWS_PLACE_SIZE];
    char temp[VJ_WINDOWS_PLACE_SIZE];
    char channel[64] = "";
    const char *const values[ADDED] = {context->system_root, data, temp, temp, channel};
    const vj_windows_text *given = &request->environment;
    size_t added = has_channel(plan) ? ADDED : ALWAYS;
    if (has_channel(plan) && has_variable(given, names[ALWAYS])) {
        return vj_windows_fail(
            error, VJ_WINDOWS_REFUSED, "environment", 0,
            "VISJAIL_CHANNEL names the handles of the channel that was "
            "asked for; leave it out");
    }
    if (ends) {
        // A handle has the same number in the process that inherits it.
        snprintf(channel, sizeof channel, "%llu:%llu",
                 (unsigned long long)(uintptr_t)ends[TO_GUEST],
                 (unsigned long long)(uintptr_t)ends[FROM_GUEST]);
    }
    if (given->size > VJ_WINDOWS_ENVIRONMENT_UNITS_MAX * 3ull) {
        return vj_windows_fail_text(error, "environment", VJ_WINDOWS_TOO_LONG);
    }
    // Without LOCALAPPDATA an AppContainer does not start (error 203). With it Windows
    // puts the folders of the package there (windows_context.c makes them), and their
    // paths in place of what these three say: one of the caller's would be lost without a
    // word.
    for (size_t i = 1; i < ALWAYS; i++) {
        if (!has_variable(given, names[i])) continue;
        return vj_windows_fail(
            error, VJ_WINDOWS_REFUSED, "environment", 0,
            "Windows itself sets LOCALAPPDATA, TEMP and TMP of a guest, "
            "to folders in `temp`; leave them out");
    }
    snprintf(data, sizeof data, "%s\\temp", context->root);
    snprintf(temp, sizeof temp, "%s\\temp\\Packages\\%s\\AC\\Temp", context->root,
             context->package);
    size_t room = (size_t)given->size + ADDED * (VJ_WINDOWS_PLACE_SIZE + 16);
    char *block = malloc(room);
    if (!block) {
        return vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "environment", 0,
                               "out of memory");
    }
    vj_windows_strings entries = {block, (size_t)given->size, request->environment_count};
    if (given->size) memcpy(block, given->bytes, (size_t)given->size);
    for (size_t i = 0; i < added; i++) {
        if (has_variable(given, names[i])) continue;
        entries.size += 1 + (size_t)snprintf(block + entries.size, room - entries.size,
                                             "%s=%s", names[i], values[i]);
        entries.count++;
    }
    size_t written = 0;
    uint32_t index = 0;
    vj_windows_fault fault =
        vj_windows_environment(&entries, context->root, plan->environment,
                               VJ_WINDOWS_ENVIRONMENT_UNITS_MAX, &written, &index);
    free(block);
    if (fault == VJ_WINDOWS_FINE) return VJ_WINDOWS_OK;
    vj_windows_status status = vj_windows_fail_text(error, "environment", fault);
    if (index < request->environment_count) error->index = (int32_t)index;
    return status;
}

static vj_windows_status plan_command(const vj_windows_spawn_request *request,
                                      launch_plan *plan, vj_windows_error *error) {
    vj_windows_strings arguments = {request->arguments.bytes,
                                    (size_t)request->arguments.size,
                                    request->argument_count};
    size_t written = 0;
    uint32_t index = 0;
    vj_windows_fault fault = vj_windows_command_line(
        &arguments, plan->command, VJ_WINDOWS_COMMAND_UNITS_MAX, &written, &index);
    if (fault == VJ_WINDOWS_FINE) return VJ_WINDOWS_OK;
    vj_windows_status status = vj_windows_fail_text(error, "arguments", fault);
    error->index = (int32_t)index;
    return status;
}

static vj_windows_status plan_limits(const vj_windows_context *context,
                                     const vj_windows_spawn_request *request,
                                     launch_plan *plan, vj_windows_error *error) {
    // Jobs nest only where none of them has limits of the user interface (documentation:
    // "Nested Jobs").
    bool nested = context->features.host_in_job;
    uint32_t known = nested ? 0 : context->features.ui_limits;
    if (nested && request->ui_limits) {
        return vj_windows_fail(
            error, VJ_WINDOWS_REFUSED, "limits", 0,
            "this process is in a job itself, and Windows nests no job "
            "with limits of the user interface; ask for none, or start "
            "the host outside of jobs");
    }
    // One that this Windows does not know would be dropped without a word.
    if (request->ui_limits & ~known) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "limits", 0,
                               "this build of Windows does not know one of the limits of "
                               "the user interface");
    }
    if (request->cpu_rate > 10000) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "limits", 0,
                               "a rate of processor time is 1 to 10000 hundredths of a "
                               "percent");
    }
    // Windows keeps whole pages, and what is read back is compared with what was set.
    const uint64_t page = 4096;
    if ((request->process_memory && request->process_memory < page) ||
        (request->job_memory && request->job_memory < page)) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "limits", 0,
                               "a limit of memory is one page (4096 bytes) or more");
    }
    plan->limits = (vj_windows_job_limits){
        .active_processes = request->active_processes,
        .cpu_rate = request->cpu_rate,
        .process_memory = request->process_memory & ~(page - 1),
        .job_memory = request->job_memory & ~(page - 1),
        .ui = request->ui_limits ? request->ui_limits : known,
    };
    return VJ_WINDOWS_OK;
}

static vj_windows_status plan_launch(const vj_windows_context *context,
                                     const vj_windows_spawn_request *request,
                                     launch_plan *plan, vj_windows_error *error) {
    const uint32_t flags = VJ_WINDOWS_SPAWN_CONSOLE | VJ_WINDOWS_SPAWN_NO_CHILDREN |
                           VJ_WINDOWS_SPAWN_NO_INPUT | VJ_WINDOWS_SPAWN_CHANNEL;
    char work[VJ_WINDOWS_PLACE_SIZE];
    vj_windows_text directory = request->directory;
    plan->flags = request->flags;
    plan->columns = request->columns;
    plan->rows = request->rows;
    if (request->flags & ~flags) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "request", 0,
                               "a flag is not known here");
    }
    if (has_console(plan) && (!vj_windows_is_size(plan->columns, plan->rows) ||
                              plan->flags & VJ_WINDOWS_SPAWN_NO_INPUT)) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "console", 0,
                               "a console has input, and 1 to 32767 columns and rows");
    }
    if (has_console(plan) && has_channel(plan)) {
        return vj_windows_fail(error, VJ_WINDOWS_REFUSED, "channel", 0,
                               "a program on a console inherits no handles, so it has no "
                               "channel");
    }
    // Never none: Windows would put a confined program somewhere else, silently.
    if (!directory.size) {
        int size = snprintf(work, sizeof work, "%s\\work", context->root);
        directory = (vj_windows_text){work, (uint64_t)size};
    }
    vj_windows_status status = plan_path(&request->application, true, plan->application,
                                         plan->application_units, "application", error);
    if (status == VJ_WINDOWS_OK) {
        status = plan_path(&directory, false, plan->directory, plan->directory_units,
                           "directory", error);
    }
    if (status == VJ_WINDOWS_OK) status = plan_command(request, plan, error);
    if (status == VJ_WINDOWS_OK) {
        status = plan_environment(context, request, NULL, plan, error);
    }
    if (status == VJ_WINDOWS_OK) status = plan_limits(context, request, plan, error);
    if (status == VJ_WINDOWS_OK) {
        status = to_units(context->package_sid, plan->package_sid, VJ_WINDOWS_SID_SIZE,
                          "identity", error);
    }
    if (status == VJ_WINDOWS_OK) {
        status = to_units(context->capability_sid, plan->capability_sid,
                          VJ_WINDOWS_SID_SIZE, "identity", error);
    }
    return status;
}

// ---- what the process is given

static vj_windows_security private_security(const vj_windows_process *process) {
    return process->context->security[VJ_WINDOWS_PRIVATE];
}

static vj_windows_status make_job(vj_windows_process *process, const launch_plan *plan,
                                  vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    uint32_t code = os->job_create(os, private_security(process), &process->job);
    if (!code) code = os->job_watch(os, process->job, &process->port);
    if (code) return vj_windows_fail_os(error, "job", code);
    code = os->job_set_limits(os, process->job, &plan->limits);
    return code ? vj_windows_fail_os(error, "job limits", code) : VJ_WINDOWS_OK;
}

// A name that nobody can guess; whoever has it already makes this fail.
static uint32_t pipe_name(const vj_windows_os *os, uint16_t name[64]) {
    static const char digits[] = "0123456789abcdef";
    static const char prefix[] = "\\\\.\\pipe\\visjail-";
    uint8_t bytes[16] = {0};
    uint32_t code = os->random(os, bytes, sizeof bytes);
    if (code) return code;
    size_t at = 0;
    for (; prefix[at]; at++) name[at] = (uint16_t)prefix[at];
    for (size_t i = 0; i < sizeof bytes; i++) {
        name[at++] = (uint16_t)digits[bytes[i] >> 4];
        name[at++] = (uint16_t)digits[bytes[i] & 15];
    }
    name[at] = 0;
    return 0;
}

static vj_windows_direction direction_of(size_t pipe) {
    return pipe == 0 || pipe == TO_GUEST ? VJ_WINDOWS_PIPE_TO_GUEST
                                         : VJ_WINDOWS_PIPE_FROM_GUEST;
}

static vj_windows_status make_pipe(vj_windows_process *process, const launch_plan *plan,
                                   size_t i, vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_security security = private_security(process);
    vj_windows_direction direction = direction_of(i);
    uint16_t name[64];
    uint32_t code = pipe_name(os, name);
    if (!code) {
        code = os->pipe_create(os, name, direction, security, &process->host_ends[i]);
    }
    if (!code) {
        code = os->pipe_connect(os, name, direction, !has_console(plan), security,
                                &process->guest_ends[i]);
    }
    if (!code) code = os->event_create(os, security, &process->events[i]);
    // Such an input ends before it begins.
    if (!code && !i && plan->flags & VJ_WINDOWS_SPAWN_NO_INPUT) {
        code = vj_windows_handle_release(os, &process->host_ends[i]);
        if (!code) code = vj_windows_handle_release(os, &process->events[i]);
    }
    return code ? vj_windows_fail_os(error, pipe_names[i], code) : VJ_WINDOWS_OK;
}

static vj_windows_status release_guest_ends(vj_windows_process *process,
                                            vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    for (size_t i = 0; i < VJ_WINDOWS_PIPES; i++) {
        uint32_t code = vj_windows_handle_release(os, &process->guest_ends[i]);
        if (code) return vj_windows_fail_os(error, pipe_names[i], code);
    }
    return VJ_WINDOWS_OK;
}

static vj_windows_status make_console(vj_windows_process *process,
                                      const launch_plan *plan, vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_console console = NULL;
    uint32_t code =
        os->console_create(os, plan->columns, plan->rows, process->guest_ends[0],
                           process->guest_ends[1], &console);
    if (code) return vj_windows_fail_os(error, "console", code);
    process->console = console;
    // It has its own now. Ours would keep the output from ever ending.
    return release_guest_ends(process, error);
}

static vj_windows_status add_attribute(vj_windows_process *process,
                                       const vj_windows_attribute *attribute,
                                       uint32_t *added, vj_windows_error *error) {
    static const char *const names[VJ_WINDOWS_ATTRIBUTE_END] = {
        [VJ_WINDOWS_ATTRIBUTE_CAPABILITIES] = "attribute capabilities",
        [VJ_WINDOWS_ATTRIBUTE_LPAC] = "attribute LPAC",
        [VJ_WINDOWS_ATTRIBUTE_JOB] = "attribute job",
        [VJ_WINDOWS_ATTRIBUTE_HANDLES] = "attribute handles",
        [VJ_WINDOWS_ATTRIBUTE_CONSOLE] = "attribute console",
        [VJ_WINDOWS_ATTRIBUTE_NO_CHILDREN] = "attribute no children",
    };
    const vj_windows_os *os = process->context->os;
    uint32_t code = os->attributes_add(os, process->attributes, attribute);
    if (code) return vj_windows_fail_os(error, names[attribute->kind], code);
    *added |= 1u << attribute->kind;
    return VJ_WINDOWS_OK;
}

// All of them, or no process: Windows would start it without the one that is missing.
static vj_windows_status make_attributes(vj_windows_process *process,
                                         const launch_plan *plan,
                                         vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    const uint16_t *const capabilities[1] = {plan->capability_sid};
    vj_windows_attribute all[ATTRIBUTES_MAX] = {
        {.kind = VJ_WINDOWS_ATTRIBUTE_CAPABILITIES,
         .package = plan->package_sid,
         .capabilities = capabilities,
         .capability_count = 1},
        {.kind = VJ_WINDOWS_ATTRIBUTE_LPAC},
        {.kind = VJ_WINDOWS_ATTRIBUTE_JOB, .handles = &process->job, .handle_count = 1},
    };
    uint32_t count = 3, added = 0, wanted = 0;
    if (has_console(plan)) {
        all[count++] = (vj_windows_attribute){.kind = VJ_WINDOWS_ATTRIBUTE_CONSOLE,
                                              .console = process->console};
    } else {
        all[count++] = (vj_windows_attribute){.kind = VJ_WINDOWS_ATTRIBUTE_HANDLES,
                                              .handles = process->guest_ends,
                                              .handle_count = count_pipes(plan)};
    }
    if (plan->flags & VJ_WINDOWS_SPAWN_NO_CHILDREN) {
        all[count++] = (vj_windows_attribute){.kind = VJ_WINDOWS_ATTRIBUTE_NO_CHILDREN};
    }
    uint32_t code = os->attributes_open(os, count, &process->attributes);
    if (code) return vj_windows_fail_os(error, "attributes", code);
    vj_windows_status status = VJ_WINDOWS_OK;
    for (uint32_t i = 0; status == VJ_WINDOWS_OK && i < count; i++) {
        wanted |= 1u << all[i].kind;
        status = add_attribute(process, &all[i], &added, error);
    }
    if (status == VJ_WINDOWS_OK && added != wanted) {
        status = vj_windows_fail(error, VJ_WINDOWS_MISMATCH, "attributes", 0,
                                 "an attribute of the process is missing");
    }
    return status;
}

static vj_windows_status make_process(vj_windows_process *process, launch_plan *plan,
                                      vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_started started = {0};
    vj_windows_launch launch = {
        .application = plan->application_units,
        .command_line = plan->command,
        .environment = plan->environment,
        .directory = plan->directory_units,
        .attributes = process->attributes,
        .desktop = process->context->desktop,
        .process = process->context->security[VJ_WINDOWS_PROGRAM],
        .thread = process->context->security[VJ_WINDOWS_PROGRAM],
    };
    // A console's guest has none of its own: those of the host would come in instead.
    for (size_t i = 0; i < 3 && !has_console(plan); i++) {
        launch.standard[i] = process->guest_ends[i];
    }
    uint32_t code = os->process_create(os, &launch, &started);
    process->process = started.process;
    process->thread = started.thread;
    if (code) return vj_windows_fail_os(error, "process", code);
    plan->pid = started.pid;
    code = os->attributes_close(os, process->attributes);
    if (code) return vj_windows_fail_os(error, "attributes", code);
    process->attributes = NULL;
    return release_guest_ends(process, error);
}

// ---- read back

static vj_windows_status differs(vj_windows_error *error, const char *step,
                                 const char *text) {
    return vj_windows_fail(error, VJ_WINDOWS_MISMATCH, step, 0, text);
}

static bool is_same(const uint16_t *one, const uint16_t *other) {
    for (size_t i = 0; i < VJ_WINDOWS_SID_SIZE; i++) {
        if (one[i] != other[i]) return false;
        if (!one[i]) return true;
    }
    return false;
}

static vj_windows_status check_job(vj_windows_process *process, const launch_plan *plan,
                                   vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_job_readback job = {0};
    bool inside = false;
    uint32_t code = os->process_in_job(os, process->process, process->job, &inside);
    if (code) return vj_windows_fail_os(error, "process in its job", code);
    if (!inside) return differs(error, "job", "the process is not in its job");
    process->in_job = true;
    code = os->job_read_limits(os, process->job, &job);
    if (code) return vj_windows_fail_os(error, "limits of the job", code);
    if (!job.kill_on_close || job.breakaway || job.other) {
        return differs(error, "job",
                       "the job does not end with its handle, or lets processes go");
    }
    if (job.limits.active_processes != plan->limits.active_processes ||
        job.limits.cpu_rate != plan->limits.cpu_rate ||
        job.limits.process_memory != plan->limits.process_memory ||
        job.limits.job_memory != plan->limits.job_memory ||
        job.limits.ui != plan->limits.ui) {
        return differs(error, "job", "the job has other limits than it was given");
    }
    return VJ_WINDOWS_OK;
}

static vj_windows_status check_token(vj_windows_process *process, launch_plan *plan,
                                     vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_token *token = &plan->token;
    uint32_t code = os->process_token(os, process->process, token);
    if (code) return vj_windows_fail_os(error, "token", code);
    if (!token->app_container) {
        return differs(error, "token", "the process is not in an AppContainer");
    }
    if (!token->less_privileged) {
        return differs(error, "token",
                       "the AppContainer is not of the less privileged kind");
    }
    if (token->integrity != LOW_INTEGRITY) {
        return differs(error, "token", "the process does not have low integrity");
    }
    if (!is_same(token->package, plan->package_sid)) {
        return differs(error, "token", "the process belongs to another package");
    }
    if (token->capability_count != 1 ||
        !is_same(token->capabilities[0], plan->capability_sid)) {
        return differs(error, "token",
                       "the process has other capabilities than registryRead alone");
    }
    return VJ_WINDOWS_OK;
}

static vj_windows_status check_process(vj_windows_process *process, launch_plan *plan,
                                       vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    vj_windows_status status = check_job(process, plan, error);
    if (status == VJ_WINDOWS_OK) status = check_token(process, plan, error);
    if (status != VJ_WINDOWS_OK) return status;
    uint32_t code = os->process_created(os, process->process, &plan->created);
    return code ? vj_windows_fail_os(error, "creation time", code) : VJ_WINDOWS_OK;
}

// ---- numbers for what the host gets

// The streams take the host's ends. One that fails leaves its ends where they are.
static vj_windows_status make_streams(vj_windows_process *process,
                                      const launch_plan *plan,
                                      vj_windows_id ids[VJ_WINDOWS_PIPES],
                                      vj_windows_error *error) {
    vj_windows_context *context = process->context;
    for (size_t i = 0; i < VJ_WINDOWS_PIPES; i++) {
        if (!process->host_ends[i]) continue;
        vj_stream_rest *rest = i == 1 && has_console(plan) ? &process->rest : NULL;
        vj_stream *stream = vj_stream_new(&context->streams, VJ_WINDOWS_STREAM_KIND,
                                          process, direction_of(i), process->host_ends[i],
                                          process->events[i], rest);
        if (stream) {
            process->host_ends[i] = process->events[i] = NULL;
            if (vj_identifiers_add(vj_windows_numbers(), vj_stream_identified(stream))) {
                ids[i] = vj_stream_identified(stream)->id;
                continue;
            }
        }
        return vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, pipe_names[i], 0,
                               "out of memory");
    }
    return VJ_WINDOWS_OK;
}

// From here on the guest runs.
static vj_windows_status resume(vj_windows_process *process, vj_windows_error *error) {
    const vj_windows_os *os = process->context->os;
    uint32_t before = 0;
    if (!vj_windows_goes_on(process->context)) {
        return vj_windows_fail(error, VJ_WINDOWS_CLOSING, "resume", 0,
                               "another thread is closing the context");
    }
    uint32_t code = os->thread_resume(os, process->thread, &before);
    if (code) return vj_windows_fail_os(error, "resume", code);
    if (before != 1) {
        return differs(error, "resume",
                       "the process was not suspended once, as it was started");
    }
    return VJ_WINDOWS_OK;
}

static vj_windows_status launch(vj_windows_process *process,
                                const vj_windows_spawn_request *request,
                                launch_plan *plan, vj_windows_id ids[VJ_WINDOWS_PIPES],
                                vj_windows_error *error) {
    vj_windows_status status = make_job(process, plan, error);
    for (size_t i = 0; status == VJ_WINDOWS_OK && i < count_pipes(plan); i++) {
        status = make_pipe(process, plan, i, error);
    }
    if (status == VJ_WINDOWS_OK && has_channel(plan)) {
        status =
            plan_environment(process->context, request, process->guest_ends, plan, error);
    }
    if (status == VJ_WINDOWS_OK && has_console(plan)) {
        status = make_console(process, plan, error);
    }
    if (status == VJ_WINDOWS_OK) status = make_attributes(process, plan, error);
    if (status == VJ_WINDOWS_OK) status = make_process(process, plan, error);
    if (status == VJ_WINDOWS_OK) status = check_process(process, plan, error);
    if (status == VJ_WINDOWS_OK) status = make_streams(process, plan, ids, error);
    if (status == VJ_WINDOWS_OK &&
        !vj_identifiers_add(vj_windows_numbers(), &process->identified)) {
        status =
            vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "process", 0, "out of memory");
    }
    if (status == VJ_WINDOWS_OK) status = resume(process, error);
    return status;
}

static void tell(const vj_windows_context *context, const vj_windows_process *process,
                 const launch_plan *plan, const vj_windows_id ids[VJ_WINDOWS_PIPES],
                 vj_windows_spawn_info *info) {
    *info = (vj_windows_spawn_info){
        .size = sizeof *info,
        .version = VJ_WINDOWS_VERSION,
        .process = process->identified.id,
        .input = ids[0],
        .output = ids[1],
        .errors = ids[2],
        .to_guest = ids[TO_GUEST],
        .from_guest = ids[FROM_GUEST],
        .pid = plan->pid,
        .ui_limits = plan->limits.ui,
        .created = plan->created,
        .integrity = plan->token.integrity,
        .capability_count = plan->token.capability_count,
    };
    // They were compared with what the token says.
    snprintf(info->package_sid, sizeof info->package_sid, "%s", context->package_sid);
    snprintf(info->capability_sid, sizeof info->capability_sid, "%s",
             context->capability_sid);
}

// `*left`: something of the attempt could not be taken back.
static vj_windows_status spawn(vj_windows_context *context,
                               const vj_windows_spawn_request *request, launch_plan *plan,
                               vj_windows_spawn_info *info, bool *left,
                               vj_windows_error *error) {
    vj_windows_id ids[VJ_WINDOWS_PIPES] = {0};
    vj_windows_process *process = vj_windows_process_new(context);
    if (!process) {
        return vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "process", 0,
                               "out of memory");
    }
    vj_windows_status status = launch(process, request, plan, ids, error);
    if (status == VJ_WINDOWS_OK) {
        tell(context, process, plan, ids, info);
    } else {
        vj_windows_error ignored = {sizeof ignored, VJ_WINDOWS_VERSION, 0, 0, "", ""};
        *left = vj_windows_process_undo(process, &ignored) != VJ_WINDOWS_OK;
    }
    vj_windows_process_drop(process);
    return status;
}

vj_windows_status vj_windows_spawn(vj_windows_id id,
                                   const vj_windows_spawn_request *request,
                                   vj_windows_spawn_info *info, vj_windows_error *error) {
    vj_windows_context *context = NULL;
    bool left = false;
    vj_windows_status status = vj_windows_check(request, sizeof *request, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_check(info, sizeof *info, error);
    if (status == VJ_WINDOWS_OK) status = vj_windows_context_find(id, &context, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = vj_windows_operation_begin(context, VJ_WINDOWS_CONTEXT_SEALED, false, error);
    if (status == VJ_WINDOWS_OK) {
        launch_plan *plan = calloc(1, sizeof *plan);
        if (plan) {
            status = plan_launch(context, request, plan, error);
            if (status == VJ_WINDOWS_OK) {
                status = spawn(context, request, plan, info, &left, error);
            }
        } else {
            status = vj_windows_fail(error, VJ_WINDOWS_NO_MEMORY, "process", 0,
                                     "out of memory");
        }
        free(plan);
        vj_windows_operation_end(context, false, left);
    }
    vj_windows_context_drop(context);
    return status;
}
