/* Preloaded into a process, it shifts that process's wall clock by CLOCK_SKEW_SECONDS, and nothing else.

   Monotonic clocks stay as they are. A wait that ends at a moment of the wall clock lasts as long as it was meant to:
   the kernel, which knows the true time, is given the true moment. Moments below EPOCH are of monotonic clocks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EPOCH 1000000000
#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

static long skew(void) {
    static long known, read;
    if (!read) {
        const char *text = getenv("CLOCK_SKEW_SECONDS");
        known = text ? atol(text) : 0;
        read = 1;
    }
    return known;
}

static const struct timespec *meant(const struct timespec *until, struct timespec *true_moment) {
    if (!until || until->tv_sec < EPOCH) return until;
    *true_moment = *until;
    true_moment->tv_sec -= skew();
    return true_moment;
}

static int is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(clock_gettime) *real;
    if (!real) real = REAL(clock_gettime);
    int failed = real(clock, now);
    if (!failed && is_wall(clock)) now->tv_sec += skew();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(now, zone);
    if (!failed) now->tv_sec += skew();
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) { return clock_gettime(CLOCK_REALTIME, now) ? 0 : base; }

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    struct timespec moment;
    int absolute = (flags & TIMER_ABSTIME) && is_wall(clock);
    return REAL(clock_nanosleep)(clock, flags, absolute ? meant(until, &moment) : until, left);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec moment;
    static __typeof__(pthread_cond_timedwait) *real;
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = REAL(pthread_cond_timedwait);
    return real(condition, mutex, meant(until, &moment));
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec moment;
    return REAL(pthread_mutex_timedlock)(mutex, meant(until, &moment));
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec moment;
    return REAL(sem_timedwait)(semaphore, meant(until, &moment));
}

/* Abseil, and so gRPC and Ray, read the clock and wait for futexes by themselves. */
long syscall(long number, ...) {
    long given[6];
    va_list rest;
    va_start(rest, number);
    for (int place = 0; place < 6; place++) given[place] = va_arg(rest, long);
    va_end(rest);
    struct timespec moment;
    if (number == SYS_futex && (given[1] & FUTEX_CLOCK_REALTIME))
        given[3] = (long)meant((const struct timespec *)given[3], &moment);
    static long (*real)(long, ...);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long result = real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    if (number == SYS_clock_gettime && result == 0 && is_wall((clockid_t)given[0]))
        ((struct timespec *)given[1])->tv_sec += skew();
    return result;
}
