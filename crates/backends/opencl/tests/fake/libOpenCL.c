// A driver for tests: it has one GPU, whose answers are in the environment where that has
// FAKE_ and the number of the property, and otherwise sound. It keeps bytes and copies them, but
// its kernels do nothing. What FAKE_HANG names, `marker`, `read`, `write` or `build`, hangs until
// fake_release is called, and is done then. FAKE_UNTIMED says what tells no times: no `queue`, or no
// `event`; without, each event ends a microsecond behind the one before.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int here;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_released;
static unsigned releases;

static int hangs(const char* what) {
    const char* named = getenv("FAKE_HANG");
    pthread_mutex_lock(&lock);
    int hung = !is_released && named && !strcmp(named, what);
    pthread_mutex_unlock(&lock);
    return hung;
}

// A command: a copy, or none.
struct event {
    int is_over;
    void* to;
    const void* from;
    size_t bytes;
    void (*call)(void*, int, void*);
    void* data;
    struct event* next;
};

static struct event* pending;

static void complete(struct event* event) {
    if (event->bytes) memcpy(event->to, event->from, event->bytes);
    pthread_mutex_lock(&lock);
    event->is_over = 1;
    pthread_mutex_unlock(&lock);
    if (event->call) event->call(event, 0, event->data);
}

static int command(const char* name, void* to, const void* from, size_t bytes, void** told) {
    struct event* event = calloc(1, sizeof *event);
    event->to = to;
    event->from = from;
    event->bytes = bytes;
    if (hangs(name)) {
        event->next = pending;
        pending = event;
    } else {
        complete(event);
    }
    if (told) *told = event;
    return 0;
}

// What hangs does so no more.
void fake_release(void) {
    pthread_mutex_lock(&lock);
    is_released = 1;
    pthread_mutex_unlock(&lock);
    for (; pending; pending = pending->next) complete(pending);
}

// Objects that were released so far.
unsigned fake_releases(void) { return releases; }

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

static int untimed(const char* what) {
    const char* named = getenv("FAKE_UNTIMED");
    return named && !strcmp(named, what);
}

void* clCreateCommandQueue(void* context, void* device, uint64_t properties, int* status) {
    int refused = properties & 2 && untimed("queue");  // CL_QUEUE_PROFILING_ENABLE
    *status = refused ? -35 : 0;                       // CL_INVALID_QUEUE_PROPERTIES
    return refused ? 0 : &here;
}

int clGetEventProfilingInfo(void* event, unsigned what, size_t room, void* to, size_t* needed) {
    static uint64_t time;
    if (untimed("event")) return -7;  // CL_PROFILING_INFO_NOT_AVAILABLE
    time += 1000;
    return answer(&time, sizeof time, room, to, needed);
}

struct memory {
    size_t bytes;
    char data[];
};

void* clCreateBuffer(void* context, uint64_t flags, size_t bytes, void* host, int* status) {
    struct memory* memory = calloc(1, sizeof *memory + bytes);
    memory->bytes = bytes;
    *status = 0;
    return memory;
}

int clEnqueueReadBuffer(void* queue, struct memory* memory, unsigned blocks, size_t offset,
                        size_t bytes, void* to, unsigned count, void* before, void** event) {
    return command("read", to, memory->data + offset, bytes, event);
}

int clEnqueueWriteBuffer(void* queue, struct memory* memory, unsigned blocks, size_t offset,
                         size_t bytes, const void* from, unsigned count, void* before,
                         void** event) {
    return command("write", memory->data + offset, from, bytes, event);
}

int clEnqueueMarker(void* queue, void** event) { return command("marker", 0, 0, 0, event); }

int clEnqueueNDRangeKernel(void* queue, void* kernel, unsigned dims, void* offset, void* global,
                           void* local, unsigned count, void* before, void** event) {
    return event ? command("launch", 0, 0, 0, event) : 0;
}

int clGetEventInfo(struct event* event, unsigned what, size_t room, void* to, size_t* needed) {
    pthread_mutex_lock(&lock);
    int status = event->is_over ? 0 : 1;  // CL_COMPLETE, CL_RUNNING
    pthread_mutex_unlock(&lock);
    return answer(&status, sizeof status, room, to, needed);
}

int clSetEventCallback(struct event* event, int status, void (*call)(void*, int, void*),
                       void* data) {
    pthread_mutex_lock(&lock);
    int is_over = event->is_over;
    if (!is_over) {
        event->call = call;
        event->data = data;
    }
    pthread_mutex_unlock(&lock);
    if (is_over) call(event, 0, data);
    return 0;
}

// Programs are their source, kernels what follows their name in it.
void* clCreateProgramWithSource(void* context, unsigned count, char** text, size_t* length,
                                int* status) {
    char* source = calloc(1, *length + 1);
    memcpy(source, *text, *length);
    *status = 0;
    return source;
}

void* clCreateProgramWithBinary(void* context, unsigned count, void* devices, size_t* length,
                                char** binary, int* valid, int* status) {
    *valid = 0;
    return clCreateProgramWithSource(context, count, binary, length, status);
}

int clBuildProgram(void* program, unsigned count, void* devices, void* options, void* notify,
                   void* data) {
    while (hangs("build")) sched_yield();
    return 0;
}

int clGetProgramInfo(char* program, unsigned what, size_t room, void* to, size_t* needed) {
    size_t length = strlen(program);
    if (what == 0x1165) return answer(&length, sizeof length, room, to, needed);  // BINARY_SIZES
    memcpy(*(char**)to, program, length);
    return 0;
}

void* clCreateKernel(char* program, const char* name, int* status) {
    char head[128];
    snprintf(head, sizeof head, "void %s(", name);
    char* found = strstr(program, head);
    *status = found ? 0 : -46;  // CL_INVALID_KERNEL_NAME
    return found;
}

int clGetKernelInfo(char* kernel, unsigned what, size_t room, void* to, size_t* needed) {
    unsigned parameters = 1;
    for (; *kernel != ')'; kernel++) parameters += *kernel == ',';
    return answer(&parameters, sizeof parameters, room, to, needed);
}

// What is not asked for, or succeeds without doing anything; what is released stays.
#define NOTHING(name) \
    int name(void) { return 0; }
#define RELEASE(name)       \
    int name(void) {        \
        releases++;         \
        return 0;           \
    }
RELEASE(clReleaseContext)
RELEASE(clReleaseCommandQueue)
RELEASE(clReleaseMemObject)
RELEASE(clReleaseEvent)
RELEASE(clReleaseProgram)
RELEASE(clReleaseKernel)
NOTHING(clFlush)
NOTHING(clSetMemObjectDestructorCallback)
NOTHING(clWaitForEvents)
NOTHING(clEnqueueMapBuffer)
NOTHING(clEnqueueUnmapMemObject)
NOTHING(clGetProgramBuildInfo)
NOTHING(clSetKernelArg)
