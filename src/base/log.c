/* Log lines on standard error, each written by one call so that lines of threads do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_bool log_is_quiet;

void log_set_quiet(bool quiet) {
    atomic_store(&log_is_quiet, quiet);
}

static void write_line(const char *prefix, const char *fmt, va_list ap) {
    char text[2048];
    vsnprintf(text, sizeof text, fmt, ap);
    fprintf(stderr, "athanor: %s%s\n", prefix, text);
}

void log_info(const char *fmt, ...) {
    if (atomic_load(&log_is_quiet)) return;
    va_list ap;
    va_start(ap, fmt);
    write_line("", fmt, ap);
    va_end(ap);
}

void log_warn(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    write_line("warning: ", fmt, ap);
    va_end(ap);
}
