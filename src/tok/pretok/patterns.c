/* The published patterns: how they are written, and what matches them.
 *
 * Two tables. PATTERNS has every spelling in use of a pattern that has a hand-written matcher;
 * PRETOK_NAMED has the published pre-tokenizers by name as chains of patterns. A pattern that is
 * not in the first table runs in the general engine, with the same result and more time. */
#include <string.h>

#include "tok/internal.h"
#include "tok/pretok/match.h"

/* Pieces that the patterns share. */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define FOLDED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define FOLDED_SHORT "'(?i:[sdmt]|ll|ve|re)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define SPACE "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(number) FOLDED "|" WORD number "|" SYMBOLS SPACE
/* As in tiktoken's sources, with possessive quantifiers. */
#define TIKTOKEN(number)                                                                           \
    FOLDED_SHORT "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|" number                                        \
                 "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"
#define NANOCHAT(number)                                                                           \
    FOLDED_SHORT "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|" number                                         \
                 "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define CASED(suffix)                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"     \
    "+" suffix "|"                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"     \
    "*" suffix "|"
#define CASED_REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACE
#define NOT_HAN(set) "[" set "&&[^\\p{Han}]]"
#define KIMI_A NOT_HAN("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}")
#define KIMI_B NOT_HAN("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}")
#define KIMI                                                                                       \
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_A "*" KIMI_B "+" FOLDED "?|"                         \
    "[^\\r\\n\\p{L}\\p{N}]?" KIMI_A "+" KIMI_B "*" FOLDED "?|\\p{N}{1,3}|" SYMBOLS SPACE
#define DEEPSEEK(cr, lf)                                                                           \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^" cr lf                               \
    "\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[" cr lf "]*|\\s*[" cr lf                \
    "]+|\\s+(?!\\S)|\\s+"
#define KANA "[一-龥぀-ゟ゠-ヿ]+"
#define BLOOM " ?[^(\\s|[.,!?…。，、।۔،])]+"
#define QWEN35                                                                                     \
    FOLDED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "                                       \
           "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACE

const char *const PRETOK_GPT2_REGEX = GPT2;

typedef struct spelling {
    const char *regex;
    pretok_end_fn *end;
    pretok_find_fn *find; /* instead of `end` where matches leave gaps */
} spelling;

static const spelling PATTERNS[] = {
    {GPT2, pretok_gpt2_end, NULL},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?[\\p{L}]+| ?[\\p{N}]+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     pretok_gpt2_end, NULL},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     pretok_gpt2_end, NULL},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     pretok_gpt2_end, NULL},
    {CL100K("\\p{N}{1,3}"), pretok_cl100k_end, NULL},
    {CL100K("\\p{N}{1,2}"), match_cl100k_2_end, NULL},
    {CL100K("\\p{N}"), match_cl100k_1_end, NULL},
    {CL100K("\\p{N}+"), match_cl100k_all_end, NULL},
    {WORD "\\p{N}|" SYMBOLS SPACE, match_cl100k_plain_end, NULL},
    {NANOCHAT("\\p{N}{1,3}"), pretok_cl100k_end, NULL},
    {NANOCHAT("\\p{N}{1,2}"), match_cl100k_2_end, NULL},
    {NANOCHAT("\\p{N}"), match_cl100k_1_end, NULL},
    {FOLDED_SHORT "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
                  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     pretok_cl100k_end, NULL},
    /* `{1,3}+` repeats the group; tiktoken, whose Rust library reads it as possessive, means {1,3}. */
    {TIKTOKEN("\\p{N}{1,3}"), match_tiktoken_end, NULL},
    {TIKTOKEN("\\p{N}{1,3}+"), match_tiktoken_all_end, NULL},
    {QWEN35, match_qwen35_end, NULL},
    {CASED(FOLDED "?") "\\p{N}{1,3}|" CASED_REST, match_o200k_end, NULL},
    {CASED(FOLDED "?") "\\p{N}|" CASED_REST, match_o200k_1_end, NULL},
    {CASED("") "\\p{N}|" CASED_REST, match_o200k_plain_end, NULL},
    {KIMI, match_kimi_end, NULL},
    {DEEPSEEK("\r", "\n"), NULL, match_deepseek_find},
    {DEEPSEEK("\\r", "\\n"), NULL, match_deepseek_find},
    {KANA, NULL, match_kana_find},
    {BLOOM, NULL, match_bloom_find},
    {"\\p{N}", NULL, match_n_1_find},
    {"\\p{N}{1}", NULL, match_n_1_find},
    {"\\p{N}{1,2}", NULL, match_n_2_find},
    {"\\p{N}{1,3}", NULL, match_n_3_find},
    {"\\p{N}+", NULL, match_n_find},
};

/* ---- by name ---- */

#define REGEX(text)                                                                                \
    { PRETOK_PART_REGEX, text }
#define DIGITS                                                                                     \
    { PRETOK_PART_DIGITS, NULL }
/* \p{Ll}\p{Lu} of an older Unicode, as DeepSeek has it. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-"        \
    "\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"  \
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-"        \
    "\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-" \
    "\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"        \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-"       \
    "\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-"         \
    "\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-"        \
    "\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"         \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-"         \
    "\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"         \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}"         \
    "\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"        \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-"       \
    "\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-"            \
    "\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-"         \
    "\\x{1E943}"
#define EAST_ASIAN "[一-龥\\x{800}-一가-\\x{D7FF}]+"
#define JAIS2_SPACE                                                                                \
    "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|" \
    "\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"

const pretok_named PRETOK_NAMED[] = {
    {"gpt2 gpt-2 r50k p50k codegen phi phi-2 gpt-neox olmo mpt jais trillion granite-docling "
     "gigachat jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe a.x-4.0 "
     "mellum modern-bert exaone4",
     1,
     {REGEX(GPT2)}},
    {"llama3 dolma2 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx "
     "smaug-bpe glm4 chatglm-bpe",
     1,
     {REGEX(CL100K("\\p{N}{1,3}"))}},
    {"cl100k", 1, {REGEX(TIKTOKEN("\\p{N}{1,3}"))}},
    {"nanochat", 1, {REGEX(NANOCHAT("\\p{N}{1,2}"))}},
    {"qwen2 stablelm2 hunyuan solar-open deepseek-r1-qwen kormo f2llmv2 megrez grok-2",
     1,
     {REGEX(CL100K("\\p{N}"))}},
    {"bailingmoe bailingmoe2 llada-moe", 1, {REGEX(NANOCHAT("\\p{N}"))}},
    {"qwen35", 1, {REGEX(QWEN35)}},
    {"ufakzeka", 1, {REGEX(WORD "\\p{N}|" SYMBOLS SPACE)}},
    {"minicpm5", 2, {REGEX("\\p{N}{1,3}"), REGEX(CL100K("\\p{N}+"))}},
    {"laguna", 2, {REGEX("[^\\n]+|[\\n]+"), REGEX(CL100K("\\p{N}"))}},
    {"seed-coder", 1, {REGEX(FOLDED "|" WORD "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACE)}},
    {"jais-2", 1, {REGEX(FOLDED "|" WORD "\\p{N}{1,3}|" SYMBOLS JAIS2_SPACE)}},
    {"exaone-moe",
     1,
     {REGEX(FOLDED "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| "
                   "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+")}},
    {"o200k gpt-4o llama4 kanana2 talkie minimax-m2",
     1,
     {REGEX(CASED(FOLDED "?") "\\p{N}{1,3}|" CASED_REST)}},
    {"tiny_aya cohere2moe",
     2,
     {REGEX("\\d{1,3}(?=(?:\\d{3})*\\b)"), REGEX(CASED(FOLDED "?") "\\p{N}{1,3}|" CASED_REST)}},
    {"youtu",
     2,
     {REGEX("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-"
            "龥\\x{"
            "3040}"
            "-"
            "ゟ゠-"
            "ヿ]"
            "+"),
      REGEX(CASED(FOLDED "?") "\\p{N}|" CASED_REST)}},
    {"tekken mistral-nemo", 1, {REGEX(CASED("") "\\p{N}|" CASED_REST)}},
    {"kimi-k2", 1, {REGEX(KIMI)}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
     2,
     {DIGITS, REGEX(GPT2)}},
    {"deepseek-v3 deepseek3 hunyuan-dense hy_v4 joyai-llm",
     3,
     {REGEX("\\p{N}{1,3}"), REGEX(KANA), REGEX(DEEPSEEK("\r", "\n"))}},
    {"deepseek-coder",
     5,
     {REGEX("[\r\n]"), REGEX("\\s?\\p{L}+"), REGEX("\\s?\\p{P}+"), REGEX(EAST_ASIAN), DIGITS}},
    {"deepseek-llm",
     6,
     {REGEX("[\r\n]"),
      REGEX("\\s?[" CASED_LETTERS "]+"),
      REGEX("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
      REGEX("\\s+$"),
      REGEX(EAST_ASIAN),
      {PRETOK_PART_DIGIT_RUNS, NULL}}},
    {"falcon",
     4,
     {{PRETOK_PART_PUNCT_RUNS, NULL},
      REGEX(GPT2),
      {PRETOK_PART_DIGIT_RUNS, NULL},
      REGEX("[0-9][0-9][0-9]")}},
    {"bloom poro-chat gpt3-finnish", 1, {REGEX(BLOOM)}},
    {"viking", 2, {REGEX(BLOOM), DIGITS}},
    {"superbpe", 2, {REGEX("\\p{N}+"), REGEX("(?=(\\d{3})+(?!\\d))")}},
};
const int PRETOK_NAMED_N = ARRAY_LEN(PRETOK_NAMED);

const pretok_named *pretok_by_name(const char *name) {
    for (int i = 0; i < PRETOK_NAMED_N; i++) {
        if (tok_words_have(PRETOK_NAMED[i].names, name)) return &PRETOK_NAMED[i];
    }
    return NULL;
}

status pretok_step_part(pretok_step *s, const pretok_part *part, err *e) {
    *s = (pretok_step){.kind = PRETOK_FIND, .find = pretok_find_number};
    switch (part->kind) {
        case PRETOK_PART_REGEX: return pretok_step_regex(s, part->regex, e);
        case PRETOK_PART_DIGITS: break;
        case PRETOK_PART_DIGIT_RUNS: s->behavior = PRETOK_CONTIGUOUS; break;
        case PRETOK_PART_PUNCT_RUNS:
            s->find = pretok_find_punct;
            s->behavior = PRETOK_CONTIGUOUS;
            break;
    }
    return ST_OK;
}

status pretok_step_regex(pretok_step *s, const char *regex, err *e) {
    *s = (pretok_step){.kind = PRETOK_REGEX};
    for (int i = 0; i < ARRAY_LEN(PATTERNS); i++) {
        const spelling *p = &PATTERNS[i];
        if (strcmp(p->regex, regex) != 0) continue;
        s->kind = p->end ? PRETOK_COVER : PRETOK_FIND;
        s->end = p->end;
        s->find = p->find;
        return ST_OK;
    }
    return pretok_regex_compile(&s->regex, regex, e);
}

void pretok_step_free(pretok_step *s) {
    if (s->kind == PRETOK_REGEX) pretok_regex_free(s->regex);
    s->regex = NULL;
}
