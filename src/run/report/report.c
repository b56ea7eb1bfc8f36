/* The page: the frame around the sections, written in one step. */
#include "run/report/report.h"

#include "base/arena.h"
#include "base/file.h"
#include "run/report/report_data.h"
#include "run/report/svg.h"

static void put_page(strbuf *out, const report_data *d) {
    svg_put_between(out,
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
                    d->summary.name, " - athanor</title>\n<style>\n");
    strbuf_puts(out, report_css);
    strbuf_puts(out, "</style>\n</head>\n<body>\n<main>\n");
    report_put_header(out, d);
    report_put_alarms(out, d);
    report_put_curves(out, d);
    report_put_stages(out, d);
    report_put_samples(out, d);
    report_put_memory(out, d);
    report_put_next(out, d);
    report_put_config(out, d);
    strbuf_puts(out, "<footer>Written by athanor " ATHANOR_VERSION " from the files of ");
    svg_put_escaped(out, d->summary.path);
    strbuf_puts(out, "</footer>\n</main>\n<script>\n");
    strbuf_puts(out, report_js);
    strbuf_puts(out, "</script>\n</body>\n</html>\n");
}

status report_write(const char *run_dir, err *e) {
    report_data d;
    TRY(report_data_load(&d, run_dir, e));
    strbuf page = {0};
    put_page(&page, &d);
    char *path = path_join(d.memory, run_dir, "report.html");
    status st = file_write_atomic(path, page.data, page.len, e);
    strbuf_free(&page);
    report_data_free(&d);
    return st;
}
