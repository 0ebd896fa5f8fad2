/* What a disk does to a process, in every call that changes a file, those inside SQLite included: LD_PRELOAD this.
 *
 * The environment's QUIETMEAN_FAULTS names a folder. Its file "rules" has lines of six words:
 *
 *     ACTION ARGUMENT FIRST TIMES KIND PREFIX
 *
 * fail:  from the FIRST (counted from 0) matching call on, TIMES calls fail with the errno ARGUMENT, and nothing is done
 * short: they write half of what they are given
 * die:   the process is killed there; a write is half done
 * room:  files right in the folder PREFIX hold ARGUMENT bytes together, and then writes fail with ENOSPC
 * keep:  the log has the bytes of each write, too
 * clock: CLOCK_REALTIME is ARGUMENT seconds ahead; a monotonic clock stays as it is
 *
 * KIND: create, write, truncate, sync, rename, link, unlink, mkdir, or any. A call matches by its path, or its new path, which begins
 * with PREFIX, or is what stands before a "$" at its end. Processes count together, in the file "counts"; the rules may change while they run. The file "log" has, for each
 * call under a prefix, a line of fields between tabs, and the bytes if they are kept:
 *
 *     ACTED KIND RESULT ERRNO OFFSET SIZE KEPT PATH NEW-PATH
 *
 * Not seen: the C library's own stdio, memory maps (logged as "map" when they are made), raw calls, io_uring. A reader of the log
 * holds it against the sizes of the files.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RULES 16
enum action { NOTHING, FAIL, SHORT, DIE, ROOM, KEEP, CLOCK };
static const char *const ACTIONS[] = {"", "fail", "short", "die", "room", "keep", "clock"};

struct rule {
    enum action action;
    long long argument, first, times;
    char kind[16];
    char prefix[PATH_MAX];
};

static struct rule rules[RULES];
static int n_rules;
static char home[PATH_MAX];
static struct timespec read_at;
static volatile int64_t *counts;
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside;

static void before_fork(void) { pthread_mutex_lock(&alone); }
static void after_fork(void) { pthread_mutex_unlock(&alone); }
__attribute__((constructor)) static void prepare(void) { pthread_atfork(before_fork, after_fork, after_fork); }

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

/* --- rules --- */

static void read_rules(void) {
    const char *folder = getenv("QUIETMEAN_FAULTS");
    char path[PATH_MAX + 16], text[65536];
    struct stat state;
    if (folder == NULL || !*folder) { n_rules = 0; home[0] = 0; return; }
    snprintf(path, sizeof path, "%s/rules", folder);
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &state, 0) != 0) { n_rules = 0; return; }
    if (!strcmp(home, folder) && state.st_mtim.tv_sec == read_at.tv_sec && state.st_mtim.tv_nsec == read_at.tv_nsec) return;
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long size = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text - 1);
    if (file >= 0) syscall(SYS_close, file);
    if (size < 0) return;
    text[size] = 0;
    n_rules = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL && n_rules < RULES) {
        struct rule *rule = &rules[n_rules];
        char action[16] = "";
        if (sscanf(line, "%15s %lld %lld %lld %15s %4095[^\n]", action, &rule->argument, &rule->first, &rule->times, rule->kind,
                   rule->prefix) != 6) continue;
        for (int number = 1; number <= CLOCK; number++)
            if (!strcmp(action, ACTIONS[number])) { rule->action = number; n_rules++; break; }
    }
    if (strcmp(home, folder) || counts == NULL) {
        snprintf(path, sizeof path, "%s/counts", folder);
        file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        void *place = MAP_FAILED;
        if (file >= 0 && syscall(SYS_ftruncate, file, RULES * sizeof(int64_t)) == 0)
            place = (void *)syscall(SYS_mmap, NULL, RULES * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file >= 0) syscall(SYS_close, file);
        counts = place == MAP_FAILED ? NULL : place;
    }
    snprintf(home, sizeof home, "%s", folder);
    read_at = state.st_mtim;
}

/* --- one call --- */

struct call {
    const char *kind;
    char path[PATH_MAX], other[PATH_MAX];
    long long offset, size;
    const struct iovec *parts;
    int n_parts;
    enum action acted;
    int error, keeps, seen;
};

static int absolute(int folder, const char *path, char *into) {
    char base[PATH_MAX] = "", link[64];
    if (path[0] != '/') {
        if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        long size = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
        if (size < 0) return -1;
        base[size] = 0;
    }
    while (!strncmp(path, "./", 2)) path += 2;
    return snprintf(into, PATH_MAX, "%s%s%s", base, path[0] == '/' ? "" : "/", path) < PATH_MAX ? 0 : -1;
}

/* The name of an open plain file, or of a folder. */
static int named(int handle, char *into) {
    char link[64];
    struct stat state;
    if (syscall(SYS_fstat, handle, &state) != 0 || !(S_ISREG(state.st_mode) || S_ISDIR(state.st_mode))) return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, into, PATH_MAX - 1);
    if (size < 0) return -1;
    into[size] = 0;
    return 0;
}

static long long held_in(const char *folder) {
    long long sum = 0;
    DIR *opened = opendir(folder);
    struct dirent *entry;
    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        char path[PATH_MAX + 300];
        struct stat state;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (syscall(SYS_newfstatat, AT_FDCWD, path, &state, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(state.st_mode)) sum += state.st_size;
    }
    if (opened != NULL) closedir(opened);
    return sum;
}

static long long grows(const struct call *call) {
    struct stat state;
    long long there = syscall(SYS_newfstatat, AT_FDCWD, call->path, &state, 0) == 0 ? state.st_size : 0;
    return call->offset + call->size > there ? call->offset + call->size - there : 0;
}

/* Whether a path begins with a prefix, or is the one before a prefix's last "$". */
static int under(const char *path, const char *prefix) {
    size_t size = strlen(prefix);
    if (size && prefix[size - 1] == '$') return strlen(path) == size - 1 && !strncmp(path, prefix, size - 1);
    return !strncmp(path, prefix, size);
}

/* Holds the lock until ended(). */
static void begun(struct call *call) {
    pthread_mutex_lock(&alone);
    inside = 1;
    read_rules();
    for (int number = 0; number < n_rules; number++) {
        struct rule *rule = &rules[number];
        if (!under(call->path, rule->prefix) && !under(call->other, rule->prefix)) continue;
        call->seen = 1;
        if (strcmp(rule->kind, "any") && strcmp(rule->kind, call->kind)) continue;
        if (rule->action == KEEP) { call->keeps = 1; continue; }
        if (rule->action == CLOCK || !strcmp(call->kind, "map")) continue;
        if (rule->action == ROOM) {
            if (strcmp(call->kind, "write") && strcmp(call->kind, "truncate")) continue;
            long long growth = grows(call), room = growth ? rule->argument - held_in(rule->prefix) : 0;
            if (growth <= room || !growth) continue;
            call->acted = room > 0 && !strcmp(call->kind, "write") && call->size > growth - room ? SHORT : FAIL;
            call->error = ENOSPC;
            if (call->acted == SHORT) call->size -= growth - room;
            continue;
        }
        int64_t place = counts == NULL ? 0 : __atomic_fetch_add(&counts[number], 1, __ATOMIC_SEQ_CST);
        if (place < rule->first || place >= rule->first + rule->times) continue;
        call->acted = rule->action;
        call->error = rule->argument;
        if (rule->action != FAIL && !strcmp(call->kind, "write")) call->size = (call->size + 1) / 2;
    }
}

static void ended(struct call *call, long long result) {
    int error = result < 0 ? errno : 0;
    if (call->seen) {
        char line[2 * PATH_MAX + 200], path[PATH_MAX + 16];
        long long kept = call->keeps && result > 0 && call->parts != NULL ? result : 0, left = kept;
        int size = snprintf(line, sizeof line, "%s\t%s\t%lld\t%d\t%lld\t%lld\t%lld\t%s\t%s\n", ACTIONS[call->acted], call->kind, result,
                            error, call->offset, call->size, kept, call->path, call->other);
        struct iovec parts[66] = {{line, size}};
        int count = 1;
        for (int number = 0; number < call->n_parts && left > 0 && count < 66; number++) {
            parts[count] = call->parts[number];
            if ((long long)parts[count].iov_len > left) parts[count].iov_len = left;
            left -= parts[count++].iov_len;
        }
        snprintf(path, sizeof path, "%s/log", home);
        int file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (file >= 0) { syscall(SYS_writev, file, parts, count); syscall(SYS_close, file); }
    }
    if (call->acted == DIE) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    inside = 0;
    pthread_mutex_unlock(&alone);
    errno = error;
}

/* What is done in the place of a call that fails or dies, but for a write, which is half done. */
static int stopped(const struct call *call) {
    if (call->acted != FAIL && call->acted != DIE) return 0;
    errno = call->acted == FAIL ? call->error : EINTR;
    return 1;
}

#define CALL(KIND) struct call call = {.kind = KIND}
#define CHANGE(EXPRESSION) \
    ({ begun(&call); long long done = stopped(&call) ? -1 : (long long)(EXPRESSION); ended(&call, done); errno = done < 0 ? errno : saved; done; })

/* --- creating --- */

static int opened(int folder, const char *path, int flags, mode_t mode) {
    int (*open_it)(int, const char *, int, ...) = REAL(openat64);
    int saved = errno;
    if (inside || !(flags & (O_CREAT | O_TRUNC))) return open_it(folder, path, flags, mode);
    CALL("create");
    if (absolute(folder, path, call.path) != 0) return open_it(folder, path, flags, mode);
    struct stat state;
    int there = syscall(SYS_newfstatat, AT_FDCWD, call.path, &state, 0) == 0;
    if (there && !(flags & O_TRUNC)) return open_it(folder, path, flags, mode);
    if (there && !S_ISREG(state.st_mode)) return open_it(folder, path, flags, mode);
    if (there) call.kind = "truncate";
    return CHANGE(open_it(folder, path, flags, mode));
}

static mode_t mode_in(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;
}

#define OPEN(NAME) \
    int NAME(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = mode_in(flags, more); va_end(more); \
        return opened(AT_FDCWD, path, flags, mode); \
    }
#define OPENAT(NAME) \
    int NAME(int folder, const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = mode_in(flags, more); va_end(more); \
        return opened(folder, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static int made(int folder, const char *path, mode_t mode) {
    int saved = errno;
    int (*make)(int, const char *, mode_t) = REAL(mkdirat);
    CALL("mkdir");
    if (inside || absolute(folder, path, call.path) != 0) return make(folder, path, mode);
    return CHANGE(make(folder, path, mode));
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int folder, const char *path, mode_t mode) { return made(folder, path, mode); }

/* --- writing --- */

static ssize_t wrote(int handle, const struct iovec *parts, int count, off64_t offset, int at) {
    ssize_t (*write_it)(int, const struct iovec *, int) = REAL(writev);
    ssize_t (*write_at)(int, const struct iovec *, int, off64_t) = REAL(pwritev64);
    int saved = errno;
    CALL("write");
    if (inside || named(handle, call.path) != 0) return at ? write_at(handle, parts, count, offset) : write_it(handle, parts, count);
    for (int number = 0; number < count; number++) call.size += parts[number].iov_len;
    if (at) call.offset = offset;
    else if (syscall(SYS_fcntl, handle, F_GETFL) & O_APPEND) {
        struct stat state;
        syscall(SYS_fstat, handle, &state);
        call.offset = state.st_size;
    } else call.offset = syscall(SYS_lseek, handle, 0, SEEK_CUR);
    call.parts = parts;
    call.n_parts = count;
    begun(&call);
    long long done;
    if (call.acted == FAIL) { errno = call.error; done = -1; }
    else if (call.acted == SHORT || call.acted == DIE) {
        /* Half of it, from the first part on. */
        long long left = call.size;
        done = 0;
        for (int number = 0; number < count && left > 0; number++) {
            size_t size = (long long)parts[number].iov_len < left ? parts[number].iov_len : (size_t)left;
            ssize_t now = at ? syscall(SYS_pwrite64, handle, parts[number].iov_base, size, offset + done)
                             : syscall(SYS_write, handle, parts[number].iov_base, size);
            if (now < 0) break;
            done += now;
            left -= now;
        }
    } else done = at ? write_at(handle, parts, count, offset) : write_it(handle, parts, count);
    ended(&call, done);
    if (done >= 0) errno = saved;
    return done;
}

ssize_t write(int handle, const void *content, size_t size) {
    struct iovec part = {(void *)content, size};
    if (inside || size == 0) return syscall(SYS_write, handle, content, size);
    return wrote(handle, &part, 1, 0, 0);
}
ssize_t pwrite64(int handle, const void *content, size_t size, off64_t offset) {
    struct iovec part = {(void *)content, size};
    return wrote(handle, &part, 1, offset, 1);
}
ssize_t pwrite(int handle, const void *content, size_t size, off_t offset) { return pwrite64(handle, content, size, offset); }
ssize_t writev(int handle, const struct iovec *parts, int count) { return wrote(handle, parts, count, 0, 0); }
ssize_t pwritev64(int handle, const struct iovec *parts, int count, off64_t offset) { return wrote(handle, parts, count, offset, 1); }
ssize_t pwritev(int handle, const struct iovec *parts, int count, off_t offset) { return wrote(handle, parts, count, offset, 1); }

/* Whose bytes are not in memory here: a log that keeps bytes does not have them, and says so by its sizes. */
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned int flags) {
    ssize_t (*copy)(int, off64_t *, int, off64_t *, size_t, unsigned int) = REAL(copy_file_range);
    int saved = errno;
    CALL("write");
    if (inside || named(to, call.path) != 0) return copy(from, from_at, to, to_at, size, flags);
    call.size = size;
    call.offset = to_at != NULL ? *to_at : syscall(SYS_lseek, to, 0, SEEK_CUR);
    return CHANGE(copy(from, from_at, to, to_at, call.acted == SHORT ? (size_t)call.size : size, flags));
}
ssize_t sendfile64(int to, int from, off64_t *from_at, size_t size) {
    ssize_t (*send)(int, int, off64_t *, size_t) = REAL(sendfile64);
    int saved = errno;
    CALL("write");
    if (inside || named(to, call.path) != 0) return send(to, from, from_at, size);
    call.size = size;
    call.offset = syscall(SYS_lseek, to, 0, SEEK_CUR);
    return CHANGE(send(to, from, from_at, call.acted == SHORT ? (size_t)call.size : size));
}
ssize_t sendfile(int to, int from, off_t *from_at, size_t size) { return sendfile64(to, from, from_at, size); }

int fallocate64(int handle, int mode, off64_t offset, off64_t size) {
    int (*allocate)(int, int, off64_t, off64_t) = REAL(fallocate64);
    int saved = errno;
    CALL("write");
    if (inside || named(handle, call.path) != 0) return allocate(handle, mode, offset, size);
    call.offset = offset;
    call.size = size;
    return CHANGE(allocate(handle, mode, offset, size));
}
int fallocate(int handle, int mode, off_t offset, off_t size) { return fallocate64(handle, mode, offset, size); }
/* Returns its error. */
int posix_fallocate64(int handle, off64_t offset, off64_t size) { return fallocate64(handle, 0, offset, size) == 0 ? 0 : errno; }
int posix_fallocate(int handle, off_t offset, off_t size) { return posix_fallocate64(handle, offset, size); }

int ftruncate64(int handle, off64_t size) {
    int (*cut)(int, off64_t) = REAL(ftruncate64);
    int saved = errno;
    CALL("truncate");
    if (inside || named(handle, call.path) != 0) return cut(handle, size);
    call.offset = size;
    return CHANGE(cut(handle, size));
}
int ftruncate(int handle, off_t size) { return ftruncate64(handle, size); }

void *mmap64(void *at, size_t size, int protection, int flags, int handle, off64_t offset) {
    int saved = errno;
    CALL("map");
    if (inside || handle < 0 || !(flags & MAP_SHARED) || !(protection & PROT_WRITE) || named(handle, call.path) != 0)
        return (void *)syscall(SYS_mmap, at, size, protection, flags, handle, offset);
    call.offset = offset;
    call.size = size;
    begun(&call);
    void *place = (void *)syscall(SYS_mmap, at, size, protection, flags, handle, offset);
    ended(&call, place == MAP_FAILED ? -1 : 0);
    if (place != MAP_FAILED) errno = saved;
    return place;
}
void *mmap(void *at, size_t size, int protection, int flags, int handle, off_t offset) {
    return mmap64(at, size, protection, flags, handle, offset);
}

/* --- on the disk --- */

static int synced(int handle, const char *name) {
    int (*sync_it)(int) = real(name);
    int saved = errno;
    CALL("sync");
    if (inside || named(handle, call.path) != 0) return sync_it(handle);
    return CHANGE(sync_it(handle));
}
int fsync(int handle) { return synced(handle, "fsync"); }
int fdatasync(int handle) { return synced(handle, "fdatasync"); }

/* --- names --- */

int renameat2(int folder, const char *path, int to, const char *other, unsigned int flags) {
    int saved = errno;
    CALL("rename");
    if (inside || absolute(folder, path, call.path) != 0 || absolute(to, other, call.other) != 0)
        return syscall(SYS_renameat2, folder, path, to, other, flags);
    return CHANGE(syscall(SYS_renameat2, folder, path, to, other, flags));
}
int rename(const char *path, const char *other) { return renameat2(AT_FDCWD, path, AT_FDCWD, other, 0); }
int renameat(int folder, const char *path, int to, const char *other) { return renameat2(folder, path, to, other, 0); }

int linkat(int folder, const char *path, int to, const char *other, int flags) {
    int saved = errno;
    CALL("link");
    if (inside || absolute(folder, path, call.path) != 0 || absolute(to, other, call.other) != 0)
        return syscall(SYS_linkat, folder, path, to, other, flags);
    return CHANGE(syscall(SYS_linkat, folder, path, to, other, flags));
}
int link(const char *path, const char *other) { return linkat(AT_FDCWD, path, AT_FDCWD, other, 0); }

int unlinkat(int folder, const char *path, int flags) {
    int saved = errno;
    CALL("unlink");
    struct stat state;
    if (inside || absolute(folder, path, call.path) != 0 || syscall(SYS_newfstatat, AT_FDCWD, call.path, &state, AT_SYMLINK_NOFOLLOW) != 0)
        return syscall(SYS_unlinkat, folder, path, flags);
    return CHANGE(syscall(SYS_unlinkat, folder, path, flags));
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

/* --- the clock --- */

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        for (int number = 0; number < n_rules; number++)
            if (rules[number].action == CLOCK) time->tv_sec += rules[number].argument;
    return result;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into != NULL) *into = now.tv_sec;
    return now.tv_sec;
}
