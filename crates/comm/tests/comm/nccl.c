/* A library with NCCL's functions that checks the API's rules, and computes nothing. Ranks are threads. */

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { READY, FINALIZED };
enum { RANKS = 64, CALLS = 256, TEXT = 96 };

typedef struct { char internal[128]; } Id;

typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} Config;

typedef struct {
    int rank, ranks, state;
    /* Looks until the call before is done. */
    int busy;
    int calls;
    int reductions;
} Comm;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char violations[4096];
static char calls[RANKS][CALLS][TEXT];
static int alive;
static int version = 23007;
static int failing_rank = -1;

static __thread int depth;
static __thread Comm *grouped;
static __thread void *grouped_stream;

static void violate(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t used = strlen(violations);
    vsnprintf(violations + used, sizeof violations - used, format, arguments);
    strncat(violations, "\n", sizeof violations - strlen(violations) - 1);
    va_end(arguments);
}

/* For tests. */
const char *fake_violations(void) { return violations; }
const char *fake_call(int rank, int number) { return calls[rank][number]; }
int fake_alive(void) { return alive; }
void fake_set_version(int number) { version = number; }
void fake_fail(int rank) { failing_rank = rank; }
void fake_reset(void) {
    violations[0] = 0;
    memset(calls, 0, sizeof calls);
    failing_rank = -1;
}

const char *ncclGetErrorString(int status) {
    return status == REMOTE_ERROR ? "remote process exited or there was a network error" : "invalid usage";
}

int ncclGetVersion(int *number) {
    *number = version;
    const char *multicast = getenv("NCCL_NVLS_ENABLE");
    if (multicast == NULL || strcmp(multicast, "0") != 0)
        violate("NCCL_NVLS_ENABLE is not 0");
    return SUCCESS;
}

int ncclGetUniqueId(Id *id) {
    memset(id->internal, 42, sizeof id->internal);
    return SUCCESS;
}

int ncclCommInitRankConfig(Comm **made, int ranks, Id id, int rank, Config *config) {
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < sizeof id.internal; i++)
        if (id.internal[i] != 42) {
            violate("rank %d has another id", rank);
            break;
        }
    if (config->magic != 0xcafebeef || config->size < sizeof(Config) || config->version < 21400)
        violate("rank %d: the configuration is none", rank);
    if (config->blocking != 0)
        violate("rank %d: calls would wait", rank);
    Comm *comm = calloc(1, sizeof *comm);
    comm->rank = rank;
    comm->ranks = ranks;
    comm->busy = 3;
    *made = comm;
    alive++;
    pthread_mutex_unlock(&mutex);
    return IN_PROGRESS;
}

static int is_usable(Comm *comm, const char *function) {
    if (comm == NULL || comm->state != READY) {
        violate("%s: the communicator cannot be used", function);
        return 0;
    }
    if (comm->busy > 0)
        violate("%s: rank %d calls before the last call is done", function, comm->rank);
    return 1;
}

int ncclCommGetAsyncError(Comm *comm, int *status) {
    pthread_mutex_lock(&mutex);
    *status = SUCCESS;
    if (comm->busy > 0) {
        comm->busy--;
        *status = IN_PROGRESS;
    } else if (comm->rank == failing_rank) {
        *status = REMOTE_ERROR;
    }
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

static int end(Comm *comm) {
    pthread_mutex_lock(&mutex);
    if (comm->reductions != 0)
        violate("rank %d keeps %d reductions", comm->rank, comm->reductions);
    alive--;
    pthread_mutex_unlock(&mutex);
    free(comm);
    return SUCCESS;
}

int ncclCommFinalize(Comm *comm) {
    pthread_mutex_lock(&mutex);
    if (is_usable(comm, "ncclCommFinalize")) {
        comm->state = FINALIZED;
        comm->busy = 2;
    }
    pthread_mutex_unlock(&mutex);
    return IN_PROGRESS;
}

int ncclCommDestroy(Comm *comm) {
    if (comm->state != FINALIZED || comm->busy > 0)
        violate("rank %d is destroyed before it is finalized", comm->rank);
    return end(comm);
}

int ncclCommAbort(Comm *comm) { return end(comm); }

/* Notes a call. Outside of a group it is on its way at once. */
static int note(Comm *comm, void *stream, int is_checked, const char *format, ...) {
    pthread_mutex_lock(&mutex);
    char text[TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!is_usable(comm, text)) {
        pthread_mutex_unlock(&mutex);
        return INVALID_USAGE;
    }
    if (stream == NULL)
        violate("%s: no stream", text);
    int number = comm->calls++;
    strcpy(calls[comm->rank][number], text);
    for (int rank = 0; is_checked && rank < comm->ranks; rank++) {
        const char *other = calls[rank][number];
        if (other[0] && strcmp(other, text) != 0)
            violate("call %d of ranks %d and %d: %s, %s", number, comm->rank, rank, text, other);
    }
    if (depth > 0) {
        if (grouped != NULL && (grouped != comm || grouped_stream != stream))
            violate("%s: a group has several streams", text);
        grouped = comm;
        grouped_stream = stream;
    } else {
        comm->busy = 2;
    }
    pthread_mutex_unlock(&mutex);
    return depth > 0 ? SUCCESS : IN_PROGRESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int dtype, int op, Comm *comm, void *stream) {
    return note(comm, stream, 1, "all_reduce %zu of %d by %d%s", count, dtype, op, from == to ? "" : " elsewhere");
}

int ncclReduceScatter(const void *from, void *to, size_t count, int dtype, int op, Comm *comm, void *stream) {
    return note(comm, stream, 1, "reduce_scatter %zu of %d by %d", count, dtype, op);
}

int ncclAllGather(const void *from, void *to, size_t count, int dtype, Comm *comm, void *stream) {
    return note(comm, stream, 1, "all_gather %zu of %d", count, dtype);
}

int ncclBroadcast(const void *from, void *to, size_t count, int dtype, int root, Comm *comm, void *stream) {
    return note(comm, stream, 1, "broadcast %zu of %d from %d", count, dtype, root);
}

int ncclSend(const void *from, size_t count, int dtype, int peer, Comm *comm, void *stream) {
    return note(comm, stream, 0, "send %zu of %d to %d at %zu", count, dtype, peer, (size_t)from);
}

int ncclRecv(void *to, size_t count, int dtype, int peer, Comm *comm, void *stream) {
    return note(comm, stream, 0, "recv %zu of %d from %d at %zu", count, dtype, peer, (size_t)to);
}

int ncclGroupStart(void) {
    depth++;
    return SUCCESS;
}

int ncclGroupEnd(void) {
    if (depth == 0) {
        violate("a group ends that did not start");
        return INVALID_USAGE;
    }
    if (--depth > 0 || grouped == NULL)
        return SUCCESS;
    grouped->busy = 2;
    grouped = NULL;
    return IN_PROGRESS;
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, Comm *comm) {
    pthread_mutex_lock(&mutex);
    if (is_usable(comm, "ncclRedOpCreatePreMulSum"))
        comm->reductions++;
    float factor;
    memcpy(&factor, scalar, sizeof factor);
    if (residence != 1 || dtype != 7 || factor != 0.5f)
        violate("the factor is not 0.5 on the host");
    *op = 5;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int ncclRedOpDestroy(int op, Comm *comm) {
    pthread_mutex_lock(&mutex);
    if (op != 5 || comm->reductions-- <= 0)
        violate("a reduction ends that was not made");
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}
