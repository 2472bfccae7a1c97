/* What _native/ may call on Linux, behind ffi.cdef.h. */

vj_status vj_policy_compile(const vj_plan_settings *settings, const vj_rule *rules,
                            size_t rule_count, const vj_fact *facts, size_t fact_count,
                            const vj_extra *extras, size_t extra_count, void **block,
                            size_t *size, vj_error *error);
void vj_plan_free(void *block);
const char *vj_plan_path(const void *block, uint32_t operation);

vj_status vj_jail_open(const char *init_path, const vj_jail_options *options,
                       const void *plan, uint64_t plan_size, vj_jail **jail,
                       vj_jail_info *info, vj_error *error);
void vj_jail_close(vj_jail *jail);
void vj_jail_free(vj_jail *jail);
int vj_jail_alive(vj_jail *jail);
vj_status vj_jail_terminal(vj_jail *jail, int *master, int *slave, vj_error *error);
vj_status vj_jail_pairs(vj_jail *jail, int ends[4], vj_error *error);

vj_status vj_run_start(vj_jail *jail, const vj_spawn *spawn, vj_run **run, int32_t *pid,
                       vj_error *error);
vj_status vj_run_expect(vj_run *run, uint64_t timeout_ns, vj_run **expected,
                        vj_error *error);
vj_status vj_run_adopt(vj_run *expected, int process, int32_t *pid, vj_error *error);
