/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One line on a terminal while something takes longer than a second: phase,
 * bytes, rate, time left. Redrawn at most ten times a second, cleared at the end.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "cli.h"
#include "out.h"

enum { LINE_BYTES = 256, PHASE_BYTES = 32, DEFAULT_COLUMNS = 80 };

static const uint64_t silence_ns = UINT64_C(1000000000), redraw_ns = UINT64_C(100000000);

static struct {
    pthread_mutex_t mutex;
    bool active;  /* between start and stop, on a terminal */
    bool visible; /* there is a line to clear */
    uint64_t began_ns, phase_began_ns, drawn_ns;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Two buffers: a signal handler may read the one while the other is written. */
static char phase_names[2][PHASE_BYTES];
static atomic_uint phase_index;

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

const char *cli_progress_phase(void)
{
    return phase_names[atomic_load(&phase_index) & 1];
}

static void set_phase(const char *phase)
{
    unsigned next = atomic_load(&phase_index) + 1;

    (void)snprintf(phase_names[next & 1], PHASE_BYTES, "%s", phase);
    atomic_store(&phase_index, next);
}

/* "12 s", "3:05 min", "2:00 h" */
static void format_time(char *buffer, size_t size, double seconds)
{
    unsigned whole = seconds < 360000 ? (unsigned)(seconds + 0.5) : 360000;

    if (whole < 60)
        (void)snprintf(buffer, size, "%u s", whole);
    else if (whole < 3600)
        (void)snprintf(buffer, size, "%u:%02u min", whole / 60, whole % 60);
    else
        (void)snprintf(buffer, size, "%u:%02u h", whole / 3600, whole / 60 % 60);
}

void cli_progress_line(char *buffer, size_t columns, const struct cli_progress_state *line)
{
    char done[CLI_TEXT_BYTES], total[CLI_TEXT_BYTES], left[CLI_TEXT_BYTES];
    double seconds = (double)line->phase_ns / 1e9;
    double rate = seconds > 0 ? (double)line->done_bytes / seconds : 0;

    if (line->total_bytes == 0) {
        format_time(left, sizeof(left), seconds);
        (void)snprintf(buffer, columns + 1, "%s  %s", line->phase, left);
    } else if (rate > 0 && line->done_bytes < line->total_bytes) {
        format_time(left, sizeof(left), (double)(line->total_bytes - line->done_bytes) / rate);
        (void)snprintf(buffer, columns + 1, "%s  %s of %s  %.2f GB/s  %s left", line->phase,
                       cli_format_bytes(done, line->done_bytes),
                       cli_format_bytes(total, line->total_bytes), rate / 1e9, left);
    } else {
        (void)snprintf(buffer, columns + 1, "%s  %s of %s", line->phase,
                       cli_format_bytes(done, line->done_bytes),
                       cli_format_bytes(total, line->total_bytes));
    }
}

/* One column stays free: a full line would make some terminals scroll. */
static size_t usable_columns(void)
{
    struct winsize size = {0};
    size_t columns = DEFAULT_COLUMNS;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        columns = size.ws_col;
    return columns <= LINE_BYTES - 8 ? columns - 1 : LINE_BYTES - 8;
}

static void clear_locked(void)
{
    if (state.visible)
        (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    state.visible = false;
}

void cli_progress_start(bool quiet)
{
    (void)pthread_mutex_lock(&state.mutex);
    state.active = !quiet && isatty(STDERR_FILENO);
    state.began_ns = now_ns();
    state.phase_began_ns = state.began_ns;
    state.drawn_ns = 0;
    (void)pthread_mutex_unlock(&state.mutex);
}

void cli_progress_stop(void)
{
    (void)pthread_mutex_lock(&state.mutex);
    clear_locked();
    state.active = false;
    (void)pthread_mutex_unlock(&state.mutex);
}

void cli_progress_update(void *arg, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
    uint64_t now = now_ns();
    char line[LINE_BYTES];

    (void)arg;
    (void)pthread_mutex_lock(&state.mutex);
    if (strncmp(cli_progress_phase(), phase, PHASE_BYTES - 1) != 0) {
        set_phase(phase);
        state.phase_began_ns = now;
    }
    if (state.active && now - state.began_ns >= silence_ns && now - state.drawn_ns >= redraw_ns) {
        const struct cli_progress_state show = {phase, done_bytes, total_bytes,
                                                now - state.phase_began_ns};

        cli_progress_line(line, usable_columns(), &show);
        (void)fprintf(stderr, "\r%s\033[K", line);
        (void)fflush(stderr);
        state.visible = true;
        state.drawn_ns = now;
    }
    (void)pthread_mutex_unlock(&state.mutex);
}

void cli_progress_verify(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    cli_progress_update(arg, "verify", done_bytes, total_bytes);
}

void cli_progress_interrupt(void (*write)(void *arg), void *arg)
{
    (void)pthread_mutex_lock(&state.mutex);
    clear_locked();
    write(arg);
    (void)pthread_mutex_unlock(&state.mutex);
}
