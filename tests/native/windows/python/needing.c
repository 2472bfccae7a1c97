// A library that passes for Python's as far as the loader of workers looks, and needs
// another one: for the test of where that loader lets Windows look.
__declspec(dllimport) const char *vis_needed(void);
__declspec(dllexport) const char *Py_GetVersion(void);
__declspec(dllexport) int Py_Main(int count, void *words);

const char *Py_GetVersion(void) {
    return vis_needed();
}

int Py_Main(int count, void *words) {
    (void)words;
    return count;
}
