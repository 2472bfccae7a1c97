// A library that needing.c needs.
__declspec(dllexport) const char *vis_needed(void);

const char *vis_needed(void) {
    return "needed";
}
