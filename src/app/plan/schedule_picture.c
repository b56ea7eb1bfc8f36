#include "app/plan/schedule_picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "run/report/svg.h"
#include "train/ranks/trace.h"

static const char LETTER[WORKS] = {'F', 'B', 'I', 'W'};

/* ---- in a terminal ---- */

int schedule_letters(const schedule *s, double unit, int each) {
    double letters = each * s->end / unit * schedule_parts(s);
    return letters < 1e6 ? (int)lrint(letters) : 1000000;
}

/* "F3", "f3" for a further chunk of a stage; of a longer piece the rest is a line. A number is whole or left out: "F1" is not F12.
 * Of two that are done together each has half of the room. */
static void draw_item(char *line, int from, int to, const schedule *s, const schedule_item *it,
                      bool numbers) {
    char text[16];
    char letter = LETTER[it->work];
    snprintf(text, sizeof text, "%c%d", it->chunk < s->stages ? letter : letter + ('a' - 'A'),
             it->micro_batch);
    int len = (int)strlen(text);
    if (!numbers || len > to - from) len = 1;
    for (int i = from; i < to; i++) line[i] = i - from < len ? text[i - from] : '-';
}

/* Of two items that are done together. it: item k of its stage. */
static bool is_second(const schedule_item *it, int k) {
    return k > 0 && it[-1].joined;
}

void schedule_draw(strbuf *out, const schedule *s, double unit, int each) {
    int letters = schedule_letters(s, unit, each);
    double scale = letters / s->end;
    char *line = xmalloc((size_t)letters + 1);
    for (int i = 0; i < s->stages; i++) {
        memset(line, ' ', (size_t)letters);
        line[letters] = '\0';
        for (int k = 0; k < s->stage[i].n; k++) {
            const schedule_item *it = &s->stage[i].item[k];
            double middle = (it->begin + it->end) / 2;
            draw_item(line, (int)lrint((is_second(it, k) ? middle : it->begin) * scale),
                      (int)lrint((it->joined ? middle : it->end) * scale), s, it, each > 1);
        }
        strbuf_printf(out, "%3d |%s|\n", i, line);
    }
    free(line);
}

int schedule_most_kept(const schedule *s) {
    int most = 0;
    for (int i = 0; i < s->stages; i++)
        if (s->stage[i].kept > most) most = s->stage[i].kept;
    return most;
}

/* ---- SVG ---- */

enum { LEFT = 70, WORK_ROW = 18, KEPT_ROW = 16, ROW = WORK_ROW + KEPT_ROW, GAP = 44, HEAD = 70 };
enum { WIDTH = 1000, NUMBER_ROOM = 14, NUMBER_HEIGHT = 10 };

static void put_item(strbuf *out, const schedule *s, const schedule_item *it, double y,
                     double height, double scale) {
    static const int colors[WORKS] = {0, 1, 1, 2};
    static const char *const words[WORKS] = {"forward", "backward", "gradient of the input",
                                             "gradient of the weights"};
    double x = LEFT + it->begin * scale, width = (it->end - it->begin) * scale;
    strbuf_printf(out, "<g class=\"c\"><title>%s of micro-batch %d, chunk %d</title>",
                  words[it->work], it->micro_batch, it->chunk);
    strbuf_printf(out, "<rect class=\"b%d%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%g\"/>",
                  colors[it->work], it->chunk < s->stages ? "" : " p", x, y,
                  width > 0.6 ? width - 0.5 : width, height);
    char number[16];
    snprintf(number, sizeof number, "%d", it->micro_batch);
    if (width >= NUMBER_ROOM && height >= NUMBER_HEIGHT)
        svg_text(out, "v m", x + width / 2, y + height / 2 + 3.5, number);
    strbuf_puts(out, "</g>\n");
}

/* Two items that are done together lie one above the other. */
static void put_items(strbuf *out, const schedule *s, const schedule_stage *g, double y,
                      double scale) {
    double whole = WORK_ROW - 3, half = whole / 2;
    for (int k = 0; k < g->n; k++) {
        const schedule_item *it = &g->item[k];
        bool below = is_second(it, k);
        put_item(out, s, it, below ? y + half : y, below || it->joined ? half : whole, scale);
    }
}

/* What the activations of a stage take over time, in micro-batches of a whole stage: from the beginning of a forward to the end of
 * its backward. */
static void put_kept(strbuf *out, const schedule *s, int stage, double y, double scale) {
    const schedule_stage *g = &s->stage[stage];
    double each = 1.0 / schedule_parts(s), step = (double)(KEPT_ROW - 4) / schedule_most_kept(s);
    double bottom = y + KEPT_ROW - 3;
    int kept = 0;
    strbuf_printf(out,
                  "<g class=\"c\"><title>activations of %.4g micro-batches at most</title>"
                  "<path class=\"b3\" d=\"M%d %.1f",
                  g->kept * each, LEFT, bottom);
    for (int k = 0; k < g->n; k++) {
        const schedule_item *it = &g->item[k];
        bool begins = it->work == WORK_FORWARD;
        if (it->work == WORK_INPUT) continue;
        kept += begins ? 1 : -1;
        strbuf_printf(out, "H%.2fV%.2f", LEFT + (begins ? it->begin : it->end) * scale,
                      bottom - kept * step);
    }
    strbuf_puts(out, "Z\"/></g>\n");
}

static void put_schedule(strbuf *out, const schedule *s, double y, double scale) {
    char text[128];
    snprintf(text, sizeof text, "%s: time %.4g, waiting %.1f %%", schedule_name(s->kind), s->step,
             100 * s->bubble);
    svg_text(out, "h", LEFT, y - 8, text);
    for (int i = 0; i < s->stages; i++) {
        double at = y + i * ROW;
        snprintf(text, sizeof text, "stage %d", i);
        svg_text(out, "s e", LEFT - 8, at + WORK_ROW - 6, text);
        strbuf_printf(out, "<rect class=\"f\" x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"/>\n",
                      LEFT, at, s->end * scale, WORK_ROW - 3);
        put_items(out, s, &s->stage[i], at, scale);
        put_kept(out, s, i, at + WORK_ROW, scale);
    }
}

void schedule_put_svg(strbuf *out, const schedule *s, int n) {
    static const char *const keys[] = {"forward", "backward, or its input's part",
                                       "its weights' part", "activations kept"};
    double longest = 0;
    bool chunks = false;
    for (int i = 0; i < n; i++) {
        longest = fmax(longest, s[i].end);
        chunks |= s[i].chunks > s[i].stages;
    }
    double scale = (WIDTH - LEFT - 20) / longest;
    svg_open(out, WIDTH, HEAD + n * (s->stages * ROW + GAP), "Pipeline schedules");
    char text[96];
    snprintf(text, sizeof text, "%d stage%s, %d micro-batch%s", s->stages, text_s(s->stages),
             s->micro_batches, s->micro_batches == 1 ? "" : "es");
    svg_text(out, "t", 12, 26, text);
    for (int i = 0; i < ARRAY_LEN(keys); i++) svg_key(out, i, LEFT + 240 * i, 48, keys[i]);
    if (chunks)
        svg_text(out, "s e", WIDTH - 20, 26, "faded: further chunks of a stage, or a second copy");
    for (int i = 0; i < n; i++)
        put_schedule(out, &s[i], HEAD + 20 + i * (s->stages * ROW + GAP), scale);
    svg_close(out);
}

/* ---- a trace ---- */

static void put_trace_item(strbuf *out, const schedule_item *it, int process, int thread) {
    char name[32];
    snprintf(name, sizeof name, "%c %d", LETTER[it->work], it->micro_batch);
    trace_put_event(out, &(trace_event){.name = name,
                                        .category = "schedule",
                                        .process = process,
                                        .thread = thread,
                                        .at_us = it->begin * 1e3,
                                        .us = (it->end - it->begin) * 1e3});
    strbuf_printf(out, "\"micro_batch\": %d, \"chunk\": %d}}", it->micro_batch, it->chunk);
}

/* Counters of what stages keep, in passes of a chunk. */
static void put_trace_kept(strbuf *out, const schedule_stage *g, int process, int stage) {
    int kept = 0;
    for (int k = 0; k < g->n; k++) {
        const schedule_item *it = &g->item[k];
        bool begins = it->work == WORK_FORWARD;
        if (it->work == WORK_INPUT) continue;
        kept += begins ? 1 : -1;
        strbuf_printf(out,
                      ",\n{\"name\": \"kept by stage %d\", \"ph\": \"C\", \"pid\": %d, "
                      "\"ts\": %.3f, \"args\": {\"passes\": %d}}",
                      stage, process, (begins ? it->begin : it->end) * 1e3, kept);
    }
}

void schedule_put_trace(strbuf *out, const schedule *s, int n) {
    strbuf_puts(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int i = 0; i < n; i++) {
        if (i) strbuf_puts(out, ",\n");
        trace_put_name(out, "process_name", i, 0, schedule_name(s[i].kind));
        for (int k = 0; k < s[i].stages; k++) {
            char name[24];
            snprintf(name, sizeof name, "stage %d", k);
            strbuf_puts(out, ",\n");
            trace_put_name(out, "thread_name", i, k, name);
            for (int j = 0; j < s[i].stage[k].n; j++)
                put_trace_item(out, &s[i].stage[k].item[j], i, k);
            put_trace_kept(out, &s[i].stage[k], i, k);
        }
    }
    strbuf_puts(out, "\n]}\n");
}
