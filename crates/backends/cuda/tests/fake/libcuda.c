// A driver for tests: its answers are in the environment, and it does nothing. FAKE_VERSION is
// the CUDA version it is for, FAKE_INIT and FAKE_CONTEXT the statuses of cuInit and of opening a
// device, and FAKE_CAPABILITIES those of its devices, as in "61 90". With FAKE_HANGS nothing that was queued
// ends, and what frees a device in use ends the program.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char* name, int otherwise) {
    const char* value = getenv(name);
    return value ? atoi(value) : otherwise;
}

// The capability of a device; 0 behind the last.
static int capability(int device) {
    const char* list = getenv("FAKE_CAPABILITIES");
    for (int i = 0; list && *list; i++) {
        char* end;
        int value = (int)strtol(list, &end, 10);
        if (i == device) return value;
        list = end;
    }
    return 0;
}

int cuInit(unsigned flags) { return number("FAKE_INIT", 0); }

int cuDriverGetVersion(int* version) {
    *version = number("FAKE_VERSION", 12040);
    return 0;
}

int cuGetErrorName(int status, const char** text) {
    static char name[32];
    snprintf(name, sizeof name, "STATUS_%d", status);
    *text = name;
    return 0;
}

int cuGetErrorString(int status, const char** text) {
    *text = "as the test says";
    return 0;
}

int cuDeviceGetCount(int* count) {
    for (*count = 0; capability(*count); ++*count) {}
    return 0;
}

int cuDeviceGet(int* device, int index) {
    *device = index;
    return 0;
}

int cuDeviceGetName(char* name, int length, int device) {
    snprintf(name, length, "fake %d", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    *bytes = (size_t)1 << 34;
    return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
    switch (attribute) {
        case 75: *value = capability(device) / 10; break;  // COMPUTE_CAPABILITY_MAJOR
        case 76: *value = capability(device) % 10; break;  // COMPUTE_CAPABILITY_MINOR
        case 97: *value = 96 << 10; break;  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        default: *value = 1024;
    }
    return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = &capability;
    return number("FAKE_CONTEXT", 0);
}

// 64 MiB are left, which are too little for whatever is asked for.
int cuMemGetInfo_v2(size_t* left, size_t* total) {
    *left = 64 << 20;
    *total = (size_t)1 << 34;
    return 0;
}

// Streams and events are asked, not waited for.
int cuStreamQuery(void* stream) { return number("FAKE_HANGS", 0) ? 600 : 0; }

int cuMemAllocAsync(void** memory, size_t bytes, void* stream) { return 2; }

int cuMemPoolGetAttribute(void* pool, int attribute, unsigned long long* value) {
    *value = 0;
    return 0;
}

static int released(void) {
    if (number("FAKE_HANGS", 0)) abort();
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) { return released(); }

int cuStreamDestroy_v2(void* stream) { return released(); }

// What succeeds without doing anything, whatever its arguments are.
#define NOTHING(name) \
    int name(void) { return 0; }
NOTHING(cuCtxSetCurrent)
NOTHING(cuDeviceGetDefaultMemPool)
NOTHING(cuFuncGetAttribute)
NOTHING(cuKernelGetFunction)
NOTHING(cuLibraryGetKernel)
NOTHING(cuLibraryLoadData)
NOTHING(cuLibraryUnload)
NOTHING(cuMemPoolSetAttribute)
NOTHING(cuMemPoolTrimTo)
NOTHING(cuStreamCreate)
