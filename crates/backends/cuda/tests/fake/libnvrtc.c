// A compiler for tests, which is too old and compiles nothing.
#include <stddef.h>

int nvrtcVersion(int* major, int* minor) {
    *major = 11;
    *minor = 8;
    return 0;
}

int nvrtcGetSupportedArchs(int* archs) { return 0; }

int nvrtcGetNumSupportedArchs(int* count) {
    *count = 0;
    return 0;
}

#define FAILS(name) int name(void) { return 1; }
FAILS(nvrtcCreateProgram)
FAILS(nvrtcDestroyProgram)
FAILS(nvrtcCompileProgram)
FAILS(nvrtcGetProgramLogSize)
FAILS(nvrtcGetProgramLog)
FAILS(nvrtcGetCUBINSize)
FAILS(nvrtcGetCUBIN)
FAILS(nvrtcGetPTXSize)
FAILS(nvrtcGetPTX)
