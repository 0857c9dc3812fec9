/* Records what a process and its forked children do to the files of one folder, in order; may delay or fail their
 * syncs.
 *
 * Loaded with LD_PRELOAD. The environment:
 *   RECORDER_FOLDER   the folder, an absolute path
 *   RECORDER_LOG      the file for the records; without it nothing is recorded
 *   RECORDER_DELAY    microseconds that each sync takes more
 *   RECORDER_FAILING  while a file with this name exists, syncs of a file whose name ends in "-wal" fail with EIO;
 *                     if it is empty, one does
 *
 * A record is struct record, then two byte strings. Calls are recorded in the order in which they are made, because
 * they are made under one lock; but a sync, during which other threads go on, is recorded when it begins and when it
 * ends. disk_model.py reads the records.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 4096
#define REAL(name) ((__typeof__(&name))real(#name))

struct record {
    char kind[4];
    int32_t process;
    int64_t file, offset;
    uint32_t first, second;
};

struct shared {
    pthread_mutex_t lock;
    int64_t syncs;
};

static struct shared *shared;
static const char *folder, *failing;
static long delay;
static int log_descriptor = -1;
static unsigned char watched[MOST_DESCRIPTORS]; /* 1: in the folder, 2: and a log of SQLite */
/* whether a failure is yet to be reported: Linux tells each open descriptor once */
static unsigned char owed[MOST_DESCRIPTORS];

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    pthread_mutexattr_t attributes;
    const char *log = getenv("RECORDER_LOG"), *wait = getenv("RECORDER_DELAY");
    folder = getenv("RECORDER_FOLDER");
    failing = getenv("RECORDER_FAILING");
    delay = wait ? atol(wait) : 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &attributes);
    if (log && folder)
        log_descriptor = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_inside(const char *path) {
    return folder && path && !strncmp(path, folder, strlen(folder));
}

static int is_watched(int descriptor) {
    return descriptor >= 0 && descriptor < MOST_DESCRIPTORS && watched[descriptor];
}

static int64_t number_of(int descriptor) {
    struct stat found;
    return fstat(descriptor, &found) ? -1 : (int64_t)found.st_ino;
}

static void record(char kind, int64_t file, int64_t offset, const void *first, size_t length, const char *second) {
    int kept = errno;
    uint32_t rest = second ? (uint32_t)strlen(second) : 0;
    struct record head = {{kind, 0, 0, 0}, getpid(), file, offset, (uint32_t)length, rest};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)first, length}, {(void *)second, head.second}};
    ssize_t all = (ssize_t)(sizeof head + length + head.second);
    if (log_descriptor >= 0 && REAL(writev)(log_descriptor, parts, 3) != all)
        abort();
    errno = kept;
}

static void lock(void) { pthread_mutex_lock(&shared->lock); }
static void unlock(void) { pthread_mutex_unlock(&shared->lock); }

static int opened(const char *path, int flags, int descriptor) {
    if (descriptor >= 0 && descriptor < MOST_DESCRIPTORS) {
        size_t length = path ? strlen(path) : 0;
        owed[descriptor] = 0;
        watched[descriptor] = !is_inside(path) ? 0 : length > 4 && !strcmp(path + length - 4, "-wal") ? 2 : 1;
        if (watched[descriptor]) {
            record('O', number_of(descriptor), 0, path, length, NULL);
            if (flags & O_TRUNC)
                record('T', number_of(descriptor), 0, "", 0, NULL);
        }
    }
    return descriptor;
}

#define OPEN(name)                                                              \
    int name(const char *path, int flags, ...) {                                \
        va_list rest;                                                           \
        va_start(rest, flags);                                                  \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                           \
        lock();                                                                 \
        int descriptor = opened(path, flags, REAL(name)(path, flags, mode));    \
        unlock();                                                               \
        return descriptor;                                                      \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                       \
    int name(int at, const char *path, int flags, ...) {                                   \
        va_list rest;                                                                      \
        va_start(rest, flags);                                                             \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;            \
        va_end(rest);                                                                      \
        lock();                                                                            \
        int descriptor = opened(path, flags, REAL(name)(at, path, flags, mode));           \
        unlock();                                                                          \
        return descriptor;                                                                 \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int descriptor) {
    lock();
    if (descriptor >= 0 && descriptor < MOST_DESCRIPTORS)
        watched[descriptor] = 0;
    int result = REAL(close)(descriptor);
    unlock();
    return result;
}

#define PWRITE(name, offset_type)                                                          \
    ssize_t name(int descriptor, const void *data, size_t length, offset_type offset) {    \
        lock();                                                                            \
        ssize_t done = REAL(name)(descriptor, data, length, offset);                       \
        if (done > 0 && is_watched(descriptor))                                            \
            record('W', number_of(descriptor), offset, data, (size_t)done, NULL);          \
        unlock();                                                                          \
        return done;                                                                       \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int descriptor, const void *data, size_t length) {
    if (!is_watched(descriptor))
        return REAL(write)(descriptor, data, length);
    lock();
    ssize_t done = REAL(write)(descriptor, data, length);
    if (done > 0)
        record('W', number_of(descriptor), lseek(descriptor, 0, SEEK_CUR) - done, data, (size_t)done, NULL);
    unlock();
    return done;
}

#define FTRUNCATE(name, offset_type)                                  \
    int name(int descriptor, offset_type length) {                    \
        lock();                                                       \
        int result = REAL(name)(descriptor, length);                  \
        if (!result && is_watched(descriptor))                        \
            record('T', number_of(descriptor), length, "", 0, NULL);  \
        unlock();                                                     \
        return result;                                                \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

static int synced(int descriptor, int (*sync)(int)) {
    int result, late = 0;
    if (!is_watched(descriptor))
        return sync(descriptor);
    lock();
    int64_t number = ++shared->syncs, file = number_of(descriptor);
    record('B', file, number, "", 0, NULL);
    unlock();
    if (delay) {
        struct timespec pause = {delay / 1000000, delay % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
    struct stat mark;
    if (owed[descriptor]) {
        owed[descriptor] = 0;
        errno = EIO;
        late = result = -1;
    } else if (failing && watched[descriptor] == 2 && !stat(failing, &mark)) {
        if (!mark.st_size)
            REAL(unlink)(failing);
        for (int other = 0; other < MOST_DESCRIPTORS; other++)
            owed[other] |= other != descriptor && watched[other] == 2 && number_of(other) == file;
        errno = EIO;
        result = -1;
    } else
        /* the cuts are simulated: the real disk need not be asked */
        result = log_descriptor >= 0 ? 0 : sync(descriptor);
    lock();
    /* N: nothing is known of what was written since */
    record(late ? 'N' : result ? 'F' : 'E', file, number, "", 0, NULL);
    unlock();
    return result;
}

int fsync(int descriptor) { return synced(descriptor, REAL(fsync)); }
int fdatasync(int descriptor) { return synced(descriptor, REAL(fdatasync)); }

#define NAMED(call, kind, path, other)                                \
    lock();                                                           \
    int result = call;                                                \
    if (!result && is_inside(path))                                   \
        record(kind, 0, 0, path, strlen(path), other);                \
    unlock();                                                         \
    return result;

int unlink(const char *path) { NAMED(REAL(unlink)(path), 'U', path, NULL) }
int unlinkat(int at, const char *path, int flags) { NAMED(REAL(unlinkat)(at, path, flags), 'U', path, NULL) }
int rmdir(const char *path) { NAMED(REAL(rmdir)(path), 'U', path, NULL) }
int mkdir(const char *path, mode_t mode) { NAMED(REAL(mkdir)(path, mode), 'M', path, NULL) }
int rename(const char *from, const char *to) { NAMED(REAL(rename)(from, to), 'R', from, to) }
int link(const char *from, const char *to) { NAMED(REAL(link)(from, to), 'L', from, to) }
int linkat(int at, const char *from, int other, const char *to, int flags) {
    NAMED(REAL(linkat)(at, from, other, to, flags), 'L', from, to)
}
