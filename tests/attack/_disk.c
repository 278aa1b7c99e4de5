// Between a process and its disk: fails, cuts short or kills at the k-th call on files of one folder.
//
// Preloaded (LD_PRELOAD), so that the errors are those of real system calls and everything above them runs as it is.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { kOnce = 1, kFromThenOn = 2, kShort = 3, kKillBefore = 4, kKillAfter = 5 };

static char folder[PATH_MAX];
static long calls, fatal;
static int way, error_number;

// Calls are counted from here on; call `at` (from 1) goes wrong, none if it is 0.
void disk_arm(const char* path, long at, int how, int error) {
  snprintf(folder, sizeof folder, "%s", path);
  calls = 0, fatal = at, way = how, error_number = error;
}

long disk_calls(void) { return calls; }

static int inside(const char* path) { return folder[0] && strncmp(path, folder, strlen(folder)) == 0; }

static int inside_fd(int fd) {
  char link[64], path[PATH_MAX];
  if (!folder[0]) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return inside(path);
}

// What is to happen to this call; 0 for nothing.
static int next(void) {
  ++calls;
  return calls == fatal || (calls > fatal && fatal && way == kFromThenOn) ? way : 0;
}

static void die(void) { kill(getpid(), SIGKILL); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define GUARD(is_inside, call)                   \
  int how = (is_inside) ? next() : 0;            \
  if (how == kOnce || how == kFromThenOn) {      \
    errno = error_number;                        \
    return -1;                                   \
  }                                              \
  if (how == kKillBefore) die();                 \
  __typeof__(call) result = call;                \
  if (how == kKillAfter) die();                  \
  return result;

ssize_t write(int fd, const void* block, size_t size) {
  int how = inside_fd(fd) ? next() : 0;
  size_t part = size > 1 ? size / 2 : size;
  if (how == kOnce || how == kFromThenOn) {
    errno = error_number;
    return -1;
  }
  if (how == kShort) return REAL(write)(fd, block, part);
  if (how == kKillBefore) {
    REAL(write)(fd, block, part);
    die();
  }
  ssize_t result = REAL(write)(fd, block, size);
  if (how == kKillAfter) die();
  return result;
}

int fsync(int fd) { GUARD(inside_fd(fd), REAL(fsync)(fd)) }
int ftruncate(int fd, off_t size) { GUARD(inside_fd(fd), REAL(ftruncate)(fd, size)) }
int rename(const char* from, const char* to) { GUARD(inside(to), REAL(rename)(from, to)) }
int fchmod(int fd, mode_t mode) { GUARD(inside_fd(fd), REAL(fchmod)(fd, mode)) }
// Disks that write later say so when a file is closed.
static int writes(int fd) { return (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY; }
int close(int fd) { GUARD(inside_fd(fd) && writes(fd), REAL(close)(fd)) }

// Only where a file may be made: reading is not attacked.
static int makes(int flags) { return flags & O_CREAT; }

#define OPEN(name)                                                      \
  int name(const char* path, int flags, ...) {                          \
    va_list more;                                                       \
    va_start(more, flags);                                              \
    mode_t mode = makes(flags) ? va_arg(more, mode_t) : 0;              \
    va_end(more);                                                       \
    int (*real)(const char*, int, ...) = dlsym(RTLD_NEXT, #name);       \
    GUARD(makes(flags) && inside(path), real(path, flags, mode))        \
  }
OPEN(open)
OPEN(open64)
