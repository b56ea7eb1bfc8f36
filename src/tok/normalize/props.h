/* What normalizers must know of a character, from a generated table (tools/make_norm_table.py).
 *
 * The answers are those of Hugging Face tokenizers, whose parts know different versions of Unicode:
 * normal forms and combining marks are those of 9.0 (a later character never changes), what BERT
 * removes is that of 8.0 or so, lower case and grapheme clusters are those of 17.0. */
#ifndef TOK_NORMALIZE_PROPS_H
#define TOK_NORMALIZE_PROPS_H

#include <stddef.h>
#include <stdint.h>

enum {
    /* May change in this normal form, or change what is before it: not (Quick_Check=Yes and
     * combining class 0). */
    PROP_NFC = 1 << 0,
    PROP_NFD = 1 << 1,
    PROP_NFKC = 1 << 2,
    PROP_NFKD = 1 << 3,
    PROP_MARK = 1 << 4,       /* combining mark */
    PROP_NONSPACING = 1 << 5, /* ... of category Mn */
    PROP_OTHER = 1 << 6,      /* what BERT removes: control, format, private use, U+FFFD */
    PROP_SPACE = 1 << 7,      /* White_Space */
    PROP_CLUSTER = 8,         /* shift: 4 bits, a cluster_class */
    PROP_INCB_EXTEND = 1 << 12,
    PROP_INCB_LINKER = 1 << 13,
    PROP_UPPER = 1 << 14, /* has a lower case */
};

/* Grapheme_Cluster_Break, with the two that other properties add. */
typedef enum cluster_class {
    CLUSTER_ANY,
    CLUSTER_CR,
    CLUSTER_CONTROL,
    CLUSTER_EXTEND,
    CLUSTER_PICTOGRAPHIC,
    CLUSTER_CONSONANT,
    CLUSTER_L,
    CLUSTER_LF,
    CLUSTER_LV,
    CLUSTER_LVT,
    CLUSTER_PREPEND,
    CLUSTER_REGIONAL,
    CLUSTER_SPACING,
    CLUSTER_T,
    CLUSTER_V,
    CLUSTER_ZWJ
} cluster_class;

typedef struct norm_lower_run {
    uint32_t first, last;
    int16_t step;
    int32_t delta;
} norm_lower_run;

extern const uint8_t norm_index[], norm_block[];
extern const uint16_t norm_props_of[];

/* The PROP_ bits of a code point below 0x110000. */
static inline unsigned norm_props(uint32_t cp) {
    return norm_props_of[norm_block[norm_index[cp >> 7] << 7 | (cp & 127)]];
}
/* Writes the lower case of a character that has PROP_UPPER; returns how many characters (1, 2). */
int norm_lower_of(uint32_t cp, uint32_t out[2]);
/* End of the grapheme cluster that begins at i < n; one begins at 0 and where another ends. Valid
 * UTF-8. */
size_t cluster_end(const char *s, size_t n, size_t i);

#endif
