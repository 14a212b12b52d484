// A driver for tests: it has one GPU, whose answers are in the environment where that has
// FAKE_ and the number of the property, and otherwise sound; it does nothing.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int here;

static int answer(const void* value, size_t bytes, size_t room, void* to, size_t* needed) {
    if (needed) *needed = bytes;
    if (to && room >= bytes) memcpy(to, value, bytes);
    return 0;
}

static int text(const char* value, size_t room, void* to, size_t* needed) {
    return answer(value, strlen(value) + 1, room, to, needed);
}

int clGetPlatformIDs(unsigned room, void** to, unsigned* found) {
    if (found) *found = 1;
    if (room) *to = &here;
    return 0;
}

int clGetPlatformInfo(void* platform, unsigned what, size_t room, void* to, size_t* needed) {
    return text("fake", room, to, needed);
}

int clGetDeviceIDs(void* platform, uint64_t kind, unsigned room, void** to, unsigned* found) {
    if (found) *found = 1;
    if (room) *to = &here;
    return 0;
}

int clGetDeviceInfo(void* device, unsigned what, size_t room, void* to, size_t* needed) {
    char name[32];
    snprintf(name, sizeof name, "FAKE_%x", what);
    const char* told = getenv(name);
    switch (what) {
        case 0x102b: return text("fake", room, to, needed);        // NAME
        case 0x102d: return text("1", room, to, needed);           // DRIVER_VERSION
        case 0x102f: return text("OpenCL 1.2", room, to, needed);  // VERSION
        case 0x103d: return text("OpenCL C 1.2", room, to, needed);
        case 0x1030: return text(told ? told : "", room, to, needed);  // EXTENSIONS
        case 0x1005: {                                             // MAX_WORK_ITEM_SIZES
            size_t sizes[3] = {1024, 1024, 1024};
            return answer(sizes, sizeof sizes, room, to, needed);
        }
        case 0x4039: {  // GLOBAL_FREE_MEMORY_AMD
            if (!told) return -30;
            size_t free[2] = {strtoull(told, 0, 0), 1};
            return answer(free, sizeof free, room, to, needed);
        }
    }
    uint64_t value = 0;
    switch (what) {
        case 0x1000: value = 4; break;                     // TYPE: a GPU
        case 0x1002: value = 32; break;                    // MAX_COMPUTE_UNITS
        case 0x1004: value = 256; break;                   // MAX_WORK_GROUP_SIZE
        case 0x1010: value = (uint64_t)1 << 30; break;     // MAX_MEM_ALLOC_SIZE
        case 0x101f: value = (uint64_t)4 << 30; break;     // GLOBAL_MEM_SIZE
        case 0x1023: value = 64 << 10; break;              // LOCAL_MEM_SIZE
        case 0x1027: case 0x1028: value = 1; break;        // AVAILABLE, COMPILER_AVAILABLE
    }
    if (told) value = strtoull(told, 0, 0);
    return answer(&value, sizeof value, room, to, needed);
}

void* clCreateContext(const void* properties, unsigned count, const void* devices, void* notify,
                      void* data, int* status) {
    *status = 0;
    return &here;
}

void* clCreateCommandQueue(void* context, void* device, uint64_t properties, int* status) {
    *status = 0;
    return &here;
}

// What is not asked for, or succeeds without doing anything.
#define NOTHING(name) \
    int name(void) { return 0; }
NOTHING(clReleaseContext)
NOTHING(clReleaseCommandQueue)
NOTHING(clFlush)
NOTHING(clFinish)
NOTHING(clCreateBuffer)
NOTHING(clReleaseMemObject)
NOTHING(clSetMemObjectDestructorCallback)
NOTHING(clEnqueueMarker)
NOTHING(clGetEventProfilingInfo)
NOTHING(clReleaseEvent)
NOTHING(clEnqueueMapBuffer)
NOTHING(clEnqueueUnmapMemObject)
NOTHING(clEnqueueReadBuffer)
NOTHING(clEnqueueWriteBuffer)
NOTHING(clCreateProgramWithSource)
NOTHING(clCreateProgramWithBinary)
NOTHING(clBuildProgram)
NOTHING(clGetProgramInfo)
NOTHING(clGetProgramBuildInfo)
NOTHING(clReleaseProgram)
NOTHING(clCreateKernel)
NOTHING(clGetKernelInfo)
NOTHING(clReleaseKernel)
NOTHING(clSetKernelArg)
NOTHING(clEnqueueNDRangeKernel)
