// A library that passes for that of a free-threaded Python: for the loader of workers,
// which refuses it.
__declspec(dllexport) const char *Py_GetVersion(void);
__declspec(dllexport) int Py_Main(int count, void *words);

const char *Py_GetVersion(void) {
    return "3.13.0 experimental free-threading build";
}

int Py_Main(int count, void *words) {
    (void)words;
    return count;
}
