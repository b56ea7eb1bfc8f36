/* Normalizers that give each character alone another writing: lower case, spaces around Chinese
 * characters, the byte alphabet. All that comes of a character has its place. */
#include "tok/internal.h"
#include "tok/normalize/job.h"

/* A character that stands for the one at `place`. */
static void add_cp(norm_job *j, uint32_t cp, size_t place) {
    char bytes[4];
    text_add(j->out, bytes, (size_t)utf8_encode(cp, bytes), piece_from(j->in, place));
}

/* ---- lower case ---- */

static size_t lower_end(const tok_piece *in, size_t i) {
    while (i < in->len) {
        uint8_t b = (uint8_t)in->s[i];
        if (b < 0x80) {
            if (b >= 'A' && b <= 'Z') return i;
            i++;
            continue;
        }
        size_t next = i;
        if (norm_props(take_char(in->s, &next)) & PROP_UPPER) return i;
        i = next;
    }
    return i;
}

size_t lowercase_keep(const norm_step *s, const tok_piece *in) {
    (void)s;
    return lower_end(in, 0);
}

/* The loop is free of branches, so that the compiler makes vectors of it. */
static void lower_ascii(norm_job *j, size_t start, size_t end) {
    const char *s = j->in->s;
    size_t done = j->out->s.len;
    text_copy(j->out, j->in, start, end);
    char *to = j->out->s.data + done;
    for (size_t i = 0; i < end - start; i++) {
        to[i] = (char)(s[start + i] | ((uint8_t)(s[start + i] - 'A') < 26) << 5);
    }
}

status lowercase_run(norm_job *j) {
    const tok_piece *in = j->in;
    text_copy(j->out, in, 0, j->keep);
    for (size_t i = j->keep; i < in->len;) {
        size_t start = i, end = ascii_end(in->s, in->len, i);
        if (end > i) {
            lower_ascii(j, i, end);
        } else {
            uint32_t lower[2];
            int n = norm_lower_of(take_char(in->s, &end), lower);
            for (int k = 0; k < n; k++) add_cp(j, lower[k], start);
        }
        i = lower_end(in, end);
        text_copy(j->out, in, end, i);
    }
    return ST_OK;
}

/* ---- Chinese characters ---- */

/* Those that BERT's first implementation names. */
static bool is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

static size_t chinese_start(const tok_piece *in, size_t i) {
    while (i < in->len) {
        if ((uint8_t)in->s[i] < 0x80) {
            i = ascii_end(in->s, in->len, i);
            continue;
        }
        size_t next = i;
        if (is_chinese(take_char(in->s, &next))) return i;
        i = next;
    }
    return i;
}

size_t chinese_keep(const norm_step *s, const tok_piece *in) {
    (void)s;
    return chinese_start(in, 0);
}

status chinese_run(norm_job *j) {
    const tok_piece *in = j->in;
    size_t i = j->keep;
    text_copy(j->out, in, 0, i);
    while (i < in->len) {
        size_t end = i + utf8_size(in->s[i]);
        text_add(j->out, " ", 1, piece_from(in, i));
        text_copy(j->out, in, i, end);
        text_add(j->out, " ", 1, piece_from(in, i));
        i = chinese_start(in, end);
        text_copy(j->out, in, end, i);
    }
    return ST_OK;
}

/* ---- bytes ---- */

status byte_level_run(norm_job *j) {
    for (size_t i = 0; i < j->in->len; i++) {
        add_cp(j, byte_alphabet_char((uint8_t)j->in->s[i]), i);
    }
    return ST_OK;
}
