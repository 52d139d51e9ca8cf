/* Preloaded into every process of the service: the disk is slow or full and the clock is set, as a shared file says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The layout of faults.Control. */
struct control {
  volatile long clock_shift_s;
  volatile long sync_ms;
  volatile long disk_full;
};

static struct control none, *control = &none;

__attribute__((constructor)) static void attach(void) {
  const char *path = getenv("CHAOS_CONTROL");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) control = found;
  close(file);
}

#define REAL(type, name, ...)                                         \
  static type (*real)(__VA_ARGS__);                                   \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int clock_gettime(clockid_t id, struct timespec *now) {
  REAL(int, "clock_gettime", clockid_t, struct timespec *);
  int result = real(id, now);
  if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) now->tv_sec += control->clock_shift_s;
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  REAL(int, "gettimeofday", struct timeval *restrict, void *restrict);
  int result = real(now, zone);
  now->tv_sec += control->clock_shift_s;
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

/* Waits of the C library are told a time of day, which the kernel compares with its own. */
int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
  REAL(int, "sem_timedwait", sem_t *restrict, const struct timespec *restrict);
  struct timespec own = *until;
  own.tv_sec -= control->clock_shift_s;
  return real(semaphore, &own);
}

static void slowly(void) {
  long ms = control->sync_ms;
  struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  if (ms > 0) nanosleep(&pause, NULL);
}

int fsync(int file) {
  REAL(int, "fsync", int);
  slowly();
  return real(file);
}

int fdatasync(int file) {
  REAL(int, "fdatasync", int);
  slowly();
  return real(file);
}

static int refused(int file) {
  struct stat status;
  if (!control->disk_full || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  errno = ENOSPC;
  return 1;
}

ssize_t write(int file, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  return refused(file) ? -1 : real(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  REAL(ssize_t, "writev", int, const struct iovec *, int);
  return refused(file) ? -1 : real(file, parts, count);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
  REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
  return refused(file) ? -1 : real(file, data, size, at);
}
