// Reading a brief of visjail-macos-init: any bytes, and a real one with bytes changed.
//
// sources: native/visjail/macos_brief.c native/visjail/error.c
#include "fuzz.h"
#include "macos_brief.h"

static void read_all(const void *block, uint64_t size) {
    vj_brief_view view;
    vj_error error;
    vj_status status = vj_brief_read(block, size, &view, &error);
    if (status != VJ_OK) {
        FUZZ_CHECK(status == VJ_REFUSED && error.text[0] && !view.parameters);
        return;
    }
    size_t bytes = strlen(view.profile) + strlen(view.directory) + strlen(view.canary) +
                   strlen(view.marker);
    for (const char **at = view.parameters; *at; at++) bytes += strlen(*at);
    for (const char **at = view.arguments; *at; at++) bytes += strlen(*at);
    for (const char **at = view.environment; *at; at++) bytes += strlen(*at);
    FUZZ_CHECK(bytes < size);
    // What was read can be written, and is the same.
    void *again = NULL;
    uint64_t again_size = 0;
    FUZZ_CHECK(vj_brief_write(&view, &again, &again_size, &error) == VJ_OK);
    FUZZ_CHECK(again_size == size && !memcmp(again, block, size));
    free(again);
    vj_brief_release(&view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    vj_brief header = {.magic = VJ_BRIEF_MAGIC,
                       .version = VJ_BRIEF_VERSION,
                       .flags = fuzz_below(&input, 33),
                       .parameters = fuzz_below(&input, 4),
                       .arguments = fuzz_below(&input, 4),
                       .environment = fuzz_below(&input, 4)};
    if (!fuzz_below(&input, 16)) fuzz_take(&input, &header, sizeof header);
    uint64_t total = sizeof header + input.left;
    if (fuzz_below(&input, 8)) {
        total = sizeof header + input.left;
        header.size = (uint32_t)total;
    }
    uint8_t *block = malloc(total);
    if (!block) abort();
    memcpy(block, &header, sizeof header);
    size_t rest = total - sizeof header;
    fuzz_take(&input, block + sizeof header, rest);
    // Absolute paths are rare among random bytes.
    for (size_t i = sizeof header; i + 1 < total; i++) {
        if (!block[i] && fuzz_below(&input, 4) != 1 && rest < 400) block[i + 1] = '/';
    }
    read_all(block, total);
    free(block);
    return 0;
}
