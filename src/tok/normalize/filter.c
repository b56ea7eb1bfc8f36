/* Normalizers that judge each character alone: it stays, goes, or becomes a space. */
#include "tok/normalize/job.h"

typedef enum verdict { STAYS, GOES, BECOMES_SPACE } verdict;

static verdict judge_nmt(uint32_t c) {
    if (c < 0x20) {
        if (c == '\t' || c == '\n' || c == '\f' || c == '\r') return BECOMES_SPACE;
        return c > 0 ? GOES : STAYS;
    }
    if (c == 0x7F || c == 0x8F || c == 0x9F) return GOES;
    switch (c) {
        case 0x1680:
        case 0x200B:
        case 0x200C:
        case 0x200D:
        case 0x200E:
        case 0x200F:
        case 0x2028:
        case 0x2029:
        case 0x2581:
        case 0xFEFF:
        case 0xFFFD: return BECOMES_SPACE;
        default: return STAYS;
    }
}

static verdict judge_clean(uint32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return BECOMES_SPACE;
    unsigned props = norm_props(c);
    return props & PROP_OTHER ? GOES : props & PROP_SPACE ? BECOMES_SPACE : STAYS;
}

static verdict judge(norm_kind kind, uint32_t c) {
    switch (kind) {
        case NORM_NMT: return judge_nmt(c);
        case NORM_CLEAN: return judge_clean(c);
        case NORM_STRIP_ACCENTS: return norm_props(c) & PROP_MARK ? GOES : STAYS;
        default: return norm_props(c) & PROP_NONSPACING ? GOES : STAYS;
    }
}

/* End of the stretch from i in which all stays. A space is itself already. */
static size_t stays_end(norm_kind kind, const tok_piece *in, size_t i) {
    bool ascii_stays = kind == NORM_STRIP_ACCENTS || kind == NORM_STRIP_NONSPACING;
    while (i < in->len) {
        uint8_t b = (uint8_t)in->s[i];
        if (b < 0x80 && ascii_stays) {
            i = ascii_end(in->s, in->len, i);
            continue;
        }
        if (b >= 0x20 && b < 0x7F) {
            i++;
            continue;
        }
        size_t next = i;
        if (judge(kind, take_char(in->s, &next)) != STAYS) return i;
        i = next;
    }
    return i;
}

size_t filter_keep(const norm_step *s, const tok_piece *in) {
    return stays_end(s->kind, in, 0);
}

status filter_run(norm_job *j) {
    const tok_piece *in = j->in;
    norm_kind kind = j->step->kind;
    size_t i = j->keep;
    text_copy(j->out, in, 0, i);
    while (i < in->len) {
        size_t start = i;
        if (judge(kind, take_char(in->s, &i)) == BECOMES_SPACE) {
            text_add(j->out, " ", 1, piece_from(in, start));
        }
        size_t end = stays_end(kind, in, i);
        text_copy(j->out, in, i, end);
        i = end;
    }
    return ST_OK;
}
