/* What is planned for an engine (see engine.h). */
#include "base/arena.h"
#include "infer/engine.h"
#include "model/layer.h"

enum {
    PAGE = 32,       /* tokens: a prefix is kept in whole pages */
    MOST_ROWS = 256, /* of a pass: beyond these a product gains nothing */
    MOST_LOGITS = 64,
    /* Up to four rows cost hardly more than one on a CPU (SmolLM2-135M Q4_1: 9.4 ms for 6.5). A text
     * that repeats is written up to 2.4 times as fast, and one that does not as fast as before. */
    DRAFT_ROWS = 4
};

static const int ROWS[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, MOST_ROWS};

static int64_t pages_for(int64_t tokens) {
    return (tokens + PAGE - 1) / PAGE;
}

engine_size engine_size_for(const model_config *mc, dtype cache_dt, dtype compute, int longest,
                            int seqs, int64_t cache_bytes) {
    bool states = model_has_states(mc), ahead = mc->num_nextn_predict_layers > 0 && !states;
    const model_pages one = {.page = PAGE, .pages = 1}, all_states = {.seqs = seqs};
    int64_t page_bytes = model_paged_bytes(mc, 1, &one, ahead, cache_dt, compute);
    int64_t left = cache_bytes - model_paged_bytes(mc, 1, &all_states, ahead, cache_dt, compute);
    int64_t least = pages_for(longest), most = least * seqs;
    int64_t pages = page_bytes > 0 ? left / page_bytes : most;
    if (pages > most) pages = most;
    if (pages < least) pages = least;
    return (engine_size){.rows = MOST_ROWS,
                         .logits = seqs > MOST_LOGITS ? seqs : MOST_LOGITS,
                         .longest = longest,
                         .seqs = seqs,
                         .page = PAGE,
                         .pages = (int)pages + 1,
                         .draft = states ? 0 : DRAFT_ROWS,
                         .states = states,
                         .from_text = true,
                         .ahead = ahead,
                         .timed = true};
}

model_pages engine_pages(const engine_size *size) {
    return (model_pages){.page = size->page,
                         .pages = size->pages,
                         .seqs = size->seqs,
                         .of_seq = (size->longest + size->page - 1) / size->page};
}

static int rows_at(int number, int most) {
    if (number >= ARRAY_LEN(ROWS) || most == 0) return 0;
    if (number > 0 && ROWS[number - 1] >= most) return 0;
    return ROWS[number] < most ? ROWS[number] : most;
}

int engine_rows_at(const engine_size *size, int number, bool body) {
    return rows_at(number, body ? size->rows : size->logits);
}

int engine_ahead_rows_at(const engine_size *size, int number, bool body) {
    if (!size->ahead || !size->draft) return 0;
    return rows_at(number, body ? size->rows : size->draft);
}
